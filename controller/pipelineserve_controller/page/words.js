// Figures as text, each with its unit. What is not known is a dash, never 0.

export const UNKNOWN = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

const known = (value, write) => (Number.isFinite(value) ? write(value) : UNKNOWN);

// At most three digits that matter, so that a figure does not flicker behind its decimals.
export function duration(seconds) {
  return known(seconds, (value) => {
    if (value >= 600) return `${whole.format(value / 60)} min`;
    if (value >= 100) return `${value.toFixed(0)} s`;
    if (value >= 10) return `${value.toFixed(1)} s`;
    if (value >= 1) return `${value.toFixed(2)} s`;
    const ms = value * 1000;
    return `${ms >= 10 || ms === 0 ? ms.toFixed(0) : ms.toFixed(1)} ms`;
  });
}

// A span that someone has set, so that it is a round number.
export const span = (seconds) => known(seconds, (value) => (value % 60 === 0 ? `${value / 60} min` : duration(value)));
export const count = (value) => known(value, whole.format);
export const tokens = (value) => known(value, (number) => `${whole.format(number)} ${number === 1 ? "token" : "tokens"}`);
export const tokensPerSecond = (value) => known(value, (number) => `${whole.format(number)} tokens/s`);
export const percent = (ratio) => known(ratio, (value) => `${(value * 100).toFixed(0)} %`);
export const timeOfDay = (unixSeconds) => known(unixSeconds, (value) => clock.format(value * 1000));

let reasonTexts = null;

// Asked for with each state until it is there, so that a failure mends itself.
export async function loadReasons() {
  if (reasonTexts !== null) return;
  const answer = await fetch("page/reasons.json");
  if (answer.ok) reasonTexts = await answer.json();
}

// A newer sidecar may know reasons that this copy of the page does not.
export const reason = (name) => (name ? (reasonTexts?.[name] ?? name.replaceAll("_", " ")) : "");
