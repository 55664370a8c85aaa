#!/usr/bin/env python3
"""Trains a small convolutional network on 1,797 pictures of written digits (scikit-learn's), and makes it int8 afterwards.

usage: train_digits.py [--data digits.csv.gz] [--folds 5] [--epochs 24] [--threads 2] [-o FOLDER]

The pictures are split into five folds. For each of --folds of them a network learns from the other four, and says how many pictures of its own fold it reads
rightly, before and after. The network of the last one is quantized with pictures that it has learned from. FOLDER gets digits.onnx, digits.int8.onnx and
training.svg. `scripts/fetch_models.py digits` fetches the pictures.
"""
import argparse
import gzip
import pathlib

import curves
import evener
import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = {"conv1.weight": (32, 1, 3, 3), "conv1.bias": (32,), "conv2.weight": (64, 32, 3, 3), "conv2.bias": (64,),
          "fc1.weight": (128, 3136), "fc1.bias": (128,), "fc2.weight": (10, 128), "fc2.bias": (10,)}


def pictures(path):
    """Pictures of 28 x 28, from 0 to 1, and what digits they are."""
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    places = np.linspace(0, 7, 28)
    low = np.minimum(places.astype(int), 6)
    widen = np.zeros((28, 8))
    widen[np.arange(28), low], widen[np.arange(28), low + 1] = 1 - (places - low), places - low
    small = table[:, :64].reshape(-1, 8, 8) / 16
    return (widen @ small @ widen.T).astype(np.float32)[:, None], table[:, 64].astype(np.int64)


def network(seed):
    """The network before it has learned: an ONNX model, as a tool that exports one makes it."""
    random = np.random.default_rng(seed)
    weights = [numpy_helper.from_array((random.uniform(-1, 1, shape) / np.prod(shape[1:] or shape) ** 0.5).astype(np.float32), name) for name, shape in SHAPES.items()]
    node, nodes = helper.make_node, []
    for at, source in enumerate(("image", "pooled1"), 1):
        nodes += [node("Conv", [source, f"conv{at}.weight", f"conv{at}.bias"], [f"conv{at}"], name=f"conv{at}", kernel_shape=[3, 3], pads=[1] * 4),
                  node("Relu", [f"conv{at}"], [f"relu{at}"], name=f"relu{at}"),
                  node("MaxPool", [f"relu{at}"], [f"pooled{at}"], name=f"pool{at}", kernel_shape=[2, 2], strides=[2, 2])]
    nodes += [node("Flatten", ["pooled2"], ["flat"], name="flatten"), node("Gemm", ["flat", "fc1.weight", "fc1.bias"], ["hidden"], name="fc1", transB=1),
              node("Relu", ["hidden"], ["relu3"], name="relu3"), node("Gemm", ["relu3", "fc2.weight", "fc2.bias"], ["logits"], name="fc2", transB=1)]
    graph = helper.make_graph(nodes, "digits", [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 28, 28])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def shifted(x, random):
    """Each picture moved by up to two pixels."""
    wide = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    moves = random.integers(0, 5, (len(x), 2))
    return np.stack([picture[:, top:top + 28, left:left + 28] for picture, (top, left) in zip(wide, moves)])


def accuracy(session, x, y):
    return float((session.run({"image": x})["logits"].argmax(1) == y).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build/models/digits.csv.gz")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."))
    options = parser.parse_args()
    x, y = pictures(options.data)
    order = np.random.default_rng(0).permutation(len(x))
    found = []
    with evener.Runtime(threads=options.threads) as runtime:
        for fold in range(options.folds):
            held = order[fold::5]
            learned = np.setdiff1d(order, held)
            steps = options.epochs * (len(learned) // 64)
            trainer = evener.Trainer(runtime, network(fold), optimizer="adamw", learning_rate=2e-3, weight_decay=0.01, schedule="cosine", schedule_steps=steps,
                                     warmup_steps=20, seed=fold)
            before = trainer.evaluate({"image": x[held]}, y[held]).accuracy
            losses, rates, accuracies = [], [], []
            random = np.random.default_rng(fold)
            for _ in range(options.epochs):
                mixed = random.permutation(learned)
                for at in range(0, len(mixed) - 63, 64):
                    batch = mixed[at:at + 64]
                    step = trainer.step({"image": shifted(x[batch], random)}, y[batch])
                    losses.append(step.loss)
                    rates.append(step.learning_rate)
                accuracies.append(trainer.evaluate({"image": x[held]}, y[held]).accuracy)
            found.append(accuracies[-1])
            print(f"fold {fold + 1}: {before:.1%} before, {found[-1]:.2%} after {len(losses)} steps, loss {losses[0]:.3f} -> {losses[-1]:.4f}", flush=True)
        print(f"mean accuracy of {options.folds} folds: {np.mean(found):.2%}")
        plain, quantized = options.output / "digits.onnx", options.output / "digits.int8.onnx"
        trainer.finish(plain)
        quantizer = evener.Quantizer(runtime, plain)
        for at in range(0, 256, 64):
            quantizer.add_batch({"image": x[learned[at:at + 64]]})
        quantizer.save(quantized)
        of_bytes = accuracy(runtime.session(quantized), x[held], y[held])
        print(f"quantized: {of_bytes:.2%} in place of {found[-1]:.2%}, {quantized.stat().st_size / plain.stat().st_size:.3f} of the file's bytes")
    curves.draw(options.output / "training.svg", loss=losses, learning_rate=rates, accuracy=accuracies)


if __name__ == "__main__":
    main()
