"use strict";
// The tables, the details of one node, and what happens when one is chosen.
const MOST_ROWS = 2000;

function boxNamed(name) { return GRAPH.boxes.find((box) => box.node && box.name === name) || null; }

function shareOfPeak(node) {
  const memory = EXPLANATION.memory[node.device];
  if (!memory || memory.live_peak_bytes === 0) return "";
  return ", " + Math.round(100 * node.live_bytes / memory.live_peak_bytes) + " % of the peak";
}

function rowsOf(node) {
  const took = TRACE && TRACE.byNode.get(node.name);
  const rows = [["name", node.name], ["operator", node.op], ["device", node.device], ["reason", node.reason],
    ["refused", node.refused], ["rule", node.rule_line === null ? "" : "line " + node.rule_line + " of the configuration"],
    ["kernel", node.kernel], ["predicted", node.predicted_ns === null ? "" : timeText(node.predicted_ns / 1000)],
    ["live memory", node.live_bytes === null ? "" : bytesText(node.live_bytes) + shareOfPeak(node)],
    ["precision", node.precision + (node.precision_reason ? ": " + node.precision_reason : "")],
    ["numerics", node.numerics + (node.numerics_reason ? ": " + node.numerics_reason : "")],
    ["products", node.products + (node.products_reason ? ": " + node.products_reason : "")],
    ["passes", node.passes.join(", ")], ["fused", node.fused.join("\n")], ["reads", node.inputs.join("\n")],
    ["makes", node.outputs.map((name, at) => name + "  " + node.types[at]).join("\n")]];
  if (!took) return rows;
  rows.push(["shapes", took.shapes], ["time", timeText(took.us) + (took.count > 1 ? " in " + took.count + " steps" : "")],
    ["bytes", took.bytes ? bytesText(took.bytes) : ""]);
  if (took.flops && took.us > 0) rows.push(["GFLOPS", (took.flops / took.us / 1000).toFixed(2)]);
  return rows;
}

function showDetails(box) {
  const details = document.getElementById("details");
  details.replaceChildren(element("h2", box.node ? "Node" : box.end === "input" ? "Input" : "Output"));
  const list = element("dl");
  for (const [key, text] of box.node ? rowsOf(box.node) : [["name", box.name]]) {
    if (text === "") continue;
    list.append(element("dt", key), element("dd", text));
  }
  details.append(list);
}

function select(box, show) {
  if (!box) return;
  selected = box;
  showDetails(box);
  if (show) showBox(box);
  redraw();
  if (TRACE) drawTimeline();
}

// Columns: names, with # in front of those of numbers; rows: lists of texts or elements, with a function for a click or null.
function fillTable(id, names, rows, none) {
  const columns = names.map((name) => ({ name: name.replace("#", ""), number: name[0] === "#" }));
  const target = document.getElementById(id);
  if (rows.length === 0) return target.replaceChildren(element("p", none, "hint"));
  const table = element("table"), head = element("tr");
  for (const column of columns) head.append(element("th", column.name, column.number ? "number" : ""));
  table.append(head);
  for (const { cells, click } of rows.slice(0, MOST_ROWS)) {
    const row = element("tr", undefined, click ? "link" : "");
    cells.forEach((cell, at) => {
      const made = element("td", undefined, columns[at].number ? "number" : "");
      made.append(cell);
      row.append(made);
    });
    if (click) row.addEventListener("click", click);
    table.append(row);
  }
  target.replaceChildren(table);
  if (rows.length > MOST_ROWS) target.append(element("p", rows.length - MOST_ROWS + " more", "hint"));
}

function labelOf(device) {
  const made = element("span");
  made.append(swatch(FILLS[slotOf(device)]), device);
  return made;
}

function fillDevices() {
  const rows = DEVICES.map((device) => {
    const nodes = EXPLANATION.nodes.filter((node) => node.device === device);
    const run = nodes.filter((node) => node.kernel !== "planned");
    const kernels = TRACE ? TRACE.spans.filter((span) => span.cat === "kernel" && span.args.device === device) : [];
    const us = TRACE ? kernels.reduce((sum, span) => sum + span.dur, 0) : undefined;
    return { cells: [labelOf(device), String(nodes.length), String(run.length), timeText(us)], click: null };
  });
  fillTable("devices", ["device", "#nodes", "#that run", "#kernels"], rows, "");
  const legend = document.getElementById("legend");
  for (const device of DEVICES) legend.append(labelOf(device));
  const copy = element("span");
  copy.append(swatch(COPY), "copy between devices");
  legend.append(copy);
}

function fillMemory() {
  const rows = Object.entries(EXPLANATION.memory).map(([device, m]) => {
    const bar = element("span", "", "bar"), part = element("span");
    if (m.limit_bytes) part.style.width = Math.min(100, 100 * m.planned_peak_bytes / m.limit_bytes) + "%";
    bar.append(part);
    const numbers = [m.current_bytes, m.peak_bytes, m.reserved_bytes, m.arena_bytes, m.weights_bytes, m.packed_bytes,
      m.planned_peak_bytes];
    const limited = m.limit_bytes !== null, box = boxNamed(m.live_peak_at);
    const most = m.live_peak_bytes > 0 ? bytesText(m.live_peak_bytes) + " at " + m.live_peak_at : "";
    const cells = [labelOf(device), ...numbers.map(bytesText), limited ? bytesText(m.limit_bytes) : "none", limited ? bar : "", most];
    return { cells, click: box ? () => select(box, true) : null };
  });
  const names = ["device", "#in use", "#peak", "#reserved", "#one run", "#weights", "#packed", "#planned peak", "#limit",
    "planned peak of the limit", "most that lives at a time"];
  fillTable("memory", names, rows, "");
}

// The nodes in their order, each as high as what lives while it runs; one strip for each device that has any.
function fillLive() {
  const target = document.getElementById("live");
  const strips = [];
  for (const device of DEVICES) {
    const peak = EXPLANATION.memory[device].live_peak_bytes;
    const nodes = EXPLANATION.nodes.filter((node) => node.level === 0 && node.device === device && node.live_bytes !== null);
    if (nodes.length === 0 || peak === 0) continue;
    const strip = element("div", undefined, "strip");
    for (const node of nodes.slice(0, MOST_ROWS)) {
      const bar = element("span");
      bar.style.height = Math.max(1, 100 * node.live_bytes / peak) + "%";
      bar.style.background = node.live_bytes === peak ? COPY : STRONG[slotOf(device)];
      bar.title = node.name + ": " + bytesText(node.live_bytes);
      bar.addEventListener("click", () => select(boxNamed(node.name), true));
      strip.append(bar);
    }
    strips.push(labelOf(device), strip);
  }
  target.replaceChildren(...(strips.length > 0 ? strips : [element("p", "dims are not known: give --shape", "hint")]));
}

function fillCopies() {
  const rows = [...EXPLANATION.copies].sort((a, b) => b.bytes - a.bytes).map((copy) => {
    const us = TRACE ? TRACE.byCopy.get(JSON.stringify([copy.value, copy.from, copy.to])) : undefined;
    const edge = GRAPH.edges.find((e) => e.copy && e.value === copy.value);
    return { cells: [copy.value, copy.from, copy.to, copy.bytes > 0 ? bytesText(copy.bytes) : "known when it runs", timeText(us)],
      click: edge ? () => select(edge.from.node ? edge.from : edge.to, true) : null };
  });
  fillTable("copies", ["value", "from", "to", "#bytes", "#time"], rows, "none");
}

function startSearch() {
  const search = document.getElementById("search"), found = document.getElementById("found");
  let list = [], at = -1;
  const find = () => {
    const text = search.value.toLowerCase();
    const matches = (box) => (box.name + "\n" + (box.node ? box.node.op : "")).toLowerCase().includes(text);
    list = text === "" ? [] : GRAPH.boxes.filter(matches);
    marked = new Set(list);
    at = -1;
    found.textContent = text === "" ? "" : list.length + " found";
    redraw();
  };
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || list.length === 0) return;
    at = (at + (event.shiftKey ? list.length - 1 : 1)) % list.length;
    found.textContent = at + 1 + " of " + list.length;
    select(list[at], true);
  });
}

const modelName = EXPLANATION.model || "(model from a buffer)";
document.title = "Placement of " + modelName;
document.getElementById("title").textContent =
  modelName + ": " + EXPLANATION.nodes.length + " nodes, " + EXPLANATION.copies.length + " copies between devices";
fillDevices();
fillMemory();
fillLive();
fillCopies();
startSearch();
fitGraph(false);
if (TRACE) startTimeline();
