"use strict";
// What the page shows. Texts of the model only ever become text nodes and strokes of a canvas: they may be anything.
const DATA = JSON.parse(document.getElementById("data").textContent);
const EXPLANATION = DATA.explanation;
const FILLS = ["#dbe9f6", "#fde0c5", "#d9f0d3", "#eadcf4", "#fff3b0", "#d0efec", "#f8d7e3", "#e3e3e3"];
const STRONG = ["#4a90d0", "#e08a3c", "#58b04a", "#9a6cc4", "#c9a800", "#2fa79b", "#d0628f", "#7f7f7f"];
const COPY = "#c0392b";
const DEVICES = Object.keys(EXPLANATION.memory);

function slotOf(device) {
  const slot = DEVICES.indexOf(device);
  return (slot < 0 ? FILLS.length - 1 : slot) % FILLS.length;
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function swatch(colour) {
  const made = element("span", "", "swatch");
  made.style.background = colour;
  return made;
}

function bytesText(bytes) {
  if (bytes < 10240) return bytes + " B";
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = bytes / 1024, unit = 0;
  while (value >= 1024 && unit + 1 < units.length) { value /= 1024; unit++; }
  return value.toFixed(value < 100 ? 1 : 0) + " " + units[unit];
}

// Microseconds, as a trace has them.
function timeText(us) {
  if (us === undefined) return "";
  return us < 1000 ? us.toFixed(1) + " µs" : (us / 1000).toFixed(3) + " ms";
}

// What the last run took: spans of the trace, and times by the names of nodes and copies.
function readTrace(trace) {
  if (!trace) return null;
  const names = new Map(), byNode = new Map(), byCopy = new Map();
  for (const event of trace.traceEvents) {
    if (event.ph === "M") names.set(event.name + " " + event.pid + " " + event.tid, event.args.name);
  }
  const all = trace.traceEvents.filter((event) => event.ph === "X");
  const run = all.filter((event) => event.cat === "run").reduce((a, b) => (a && a.ts > b.ts ? a : b), null);
  const spans = all.filter((event) => !run || (event.ts < run.ts + run.dur && event.ts + event.dur > run.ts));
  for (const event of spans) {
    if (event.cat === "kernel" || event.cat === "host") {
      const known = byNode.get(event.name) || { us: 0, count: 0, shapes: "", bytes: 0, flops: 0 };
      known.us += event.dur;
      known.count++;
      known.shapes = event.args.shapes || known.shapes;
      known.bytes = event.args.bytes || known.bytes;
      known.flops = event.args.flops || known.flops;
      byNode.set(event.name, known);
    }
    if (event.cat === "copy") {
      const key = JSON.stringify([event.name.slice("copy ".length), event.args.from, event.args.to]);
      byCopy.set(key, (byCopy.get(key) || 0) + event.dur);
    }
  }
  return { names, spans, byNode, byCopy, run, dropped: trace.otherData.dropped_events };
}
const TRACE = readTrace(DATA.trace);
