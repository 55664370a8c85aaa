#!/usr/bin/env python3
"""Writes reference.json: what PyTorch's autograd and optimizers make of the networks of nets.py. Needs PyTorch, which the tests do not.

usage: make_reference.py
"""
import json
import pathlib

import nets
import numpy as np
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper

OPTIMIZERS = {  # ours -> PyTorch's class and arguments
    "sgd": (dict(optimizer="sgd", learning_rate=0.05), torch.optim.SGD, dict(lr=0.05)),
    "momentum": (dict(optimizer="sgd", learning_rate=0.02, momentum=0.9, weight_decay=0.01), torch.optim.SGD, dict(lr=0.02, momentum=0.9, weight_decay=0.01)),
    "nesterov": (dict(optimizer="sgd", learning_rate=0.02, momentum=0.9, nesterov=True), torch.optim.SGD, dict(lr=0.02, momentum=0.9, nesterov=True)),
    "dampening": (dict(optimizer="sgd", learning_rate=0.05, momentum=0.8, dampening=0.3), torch.optim.SGD, dict(lr=0.05, momentum=0.8, dampening=0.3)),
    "adam": (dict(optimizer="adam", learning_rate=0.01, weight_decay=0.01), torch.optim.Adam, dict(lr=0.01, weight_decay=0.01)),
    "adamw": (dict(optimizer="adamw", learning_rate=0.01, weight_decay=0.1, betas=(0.8, 0.95)), torch.optim.AdamW, dict(lr=0.01, weight_decay=0.1, betas=(0.8, 0.95))),
    "adagrad": (dict(optimizer="adagrad", learning_rate=0.05, rate_decay=0.01), torch.optim.Adagrad, dict(lr=0.05, lr_decay=0.01)),
    "rmsprop": (dict(optimizer="rmsprop", learning_rate=0.002), torch.optim.RMSprop, dict(lr=0.002)),
    "rmsprop_all": (dict(optimizer="rmsprop", learning_rate=0.001, momentum=0.5, centered=True, alpha=0.9), torch.optim.RMSprop,
                    dict(lr=0.001, momentum=0.5, centered=True, alpha=0.9)),
}
SCHEDULES = {
    "step": (dict(schedule="step", schedule_steps=5, schedule_factor=0.5), lambda o: torch.optim.lr_scheduler.StepLR(o, 5, 0.5)),
    "exponential": (dict(schedule="exponential", schedule_factor=0.9), lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9)),
    "cosine": (dict(schedule="cosine", schedule_steps=15, least_rate=0.001), lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 15, 0.001)),
    "warmup": (dict(warmup_steps=8), lambda o: torch.optim.lr_scheduler.LinearLR(o, 1 / 8, 1.0, 7)),
}
STEPS = 20


def recurrent(kind, x, w, r, b, attributes):
    """PyTorch's layer of the operator's weights: its gates are in another order."""
    gates = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}[kind]
    hidden, directions = r.shape[2], r.shape[0]

    def reordered(y):
        return torch.cat([y[g * hidden : (g + 1) * hidden] for g in gates])

    flat = [reordered(y) for d in range(directions) for y in (w[d], r[d], *b[d].chunk(2))]
    h = torch.zeros(directions, x.shape[1], hidden, dtype=x.dtype)
    function = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN": torch.rnn_tanh}[kind]
    y, *states = function(x, (h, h) if kind == "LSTM" else h, flat, True, 1, 0.0, True, directions == 2, False)
    assert kind != "GRU" or attributes["linear_before_reset"] == 1
    return (y.unflatten(2, (directions, hidden)).transpose(1, 2), *states)


class Network:
    """Runs an ONNX graph by PyTorch, as in training."""

    def __init__(self, model, dtype):
        self.model, self.weights = model, {}
        for t in model.graph.initializer:
            value = torch.from_numpy(numpy_helper.to_array(t).copy())
            self.weights[t.name] = value.to(dtype) if value.is_floating_point() else value
        statistics = {name for n in model.graph.node if n.op_type == "BatchNormalization" for name in n.input[3:5]}
        self.parameters = {name: w.requires_grad_() for name, w in self.weights.items() if w.is_floating_point() and name not in statistics}

    def __call__(self, inputs):
        v = dict(self.weights, **inputs)
        for node in self.model.graph.node:
            y = self.run(node, [v[name] for name in node.input], {a.name: helper.get_attribute_value(a) for a in node.attribute})
            v.update(zip(node.output, y) if isinstance(y, tuple) else {node.output[0]: y})
        return v[self.model.graph.output[0].name]

    def run(self, node, x, a):
        simple = {"Relu": torch.relu, "Tanh": torch.tanh, "Sigmoid": torch.sigmoid, "Erf": torch.erf, "HardSwish": F.hardswish, "Add": torch.add,
                  "Mul": torch.mul, "Div": torch.div, "MatMul": torch.matmul, "Flatten": lambda y: y.flatten(1), "GlobalAveragePool": lambda y: y.mean((2, 3), keepdim=True)}
        if node.op_type in simple:
            return simple[node.op_type](*x)
        half = {"padding": tuple(a["pads"][:2]) if "pads" in a else 0}
        stride = {"stride": tuple(a["strides"])} if "strides" in a else {}
        match node.op_type:
            case "Conv": return F.conv2d(*x, groups=a.get("group", 1), **half, **stride)
            case "ConvTranspose": return F.conv_transpose2d(*x, **stride)
            case "MaxPool": return F.max_pool2d(x[0], a["kernel_shape"], a["strides"], **half)
            case "AveragePool": return F.avg_pool2d(x[0], a["kernel_shape"], a["strides"])
            case "Gemm": return F.linear(x[0], x[1], x[2])
            case "BatchNormalization": return F.batch_norm(x[0], x[3], x[4], x[1], x[2], training=True, momentum=0.1, eps=1e-5)
            case "LayerNormalization": return F.layer_norm(x[0], x[1].shape, x[1], x[2], 1e-5)
            case "LeakyRelu": return F.leaky_relu(x[0], a["alpha"])
            case "Softmax": return torch.softmax(x[0], a["axis"])
            case "Clip": return torch.clamp(x[0], x[1].item(), x[2].item())
            case "LSTM" | "GRU" | "RNN": return recurrent(node.op_type, *x, a)
            case "Squeeze": return x[0].squeeze(tuple(x[1].tolist()))
            case "Concat": return torch.cat(x, a["axis"])
            case "Gather": return x[0][x[1]]
            case "Transpose": return x[0].permute(*a["perm"])
            case "Reshape": return x[0].reshape([x[0].shape[i] if d == 0 else d for i, d in enumerate(x[1].tolist())])
            case "ReduceMean": return x[0].mean(tuple(a["axes"]), keepdim=bool(a["keepdims"]))
            case "Constant": return torch.tensor(a["value_float"], dtype=next(iter(self.parameters.values())).dtype)
        raise ValueError(node.op_type)


def tensors(inputs, dtype):
    return {name: torch.from_numpy(x).to(dtype) if x.dtype == np.float32 else torch.from_numpy(x) for name, x in inputs.items()}


def gradients(name):
    model, _ = nets.NETS[name]()
    network = Network(model, torch.float64)
    inputs, labels = next(nets.batches(name))
    loss = F.cross_entropy(network(tensors(inputs, torch.float64)), torch.from_numpy(labels))
    loss.backward()
    moved = {n: w for n, w in network.weights.items() if n.endswith((".mean", ".var"))}
    return {"loss": loss.item(),
            "gradients": {n: {"largest": p.grad.abs().max().item(), "sample": nets.sample(p.grad.numpy()).tolist()} for n, p in network.parameters.items()},
            "statistics": {n: nets.sample(w.detach().numpy()).tolist() for n, w in moved.items()}}


def losses(make, schedule=None, clip_norm=None):
    model, _ = nets.NETS["mlp"]()
    network = Network(model, torch.float32)
    optimizer = make(network.parameters.values())
    scheduler = schedule(optimizer) if schedule else None
    found = []
    for inputs, labels in nets.batches("mlp", STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(tensors(inputs, torch.float32)), torch.from_numpy(labels))
        loss.backward()
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(network.parameters.values(), clip_norm)
        optimizer.step()
        if scheduler:
            scheduler.step()
        found.append(loss.item())
    return found


PLANTED = (3, 4, 11, 40)  # steps whose loss is not finite


def loss_scales():
    """What GradScaler makes of overflows: [scale, from which step on] and the steps that it skips."""
    model, _ = nets.NETS["mlp"]()
    network = Network(model, torch.float32)
    optimizer = torch.optim.SGD(network.parameters.values(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu")
    scales, skipped = [], []
    watched = network.parameters["fc1.w"]
    for step, (inputs, labels) in enumerate(nets.planted(PLANTED, 2060)):
        if not scales or scales[-1][0] != scaler.get_scale():
            scales.append([scaler.get_scale(), step])
        before = watched.detach().clone()
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(network(tensors(inputs, torch.float32)), torch.from_numpy(labels))).backward()
        scaler.step(optimizer)
        scaler.update()
        if torch.equal(before, watched):
            skipped.append(step)
    return {"planted": PLANTED, "steps": 2060, "scales": scales, "skipped": skipped}


def main():
    torch.set_num_threads(1)
    out = {"nets": {name: gradients(name) for name in nets.NETS}, "runs": {}}
    for name, (ours, kind, arguments) in OPTIMIZERS.items():
        out["runs"][name] = {"options": ours, "losses": losses(lambda p, kind=kind, arguments=arguments: kind(p, **arguments))}
    for name, (ours, schedule) in SCHEDULES.items():
        options = dict(optimizer="sgd", learning_rate=0.1, momentum=0.9, **ours)
        out["runs"][name] = {"options": options, "losses": losses(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), schedule)}
    out["runs"]["clip_norm"] = {"options": dict(optimizer="sgd", learning_rate=0.2, clip_norm=0.3), "losses": losses(lambda p: torch.optim.SGD(p, lr=0.2), clip_norm=0.3)}
    out["loss_scales"] = loss_scales()
    text = json.dumps(out, indent=None, separators=(",", ":")).replace('},"', '},\n"')
    pathlib.Path(__file__).with_name("reference.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
