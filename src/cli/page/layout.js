"use strict";
// Boxes in layers by their longest path from an input, and in a layer near to what they are connected with.
const BOX_WIDTH = 190, BOX_HEIGHT = 40, GAP_X = 24, GAP_Y = 36;

function makeGraph(explanation) {
  const boxes = [], edges = [];
  const add = (box) => { box.index = boxes.length; box.from = []; box.to = []; box.layer = 0; boxes.push(box); return box; };
  const scopes = [new Map()];  // of the graph, and of the bodies that are open: the maker of each value
  const owners = [];
  const makerOf = (value) => {
    for (let i = scopes.length - 1; i >= 0; i--) if (scopes[i].has(value)) return scopes[i].get(value);
    return null;
  };
  const connect = (from, to, value, inner) => {
    if (from === to) return;
    const edge = { from, to, value, inner, copy: !inner && deviceOf(from) !== deviceOf(to) };
    edges.push(edge);
    from.to.push(edge);
    to.from.push(edge);
    to.layer = Math.max(to.layer, from.layer + 1);
  };
  for (const name of explanation.inputs) scopes[0].set(name, add({ end: "input", name }));
  for (const node of explanation.nodes) {
    while (scopes.length > node.level + 1) scopes.pop();
    while (scopes.length < node.level + 1) scopes.push(new Map());
    const box = add({ node, name: node.name });
    owners[node.level] = box;
    for (const value of node.inputs) {
      const maker = makerOf(value);
      if (maker) connect(maker, box, value, false);
    }
    const owner = owners[node.level - 1];
    if (box.from.length === 0 && owner) connect(owner, box, "a body's node", true);
    for (const value of node.outputs) scopes[scopes.length - 1].set(value, box);
  }
  scopes.length = 1;
  for (const name of explanation.outputs) {
    const maker = makerOf(name), box = add({ end: "output", name });
    if (maker) connect(maker, box, name, false);
  }
  return { boxes, edges };
}

// Inputs come from the CPU and outputs go there, which is the first device.
function deviceOf(box) { return box.node ? box.node.device : DEVICES[0]; }

function average(edges, end, otherwise) {
  if (edges.length === 0) return otherwise;
  let sum = 0;
  for (const edge of edges) sum += edge[end].x;
  return sum / edges.length;
}

// Gives the boxes of a layer places near the wanted ones, in their order and without overlap.
function settle(layer, wanted) {
  layer.sort((a, b) => wanted.get(a) - wanted.get(b) || a.index - b.index);
  const step = BOX_WIDTH + GAP_X;
  let last = -Infinity, drift = 0;
  for (const box of layer) {
    box.x = Math.max(wanted.get(box), last + step);
    last = box.x;
    drift += box.x - wanted.get(box);
  }
  for (const box of layer) box.x -= drift / layer.length;
}

function place(graph) {
  const layers = [];
  // An input stands right above what reads it first.
  for (const box of graph.boxes) {
    if (box.end === "input" && box.to.length > 0) box.layer = Math.max(0, Math.min(...box.to.map((edge) => edge.to.layer)) - 1);
    (layers[box.layer] = layers[box.layer] || []).push(box);
  }
  for (let i = 0; i < layers.length; i++) layers[i] = layers[i] || [];
  layers.forEach((layer) => layer.forEach((box, at) => { box.x = (at - (layer.length - 1) / 2) * (BOX_WIDTH + GAP_X); }));
  for (let sweep = 0; sweep < 6; sweep++) {
    const down = sweep % 2 === 0;
    const order = down ? layers : [...layers].reverse();
    for (const layer of order) {
      const wanted = new Map(layer.map((box) => [box, average(down ? box.from : box.to, down ? "from" : "to", box.x)]));
      settle(layer, wanted);
    }
  }
  layers.forEach((layer, at) => layer.forEach((box) => { box.y = at * (BOX_HEIGHT + GAP_Y); }));
  let left = Infinity, right = -Infinity;
  for (const box of graph.boxes) { left = Math.min(left, box.x); right = Math.max(right, box.x); }
  return { layers, left: left - BOX_WIDTH / 2, right: right + BOX_WIDTH / 2, height: layers.length * (BOX_HEIGHT + GAP_Y) - GAP_Y };
}
