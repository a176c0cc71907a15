// Server-sent events that never give up: the browser's own reconnection ends on some errors and does
// not notice a server that has gone silent, so a failed or silent stream is opened anew from here.

const SILENCE_MS = 5000;
const RETRY_MS = 2000;
const CHECK_MS = 1000;

// `onState(state)` for each event named `state`. `onLink(lostSinceMs)` whenever it was looked after: null while
// states come in, else since when none did. Neither is called before there is something to say.
export function follow(url, onState, onLink) {
  let source = null;
  let openedAtMs = Date.now();
  let heardAtMs = Date.now();
  let isLost = false;
  let isHeard = false;

  function open() {
    source?.close();
    openedAtMs = Date.now();
    source = new EventSource(url);
    source.addEventListener("state", (event) => {
      heardAtMs = Date.now();
      isLost = false;
      isHeard = true;
      onState(JSON.parse(event.data));
      onLink(null);
    });
    source.onerror = () => {
      source.close();
      isLost = true;
      onLink(heardAtMs);
    };
  }

  function check() {
    const nowMs = Date.now();
    isLost ||= nowMs - heardAtMs > SILENCE_MS;
    const patienceMs = source.readyState === EventSource.CLOSED ? RETRY_MS : SILENCE_MS;
    if (isLost && nowMs - openedAtMs >= patienceMs) open();
    if (isLost) onLink(heardAtMs);
    else if (isHeard) onLink(null);
  }

  open();
  setInterval(check, CHECK_MS);
}
