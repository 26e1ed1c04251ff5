// One chart: lines over time on one axis with one unit. Pointer or arrow keys move a cross over all charts at once.

const HEIGHT = 176;
const EDGE = { left: 44, right: 8, top: 8, bottom: 22 };
const charts = [];

class Chart {
  /**
   * lines: [{ key, label, tone, style: "line" | "dash" | "area", optional }]; one that is optional has no place in the
   * legend while nothing is known of it. most: the top of the axis where that is fixed.
   */
  constructor({ id, title, unit, lines, show, most }) {
    Object.assign(this, { id, title, unit, lines, show, most, at: [], series: {}, from: 0, until: 1, cross: null });
    this.values = lines.map(() => el("b", {}, "?"));
    this.names = lines.map((line, index) => el("span", {}, swatch(line), `${line.label} `, this.values[index]));
    const legend = el("div", { class: "legend" }, ...this.names);
    this.svg = svg("svg", { "aria-hidden": "true" });
    this.nothing = el("div", { class: "nothing" }, "Nothing yet");
    this.plot = el("div", { class: "plot", tabindex: "0", role: "img", id: `plot-${id}` }, this.svg, this.nothing);
    this.figure = el("figure", { class: "chart", id: `chart-${id}` }, el("figcaption", {}, el("h3", {}, title), legend), this.plot);
    this.plot.addEventListener("pointermove", (event) => pointAll(this.timeAt(event.offsetX)));
    this.plot.addEventListener("pointerleave", () => pointAll(null));
    this.plot.addEventListener("blur", () => pointAll(null));
    this.plot.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.draw()).observe(this.plot);
    charts.push(this);
  }

  set(at, series, from, until) {
    Object.assign(this, { at, series, from, until });
    this.draw();
  }

  get width() { return Math.max(this.plot.clientWidth, 120); }
  x(time) { return EDGE.left + ((time - this.from) / (this.until - this.from)) * (this.width - EDGE.left - EDGE.right); }
  y(value) { return HEIGHT - EDGE.bottom - (value / this.top) * (HEIGHT - EDGE.top - EDGE.bottom); }
  timeAt(x) { return this.from + ((x - EDGE.left) / (this.width - EDGE.left - EDGE.right)) * (this.until - this.from); }
  of(line) { return this.series[line.key] ?? []; }

  draw() {
    this.lines.forEach((line, index) => { this.names[index].hidden = line.optional === true && !this.of(line).some(known); });
    const seen = this.lines.flatMap((line) => this.of(line)).filter(known);
    this.nothing.hidden = seen.length > 0;
    this.ticks = scale(this.most ?? Math.max(...seen, 0));
    this.top = this.ticks.at(-1) || 1;
    this.svg.replaceChildren(...this.axes(), ...this.lines.flatMap((line) => this.shapes(line)));
    this.point(this.cross);
    this.describe();
  }

  axes() {
    const made = [];
    for (const tick of this.ticks) {
      const y = Math.round(this.y(tick));
      made.push(svg("line", { class: "grid", x1: EDGE.left, x2: this.width - EDGE.right, y1: y, y2: y }));
      made.push(label(EDGE.left - 7, y + 4, "end", this.show(tick)));
    }
    for (const time of times(this.from, this.until, this.width)) made.push(label(this.x(time), HEIGHT - 5, "middle", clock(time)));
    return made;
  }

  /** Paths of one line; where nothing was known, or the proxy was away, there is a gap. */
  shapes(line) {
    const values = this.of(line);
    const gap = 3.5 * Math.max((this.until - this.from) / 360, 10);
    const runs = [[]];
    this.at.forEach((time, index) => {
      const last = runs.at(-1);
      if (!known(values[index]) || (last.length && time - last.at(-1)[2] > gap)) runs.push([]);
      if (known(values[index])) runs.at(-1).push([this.x(time).toFixed(1), this.y(Math.min(values[index], this.top)).toFixed(1), time]);
    });
    const full = runs.filter((run) => run.length);
    const path = full.map((run) => (run.length === 1 ? `M${run[0][0]},${run[0][1]}h.1` : `M${run.map(([x, y]) => `${x},${y}`).join("L")}`)).join("");
    const made = [svg("path", { class: stroke(line), d: path, "data-line": line.key })];
    if (line.style === "area") {
      const floor = this.y(0);
      const area = full.map((run) => `M${run[0][0]},${floor}L${run.map(([x, y]) => `${x},${y}`).join("L")}L${run.at(-1)[0]},${floor}Z`).join("");
      made.unshift(svg("path", { class: `area ${line.tone}`, d: area }));
    }
    return made;
  }

  /** Put the cross at a time, null for none; the legend tells the values there, else the newest. */
  point(time) {
    this.cross = time;
    this.svg.querySelector(".cross")?.remove();
    let index = this.at.length - 1;
    if (time !== null && this.at.length) {
      index = nearest(this.at, time);
      const x = Math.round(this.x(this.at[index]));
      this.svg.append(svg("line", { class: "cross", x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom }));
    }
    this.lines.forEach((line, number) => say(this.values[number], this.show(this.of(line)[index])));
    return index;
  }

  onKey(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") return pointAll(null);
    if (!(event.key in steps) || !this.at.length) return;
    event.preventDefault();
    const now = this.cross === null ? this.at.length - 1 : nearest(this.at, this.cross);
    pointAll(this.at[Math.min(Math.max(now + steps[event.key], 0), this.at.length - 1)]);
    this.describe();
  }

  /** Say in words what the picture shows. */
  describe() {
    const index = this.cross === null ? this.at.length - 1 : nearest(this.at, this.cross);
    const told = this.lines.filter((_, number) => !this.names[number].hidden).map((line) => `${line.label} ${this.show(this.of(line)[index])}`).join(", ");
    const when = this.cross === null ? "now" : `at ${clock(this.at[index], true)}`;
    this.plot.setAttribute("aria-label", `${this.title}, ${this.unit}, ${when}: ${told}. Arrow keys go back in time.`);
  }
}

function pointAll(time) {
  charts.forEach((chart) => chart.point(time === null ? null : Math.min(Math.max(time, chart.from), chart.until)));
}

function nearest(sorted, wanted) {
  let low = 0;
  let high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - sorted[low - 1] < sorted[low] - wanted ? low - 1 : low;
}

/** Round ticks from 0 to at least `most`. */
function scale(most) {
  if (!(most > 0)) return [0, 1];
  const raw = most / 3;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 2.5, 5, 10].find((factor) => factor * unit >= raw * 0.999);
  const ticks = [0];
  while (ticks.at(-1) < most * 0.999) ticks.push(ticks.length * step);
  return ticks;
}

function times(from, until, width) {
  const wanted = (until - from) / Math.max(2, Math.floor(width / 90));
  const step = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600].find((one) => one >= wanted) ?? 43200;
  const shift = new Date(1000 * from).getTimezoneOffset() * 60;
  const made = [];
  for (let time = Math.ceil((from - shift) / step) * step + shift; time <= until - step / 12; time += step) made.push(time);
  return made;
}

function label(x, y, anchor, text) {
  const made = svg("text", { x, y, "text-anchor": anchor });
  made.textContent = text;
  return made;
}

const stroke = (line) => `line ${line.style === "dash" ? "dash" : ""} ${line.tone}`;

function swatch(line) {
  const made = svg("svg", { viewBox: "0 0 20 8", "aria-hidden": "true" });
  if (line.style === "area") made.append(svg("rect", { class: `area ${line.tone}`, width: 20, height: 8, rx: 2 }));
  made.append(svg("path", { class: stroke(line), d: "M1,4H19" }));
  return made;
}
