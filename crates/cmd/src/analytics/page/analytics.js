// The page: what the server tells, and the panels that show it. Names come from pools: they are put in as text only.
"use strict";

/** Everything that was told: pools by their ids, and what is chosen. */
const known = { pools: new Map(), series: [], chosen: null, vdev: null, dataset: null, datasetId: null, range: 300, isPaused: false };

/** Seconds that can be shown; those behind the hour come from files. */
const RANGES = [300, 3600, 86400, 604800, 2419200];

/** Panels of charts over time: which series, in which colours, and how they are written. */
const CHARTS = [
  { id: "reads", title: "Where reads come from", isDouble: true, isTall: true, format: "rate", part: true,
    about: "Blocks that somebody, or a reader ahead, asked for. Reads that the kernel's page cache serves are not seen here.",
    series: [["arc_mru", "RAM, read once", 0], ["arc_mfu", "RAM, read again", 1], ["l2arc", "cache device", 2], ["disks", "disks", 3]], areBands: true },
  { id: "bytes", title: "Bytes of users and disks", format: "byteRate",
    about: "Users read and write files and volumes. Between the two stand the caches when reading; redundancy, compression and the log when writing.",
    series: [["files_read", "users read", 0], ["files_written", "users write", 2], ["disk_read", "disks read", 4, [4, 3]], ["disk_written", "disks written", 5, [4, 3]]] },
  { id: "operations", title: "Operations of users and disks", format: "rate",
    about: "Requests of mounted file systems and volumes, and requests to devices.",
    series: [["file_reads", "reads of users", 0], ["file_writes", "writes of users", 2], ["disk_reads", "disk reads", 4, [4, 3]], ["disk_writes", "disk writes", 5, [4, 3]]] },
  { id: "log", title: "Intent log", format: "byteRate",
    about: "Bytes that synchronous writes put on log devices, on the other vdevs, and in their final place.",
    series: [["log_slog", "log devices", 4], ["log_normal", "other vdevs", 3], ["log_in_place", "in place", 6]], areBands: true },
  { id: "commits", title: "Commits", format: "rate",
    about: "Calls that wait for the log, and batches of them that were written: the more calls a batch, the cheaper each.",
    series: [["log_commits", "commits", 0], ["log_batches", "batches", 2]] },
  { id: "memory", title: "Cache in RAM", format: "bytes",
    about: "What blocks take, the size that the cache strives for, and the most that it may take.",
    series: [["mru_size", "read once", 0], ["mfu_size", "read again", 1], ["arc_target", "target", 7, [4, 3]], ["arc_max", "most", 3, [2, 3]]], bands: 2 },
  { id: "misses", title: "Misses, and what a larger cache would have had", format: "rate",
    about: "A ghost hit is a block that was dropped not long ago: more RAM would have had it.",
    series: [["demand_misses", "misses waited for", 3], ["ahead_misses", "misses read ahead", 2], ["mru_ghost_hits", "ghosts, read once", 0, [4, 3]], ["mfu_ghost_hits", "ghosts, read again", 1, [4, 3]]] },
  { id: "l2arc", title: "Cache device", format: "byteRate",
    about: "What is read from it, and what is written to it, which wears it.",
    series: [["l2_read", "read", 0], ["l2_written", "written", 3]], needs: "l2_size" },
  { id: "held", title: "Writers held back", format: "rate",
    about: "Operations that waited because more was dirty than the disks keep up with.",
    series: [["delayed", "slowed down", 2], ["over_max", "stopped", 3]] },
];

const HEATS = [["Reads", 0], ["Writes", 1], ["Synchronous reads wait", 2], ["Synchronous writes wait", 3]];

// --- small helpers ---------------------------------------------------------------------------------------------------

/** An element with attributes, and children that are elements or texts. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function byId(id) { return document.getElementById(id); }

/** Sets a text only if it is another one: nothing is laid out anew without need. */
function say(element, text) { if (element.textContent !== text) element.textContent = text; }

function pool() { return known.pools.get(known.chosen); }

function indexOf(name) { return known.series.indexOf(name); }

function latest(name) { return pool()?.fine.at(-1)?.[1][indexOf(name)] ?? 0; }

/** The rows of the range that is shown, and the seconds between two of them. */
function rows() {
  if (known.range > 3600) return [pool()?.kept ?? [], Math.max(60, Math.ceil(known.range / 720))];
  const { fine, coarse } = pool() ?? { fine: [], coarse: [] };
  return known.range <= 300 ? [fine, 1] : [[...coarse, ...fine.slice(-1)], 5];
}

/** A moment of the range that is shown. */
function moment(seconds) { return known.range > 3600 ? dateAndTime(seconds) : clock(seconds); }

function now() { return (pool()?.fine.at(-1)?.[0]) ?? Date.now() / 1000; }

/** The seconds that are shown: no more than are known. */
function span() {
  if (known.range > 3600) return known.range;
  const { coarse, fine } = pool() ?? { coarse: [], fine: [] };
  const first = (known.range > 300 && coarse[0]?.[0]) || fine[0]?.[0] || now();
  return Math.min(known.range, Math.max(60, now() - first));
}

// --- panels ----------------------------------------------------------------------------------------------------------

/** A panel with a heading, and words about it. */
function panel(id, title, about, ...classes) {
  const heading = make("h2", { id: `${id}-title` }, make("span", {}, title));
  const section = make("section", { id, class: ["panel", ...classes].join(" "), "aria-labelledby": `${id}-title` }, heading);
  if (about) section.append(make("p", {}, about));
  byId("panels").append(section);
  return { section, heading };
}

/** A table that is filled only while it is open. */
function detailsTable(section, name) {
  const table = make("table", {}, make("caption", {}, name), make("thead"), make("tbody"));
  const details = make("details", {}, make("summary", {}, "Table"), make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, table));
  section.append(details);
  return { details, table };
}

/** Columns of words, whose heads stand above their beginning. */
const WORDS = new Set(["for", "state", "errors", "event", "about", "by", "volume", "of"]);

/** Fills a table; rows that are there are used again. */
function fill(table, heads, lines) {
  const head = table.tHead ?? table.createTHead();
  if (head.rows.length === 0) head.append(make("tr", {}, ...heads.map((text) => make("th", { scope: "col", class: WORDS.has(text) && "words" }, text))));
  const body = table.tBodies[0];
  while (body.rows.length > lines.length) body.deleteRow(-1);
  while (body.rows.length < lines.length) body.append(make("tr", {}, ...heads.map(() => make("td"))));
  lines.forEach((line, at) => line.forEach((text, column) => {
    // a cell of a name has a button in it
    if (text !== null) say(body.rows[at].cells[column], text);
  }));
}

class SeriesPanel {
  constructor(chart) {
    this.chart = chart;
    const classes = [chart.isDouble ? "double" : "", chart.isTall ? "tall" : ""];
    const { section } = panel(chart.id, chart.title, chart.about, ...classes);
    this.section = section;
    const place = make("div", { class: "plot" });
    section.append(place);
    this.plot = new Plot(place, chart.title);
    this.values = chart.series.map(([, name, color]) => {
      const value = make("b");
      return { value, item: make("li", {}, make("span", { class: `swatch c${color}`, "aria-hidden": "true" }), name, " ", value) };
    });
    this.when = make("li", {});
    section.append(make("ul", { class: "legend" }, ...this.values.map(({ item }) => item), this.when));
    this.table = detailsTable(section, chart.title);
    this.table.details.addEventListener("toggle", () => this.update());
    this.plot.paint = (pen) => this.paint(pen);
    this.plot.moved = () => this.tell();
  }

  series() {
    return this.chart.series.map(([name, , color, dash], at) => (
      { index: indexOf(name), color, dash, isBand: this.chart.areBands || at < (this.chart.bands ?? 0) }));
  }

  paint(pen) {
    const [all, step] = rows();
    this.plot.setTimes(now() - span(), now(), step);
    drawSeries(this.plot, pen, all, this.series(), this.chart.format);
  }

  /** The values at the cursor, or the last. */
  tell() {
    const [all] = rows();
    const cursor = this.plot.cursor;
    const row = cursor === null ? all.at(-1) : all.findLast(([time]) => time <= cursor + 0.5);
    const numbers = this.series().map(({ index }) => row?.[1][index] ?? 0);
    const sum = numbers.reduce((all_, one) => all_ + one, 0);
    numbers.forEach((number, at) => {
      const part = this.chart.part && sum > 0 ? ` (${Math.round(100 * number / sum)} %)` : "";
      say(this.values[at].value, FORMATS[this.chart.format](number) + part);
    });
    say(this.when, cursor !== null && row ? `at ${moment(row[0])}` : "");
    const words = this.chart.series.map(([, name], at) => `${name} ${this.values[at].value.textContent}`);
    // a screen reader would be told each second
    if (cursor !== null || !this.told || Date.now() - this.told > 15000) {
      this.told = Date.now();
      this.plot.canvas.setAttribute("aria-label", `${this.chart.title}: ${words.join(", ")}${cursor !== null && row ? ` at ${moment(row[0])}` : ""}`);
    }
  }

  update() {
    this.tell();
    this.plot.draw();
    if (!this.table.details.open) return;
    const [all, step] = rows();
    const every = Math.max(1, Math.round(known.range / 30 / step));
    const lines = all.filter((_, at) => (all.length - 1 - at) % every === 0).slice(-30).reverse();
    const cells = lines.map(([time, values]) => [moment(time), ...this.series().map(({ index }) => FORMATS[this.chart.format](values[index] ?? 0))]);
    fill(this.table.table, ["time", ...this.chart.series.map(([, name]) => name)], cells);
  }
}

/** Latencies of some subjects: what is asked for as vdev=GUID or dataset=NUMBER. */
class HeatMaps {
  constructor() {
    this.loads = new Map();
  }

  map(grid, title, kind, subject) {
    const place = make("div", { class: "plot" });
    const [name, said] = [make("span", {}, title), make("b")];
    const box = make("div", { class: HEATS.slice(0, 2).some(([one]) => one === title) && "large" }, make("h3", {}, name, ": ", said), place);
    grid.append(box);
    const plot = new Plot(place, title);
    const map = { title, name, kind, subject, plot, said, box };
    plot.paint = (pen) => {
      plot.setTimes(now() - span(), now(), 5);
      drawHeat(plot, pen, this.columns(map), 5);
    };
    plot.moved = () => this.tell(map);
    return map;
  }

  columns({ kind, subject }) {
    const load = this.loads.get(`${known.chosen} ${subject()}`);
    return (load?.columns ?? []).map(([number, kinds]) => [number * 5, kinds[kind]]);
  }

  tell(map) {
    const columns = this.columns(map);
    const cursor = map.plot.cursor;
    const column = cursor === null ? columns.at(-1) : columns.findLast(([time]) => time <= cursor);
    const bucket = column && slowest(column[1]);
    let all = 0;
    for (let at = 1; at < (column?.[1].length ?? 0); at += 2) all += column[1][at];
    const when = cursor !== null && column ? ` at ${clock(column[0])}` : "";
    const text = bucket === null || bucket === undefined ? `none${when}` : `${count(all / 5)}/s, 99 % within ${duration(2 ** (bucket + 1))}${when}`;
    say(map.said, text);
    map.plot.canvas.setAttribute("aria-label", `Latency, ${map.title}: ${text}`);
  }

  /** Fetches the columns of some subjects that are not there yet, each five seconds. */
  fetchNew(subjects) {
    const wanted = `${Math.floor(now() / 5)} ${known.chosen} ${subjects.join(" ")}`;
    if (this.fetched === wanted || document.hidden) return false;
    this.fetched = wanted;
    for (const subject of new Set(subjects)) this.load(subject);
    return true;
  }

  async load(subject) {
    const key = `${known.chosen} ${subject}`;
    const load = this.loads.get(key) ?? { columns: [], isBusy: false };
    this.loads.set(key, load);
    if (load.isBusy) return;
    load.isBusy = true;
    try {
      const after = load.columns.at(-1)?.[0] ?? 0;
      const answer = await fetch(`heat?pool=${encodeURIComponent(known.chosen)}&${subject}&after=${after}`);
      if (answer.ok) load.columns = [...load.columns, ...(await answer.json()).columns].slice(-720);
    } catch (error) {
      // the next tick asks again
    }
    load.isBusy = false;
    // of those that are not shown any more the oldest go
    while (this.loads.size > 8) this.loads.delete(this.loads.keys().next().value);
    this.show();
  }
}

/** Latencies of the vdev that is chosen, and of the first log device. */
class HeatPanel extends HeatMaps {
  constructor() {
    super();
    const about = "Each column is five seconds, each row twice the time of the row below it, and its colour tells how many requests took that long. 99 of 100 were faster than the line. Synchronous ones wait for their turn before the device has them.";
    const { section, heading } = panel("latency", "Latency of devices", about, "wide");
    this.section = section;
    this.select = make("select", { "aria-label": "Device whose latency is shown" });
    this.select.addEventListener("change", () => chooseVdev(this.select.value));
    heading.append(this.select);
    const grid = this.grid = make("div", { class: "maps" });
    section.append(grid);
    this.maps = HEATS.map(([title, kind]) => this.map(grid, title, kind, () => `vdev=${known.vdev}`));
    this.logMap = this.map(grid, "Writes to the log device", 1, () => `vdev=${this.log()}`);
    section.append(make("ul", { class: "legend" }, make("li", {}, "few ", make("span", { class: "ramp", "aria-hidden": "true" }), " many requests"),
      make("li", {}, make("span", { class: "swatch c3", "aria-hidden": "true" }), "99 of 100 are faster")));
    this.table = detailsTable(section, "Time in which 99 of 100 requests were done");
    this.table.details.addEventListener("toggle", () => this.update());
  }

  /** The guid of the first device of a log. */
  log() { return pool()?.facts.vdevs.find((vdev) => vdev.role === "log" && vdev.is_leaf)?.guid; }

  update() {
    const { vdevs } = pool()?.facts ?? { vdevs: [] };
    const names = vdevs.map((vdev) => `${vdev.guid} ${"\u00a0".repeat(2 * vdev.depth)}${vdev.name}`).join("\n");
    if (names !== this.names) {
      this.names = names;
      this.select.replaceChildren(...vdevs.map((vdev) => make("option", { value: vdev.guid }, "\u00a0".repeat(2 * vdev.depth) + vdev.name)));
    }
    if (!vdevs.some((vdev) => vdev.guid === known.vdev)) known.vdev = vdevs[0]?.guid ?? null;
    if (known.vdev === null) return;
    this.select.value = known.vdev;
    const log = this.log();
    this.logMap.box.hidden = !log;
    this.grid.className = log ? "maps" : "maps few";
    const subjects = [known.vdev, log].filter((vdev) => vdev).map((vdev) => `vdev=${vdev}`);
    if (!this.fetchNew(subjects) && known.range <= 300) this.show();
  }

  show() {
    for (const map of [...this.maps, this.logMap]) {
      this.tell(map);
      map.plot.draw();
    }
    if (!this.table.details.open) return;
    const columns = this.maps.map((map) => this.columns(map));
    const lines = columns[0].slice(-24).reverse().map(([time], back) => [clock(time), ...columns.map((kind) => {
      const bucket = slowest(kind.at(-1 - back)?.[1] ?? []);
      return bucket === null ? "–" : duration(2 ** (bucket + 1));
    })]);
    fill(this.table.table, ["time", ...HEATS.map(([title]) => title)], lines);
  }
}

/** How long requests of all file systems and volumes took, and those of the one that is chosen; each kind is a name and its number. */
class DatasetHeatPanel extends HeatMaps {
  constructor(id, title, about, kinds) {
    super();
    const { section } = panel(id, title, about, "wide");
    this.section = section;
    this.kinds = kinds;
    const grid = make("div", { class: "maps few" });
    section.append(grid);
    this.all = kinds.map(([name, kind]) => this.map(grid, `All ${name}`, kind, () => "dataset=0"));
    this.own = kinds.map(([name, kind]) => this.map(grid, `${name} of the one that is chosen`, kind, () => `dataset=${known.datasetId}`));
    this.table = detailsTable(section, `Time in which 99 of 100 ${kinds.map(([name]) => name).join(", and ")} were done`);
    this.table.details.addEventListener("toggle", () => this.show());
  }

  update() {
    this.own.forEach((map, at) => {
      map.box.hidden = known.datasetId === null;
      map.title = `${known.dataset ?? ""}: ${this.kinds[at][0]}`;
      say(map.name, map.title);
    });
    const subjects = known.datasetId === null ? ["dataset=0"] : ["dataset=0", `dataset=${known.datasetId}`];
    if (!this.fetchNew(subjects) && known.range <= 300) this.show();
  }

  show() {
    for (const map of [...this.all, ...this.own]) {
      this.tell(map);
      map.plot.draw();
    }
    if (!this.table.details.open) return;
    const columns = this.all.map((map) => this.columns(map));
    const lines = columns[0].slice(-24).reverse().map(([time], back) => [clock(time), ...columns.map((kind) => {
      const bucket = slowest(kind.at(-1 - back)?.[1] ?? []);
      return bucket === null ? "–" : duration(2 ** (bucket + 1));
    })]);
    fill(this.table.table, ["time", ...this.kinds.map(([name]) => name)], lines);
  }
}

class GroupPanel {
  constructor() {
    const about = "Each bar is a transaction group: it takes changes, waits for the operations in it, and goes to disk while the next one is open.";
    const { section } = panel("groups", "Groups on their way to disk", about, "double");
    this.section = section;
    const place = make("div", { class: "plot" });
    section.append(place);
    this.plot = new Plot(place, "Groups on their way to disk");
    this.said = make("li", { class: "long" });
    const key = [["open", 1], ["waits for operations", 2], ["goes to disk", 3]];
    section.append(make("ul", { class: "legend" }, ...key.map(([name, color]) => make("li", {}, make("span", { class: `swatch c${color}`, "aria-hidden": "true" }), name)), this.said));
    this.table = detailsTable(section, "Groups");
    this.table.details.addEventListener("toggle", () => this.update());
    this.plot.paint = (pen) => {
      this.plot.setTimes(now() - Math.min(span(), 120), now(), 1);
      drawGroups(this.plot, pen, this.groups());
    };
    this.plot.moved = () => this.tell();
  }

  /** The groups in seconds; one that is open, or on its way, lasts until now. */
  groups() {
    return (pool()?.groups ?? []).map((group, at, all) => {
      const begin = group.begin_ms / 1000;
      const phases = group.phases_ms.map((ms) => ms / 1000);
      if (!group.is_done && at === all.length - 1 && phases[0] === 0) phases[0] = Math.max(0, now() - begin);
      return { ...group, begin, phases };
    });
  }

  tell() {
    const cursor = this.plot.cursor;
    const groups = this.groups().filter((group) => group.is_done);
    const group = cursor === null ? groups.at(-1) : groups.findLast((one) => one.begin <= cursor) ?? groups[0];
    const [dirty, , written] = group?.bytes ?? [0, 0, 0];
    const text = group ? `${group.txg}: open ${duration(group.phases[0] * 1e9)}, waited ${duration(group.phases[1] * 1e9)}, to disk ${duration(group.phases[2] * 1e9)}; ${bytes(dirty)} of changes, ${bytes(written)} written` : "no group yet";
    say(this.said, text);
    this.plot.canvas.setAttribute("aria-label", `Groups on their way to disk. Group ${text}`);
  }

  update() {
    this.tell();
    this.plot.draw();
    if (!this.table.details.open) return;
    const lines = this.groups().slice(-40).reverse().map((group) => [String(group.txg), clock(group.begin), ...group.phases.map((seconds) => duration(seconds * 1e9)), ...group.bytes.map(bytes)]);
    fill(this.table.table, ["group", "began", "open", "waited", "to disk", "changes", "read", "written"], lines);
  }
}

/** The files of the dataset that is chosen that are used most. They are asked for, and noted, only while this is open. */
class FileDetails {
  constructor(section) {
    this.said = make("p", { class: "empty" });
    this.table = make("table", {}, make("thead"), make("tbody"));
    this.place = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Files that are used most" }, this.table);
    this.details = make("details", { id: "files" }, make("summary", {}, "Files that are used most"), this.said, this.place);
    this.details.addEventListener("toggle", () => this.update());
    section.append(this.details);
    this.asked = 0;
  }

  update() {
    this.details.hidden = known.datasetId === null;
    if (!this.details.open || this.details.hidden || document.hidden || this.isBusy) return;
    const of = `${known.chosen} ${known.datasetId}`;
    if (of !== this.of) this.show({ failure: null, seconds: 0, files: [], more: 0, lost: 0 });
    if (of === this.of && Date.now() - this.asked < 1900) return;
    [this.of, this.asked] = [of, Date.now()];
    this.load();
  }

  async load() {
    const of = this.of;
    this.isBusy = true;
    try {
      const answer = await fetch(`files?pool=${encodeURIComponent(known.chosen)}&dataset=${known.datasetId}`);
      const told = answer.ok ? await answer.json() : { failure: await answer.text(), files: [], more: 0, lost: 0 };
      if (of === this.of) this.show(told);
    } catch (error) {
      // the next second asks again
    }
    this.isBusy = false;
  }

  show({ failure, has_names: hasNames, seconds, files, more, lost }) {
    const words = [];
    if (failure) words.push(`Nothing is known: ${failure}`);
    else if (!seconds) words.push("Requests are noted from now on.");
    else words.push(files.length === 0 ? `No file was read or written in the last ${Math.round(seconds)} s.` : `In the last ${Math.round(seconds)} s.`);
    if (more > 0) words.push(`${more} more were used.`);
    if (lost > 0) words.push(`${count(lost)} requests a second came too fast to be told apart.`);
    if (files.length > 0 && !hasNames) words.push("Files have their numbers here, as ls -i shows them: names are told at a socket, or with a token.");
    say(this.said, words.join(" "));
    this.place.hidden = files.length === 0;
    fill(this.table, ["file", "reads/s", "read", "writes/s", "written"], files.map(([object, path, [reads, read, writes, written]]) =>
      [path ?? `object ${object}`, count(reads), `${bytes(read)}/s`, count(writes), `${bytes(written)}/s`]));
    for (const row of this.table.tBodies[0].rows) {
      row.cells[0].className = "name";
      row.cells[0].title = row.cells[0].textContent;
    }
  }
}

class DatasetPanel {
  constructor() {
    const { section, heading } = panel("datasets", "File systems and volumes", "Those that most goes through come first. One that is chosen is drawn from then on.", "double");
    this.section = section;
    this.filter = make("input", { type: "search", placeholder: "filter", "aria-label": "Show only file systems and volumes with this in their name" });
    this.filter.addEventListener("input", () => this.update());
    heading.append(this.filter);
    this.table = make("table", {}, make("thead"), make("tbody"));
    section.append(make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "File systems and volumes" }, this.table));
    this.said = make("p", { class: "empty" });
    this.place = make("div", { class: "plot" });
    this.title = make("h3");
    section.append(this.said, this.title, this.place);
    this.files = new FileDetails(section);
    this.plot = new Plot(this.place, "The file system or volume that is chosen");
    this.plot.paint = (pen) => {
      this.plot.setTimes(now() - 300, now(), 1);
      const series = [{ index: 1, color: 0 }, { index: 3, color: 2 }];
      drawSeries(this.plot, pen, pool()?.past.get(known.dataset) ?? [], series, "byteRate");
    };
  }

  update() {
    const { datasets, datasetCount } = pool() ?? { datasets: [], datasetCount: 0 };
    const wanted = this.filter.value.toLowerCase();
    const shown = datasets.filter(([name]) => name.toLowerCase().includes(wanted));
    const most = [1, 3].map((at) => Math.max(1, ...datasets.map(([, rates]) => rates[at])));
    const cells = ([reads, read, writes, written]) => [count(reads), `${bytes(read)}/s`, count(writes), `${bytes(written)}/s`];
    fill(this.table, ["name", "reads/s", "read", "writes/s", "written"], shown.map(([, rates]) => [null, ...cells(rates)]));
    shown.forEach((one, at) => this.row(this.table.tBodies[0].rows[at], one, most));
    const rest = datasetCount - datasets.length;
    say(this.said, datasetCount === 0 ? "No file system is mounted, and no volume is in use." : rest > 0 ? `${rest} more, through which less goes.` : "");
    const rows_ = pool()?.past.get(known.dataset);
    this.place.hidden = this.title.hidden = !rows_;
    say(this.title, rows_ ? `${known.dataset}: read (blue), written (orange)` : "");
    if (rows_) this.plot.draw();
    this.files.update();
  }

  row(row, [name, rates, id], most) {
    const cell = row.cells[0];
    cell.className = "name";
    if (!cell.firstElementChild) {
      const button = make("button", { type: "button" });
      button.addEventListener("click", () => {
        const isChosen = known.dataset === button.textContent;
        [known.dataset, known.datasetId] = isChosen ? [null, null] : [button.textContent, button.value];
        this.update();
      });
      cell.replaceChildren(button);
    }
    say(cell.firstElementChild, name);
    cell.firstElementChild.value = id;
    cell.title = name;
    row.className = name === known.dataset ? "chosen" : "";
    [2, 4].forEach((column, at) => {
      row.cells[column].className = "bar";
      row.cells[column].style.setProperty("--part", `${Math.round(100 * rates[2 * at + 1] / most[at])}%`);
    });
  }
}

/** Clients of volumes: connections of NBD and iSCSI, and virtual machines. */
class ClientPanel {
  constructor() {
    const { section } = panel("clients", "Clients of volumes", "Connections of NBD and iSCSI, and virtual machines by vhost-user; those that most goes through come first.", "wide");
    this.section = section;
    this.table = make("table", {}, make("thead"), make("tbody"));
    this.place = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Clients of volumes" }, this.table);
    this.said = make("p", { class: "empty" });
    section.append(this.place, this.said);
  }

  update() {
    const { clients, clientCount } = pool() ?? { clients: [], clientCount: 0 };
    const heads = ["client", "by", "volume", "reads/s", "read", "writes/s", "written", "others/s"];
    fill(this.table, heads, clients.map(([by, name, volume, [reads, read, writes, written, others]]) =>
      [name || "unknown", by, volume, count(reads), `${bytes(read)}/s`, count(writes), `${bytes(written)}/s`, count(others)]));
    for (const row of this.table.tBodies[0].rows) {
      [row.cells[0].className, row.cells[1].className, row.cells[2].className] = ["name", "words", "words name"];
      for (const cell of [row.cells[0], row.cells[2]]) cell.title = cell.textContent;
    }
    this.place.hidden = clients.length === 0;
    const rest = clientCount - clients.length;
    say(this.said, clientCount === 0 ? "No client uses a volume." : rest > 0 ? `${rest} more, through which less goes.` : "");
  }
}

class VdevPanel {
  constructor() {
    const { section } = panel("vdevs", "Devices", "Choose one to see its latency. Errors are of reads, of writes, and of blocks that were wrong; 99 % is the time in which 99 of 100 requests of the last five seconds were done.", "wide");
    this.section = section;
    this.table = make("table", {}, make("thead"), make("tbody"));
    section.append(make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Devices" }, this.table));
  }

  update() {
    const { facts, vdevs } = pool() ?? { facts: { vdevs: [] }, vdevs: [] };
    const heads = ["device", "for", "state", "errors", "reads/s", "read", "writes/s", "written", "99 % reads", "99 % writes", "taken"];
    const time = (ns) => (ns > 0 ? duration(ns) : "–");
    fill(this.table, heads, facts.vdevs.map((vdev, at) => {
      const [reads, writes, read, written, readNs, writeNs] = vdevs[at] ?? [0, 0, 0, 0, 0, 0];
      const errors = vdev.errors.every((number) => number === 0) ? "none" : vdev.errors.join(" ");
      const taken = vdev.size ? `${Math.round(100 * vdev.size[1] / Math.max(1, vdev.size[0]))} % of ${bytes(vdev.size[0])}` : "";
      const words = [vdev.role, vdev.state, errors + (vdev.slow ? `, ${vdev.slow} slow` : "")];
      return [null, ...words, count(reads), `${bytes(read)}/s`, count(writes), `${bytes(written)}/s`, time(readNs), time(writeNs), taken];
    }));
    facts.vdevs.forEach((vdev, at) => this.row(this.table.tBodies[0].rows[at], vdev));
  }

  row(row, vdev) {
    const cell = row.cells[0];
    cell.className = "name";
    if (!cell.firstElementChild) {
      const button = make("button", { type: "button" });
      button.addEventListener("click", () => chooseVdev(button.value));
      cell.replaceChildren(button);
    }
    const button = cell.firstElementChild;
    say(button, vdev.name);
    button.value = vdev.guid;
    cell.title = vdev.name;
    cell.style.setProperty("padding-left", `${0.5 + vdev.depth}rem`);
    row.className = vdev.guid === known.vdev ? "chosen" : "";
    row.cells[1].className = "words";
    row.cells[2].className = `words ${stateClass(vdev.state)}`;
    row.cells[3].className = vdev.errors.every((number) => number === 0) && !vdev.slow ? "words" : "words bad";
  }
}

class WorkPanel {
  constructor() {
    const { section } = panel("work", "Long work", "Scrubs, resilvers, removals, expansions, and until when.");
    this.section = section;
    this.track = make("div", { class: "track", role: "progressbar", "aria-label": "Scrub or resilver", "aria-valuemin": 0, "aria-valuemax": 100 }, make("i"));
    this.said = make("div", { class: "work" });
    section.append(this.track, this.said);
  }

  update() {
    const facts = pool()?.facts;
    const part = facts?.scan_part ?? null;
    this.track.hidden = part === null;
    this.track.setAttribute("aria-valuenow", Math.round(100 * (part ?? 0)));
    this.track.firstChild.style.setProperty("width", `${100 * (part ?? 0)}%`);
    const texts = facts?.work.length ? facts.work : ["Nothing is under way, and nothing was."];
    if (texts.join("\n") !== this.text) {
      this.text = texts.join("\n");
      this.said.replaceChildren(...texts.map((text) => make("p", {}, text)));
    }
  }
}

class EventPanel {
  constructor() {
    const { section } = panel("events", "Events", "", "wide");
    this.section = section;
    this.table = make("table", {}, make("thead"), make("tbody"));
    section.append(make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Events" }, this.table));
  }

  update() {
    const events = pool()?.facts.events ?? [];
    if (events === this.shown) return;
    this.shown = events;
    fill(this.table, ["time", "event", "about"], [...events].reverse().map((event) => [dateAndTime(event.at_s), event.class, event.about]));
    for (const row of this.table.tBodies[0].rows) {
      row.cells[1].className = "words";
      row.cells[2].className = "words name";
      row.cells[2].title = row.cells[2].textContent;
    }
  }
}

/** What the advisor and the lab have left in a folder. */
class ReportPanel {
  constructor() {
    const about = "Foretold by cenote advise cache, each with the band that it lies in: the newest answer in the folder of reports.";
    const { section } = panel("reports", "What caches of other sizes would serve", about, "wide");
    this.section = section;
    this.place = make("div", { class: "plot" });
    section.append(this.place);
    this.plot = new Plot(this.place, "What caches of other sizes would serve");
    this.plot.paint = (pen) => {
      const sizes = this.curves().flatMap(({ points }) => points.map((point) => Math.log2(point.bytes)));
      if (sizes.length === 0) return;
      const [from, to] = [Math.min(...sizes) - 0.3, Math.max(...sizes) + 0.3];
      this.plot.setTimes(from, to, (to - from) / 24);
      drawCurves(this.plot, pen, this.curves(), this.told.advice.ram);
    };
    this.plot.moved = () => this.tell();
    const key = [["RAM alone", 0], ["RAM, and a cache device of that size", 3], ["the RAM that there is", 7]];
    this.said = make("li", { class: "long" });
    this.legend = make("ul", { class: "legend" }, ...key.map(([name, color]) => make("li", {}, make("span", { class: `swatch c${color}`, "aria-hidden": "true" }), name)), this.said);
    this.words = make("div", { class: "work" });
    this.lab = make("p", { class: "empty" });
    section.append(this.legend, this.words, this.lab);
    this.table = detailsTable(section, "Hits by the size of the cache");
    this.table.details.addEventListener("toggle", () => this.show());
    this.told = { report: null, advice: null, advice_at_s: null };
    this.asked = 0;
  }

  curves() {
    const { rams, devices } = this.told.advice ?? { rams: [], devices: [] };
    return [{ color: 0, points: rams, name: "RAM alone" }, { color: 3, points: devices, name: "a cache device" }];
  }

  /** The sizes next to the cursor, or to the RAM that there is. */
  tell() {
    if (!this.told.advice) return;
    const at = this.plot.cursor ?? Math.log2(Math.max(1, this.told.advice.ram));
    const far = (point) => Math.abs(Math.log2(point.bytes) - at);
    const words = this.curves().filter(({ points }) => points.length > 0).map(({ name, points }) => {
      const point = points.reduce((best, one) => (far(one) < far(best) ? one : best));
      return `${name}, ${bytes(point.bytes)}: ${this.part(point.hits)} of reads, between ${this.part(point.hits_low)} and ${this.part(point.hits_high)}`;
    });
    say(this.said, words.join("; "));
    this.plot.canvas.setAttribute("aria-label", `What caches of other sizes would serve. ${words.join("; ")}`);
  }

  part(hits) { return `${short(100 * hits)} %`; }

  async update() {
    if (Date.now() - this.asked < 60000) return;
    this.asked = Date.now();
    try {
      const answer = await fetch("reports");
      if (answer.ok) this.told = await answer.json();
    } catch (error) {
      // the next minute asks again
    }
    this.show();
  }

  show() {
    const { report, advice, advice_at_s: at } = this.told;
    this.place.hidden = this.legend.hidden = this.table.details.hidden = !advice;
    const texts = advice ? [`Of ${dateAndTime(at)}, by ${count(advice.reads)} reads.`, ...advice.verdict.text] : ["No answer of cenote advise cache --json is in the folder."];
    this.words.replaceChildren(...texts.map((text) => make("p", {}, text)));
    const link = report && make("a", { href: "report", target: "_blank", rel: "noopener" }, `The report of cenote lab of ${dateAndTime(report[0])}, ${bytes(report[1])}`);
    this.lab.replaceChildren(link ?? "No report of cenote lab is in the folder.");
    this.tell();
    this.plot.draw();
    if (!advice || !this.table.details.open) return;
    const lines = this.curves().flatMap(({ name, points }) => points.map((point) => [
      bytes(point.bytes), name, this.part(point.hits), this.part(point.hits_low), this.part(point.hits_high),
      count(point.disk_reads_per_s), point.written_bytes_per_day > 0 ? bytes(point.written_bytes_per_day) : "–"]));
    fill(this.table.table, ["size", "of", "hits", "at least", "at most", "disk reads/s", "written a day"], lines);
  }
}

/** What matters most, as large numbers. */
class Tiles {
  constructor() {
    this.tiles = ["State", "Space", "Reads from RAM", "Users read", "Users write", "Commits", "Device reads", "Last group to disk"].map((name) => {
      const [value, note] = [make("dd"), make("dd", { class: "note" })];
      byId("tiles").append(make("div", {}, make("dt", {}, name), value, note));
      return { value, note };
    });
  }

  update() {
    const facts = pool()?.facts;
    if (!facts) return;
    const reads = ["arc_mru", "arc_mfu", "l2arc", "disks"].map(latest);
    const all = reads.reduce((sum, one) => sum + one, 0);
    const [size, taken] = facts.size;
    const group = pool().groups.findLast((one) => one.is_done);
    const slow = pool().vdevs[0]?.[4] ?? 0;
    const errors = facts.vdevs.filter((vdev) => vdev.errors.some((number) => number > 0)).length;
    const texts = [
      [facts.state || "–", facts.damaged > 0 ? `${facts.damaged} damaged blocks` : errors > 0 ? `${errors} devices with errors` : facts.is_writable ? "no known damage" : "read only"],
      [size > 0 ? `${Math.round(100 * taken / size)} %` : "–", size > 0 ? `${bytes(taken)} of ${bytes(size)}` : ""],
      [all > 0 ? `${Math.floor(100 * (reads[0] + reads[1]) / all)} %` : "–", `${count(all)} blocks/s`],
      [`${bytes(latest("files_read"))}/s`, `${count(latest("file_reads"))} reads/s`],
      [`${bytes(latest("files_written"))}/s`, `${count(latest("file_writes"))} writes/s`],
      [`${count(latest("log_commits"))}/s`, `${bytes(latest("log_slog") + latest("log_normal"))}/s of log`],
      [slow ? duration(slow) : "–", slow ? "99 of 100 within that" : "none of late"],
      [group ? duration(group.phases_ms[2] * 1e6) : "–", group ? `${bytes(group.bytes[2])} written` : ""],
    ];
    texts.forEach(([value, note], at) => { say(this.tiles[at].value, value); say(this.tiles[at].note, note); });
    this.tiles[0].value.className = stateClass(facts.state);
  }
}

function stateClass(state) {
  if (["ONLINE", "AVAIL", "INUSE"].includes(state)) return "good";
  return state === "DEGRADED" || state === "OFFLINE" ? "warn" : "bad";
}

// --- choosing --------------------------------------------------------------------------------------------------------

function chooseVdev(guid) {
  known.vdev = guid;
  update();
}

function choosePool(id) {
  known.chosen = id;
  known.vdev = known.dataset = known.datasetId = null;
  loadPast();
  history.replaceState(null, "", `#${encodeURIComponent(id)}`);
  showPools();
  update();
}

function showPools() {
  if (!known.pools.has(known.chosen)) known.chosen = known.pools.keys().next().value ?? null;
  const tabs = byId("pools");
  const names = [...known.pools].map(([id, { name }]) => `${id} ${name}`).join("\n");
  if (tabs.names !== names) {
    tabs.names = names;
    tabs.replaceChildren(...[...known.pools].map(([id, { name }]) => {
      const tab = make("button", { type: "button", role: "tab", title: name, "aria-controls": "panels" }, name);
      tab.dataset.id = id;
      tab.addEventListener("click", () => choosePool(id));
      return tab;
    }));
  }
  for (const tab of tabs.children) {
    const isChosen = tab.dataset.id === known.chosen;
    tab.setAttribute("aria-selected", String(isChosen));
    tab.tabIndex = isChosen ? 0 : -1;
  }
}

function chooseNext(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const tabs = [...byId("pools").children];
  const at = tabs.findIndex((tab) => tab.dataset.id === known.chosen);
  const next = tabs[(at + step + tabs.length) % tabs.length];
  choosePool(next.dataset.id);
  next.focus();
}

function chooseRange(range) {
  known.range = range;
  for (const seconds of RANGES) byId(`range-${seconds}`).setAttribute("aria-pressed", String(seconds === range));
  loadPast();
  update();
}

/** Fetches what a file has of the range that is shown, once a minute. */
async function loadPast() {
  const one = pool();
  const minute = `${known.range} ${Math.floor(now() / 60)}`;
  if (known.range <= 3600 || !one || one.keptOf === minute) return;
  one.keptOf = minute;
  const until = Math.ceil(now());
  try {
    const answer = await fetch(`past?pool=${encodeURIComponent(known.chosen)}&from=${until - known.range}&until=${until}`);
    if (answer.ok) one.kept = await answer.json();
  } catch (error) {
    // the next minute asks again
  }
  update();
}

// --- what the server tells -------------------------------------------------------------------------------------------

function takeNow(told) {
  const one = known.pools.get(told.id) ?? { fine: [], coarse: [], groups: [], past: new Map(), facts: null };
  known.pools.set(told.id, one);
  [one.name, one.silent, one.datasets, one.datasetCount, one.vdevs] = [told.name, told.silent, told.datasets, told.dataset_count, told.vdevs];
  [one.clients, one.clientCount] = [told.clients, told.client_count];
  one.facts = told.facts ?? one.facts ?? { state: "", advice: ["", ""], size: [0, 0], damaged: 0, work: [], scan_part: null, vdevs: [], events: [] };
  const isNew = told.row && told.row[0] > (one.fine.at(-1)?.[0] ?? 0);
  if (isNew) {
    one.fine.push(told.row);
    if (one.fine.length > 300) one.fine.shift();
    takeMean(one, told.row);
  }
  const last = told.groups.at(-1)?.txg ?? 0;
  const groups = new Map(one.groups.filter(({ txg }) => txg <= last).map((group) => [group.txg, group]));
  for (const group of told.groups) groups.set(group.txg, group);
  one.groups = [...groups.values()].slice(-120);
  for (const [name, rates] of told.datasets) {
    const past = one.past.get(name) ?? [];
    past.push([now(), rates]);
    if (past.length > 300) past.shift();
    one.past.delete(name);
    one.past.set(name, past);
  }
  while (one.past.size > 80) one.past.delete(one.past.keys().next().value);
  return one;
}

/** Rows of five seconds go to the hour as their mean. */
function takeMean(one, row) {
  const column = Math.floor(row[0] / 5);
  if (one.open && one.open.column !== column) {
    const { column: ended, sums, count: rows_ } = one.open;
    one.coarse.push([ended * 5, sums.map((sum) => sum / rows_)]);
    if (one.coarse.length > 720) one.coarse.shift();
    one.open = null;
  }
  one.open ??= { column, sums: row[1].map(() => 0), count: 0 };
  row[1].forEach((value, at) => { one.open.sums[at] += value; });
  one.open.count += 1;
}

function take(kind, text) {
  const told = JSON.parse(text);
  if (kind === "start") {
    known.series = told.series;
    byId("reports").hidden = !told.has_reports;
    for (const seconds of RANGES.slice(2)) byId(`range-${seconds}`).hidden = told.kept_s < seconds;
    known.pools.clear();
    for (const { now: told_, fine, coarse } of told.pools) {
      const one = takeNow(told_);
      [one.fine, one.coarse, one.open] = [fine, coarse, null];
    }
  } else {
    for (const one of told.pools) takeNow(one);
    const ids = new Set(told.pools.map(({ id }) => id));
    for (const id of [...known.pools.keys()]) if (!ids.has(id)) known.pools.delete(id);
  }
  showPools();
  loadPast();
  if (!known.isPaused) update();
}

function connect() {
  const source = new EventSource("events");
  const live = byId("live");
  for (const kind of ["start", "tick"]) {
    source.addEventListener(kind, ({ data }) => {
      take(kind, data);
      live.className = "on";
      say(live, known.isPaused ? "paused" : "live");
    });
  }
  source.addEventListener("error", () => {
    live.className = "off";
    say(live, "no connection");
    // one that was refused does not come back by itself
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  });
}

function notice() {
  const one = pool();
  const [status, action] = one?.facts?.advice ?? ["", ""];
  let text = [status, action].filter((words) => words).join(" ");
  if (!one) text = "No pool is in use. A pool that is imported appears here by itself.";
  else if (one.silent) text = `${one.name} ${one.silent}. The charts show the state before that.`;
  const place = byId("notice");
  place.hidden = text === "";
  say(place, text);
}

// --- begin -----------------------------------------------------------------------------------------------------------

const tiles = new Tiles();
const chart = (id) => new SeriesPanel(CHARTS.find((one) => one.id === id));
const panels = [chart("reads"), chart("bytes"), new HeatPanel(), new GroupPanel(), chart("operations")];
panels.push(...["log", "commits", "held"].map(chart),
  new DatasetHeatPanel("waits", "How long commits take", "Calls that wait until what was written lasts, as fsync does, and each write that is synchronous: the colour tells how many took that long. 99 of 100 were faster than the line. Those of one file system or volume are shown when it is chosen below.", [["commits", 0]]),
  new DatasetHeatPanel("requests", "How long reads and writes take", "Reads and writes of file systems and volumes within the pool's process, from RAM or from devices; a write that is not synchronous ends in RAM. The colour tells how many took that long. 99 of 100 were faster than the line. Those of one file system or volume are shown when it is chosen below.", [["reads", 1], ["writes", 2]]),
  ...["memory", "misses", "l2arc"].map(chart));
panels.push(new DatasetPanel(), new WorkPanel(), new ReportPanel(), new ClientPanel(), new VdevPanel(), new EventPanel());

/** Sections that can be seen, and those that come into view soon: nothing else costs anything. */
const inView = new Set();
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) inView.add(target); else inView.delete(target);
    const one = panels.find(({ section }) => section === target);
    if (isIntersecting && known.series.length > 0) one.update();
  }
}, { rootMargin: "200px" });

function update() {
  if (document.hidden) return;
  notice();
  tiles.update();
  for (const one of panels) if (one.chart?.needs) one.section.hidden = latest(one.chart.needs) === 0;
  for (const one of panels) if (inView.has(one.section)) one.update();
}

for (const { section } of panels) watcher.observe(section);

try {
  known.chosen = decodeURIComponent(location.hash.slice(1)) || null;
} catch (error) {
  // an address that somebody has typed: the first pool is shown
}
byId("pools").addEventListener("keydown", chooseNext);
for (const seconds of RANGES) byId(`range-${seconds}`).addEventListener("click", () => chooseRange(seconds));
byId("pause").addEventListener("click", () => {
  known.isPaused = !known.isPaused;
  byId("pause").setAttribute("aria-pressed", String(known.isPaused));
  if (!known.isPaused) update();
});
document.addEventListener("visibilitychange", update);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { theme.known = {}; update(); });
connect();
