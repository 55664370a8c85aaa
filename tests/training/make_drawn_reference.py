#!/usr/bin/env python3
"""Writes drawn_reference.json: the slopes that PyTorch's autograd finds in the first 100 graphs of drawn.py, along three directions each,
in float64. Needs PyTorch, which the tests do not.

usage: make_drawn_reference.py
"""
import json
import pathlib

import drawn
import make_reference
import numpy as np
import torch
import torch.nn.functional as F
from onnx import helper, load_from_string, numpy_helper

COUNT = 100
F64 = torch.float64


def pooled(kind, x, kernel, strides):
    name = {"MaxPool": "max", "AveragePool": "avg"}[kind]
    return getattr(F, f"{name}_pool{x.ndim - 2}d")(x, kernel, strides)


def convolved(kind, x, w, b, a):
    name = f"conv{'_transpose' if kind == 'ConvTranspose' else ''}{x.ndim - 2}d"
    more = {"padding": a["pads"][: x.ndim - 2], "groups": a["group"]} if kind == "Conv" else {}
    return getattr(F, name)(x, w, b, stride=a["strides"], **more)


def reduced(kind, x, axes, keep):
    match kind:
        case "ReduceSum": return x.sum(axes, keepdim=keep)
        case "ReduceMean": return x.mean(axes, keepdim=keep)
        case "ReduceMax": return x.amax(axes, keepdim=keep)
        case "ReduceMin": return x.amin(axes, keepdim=keep)
        case "ReduceSumSquare": return (x * x).sum(axes, keepdim=keep)
        case "ReduceLogSumExp": return x.logsumexp(axes, keepdim=keep)


def attended(q, k, v, mask, a):
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if a["softcap"]:
        scores = a["softcap"] * torch.tanh(scores / a["softcap"])
    if mask is not None:
        scores = scores + mask
    if a["is_causal"]:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.softmax(scores, -1) @ v


def recurrent(kind, x, w, r, b, a):
    attributes = {"linear_before_reset": 0, **a}
    return make_reference.recurrent(kind, x, w, r, b, attributes)


def selu(x):
    """With ONNX's constants, which are float32."""
    return 1.05070102214813232421875 * F.elu(x, 1.67326319217681884765625)


class Interpreter:
    SIMPLE = {"Tanh": torch.tanh, "Sigmoid": torch.sigmoid, "Softplus": F.softplus, "Softsign": F.softsign, "Erf": torch.erf, "Sin": torch.sin, "Cos": torch.cos,
              "Atan": torch.atan, "Neg": torch.neg, "Gelu": F.gelu, "Mish": F.mish, "Identity": lambda x: x, "Asinh": torch.asinh, "Relu": torch.relu, "Abs": torch.abs,
              "LeakyRelu": lambda x: F.leaky_relu(x, float(np.float32(0.01))), "Elu": F.elu, "Selu": selu, "Sqrt": torch.sqrt, "Log": torch.log, "Reciprocal": torch.reciprocal,
              "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div, "MatMul": torch.matmul, "Where": torch.where, "Flatten": lambda x: x.flatten(1),
              "Sum": lambda *x: sum(x[1:], x[0]), "Mean": lambda *x: sum(x[1:], x[0]) / len(x), "Clip": torch.clamp}

    def run(self, nodes, values):
        for node in nodes:
            inputs = [values[n] if n else None for n in node.input]
            y = self.node(node, inputs, {a.name: helper.get_attribute_value(a) for a in node.attribute}, values)
            values.update(zip(node.output, y) if isinstance(y, tuple) else {node.output[0]: y})
        return values

    def node(self, node, x, a, values):
        kind = node.op_type
        if kind in self.SIMPLE:
            return self.SIMPLE[kind](*x)
        if kind.startswith("Reduce"):
            return reduced(kind, x[0], tuple(x[1].tolist()) if len(x) > 1 else tuple(range(x[0].ndim)), bool(a["keepdims"]))
        if kind in ("LSTM", "GRU", "RNN"):
            return recurrent(kind, *x, {k: v for k, v in a.items()})
        match kind:
            case "Gemm":
                left, right = x[0].T if a["transA"] else x[0], x[1].T if a["transB"] else x[1]
                return a["alpha"] * (left @ right) + a["beta"] * x[2]
            case "Einsum": return torch.einsum(a["equation"].decode(), *x)
            case "Conv" | "ConvTranspose": return convolved(kind, *x, a)
            case "MaxPool" | "AveragePool": return pooled(kind, x[0], a["kernel_shape"], a["strides"])
            case "Softmax": return torch.softmax(x[0], a["axis"])
            case "LogSoftmax": return torch.log_softmax(x[0], a["axis"])
            case "LayerNormalization": return F.layer_norm(x[0], x[1].shape, x[1], x[2], a["epsilon"])
            case "RMSNormalization": return x[0] * (x[0].square().mean(-1, keepdim=True) + a["epsilon"]).rsqrt() * x[1]
            case "BatchNormalization": return self.batch_norm(x, a["epsilon"])
            case "Transpose": return x[0].permute(*a["perm"])
            case "Reshape": return x[0].reshape(x[1].tolist())
            case "Concat": return torch.cat(x, a["axis"])
            case "Gather": return x[0].index_select(a["axis"] % x[0].ndim, x[1])
            case "Slice": return x[0].narrow(int(x[3]) % x[0].ndim, int(x[1]), int(x[2] - x[1]))
            case "Pad": return F.pad(x[0], [int(n) for i in reversed(range(x[0].ndim)) for n in (x[1][i], x[1][x[0].ndim + i])])
            case "Unsqueeze": return x[0].unsqueeze(int(x[1]))
            case "CumSum": return x[0].cumsum(int(x[1]))
            case "Tile": return x[0].repeat(*x[1].tolist())
            case "Attention": return attended(*x[:3], x[3] if len(x) > 3 else None, a)
            case "If":
                graph = a["then_branch" if x[0] else "else_branch"]
                return self.run(graph.node, dict(values))[graph.output[0].name]
            case "Loop": return self.loop(a["body"], x, values)
            case "Scan": return self.scan(a["body"], x, bool(a["scan_input_directions"][0]), values)
        raise ValueError(kind)

    def batch_norm(self, x, epsilon):
        others = [i for i in range(x[0].ndim) if i != 1]
        mean = x[0].mean(others, keepdim=True)
        variance = ((x[0] - mean) ** 2).mean(others, keepdim=True)
        shape = [1, -1] + [1] * (x[0].ndim - 2)
        return (x[0] - mean) / (variance + epsilon).sqrt() * x[1].reshape(shape) + x[2].reshape(shape)

    def body(self, graph, inputs, values):
        made = self.run(graph.node, {**values, **dict(zip([i.name for i in graph.input], inputs))})
        return [made[o.name] for o in graph.output]

    def loop(self, graph, x, values):
        carried = x[2]
        for i in range(int(x[0])):
            _, carried = self.body(graph, [torch.tensor(i), torch.tensor(True), carried], values)
        return carried

    def scan(self, graph, x, backwards, values):
        state, stacked = x[0], []
        for i in reversed(range(len(x[1]))) if backwards else range(len(x[1])):
            state, made = self.body(graph, [state, x[1][i]], values)
            stacked.append(made)
        return state, torch.stack(stacked)


def slopes(seed):
    graph = drawn.draw(seed)
    model = load_from_string(graph.model(["y"]))
    parameters = {n: torch.tensor(a, dtype=F64, requires_grad=True) for n, a in graph.feeds.items()}
    values = {t.name: torch.from_numpy(np.array(numpy_helper.to_array(t))) for t in model.graph.initializer}
    Interpreter().run(model.graph.node, {**values, **parameters})["y"].backward()
    gradients = {n: np.zeros(graph.feeds[n].shape) if p.grad is None else p.grad.numpy() for n, p in parameters.items()}
    return {"size": float(f"{sum(abs(g).sum() for g in gradients.values()):.4g}"), "slopes": [drawn.along(gradients, d) for d in drawn.directions(graph, seed, 3)]}


def main():
    torch.set_num_threads(1)
    rows = [json.dumps(slopes(seed), separators=(",", ":")) for seed in range(COUNT)]
    pathlib.Path(__file__).with_name("drawn_reference.json").write_text("[" + ",\n".join(rows) + "]\n")


if __name__ == "__main__":
    main()
