// A small history plot in SVG: lines over the last five minutes, gaps where nothing was known.

import { timeOfDay } from "./words.js";

const SPAN_S = 300;
const MARGIN = { left: 58, right: 8, top: 20, bottom: 18 };
const LEAST_WIDTH_FOR_ALL_MINUTES = 400;
// Two points further apart than this are not joined: nobody knows what lay between.
const MOST_GAP_S = 5;

function add(parent, name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

// The next round number above, so that the scale reads well and rarely jumps.
function niceCeiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10].map((factor) => factor * power).find((bound) => bound >= value * 1.0001);
}

export class Plot {
  // `series`: [{read, name, isStep}], drawn in the colours 1, 2, 3, `read` takes a point of the
  // history; `write`: a value with its unit; `tick`: a value on the axis, with `unit` above it.
  constructor(figure, { series, write, name, tick = write, unit = "", top = null }) {
    Object.assign(this, { series, write, name, tick, unit, fixedTop: top });
    Object.assign(this, { points: [], nowS: 0, target: null, pointerX: null });
    this.svg = add(figure, "svg", { role: "img", "aria-label": `${name}: no data` });
    this.caption = figure.appendChild(document.createElement("figcaption"));
    this.svg.addEventListener("pointermove", (event) => this.pointAt(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.pointAt(null));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  show(points, nowS, target = null) {
    Object.assign(this, { points, nowS, target });
    this.draw();
  }

  pointAt(x) {
    this.pointerX = x;
    this.draw();
  }

  draw() {
    const box = this.svg.getBoundingClientRect();
    if (box.width === 0) return;
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    this.right = box.width - MARGIN.right;
    this.bottom = box.height - MARGIN.bottom;
    const values = this.series.flatMap(({ read }) => this.points.map(read));
    this.top = this.fixedTop ?? niceCeiling(Math.max(0, ...values.filter(Number.isFinite), (this.target ?? 0) * 1.05));
    const isEmpty = !values.some(Number.isFinite);
    this.drawAxes(isEmpty);
    if (this.target !== null && !isEmpty) this.drawTarget();
    this.series.forEach((series, index) => this.drawLine(series, index + 1));
    this.drawCursorAndCaption(isEmpty);
  }

  x(atS) { return MARGIN.left + (1 - (this.nowS - atS) / SPAN_S) * (this.right - MARGIN.left); }
  y(value) { return this.bottom - (value / this.top) * (this.bottom - MARGIN.top); }

  drawAxes(isEmpty) {
    for (const share of [0, 0.5, 1]) {
      const y = this.bottom - share * (this.bottom - MARGIN.top);
      add(this.svg, "line", { class: "grid", x1: MARGIN.left, x2: this.right, y1: y, y2: y });
      const text = isEmpty ? "–" : share === 0 ? "0" : this.tick(this.top * share);
      add(this.svg, "text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, text);
    }
    add(this.svg, "text", { x: 0, y: 10 }, this.unit);
    const isWide = this.right >= LEAST_WIDTH_FOR_ALL_MINUTES;
    for (const minutes of isWide ? [5, 4, 3, 2, 1, 0] : [4, 2, 0]) {
      const anchor = minutes === 5 ? "start" : minutes === 0 ? "end" : "middle";
      const text = minutes === 0 ? "now" : `−${minutes} min`;
      add(this.svg, "text", { x: this.x(this.nowS - minutes * 60), y: this.bottom + 14, "text-anchor": anchor }, text);
    }
  }

  drawTarget() {
    const y = this.y(this.target);
    add(this.svg, "line", { class: "target", x1: MARGIN.left, x2: this.right, y1: y, y2: y });
    add(this.svg, "text", { class: "target-name", x: MARGIN.left + 4, y: y - 5 }, `target ${this.write(this.target)}`);
  }

  drawLine({ read, isStep }, colour) {
    let path = "";
    let last = null;
    for (const point of this.points) {
      const value = read(point);
      if (!Number.isFinite(value) || point.at_unix_s < this.nowS - SPAN_S) {
        last = null;
        continue;
      }
      const [x, y] = [this.x(point.at_unix_s).toFixed(1), this.y(value).toFixed(1)];
      const isJoined = last !== null && point.at_unix_s - last <= MOST_GAP_S;
      // A lone point shows as a dot: round caps draw a line of no length.
      path += isJoined ? (isStep ? `H${x}V${y}` : `L${x} ${y}`) : `M${x} ${y}h0`;
      last = point.at_unix_s;
    }
    if (path) add(this.svg, "path", { class: `line line-${colour}`, d: path });
  }

  drawCursorAndCaption(isEmpty) {
    const summary = isEmpty ? "no data yet" : this.summary();
    this.svg.setAttribute("aria-label", `${this.name}, last five minutes: ${summary}`);
    const point = this.pointerX === null ? null : this.nearest();
    if (point === null) {
      this.caption.textContent = summary;
      return;
    }
    const x = this.x(point.at_unix_s);
    add(this.svg, "line", { class: "cursor", x1: x, x2: x, y1: MARGIN.top, y2: this.bottom });
    const parts = this.series.map(({ read, name }) => `${name} ${this.write(read(point))}`);
    this.caption.textContent = `${timeOfDay(point.at_unix_s)}: ${parts.join(", ")}`;
  }

  nearest() {
    const distance = (point) => Math.abs(this.x(point.at_unix_s) - this.pointerX);
    return this.points.reduce((best, point) => (best && distance(best) <= distance(point) ? best : point), null);
  }

  summary() {
    return this.series.map(({ read, name }) => {
      const values = this.points.map(read).filter(Number.isFinite);
      if (values.length === 0) return `${name} –`;
      return `${name} ${this.write(Math.min(...values))} to ${this.write(Math.max(...values))}`;
    }).join(", ");
  }
}
