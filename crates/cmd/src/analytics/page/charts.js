// Charts on canvases: bands, lines, heat maps, and groups on their way to disk. No chart knows what it shows.
"use strict";

const KIB = 1024;

/** A number of bytes in words. */
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= KIB; at += 1; }
  return `${short(value)} ${units[at]}`;
}

/** A number in at most four characters, where it can be. */
function short(value) {
  if (value === 0) return "0";
  if (value >= 100) return String(Math.round(value));
  if (value >= 10) return String(Math.round(value * 10) / 10);
  return String(Math.round(value * 100) / 100);
}

function count(value) {
  const units = ["", " k", " M", " G", " T"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return short(value) + units[at];
}

function duration(ns) {
  if (ns < 1e3) return `${short(ns)} ns`;
  if (ns < 1e6) return `${short(ns / 1e3)} µs`;
  if (ns < 1e9) return `${short(ns / 1e6)} ms`;
  return `${short(ns / 1e9)} s`;
}

const FORMATS = {
  bytes, count,
  byteRate: (value) => `${bytes(value)}/s`,
  rate: (value) => `${count(value)}/s`,
};

/** The time of the day. */
function clock(seconds) {
  return new Date(seconds * 1000).toTimeString().slice(0, 8);
}

/** The day and the time of the day. */
function dateAndTime(seconds) {
  const at = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(seconds)}`;
}

/** The colours of the style sheet, asked for again when light turns to dark. */
const theme = {
  known: {},
  of(name) {
    this.known[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    return this.known[name];
  },
};

/** A canvas with axes, as large as its place, with a cursor that the pointer and the arrow keys move. */
class Plot {
  constructor(place, label) {
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", label);
    place.append(this.canvas);
    this.isVisible = false;
    this.cursor = null;
    this.paint = () => {};
    this.moved = () => {};
    new ResizeObserver(() => this.draw()).observe(place);
    new IntersectionObserver((entries) => {
      this.isVisible = entries.at(-1).isIntersecting;
      this.draw();
    }).observe(place);
    this.canvas.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.set(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** Draws now, if it can be seen. */
  draw() {
    if (!this.isVisible || document.hidden) return;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (width === 0 || height === 0) return;
    const scale = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
    }
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    pen.lineJoin = "round";
    this.area = { left: 4, top: 14, right: width - 4, bottom: height - 18 };
    this.paint(pen, this.area);
  }

  /** The times at both ends. */
  setTimes(from, to, step) {
    [this.from, this.to, this.step] = [from, to, step];
  }

  x(time) {
    return this.area.left + (this.area.right - this.area.left) * (time - this.from) / (this.to - this.from);
  }

  point(offset) {
    if (!this.area) return;
    const part = (offset - this.area.left) / (this.area.right - this.area.left);
    this.set(this.from + Math.min(1, Math.max(0, part)) * (this.to - this.from));
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    if (event.key === "Escape") return this.set(null);
    if (event.key === "Home") return this.set(this.from);
    if (!(event.key in steps) || this.from === undefined) return undefined;
    event.preventDefault();
    const next = (this.cursor ?? this.to) + steps[event.key] * this.step;
    return this.set(next >= this.to ? null : Math.max(this.from, next));
  }

  set(cursor) {
    this.cursor = cursor;
    this.moved(cursor);
    this.draw();
  }

  /** Lines for times, and their words. */
  drawTimes(pen) {
    const { left, right, top, bottom } = this.area;
    const span = this.to - this.from;
    const steps = [10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 345600, 604800];
    const from = span > 150 ? 3 : 0;
    const every = steps.slice(from).find((seconds) => (right - left) * seconds / span > 70) ?? 1209600;
    pen.fillStyle = theme.of("quiet");
    pen.strokeStyle = theme.of("grid");
    pen.lineWidth = 1;
    pen.textBaseline = "alphabetic";
    for (let ago = 0; ago <= span; ago += every) {
      const x = Math.round(this.x(this.to - ago)) - 0.5;
      pen.beginPath();
      pen.moveTo(x, top);
      pen.lineTo(x, bottom);
      pen.stroke();
      const [unit, word] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([seconds]) => every >= seconds);
      const text = ago === 0 ? "now" : `−${ago / unit} ${word}`;
      const width = pen.measureText(text).width;
      pen.textAlign = "left";
      pen.fillText(text, Math.min(right - width, Math.max(left, x - width / 2)), bottom + 13);
    }
  }

  drawCursor(pen) {
    if (this.cursor === null) return;
    const x = Math.round(this.x(this.cursor)) + 0.5;
    pen.strokeStyle = theme.of("text");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x, this.area.top);
    pen.lineTo(x, this.area.bottom);
    pen.stroke();
  }
}

/** The least of 1, 2, 2.5 and 5 times a power of ten (of bytes: of two) that is no less. */
function roundUp(value, isBytes) {
  if (value <= 0) return 1;
  const power = isBytes ? 2 ** Math.floor(Math.log2(value)) : 10 ** Math.floor(Math.log10(value));
  const step = (isBytes ? [1, 1.25, 1.5, 2] : [1, 1.5, 2, 2.5, 4, 5, 8, 10]).find((times) => times * power >= value);
  return step * power;
}

/** Draws series over time. `rows` are [time, values]; `series` say which value, which colour, and whether it is a band. */
function drawSeries(plot, pen, rows, series, format) {
  const { left, right, top, bottom } = plot.area;
  const shown = rows.filter(([time]) => time >= plot.from - plot.step && time <= plot.to + 1);
  const bands = series.filter((one) => one.isBand);
  const value = (row, one) => row[1][one.index] ?? 0;
  let most = 0;
  for (const row of shown) {
    most = Math.max(most, bands.reduce((sum, one) => sum + value(row, one), 0));
    for (const one of series) if (!one.isBand) most = Math.max(most, value(row, one));
  }
  const max = roundUp(most, format.startsWith("byte"));
  const y = (number) => bottom - (bottom - top) * number / max;
  plot.drawTimes(pen);
  for (const part of [0.5, 1]) {
    pen.strokeStyle = theme.of("grid");
    pen.beginPath();
    pen.moveTo(left, Math.round(y(max * part)) + 0.5);
    pen.lineTo(right, Math.round(y(max * part)) + 0.5);
    pen.stroke();
  }
  const runs = runsOf(shown, Math.max(6, plot.step * 3.5));
  for (const run of runs) drawBands(plot, pen, run, bands, value, y);
  for (const one of series.filter((other) => !other.isBand)) {
    pen.strokeStyle = theme.of(`s${one.color}`);
    pen.lineWidth = 1.8;
    pen.setLineDash(one.dash ?? []);
    for (const run of runs) {
      pen.beginPath();
      run.forEach((row, at) => pen[at === 0 ? "moveTo" : "lineTo"](plot.x(row[0]), y(value(row, one))));
      pen.stroke();
    }
    pen.setLineDash([]);
  }
  pen.textBaseline = "alphabetic";
  pen.textAlign = "left";
  for (const part of [0.5, 1]) {
    const text = FORMATS[format](max * part);
    pen.fillStyle = theme.of("panel");
    pen.globalAlpha = 0.75;
    pen.fillRect(left, y(max * part) - 13, pen.measureText(text).width + 6, 12);
    pen.globalAlpha = 1;
    pen.fillStyle = theme.of("quiet");
    pen.fillText(text, left + 2, y(max * part) - 3);
  }
  plot.drawCursor(pen);
}

/** Rows in pieces without gaps. */
function runsOf(rows, gap) {
  const runs = [];
  let last = null;
  for (const row of rows) {
    if (last === null || row[0] - last > gap) runs.push([]);
    runs.at(-1).push(row);
    last = row[0];
  }
  return runs;
}

function drawBands(plot, pen, run, bands, value, y) {
  const base = run.map(() => 0);
  for (const one of bands) {
    const upper = run.map((row, at) => base[at] + value(row, one));
    pen.beginPath();
    run.forEach((row, at) => pen[at === 0 ? "moveTo" : "lineTo"](plot.x(row[0]), y(upper[at])));
    for (let at = run.length - 1; at >= 0; at -= 1) pen.lineTo(plot.x(run[at][0]), y(base[at]));
    pen.closePath();
    pen.fillStyle = theme.of(`s${one.color}`);
    pen.fill();
    upper.forEach((number, at) => { base[at] = number; });
  }
}

/** Draws latencies: `columns` are [time, [bucket, count, ...]]; a bucket is the binary logarithm of nanoseconds. */
function drawHeat(plot, pen, columns, seconds) {
  const { left, top, bottom } = plot.area;
  const shown = columns.filter(([time]) => time + seconds > plot.from && time <= plot.to);
  let [low, high, most] = [Infinity, -Infinity, 1];
  for (const [, pairs] of shown) {
    for (let at = 0; at < pairs.length; at += 2) {
      [low, high, most] = [Math.min(low, pairs[at]), Math.max(high, pairs[at]), Math.max(most, pairs[at + 1])];
    }
  }
  const isEmpty = high < low;
  [low, high] = isEmpty ? [12, 24] : [Math.max(0, low - 1), high + 1];
  if (high - low < 8) [low, high] = [Math.max(0, low - 2), low + 7];
  const height = (bottom - top) / (high - low + 1);
  const y = (bucket) => bottom - (bucket - low + 1) * height;
  pen.fillStyle = theme.of("heat0");
  pen.fillRect(left, top, plot.area.right - left, bottom - top);
  plot.drawTimes(pen);
  const width = plot.x(plot.from + seconds) - plot.x(plot.from);
  for (const [time, pairs] of shown) {
    const x = Math.max(left, plot.x(time));
    for (let at = 0; at < pairs.length; at += 2) {
      pen.fillStyle = heatColor(Math.log(1 + pairs[at + 1]) / Math.log(1 + most));
      pen.fillRect(x, y(pairs[at]), Math.min(width + 0.6, plot.area.right - x), height + 0.4);
    }
  }
  drawSlowest(plot, pen, shown, seconds, (bucket) => y(bucket));
  drawLatencyScale(pen, plot.area, low, high, height, y);
  if (isEmpty) {
    pen.fillStyle = theme.of("quiet");
    pen.textAlign = "center";
    pen.fillText("no request in this time", (left + plot.area.right) / 2, (top + bottom) / 2);
  }
  plot.drawCursor(pen);
}

/** The line below which 99 of 100 requests are. */
function drawSlowest(plot, pen, columns, seconds, y) {
  pen.strokeStyle = theme.of("heatline");
  pen.lineWidth = 1.6;
  pen.beginPath();
  let last = null;
  for (const [time, pairs] of columns) {
    const bucket = slowest(pairs);
    if (bucket === null) { last = null; continue; }
    const [x, end] = [Math.max(plot.area.left, plot.x(time)), Math.min(plot.area.right, plot.x(time + seconds))];
    if (last === null) pen.moveTo(x, y(bucket)); else pen.lineTo(x, y(bucket));
    pen.lineTo(end, y(bucket));
    last = bucket;
  }
  pen.stroke();
}

function slowest(pairs) {
  let all = 0;
  for (let at = 1; at < pairs.length; at += 2) all += pairs[at];
  let spare = Math.floor(all / 100);
  for (let at = pairs.length - 2; at >= 0; at -= 2) {
    if (pairs[at + 1] > spare) return pairs[at];
    spare -= pairs[at + 1];
  }
  return null;
}

function drawLatencyScale(pen, area, low, high, height, y) {
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  let lastY = Infinity;
  const marks = [[10, "1 µs"], [13, "8 µs"], [16, "66 µs"], [20, "1 ms"], [23, "8 ms"], [26, "67 ms"], [30, "1 s"], [33, "9 s"], [36, "69 s"]];
  for (const [bucket, text] of marks) {
    const at = y(bucket) + height;
    if (bucket <= low || bucket > high || lastY - at < 16) continue;
    lastY = at;
    pen.fillStyle = theme.of("panel");
    pen.globalAlpha = 0.75;
    pen.fillRect(area.left, at - 7, pen.measureText(text).width + 6, 14);
    pen.globalAlpha = 1;
    pen.fillStyle = theme.of("text");
    pen.fillText(text, area.left + 3, at);
  }
}

/** The colour of a part from 0 to 1. */
function heatColor(part) {
  const at = Math.min(3.999, Math.max(0, part) * 4);
  const key = Math.round(at * 12);
  const below = Math.floor(key / 12);
  theme.known[`mix${key}`] ??= mixed(theme.of(`heat${below}`), theme.of(`heat${Math.min(4, below + 1)}`), key % 12 / 12);
  return theme.known[`mix${key}`];
}

function mixed(from, to, part) {
  const parts = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  const [a, b] = [parts(from), parts(to)];
  return `rgb(${a.map((one, at) => Math.round(one + (b[at] - one) * part)).join(",")})`;
}

/**
 * Draws parts of a whole by size, each with the band that it lies in: `curves` are {color, points: [{bytes, hits, hits_low,
 * hits_high}]}, the axis is logarithmic, and `now` is a size that is marked.
 */
function drawCurves(plot, pen, curves, now) {
  const { left, right, top, bottom } = plot.area;
  const x = (bytes_) => plot.x(Math.log2(bytes_));
  const y = (part) => bottom - (bottom - top) * part;
  pen.textBaseline = "alphabetic";
  pen.lineWidth = 1;
  const every = Math.max(1, Math.ceil(80 * (plot.to - plot.from) / (right - left)));
  for (let power = Math.ceil(plot.from); power <= plot.to; power += every) drawSize(plot, pen, 2 ** power);
  for (const part of [0.5, 1]) {
    pen.strokeStyle = theme.of("grid");
    pen.beginPath();
    pen.moveTo(left, Math.round(y(part)) + 0.5);
    pen.lineTo(right, Math.round(y(part)) + 0.5);
    pen.stroke();
  }
  for (const { color, points } of curves) {
    pen.fillStyle = theme.of(`s${color}`);
    pen.globalAlpha = 0.22;
    pen.beginPath();
    points.forEach((point, at) => pen[at === 0 ? "moveTo" : "lineTo"](x(point.bytes), y(point.hits_high)));
    for (const point of [...points].reverse()) pen.lineTo(x(point.bytes), y(point.hits_low));
    pen.fill();
    pen.globalAlpha = 1;
    pen.strokeStyle = theme.of(`s${color}`);
    pen.lineWidth = 1.8;
    pen.beginPath();
    points.forEach((point, at) => pen[at === 0 ? "moveTo" : "lineTo"](x(point.bytes), y(point.hits)));
    pen.stroke();
    for (const point of points) pen.fillRect(x(point.bytes) - 2, y(point.hits) - 2, 4, 4);
  }
  if (now > 0) {
    pen.strokeStyle = theme.of("s7");
    pen.lineWidth = 1;
    pen.setLineDash([4, 3]);
    pen.beginPath();
    pen.moveTo(x(now), top);
    pen.lineTo(x(now), bottom);
    pen.stroke();
    pen.setLineDash([]);
  }
  pen.textAlign = "left";
  for (const part of [0.5, 1]) {
    pen.fillStyle = theme.of("quiet");
    pen.fillText(`${100 * part} %`, left + 2, y(part) - 3);
  }
  plot.drawCursor(pen);
}

/** A line for a size, and its words. */
function drawSize(plot, pen, size) {
  const { left, right, top, bottom } = plot.area;
  const at = plot.x(Math.log2(size));
  pen.strokeStyle = theme.of("grid");
  pen.beginPath();
  pen.moveTo(Math.round(at) - 0.5, top);
  pen.lineTo(Math.round(at) - 0.5, bottom);
  pen.stroke();
  const text = bytes(size);
  const width = pen.measureText(text).width;
  pen.fillStyle = theme.of("quiet");
  pen.textAlign = "left";
  pen.fillText(text, Math.min(right - width, Math.max(left, at - width / 2)), bottom + 13);
}

/** Draws groups: {txg, begin, phases: [seconds; 3]}, each a bar of three phases, in three lanes that take turns. */
function drawGroups(plot, pen, groups) {
  const { left, right, top, bottom } = plot.area;
  const lane = (bottom - top) / 3;
  plot.drawTimes(pen);
  for (const group of groups) {
    const y = top + (group.txg % 3) * lane + lane * 0.14;
    let at = group.begin;
    group.phases.forEach((seconds, phase) => {
      const [x, end] = [Math.max(left, plot.x(at)), Math.min(right, plot.x(at + seconds))];
      at += seconds;
      if (end < left || x > right || seconds === 0) return;
      pen.fillStyle = theme.of(["s1", "s2", "s3"][phase]);
      pen.fillRect(x, y, Math.max(1.2, end - x - 0.6), lane * 0.72);
    });
    const [x, end] = [Math.max(left, plot.x(group.begin)), Math.min(right, plot.x(group.begin + group.phases[0]))];
    const text = String(group.txg);
    if (end - x > pen.measureText(text).width + 8) {
      pen.fillStyle = "#10202c";
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      pen.fillText(text, x + 4, y + lane * 0.36);
    }
  }
  plot.drawCursor(pen);
}
