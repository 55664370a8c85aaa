#!/usr/bin/env python3
"""Writes corner_reference.json: the derivatives that PyTorch's autograd has in float64 for the nodes of corners.py. Needs PyTorch, which the tests do not.

usage: make_corner_reference.py
"""
import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from corners import CORNERS


def pool(x, a):
    kernel, strides, pads = a["kernel_shape"], a["strides"], a.get("pads", [0] * 2 * len(a["kernel_shape"]))
    return (F.max_pool1d if len(kernel) == 1 else F.max_pool2d)(x, kernel, strides, pads[:len(kernel)])


def reduced(function):
    def call(x, a):
        keep, rest = bool(a.get("keepdims", 1)), [int(n) for n in x[1]] if len(x) > 1 else list(range(x[0].ndim))
        return function(x[0], rest, keep)
    return call


def product(x, axes, keep):
    assert len(axes) == 1
    return x.prod(axes[0], keepdim=keep)


def loss(x, a, function):
    return function(x[0], x[1], weight=x[2] if len(x) > 2 else None, reduction=a.get("reduction", "mean"), ignore_index=a.get("ignore_index", -100))


def clip(x, a):
    if "min" in a:
        return torch.clamp(x[0], a["min"], a["max"])
    bounds = [v if v.requires_grad else float(v) for v in x[1:]]  # beside a number, x alone takes the derivative at a bound
    return torch.clamp(x[0], bounds[0], bounds[1] if len(bounds) > 1 else None)


def scatter(x, a):
    return x[0].scatter_add(0, x[1], x[2]) if a.get("reduction") == "add" else x[0].scatter(0, x[1], x[2])


def stacked(function):
    return lambda x, a: function(x[0], x[1]) if len(x) == 2 else getattr(torch.stack(x), "amax" if function is torch.maximum else "amin")(0)


def prelu(x, a):
    return F.prelu(x[0][None, None], x[1])[0, 0] if x[1].numel() == 1 else F.prelu(x[0][None], x[1])[0]


def shrink(x, a):
    return (F.softshrink if a["bias"] else F.hardshrink)(x[0], a["lambd"])


def recurrent(x, a):
    constants = {name: a[f"activation_{name}"][0] for name in ("alpha", "beta") if f"activation_{name}" in a}
    return FUNCTIONS[a["activations"][0]](x[:1], constants)


SIMPLE = {"Abs": torch.abs, "Relu": torch.relu, "Selu": F.selu, "HardSigmoid": F.hardsigmoid, "HardSwish": F.hardswish, "Softplus": F.softplus, "Softsign": F.softsign, "Sigmoid": torch.sigmoid,
          "Tanh": torch.tanh, "Erf": torch.erf, "Mish": F.mish, "Exp": torch.exp, "Atan": torch.atan, "Asinh": torch.asinh, "Sqrt": torch.sqrt, "Log": torch.log,
          "Reciprocal": torch.reciprocal, "Asin": torch.asin, "Acos": torch.acos, "Acosh": torch.acosh, "Atanh": torch.atanh, "Div": torch.div, "Pow": torch.pow, "Where": torch.where}
FUNCTIONS = {
    **{op: (lambda function: lambda x, a: function(*x))(function) for op, function in SIMPLE.items()},
    "LeakyRelu": lambda x, a: F.leaky_relu(x[0], a["alpha"]), "ThresholdedRelu": lambda x, a: F.threshold(x[0], a["alpha"], 0.0), "PRelu": prelu,
    "Elu": lambda x, a: F.elu(x[0], a["alpha"]), "Celu": lambda x, a: F.celu(x[0], a["alpha"]), "Shrink": shrink, "Gelu": lambda x, a: F.gelu(x[0], approximate=a.get("approximate", "none")),
    "Swish": lambda x, a: x[0] * torch.sigmoid(a["alpha"] * x[0]),
    "Max": stacked(torch.maximum), "Min": stacked(torch.minimum), "Clip": clip, "ReduceMax": reduced(torch.amax), "ReduceMin": reduced(torch.amin), "MaxPool": lambda x, a: pool(x[0], a),
    "GlobalMaxPool": lambda x, a: F.adaptive_max_pool2d(x[0], 1), "TopK": lambda x, a: torch.topk(x[0], int(x[1]))[0],
    "ReduceL1": reduced(lambda x, axes, keep: torch.norm(x, 1, axes, keep)), "ReduceL2": reduced(lambda x, axes, keep: torch.norm(x, 2, axes, keep)),
    "ReduceSumSquare": reduced(lambda x, axes, keep: (x * x).sum(axes, keep)), "ReduceProd": reduced(product), "ReduceLogSum": reduced(lambda x, axes, keep: x.sum(axes, keep).log()),
    "ReduceLogSumExp": reduced(torch.logsumexp), "Softmax": lambda x, a: x[0].softmax(-1), "LogSoftmax": lambda x, a: x[0].log_softmax(-1),
    "LayerNormalization": lambda x, a: F.layer_norm(x[0], x[1].shape, x[1], x[2], 1e-5), "InstanceNormalization": lambda x, a: F.instance_norm(x[0], None, None, x[1], x[2]),
    "GroupNormalization": lambda x, a: F.group_norm(x[0], a["num_groups"], x[1], x[2]), "BatchNormalization": lambda x, a: F.batch_norm(x[0], x[3], x[4], x[1], x[2], True),
    "RMSNormalization": lambda x, a: F.rms_norm(x[0], x[1].shape, x[1], 1e-5), "SoftmaxCrossEntropyLoss": lambda x, a: loss(x, a, F.cross_entropy),
    "NegativeLogLikelihoodLoss": lambda x, a: loss(x, a, F.nll_loss), "Gather": lambda x, a: x[0][x[1]], "GatherElements": lambda x, a: x[0].gather(0, x[1] % 3), "ScatterElements": scatter,
    "RNN": recurrent,
}


def derivatives(corner):
    x = [torch.from_numpy(np.array(v)) for v in corner.inputs]
    for n in corner.by:
        x[n].requires_grad_()
    y = FUNCTIONS[corner.op](x, corner.attributes)
    y.backward(torch.arange(1, y.numel() + 1, dtype=torch.float64).reshape(y.shape))
    return [x[n].grad.tolist() for n in corner.by]


if __name__ == "__main__":
    made = {name: derivatives(corner) for name, corner in CORNERS.items()}
    lines = [f'"{name}": {json.dumps(value)}' for name, value in made.items()]
    pathlib.Path(__file__).with_name("corner_reference.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
