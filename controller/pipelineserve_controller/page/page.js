// Joins the stream of states to the page.

import { showState } from "./sections.js";
import { follow } from "./stream.js";
import { verdict } from "./verdict.js";
import { duration, loadReasons, timeOfDay } from "./words.js";

const live = document.getElementById("live");
const lost = document.getElementById("lost");
const announcer = document.getElementById("announcer");

let latest = null;
let isFrameDue = false;

// Only what has changed in words is announced; figures that move each second would never fall silent.
function announce(words) {
  if (announcer.textContent !== words) announcer.textContent = words;
}

function draw() {
  isFrameDue = false;
  showState(latest);
  if (!document.body.classList.contains("is-lost")) announce(verdict(latest).words);
}

async function onState(state) {
  latest = state;
  await loadReasons();
  if (!isFrameDue) requestAnimationFrame(draw);
  isFrameDue = true;
}

function onLink(lostSinceMs) {
  const isLost = lostSinceMs !== null;
  document.body.classList.toggle("is-lost", isLost);
  lost.hidden = !isLost;
  live.dataset.kind = isLost ? "bad" : "good";
  live.textContent = isLost ? "connection lost" : "live";
  if (!isLost) return;
  const since = `Connection lost since ${timeOfDay(lostSinceMs / 1000)}`;
  const figures = latest === null ? "There are no figures yet." : "These are the last figures.";
  lost.textContent = `${since} (${duration((Date.now() - lostSinceMs) / 1000)}). ${figures} Trying again.`;
  announce(since);
}

follow("api/events", onState, onLink);
