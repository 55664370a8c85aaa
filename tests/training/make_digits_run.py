#!/usr/bin/env python3
"""Trains SimpleCNN of nets.py on written digits by the Python package, for the tests of the other languages, which are to see the same numbers.

usage: make_digits_run.py DIGITS OUTPUT      (the file of scripts/fetch_models.py digits, a folder)

OUTPUT gets simple_cnn.onnx, images.f32 (BATCHES * BATCH + HELD pictures of 28 x 28), labels.i64, and expected.f64: the loss of each step, then
loss, correct and count of the evaluation of the held pictures after the last step. All numbers are little-endian. The options of the trainer are
below; the tests have the same. A checkpoint after half of the steps is state.safetensors.
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bindings" / "python"), str(ROOT / "examples" / "python")]

import evener  # noqa: E402
import nets  # noqa: E402
import numpy as np  # noqa: E402
import train_digits  # noqa: E402

BATCHES, BATCH, HELD = 8, 32, 64
OPTIONS = dict(optimizer="adamw", learning_rate=0.002, weight_decay=0.01, groups=[("*.b", 2.0, 0.0)], frozen=["conv1.b"], schedule="cosine",
               schedule_steps=16, warmup_steps=2, clip_norm=1.0, seed=7)


def main(digits, output):
    images, labels = train_digits.pictures(digits)
    count = BATCHES * BATCH + HELD
    images, labels = images[:count], labels[:count]
    model = nets.simple_cnn()[0].SerializeToString()
    (output / "simple_cnn.onnx").write_bytes(model)
    (output / "images.f32").write_bytes(images.astype("<f4").tobytes())
    (output / "labels.i64").write_bytes(labels.astype("<i8").tobytes())
    with evener.Runtime(threads=2, cache_dir="") as runtime:
        trainer = evener.Trainer(runtime, model, **OPTIONS)
        losses = []
        for at in range(0, BATCHES * BATCH, BATCH):
            losses.append(trainer.step({"x": images[at:at + BATCH]}, labels[at:at + BATCH]).loss)
            if len(losses) == BATCHES // 2:
                trainer.save(output / "state.safetensors")
        held = trainer.evaluate({"x": images[-HELD:]}, labels[-HELD:])
    assert losses[-1] < losses[0] and held.count == HELD
    (output / "expected.f64").write_bytes(np.array([*losses, held.loss, held.correct, held.count], "<f8").tobytes())


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
