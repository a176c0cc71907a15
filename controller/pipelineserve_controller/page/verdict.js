// What matters most, in one sentence and one line of explanation.

import { percent, reason, span } from "./words.js";

const isMissed = ({ target_s, measured_s }) => Number.isFinite(target_s) && Number.isFinite(measured_s) && measured_s > target_s;
const hasTarget = ({ target_s }) => Number.isFinite(target_s);

function latencies(state) {
  return [["TTFT", state.ttft], ["TPOT", state.tpot]].filter(([, latency]) => hasTarget(latency));
}

function missedWords(state) {
  const missed = latencies(state).filter(([, latency]) => isMissed(latency)).map(([name]) => name);
  if (missed.length === 2) return "Both targets are missed";
  return missed.length === 1 ? `The ${missed[0]} target is missed` : "The targets are missed";
}

export function verdict(state) {
  const { slo } = state;
  const plural = latencies(state).length === 1 ? `The ${latencies(state)[0][0]} target is` : "Both targets are";
  if (slo.met === "yes") return { kind: "good", words: `${plural} met` };
  if (slo.met === "no") return { kind: "bad", words: missedWords(state) };
  return { kind: "unknown", words: "No verdict yet" };
}

const sentence = (words) => (words ? `${words[0].toUpperCase()}${words.slice(1)}.` : "");

export function explanation(state) {
  const { slo } = state;
  // A controller that has no targets yet has no window either.
  const parts = slo.window_s > 0 ? [`Judged over the last ${span(slo.window_s)}.`] : [];
  const isExplained = latencies(state).some(([, latency]) => isMissed(latency));
  if (slo.met !== "yes" && !isExplained) parts.push(sentence(reason(slo.met_reason)));
  if (slo.feasible === "no") {
    const both = latencies(state).length === 1 ? "the target cannot" : "they cannot both";
    parts.push(`At the present load ${both} hold: ${reason(slo.feasible_reason)}.`);
    if (slo.feasible_instead) parts.push(`Within reach: ${slo.feasible_instead}.`);
  } else if (slo.met === "no" && slo.feasible === "yes") {
    parts.push(`Within reach: ${reason(slo.feasible_reason)}.`);
  }
  return parts.join(" ");
}

const ANSWERS = { yes: ["good", "yes"], no: ["bad", "no"], unknown: ["unknown", "unknown"] };
export const answer = (value) => ANSWERS[value] ?? ["unknown", "–"];

export function latencyBadge(latency) {
  if (!hasTarget(latency)) return ["unknown", "no target"];
  if (!Number.isFinite(latency.measured_s)) return ["unknown", "no data"];
  const share = percent(latency.measured_s / latency.target_s);
  return isMissed(latency) ? ["bad", `missed, ${share} of target`] : ["good", `met, ${share} of target`];
}
