"use strict";
// What each thread and device did when, in the run that was traced.
const timeline = document.getElementById("timeline");
const LANE = 20, LANE_GAP = 4, LABEL = 170, AXIS = 20;
const shown = { begin: 0, end: 1 };  // microseconds of the trace

// A lane for each thread and queue; the run itself is the whole width and has none.
function makeLanes() {
  const lanes = new Map();
  for (const span of TRACE.spans) {
    if (span.cat === "run") continue;
    const process = TRACE.names.get("process_name " + span.pid + " 0") || String(span.pid);
    const thread = TRACE.names.get("thread_name " + span.pid + " " + span.tid) || String(span.tid);
    const key = span.pid * 100000 + span.tid;
    if (!lanes.has(key)) lanes.set(key, { key, label: process + ": " + thread, spans: [] });
    lanes.get(key).spans.push(span);
  }
  const list = [...lanes.values()].sort((a, b) => a.key - b.key);
  for (const lane of list) lane.spans.sort((a, b) => a.ts - b.ts);
  return list;
}
const LANES = TRACE ? makeLanes() : [];

function colourOf(span) {
  if (span.cat === "kernel") return STRONG[slotOf(span.args.device)];
  if (span.cat === "host" || span.cat === "tiles") return STRONG[0];
  return { copy: COPY, enqueue: "#fdd0a2", prepare: "#bdbdbd" }[span.cat] || "#ececec";
}

function placeOf(time) { return LABEL + (time - shown.begin) / (shown.end - shown.begin) * (timeline.clientWidth - LABEL); }
function timeAt(x) { return shown.begin + (x - LABEL) / (timeline.clientWidth - LABEL) * (shown.end - shown.begin); }

function drawAxis(pen, width, height) {
  const length = shown.end - shown.begin;
  const most = Math.max(1, Math.min(10, (width - LABEL) / 70));  // that have room for their texts
  const step = [1, 2, 5, 10, 20, 50, 100].map((f) => f * 10 ** Math.floor(Math.log10(length / 5))).find((s) => length / s <= most) || length;
  pen.fillStyle = "#59636e";
  pen.strokeStyle = "#eaeef2";
  pen.lineWidth = 1;
  pen.textAlign = "center";
  const start = TRACE.run ? TRACE.run.ts : 0;
  for (let at = Math.ceil((shown.begin - start) / step) * step; at <= shown.end - start; at += step) {
    const x = placeOf(at + start);
    pen.beginPath();
    pen.moveTo(x, 0);
    pen.lineTo(x, height - AXIS);
    pen.stroke();
    if (x > LABEL + 10 && x < width - 30) pen.fillText(timeText(at), x, height - 5);
  }
}

function drawTimeline() {
  const { pen, width, height } = sized(timeline);
  pen.font = "11px system-ui, sans-serif";
  drawAxis(pen, width, height);
  LANES.forEach((lane, at) => {
    const y = at * (LANE + LANE_GAP);
    pen.save();
    pen.beginPath();
    pen.rect(LABEL, 0, width - LABEL, height);
    pen.clip();
    for (const span of lane.spans) {
      const x0 = placeOf(span.ts), x1 = placeOf(span.ts + span.dur);
      if (x1 < LABEL || x0 > width) continue;
      pen.fillStyle = colourOf(span);
      pen.fillRect(x0, y, Math.max(1, x1 - x0), LANE);
      if (selected && selected.node && span.name === selected.name) {
        pen.strokeStyle = "#000000";
        pen.lineWidth = 2;
        pen.strokeRect(x0, y, Math.max(2, x1 - x0), LANE);
      }
      if (x1 - x0 < 40) continue;
      pen.fillStyle = span.cat === "copy" ? "#ffffff" : "#1f2328";
      pen.textAlign = "left";
      pen.fillText(cut(pen, span.name, x1 - Math.max(x0, LABEL) - 6), Math.max(x0, LABEL) + 3, y + 14);
    }
    pen.restore();
    pen.fillStyle = "#1f2328";
    pen.textAlign = "left";
    pen.fillText(cut(pen, lane.label, LABEL - 10), 0, y + 14);
  });
}

function spanAt(x, y) {
  const lane = LANES[Math.floor(y / (LANE + LANE_GAP))];
  if (!lane || x < LABEL) return null;
  const near = 2 / (timeline.clientWidth - LABEL) * (shown.end - shown.begin), time = timeAt(x);
  return lane.spans.find((span) => span.ts - near <= time && time <= span.ts + span.dur + near) || null;
}

function startTimeline() {
  const run = TRACE.run || { ts: 0, dur: Math.max(...TRACE.spans.map((span) => span.ts + span.dur), 1) };
  const hint = document.getElementById("timeline-hint");
  const dropped = TRACE.dropped ? "; " + TRACE.dropped + " events had no room" : "";
  const about = timeText(run.dur) + "; wheel: zoom, drag: move" + dropped;
  hint.textContent = about;
  shown.begin = run.ts;
  shown.end = run.ts + run.dur;
  document.getElementById("timeline-section").hidden = false;
  timeline.style.height = LANES.length * (LANE + LANE_GAP) + AXIS + "px";
  const move = (by) => { shown.begin += by; shown.end += by; drawTimeline(); };
  onDrag(timeline, (dx) => move(-dx * (shown.end - shown.begin) / (timeline.clientWidth - LABEL)), (x, y) => {
    const span = spanAt(x, y);
    if (span) select(boxNamed(span.name.replace(/^enqueue /, "")), true);
  });
  timeline.addEventListener("pointermove", (event) => {
    const span = spanAt(event.offsetX, event.offsetY);
    hint.textContent = span ? span.name + ": " + timeText(span.dur) : about;
  });
  timeline.addEventListener("wheel", (event) => {
    event.preventDefault();
    const factor = Math.exp(event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0015)), time = timeAt(Math.max(LABEL, event.offsetX));
    if ((shown.end - shown.begin) * factor < 0.1 || (shown.end - shown.begin) * factor > 10 * run.dur) return;
    shown.begin = time - (time - shown.begin) * factor;
    shown.end = time + (shown.end - time) * factor;
    drawTimeline();
  }, { passive: false });
  new ResizeObserver(drawTimeline).observe(timeline);
}
