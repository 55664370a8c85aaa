#!/usr/bin/env python3
"""Takes half of the channels out of a network that reads written digits, and says what that costs and saves.

usage: prune_digits.py [--data digits.csv.gz] [--share 0.5] [--epochs 24] [--folds 1] [--threads 2] [--command evener] [-o FOLDER]

The network is that of train_digits.py. It learns from four fifths of the pictures, then goes on while its channels of the smallest norm become zero one after
the other, over the first half of as many epochs; the finished model has them no more. FOLDER gets whole.onnx, pruned.onnx and pruning.svg. The times are those
of `evener bench`, for one picture at a time and one thread. `scripts/fetch_models.py digits` fetches the pictures.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess

import curves
import evener
import numpy as np
from train_digits import ROOT, accuracy, network, pictures, shifted


def epochs(trainer, x, y, learned, count, random):
    """Learns; (loss, share of the channels that are left) of each step."""
    for _ in range(count):
        mixed = random.permutation(learned)
        for at in range(0, len(mixed) - 63, 64):
            step = trainer.step({"image": shifted(x[mixed[at:at + 64]], random)}, y[mixed[at:at + 64]])
            groups = trainer.describe("dict").get("pruning", {}).get("groups", [])
            yield step.loss, sum(group["now"] for group in groups) / max(1, sum(group["channels"] for group in groups))


def milliseconds(command, path):
    """The median time of a picture."""
    done = subprocess.run([command, "bench", path, "--shape", "image=1,1,28,28", "--runs", "500", "--threads", "1", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["median_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build/models/digits.csv.gz")
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--folds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--command", default=os.environ.get("EVENER_COMMAND") or shutil.which("evener") or ROOT / "build/release/evener")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."))
    options = parser.parse_args()
    x, y = pictures(options.data)
    order = np.random.default_rng(0).permutation(len(x))
    whole, pruned = options.output / "whole.onnx", options.output / "pruned.onnx"
    found = []
    with evener.Runtime(threads=options.threads) as runtime:
        for fold in range(options.folds):
            held = order[fold::5]
            learned = np.setdiff1d(order, held)
            steps, random = options.epochs * (len(learned) // 64), np.random.default_rng(fold)
            common = dict(optimizer="adamw", weight_decay=0.01, schedule="cosine", schedule_steps=steps, seed=fold)
            trainer = evener.Trainer(runtime, network(fold), learning_rate=2e-3, warmup_steps=20, **common)
            for _ in epochs(trainer, x, y, learned, options.epochs, random):
                pass
            trainer.finish(whole)
            trainer = evener.Trainer(runtime, whole, learning_rate=1e-3, prune_share=options.share, prune_steps=steps // 2, **common)
            losses, left, accuracies = [], [], []
            for at, (loss, share) in enumerate(epochs(trainer, x, y, learned, options.epochs, random)):
                losses.append(loss)
                left.append(share)
                if at % 22 == 21:
                    accuracies.append(trainer.evaluate({"image": x[held]}, y[held]).accuracy)
            trainer.finish(pruned)
            found.append([accuracy(runtime.session(path), x[held], y[held]) for path in (whole, pruned)])
            print(f"fold {fold + 1}: {found[-1][0]:.2%} with all channels, {found[-1][1]:.2%} with {left[-1]:.0%} of them", flush=True)
    before, after = np.mean(found, axis=0)
    print(f"mean accuracy of {options.folds} folds: {before:.2%} -> {after:.2%}")
    print("channels: " + ", ".join(f"{group['name']} {group['channels']} -> {group['now']}" for group in trainer.describe("dict")["pruning"]["groups"]))
    sizes, times = [path.stat().st_size for path in (whole, pruned)], [milliseconds(options.command, path) for path in (whole, pruned)]
    print(f"file: {sizes[0]} -> {sizes[1]} bytes, {sizes[1] / sizes[0]:.3f} of them")
    print(f"a picture: {times[0]:.4f} -> {times[1]:.4f} ms, {times[1] / times[0]:.2f} of the time")
    curves.draw(options.output / "pruning.svg", loss=losses, channels_left=left, accuracy=accuracies)


if __name__ == "__main__":
    main()
