// One state onto the page, section by section. Only text nodes are written: what the engine, the
// manifest or a file name says can never become markup.

import { Plot } from "./plot.js";
import { answer, explanation, latencyBadge, verdict } from "./verdict.js";
import { UNKNOWN, count, duration, percent, reason, timeOfDay, tokens, tokensPerSecond } from "./words.js";

const byId = (id) => document.getElementById(id);

// Writing only what has changed keeps a selection and a screen reader's place.
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function mark(element, [kind, text]) {
  element.dataset.kind = kind;
  say(element, text);
}

const setText = (id, text) => say(byId(id), text || UNKNOWN);

const kvUsed = ({ kv_free_ratio: free }) => (Number.isFinite(free) ? 1 - free : null);

const plotAt = (id, options) => new Plot(byId(id), options);
const plots = {
  ttft: plotAt("ttft-plot", { name: "TTFT", write: duration, series: [{ read: (point) => point.ttft_s, name: "TTFT" }] }),
  tpot: plotAt("tpot-plot", { name: "TPOT", write: duration, series: [{ read: (point) => point.tpot_s, name: "TPOT" }] }),
  chunk: plotAt("chunk-plot", {
    name: "Chunk size",
    write: tokens,
    tick: count,
    unit: "tokens",
    series: [{ read: (point) => point.chunk_tokens, name: "chunk", isStep: true }],
  }),
  demand: plotAt("demand-plot", {
    name: "Demand and capacity",
    write: tokensPerSecond,
    tick: count,
    unit: "tokens/s",
    series: [
      { read: (point) => point.capacity_tokens_per_s, name: "capacity" },
      { read: (point) => point.demand_tokens_per_s, name: "demand" },
    ],
  }),
  requests: plotAt("requests-plot", {
    name: "Requests",
    write: count,
    unit: "requests",
    series: [
      { read: (point) => point.num_running, name: "running", isStep: true },
      { read: (point) => point.num_waiting, name: "waiting", isStep: true },
      { read: (point) => point.num_held, name: "held", isStep: true },
    ],
  }),
  kv: plotAt("kv-plot", { name: "KV memory", write: percent, top: 1, series: [{ read: kvUsed, name: "in use" }] }),
};

export function showState(state) {
  showHead(state);
  showVerdict(state);
  showLatency("ttft", state);
  showLatency("tpot", state);
  showChunk(state);
  showDemand(state);
  showRequests(state);
  showStages(state);
  showControl(state);
  showDecisions(state.decisions);
}

function notice(id, text) {
  byId(id).hidden = !text;
  say(byId(id), text);
}

function showHead({ control, connection, engine, version }) {
  const name = control.resource_name || "PipelineServe";
  setText("name", name);
  document.title = name === "PipelineServe" ? name : `${name} · PipelineServe`;
  setText("engine", engine
    ? `${engine.name} ${engine.version} · ${engine.num_stages} ${engine.num_stages === 1 ? "stage" : "stages"}, ${engine.num_slots} micro-batches in flight`
    : "no engine connected yet");
  setText("versions", `sidecar ${version}`);
  notice("unconnected", connection.is_connected ? ""
    : `The engine is not connected since ${timeOfDay(connection.since_unix_s)}: ${connection.problem}`);
  notice("inactive", engine?.inactive_reason
    ? `The engine serves by its own rules, since it cannot be controlled: ${engine.inactive_reason}` : "");
  notice("refused", control.refused_edit && `An edit was refused and the earlier targets stay: ${control.refused_edit}`);
}

const MODES = { Active: ["good", "Active"], Advisory: ["warn", "Advisory: nothing is sent"], Paused: ["warn", "Paused: nothing is decided"] };

function showVerdict(state) {
  const { kind, words } = verdict(state);
  mark(byId("verdict"), [kind, words]);
  setText("verdict-more", explanation(state));
  mark(byId("slo-met"), answer(state.slo.met));
  mark(byId("slo-feasible"), answer(state.slo.feasible));
  setText("attainment", percent(state.slo.attainment_ratio));
  mark(byId("mode"), MODES[state.control.mode] ?? ["unknown", state.control.mode]);
  const lease = state.control.lease_left_s;
  setText("lease", lease === 0 ? "none" : lease === null ? UNKNOWN : `${lease.toFixed(1)} s left`);
}

function showLatency(id, state) {
  const latency = state[id];
  const part = (name) => byId(id).querySelector(`[data-part="${name}"]`);
  mark(part("badge"), latencyBadge(latency));
  say(part("measured"), duration(latency.measured_s));
  const target = latency.target_s === null ? "" : `, target ${duration(latency.target_s)}`;
  say(part("target"), `P${latency.percentile}${target}`);
  for (const name of ["p50", "p90", "p99"]) say(part(name), duration(latency[`${name}_s`]));
  say(part("requests"), count(latency.num_requests));
  plots[id].show(state.history, state.now_unix_s, latency.target_s);
}

function showChunk({ chunk, history, now_unix_s }) {
  setText("chunk", tokens(chunk.chunk_tokens));
  say(byId("chunk-reason"), chunk.chunk_tokens === null ? "" : reason(chunk.reason));
  setText("chunk-policy", chunk.in_use && chunk.in_use !== chunk.policy ? `${chunk.policy}, now ${chunk.in_use}` : chunk.policy);
  // Sizes are above 0 once there are targets.
  setText("chunk-range", chunk.max_tokens > 0 ? `${count(chunk.min_tokens)} to ${tokens(chunk.max_tokens)}` : UNKNOWN);
  setText("chunk-static", chunk.static_tokens > 0 ? tokens(chunk.static_tokens) : UNKNOWN);
  plots.chunk.show(history, now_unix_s);
}

function showDemand({ load, history, now_unix_s }) {
  const { demand_tokens_per_s: demand, capacity_tokens_per_s: capacity } = load;
  const isKnown = Number.isFinite(demand) && capacity > 0;
  setText("demand-share", isKnown ? percent(demand / capacity) : UNKNOWN);
  say(byId("demand-words"), isKnown ? "of what the present chunk can serve is asked for" : "");
  setText("demand", tokensPerSecond(demand));
  setText("capacity", tokensPerSecond(capacity));
  plots.demand.show(history, now_unix_s);
}

function asked(wanted, inUse) {
  const words = inUse.replaceAll("_", " ");
  return inUse && words.replaceAll(" ", "") !== wanted.toLowerCase() ? `${wanted}, now ${words}` : wanted;
}

function showRequests({ load, control, history, now_unix_s }) {
  setText("waiting", count(load.num_waiting));
  setText("running", count(load.num_running));
  setText("held", count(load.num_held));
  setText("waiting-tokens", tokens(load.waiting_tokens));
  setText("oldest-wait", load.num_waiting === 0 ? "nobody waits" : duration(load.oldest_wait_s));
  setText("decoding", count(load.num_decoding));
  setText("order", asked(control.order, control.order_in_use));
  setText("holding", asked(control.holding, control.holding_in_use));
  plots.requests.show(history, now_unix_s);
}

function bar(name, ratio) {
  const row = document.createElement("li");
  row.className = "bar-row";
  const parts = ["bar-name", "bar", "bar-value"].map((className) => {
    const span = row.appendChild(document.createElement("span"));
    span.className = className;
    return span;
  });
  parts[0].textContent = name;
  parts[1].appendChild(document.createElement("span"));
  parts[2].textContent = percent(ratio);
  return row;
}

function fill(element, ratio) {
  element.style.width = Number.isFinite(ratio) ? `${Math.min(1, Math.max(0, ratio)) * 100}%` : "0";
}

function showStages({ load, engine, history, now_unix_s }) {
  const list = byId("bubbles");
  const ratios = load.bubble_ratio_per_stage;
  if (list.querySelectorAll(".bar").length !== ratios.length) {
    list.replaceChildren(...ratios.map((ratio, index) => bar(`stage ${index}`, ratio)));
  }
  ratios.forEach((ratio, index) => {
    fill(list.children[index].querySelector(".bar > span"), ratio);
    say(list.children[index].querySelector(".bar-value"), percent(ratio));
  });
  if (ratios.length === 0) say(list, UNKNOWN);
  const used = kvUsed(load);
  fill(byId("kv-fill"), used);
  setText("kv", percent(used));
  // An engine that cannot be controlled does not say; none has room for nothing.
  setText("kv-tokens", tokens(engine?.kv_tokens || null));
  plots.kv.show(history, now_unix_s);
}

function inForce({ is_effective, is_superseded }, engine) {
  if (is_effective) return "this controller's";
  if (engine?.inactive_reason) return "none: the engine goes by its own rules";
  if (is_superseded) return "a later controller's, which this one yields to";
  return "the engine's own, with the static chunk";
}

function showControl({ control, connection, engine, freshness, model, now_unix_s }) {
  setText("effective", inForce(control, engine));
  const since = `since ${timeOfDay(connection.since_unix_s)}`;
  setText("connection", `${connection.is_connected ? "connected" : "not connected"} ${since}`);
  const age = freshness.age_s === null ? "never heard" : `${duration(freshness.age_s)} old`;
  setText("freshness", freshness.is_fresh ? `fresh, ${age}` : `not fresh (${age}): ${reason(freshness.reason)}`);
  setText("lost-records", `${count(freshness.num_lost)}, refused ${count(freshness.num_refused)}`);
  setText("differences", freshness.num_differences === 0 ? "no difference" : freshness.differences.join("; "));
  setText("model", `${model.is_ready ? "ready" : "not ready"}, ${count(model.num_samples)} samples: ${reason(model.reason)}`);
  setText("model-error", model.spread_ratio === null ? UNKNOWN
    : `${model.feedback_ratio >= 1 ? "+" : ""}${percent(model.feedback_ratio - 1)} ± ${percent(model.spread_ratio)}`);
  setText("source", `${control.source || UNKNOWN}, generation ${count(control.generation)}`);
}

function cell(text) {
  const element = document.createElement("td");
  element.textContent = text;
  return element;
}

function decisionRow(decision) {
  const row = document.createElement("tr");
  row.append(
    cell(timeOfDay(decision.at_unix_s)),
    cell(decision.summary),
    cell(reason(decision.reason)),
    cell(decision.facts.map(([name, value]) => `${name} ${value}`).join(", ")),
    cell(decision.is_sent ? "sent" : "not sent"),
  );
  return row;
}

let shownDecisions = "";

function showDecisions(decisions) {
  const wanted = JSON.stringify(decisions);
  if (wanted === shownDecisions || decisions.length === 0) return;
  shownDecisions = wanted;
  byId("decisions").replaceChildren(...decisions.map(decisionRow));
}
