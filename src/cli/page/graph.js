"use strict";
// Draws the graph on a canvas. (x, y) of a box is the middle of its upper side; a view is what lies where on the canvas.
const GRAPH = makeGraph(EXPLANATION);
const PLACED = place(GRAPH);
const canvas = document.getElementById("graph");
const view = { scale: 1, x: 0, y: 0 };
let selected = null, marked = new Set(), drawing = false;

function redraw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; drawGraph(); });
}

function sized(target) {
  const ratio = window.devicePixelRatio || 1;
  const width = target.clientWidth, height = target.clientHeight;
  if (target.width !== Math.round(width * ratio) || target.height !== Math.round(height * ratio)) {
    target.width = Math.round(width * ratio);
    target.height = Math.round(height * ratio);
  }
  const pen = target.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

function cut(pen, text, width) {
  if (text.length <= 80 && pen.measureText(text).width <= width) return text;
  let low = 0, high = Math.min(text.length, 80);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(text.slice(0, middle) + "…").width <= width) low = middle; else high = middle - 1;
  }
  return text.slice(0, low) + "…";
}

function drawEdge(pen, edge) {
  const y0 = edge.from.y + BOX_HEIGHT, y1 = edge.to.y, bend = Math.max(14, Math.min(60, (y1 - y0) / 2));
  pen.beginPath();
  pen.moveTo(edge.from.x, y0);
  pen.bezierCurveTo(edge.from.x, y0 + bend, edge.to.x, y1 - bend, edge.to.x, y1);
  pen.stroke();
}

function drawEdges(pen, top, bottom) {
  const near = (edge) => edge.from.y + BOX_HEIGHT <= bottom && edge.to.y >= top;
  const ofSelected = (edge) => edge.from === selected || edge.to === selected;
  const kinds = [[(edge) => !edge.copy && !edge.inner, "#8c959f", 1, []], [(edge) => edge.inner, "#8c959f", 1, [4, 4]],
    [(edge) => edge.copy, COPY, 2, []]];
  for (const [is, colour, width, dash] of kinds) {
    pen.strokeStyle = colour;
    pen.setLineDash(dash);
    for (const edge of GRAPH.edges) {
      if (!is(edge) || !near(edge)) continue;
      pen.lineWidth = (ofSelected(edge) ? width + 2 : width) / Math.max(view.scale, 0.4);
      drawEdge(pen, edge);
    }
  }
  pen.setLineDash([]);
}

function drawBox(pen, box) {
  const x = box.x - BOX_WIDTH / 2;
  pen.fillStyle = box.node ? FILLS[slotOf(box.node.device)] : "#ffffff";
  pen.strokeStyle = box === selected ? "#000000" : marked.has(box) ? "#d4a000" : "#57606a";
  pen.lineWidth = (box === selected || marked.has(box) ? 3 : 1) / Math.max(view.scale, 0.3);
  pen.beginPath();
  pen.roundRect(x, box.y, BOX_WIDTH, BOX_HEIGHT, box.node ? 4 : BOX_HEIGHT / 2);
  pen.fill();
  pen.stroke();
  if (view.scale < 0.35) return;
  pen.fillStyle = "#1f2328";
  pen.textAlign = "center";
  pen.font = "600 12px system-ui, sans-serif";
  pen.fillText(cut(pen, box.node ? box.node.op : box.end, BOX_WIDTH - 12), box.x, box.y + 16);
  pen.font = "11px system-ui, sans-serif";
  pen.fillText(cut(pen, box.name, BOX_WIDTH - 12), box.x, box.y + 31);
}

function drawGraph() {
  const { pen, width, height } = sized(canvas);
  pen.translate(view.x, view.y);
  pen.scale(view.scale, view.scale);
  const top = -view.y / view.scale, bottom = (height - view.y) / view.scale;
  const left = -view.x / view.scale - BOX_WIDTH, right = (width - view.x) / view.scale + BOX_WIDTH;
  drawEdges(pen, top, bottom);
  const row = BOX_HEIGHT + GAP_Y;
  for (let i = Math.max(0, Math.floor(top / row) - 1); i < PLACED.layers.length && i * row <= bottom; i++) {
    for (const box of PLACED.layers[i]) if (box.x >= left && box.x <= right) drawBox(pen, box);
  }
}

function fitGraph(whole) {
  if (GRAPH.boxes.length === 0) return;
  const wide = canvas.clientWidth / (PLACED.right - PLACED.left + 40), high = canvas.clientHeight / (PLACED.height + 40);
  view.scale = whole ? Math.min(1, wide, high) : Math.min(1, Math.max(0.5, wide));
  view.x = canvas.clientWidth / 2 - view.scale * (PLACED.left + PLACED.right) / 2;
  view.y = 20 * Math.min(1, view.scale);
  if (!whole) view.x = canvas.clientWidth / 2 - view.scale * (PLACED.layers[0][0] || GRAPH.boxes[0]).x;
  redraw();
}

function showBox(box) {
  view.moved = true;
  view.scale = Math.max(view.scale, 0.7);
  view.x = canvas.clientWidth / 2 - view.scale * box.x;
  view.y = canvas.clientHeight / 2 - view.scale * (box.y + BOX_HEIGHT / 2);
}

function boxAt(x, y) {
  const px = (x - view.x) / view.scale, py = (y - view.y) / view.scale;
  const layer = PLACED.layers[Math.floor(py / (BOX_HEIGHT + GAP_Y))] || [];
  return layer.find((box) => Math.abs(box.x - px) <= BOX_WIDTH / 2 && py >= box.y && py <= box.y + BOX_HEIGHT) || null;
}

// Calls `moved(dx, dy, event)` while a pointer is dragged, and `clicked(x, y)` where it was not.
function onDrag(target, moved, clicked) {
  let last = null, far = 0;
  target.addEventListener("pointerdown", (event) => { last = event; far = 0; target.setPointerCapture(event.pointerId); });
  target.addEventListener("pointermove", (event) => {
    if (!last) return;
    far += Math.abs(event.clientX - last.clientX) + Math.abs(event.clientY - last.clientY);
    if (far > 3) moved(event.clientX - last.clientX, event.clientY - last.clientY);
    last = event;
  });
  target.addEventListener("pointerup", (event) => {
    if (last && far <= 3) clicked(event.offsetX, event.offsetY);
    last = null;
  });
  target.addEventListener("pointercancel", () => { last = null; });
}

onDrag(canvas, (dx, dy) => { view.moved = true; view.x += dx; view.y += dy; redraw(); }, (x, y) => select(boxAt(x, y), false));
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  view.moved = true;
  const scale = Math.min(4, Math.max(0.01, view.scale * Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0015))));
  view.x = event.offsetX - (event.offsetX - view.x) * scale / view.scale;
  view.y = event.offsetY - (event.offsetY - view.y) * scale / view.scale;
  view.scale = scale;
  redraw();
}, { passive: false });
// Until the reader has moved the graph it fits the window, whatever becomes of that.
new ResizeObserver(() => view.moved ? redraw() : fitGraph(false)).observe(canvas);
document.getElementById("fit").addEventListener("click", () => { view.moved = true; fitGraph(true); });
