#!/usr/bin/env python3
"""Teaches EfficientNet-Lite0, which knows the classes of ImageNet, to tell from which of 16 pictures a small part is.

usage: train_pictures.py [--data FOLDER] [--steps 120] [--threads 2] [-o FOLDER]

The pictures are those that scikit-image and scipy ship. What is learned are the classifier, which is new, and the last block before it; the rest stays as it is,
statistics included. Parts for learning are from the left of each picture: of random place, size, side, brightness and contrast. Those that it is tried on are
from the right, which it has not seen. FOLDER gets pictures.onnx and pictures.svg. `scripts/fetch_models.py more pictures` fetches the checkpoint and the pictures.
"""
import argparse
import bz2
import pathlib

import curves
import efficientnet
import evener
import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ("astronaut.png", "brick.png", "camera.png", "chelsea.png", "coffee.png", "coins.png", "grass.png", "gravel.png", "hubble_deep_field.jpg", "ihc.png", "moon.png",
         "motorcycle_left.png", "page.png", "retina.jpg", "rocket.jpg", "face.dat")
SIZE = 96  # of the parts, when the network sees them


def picture(path):
    if path.suffix == ".dat":  # scipy's, of a raccoon
        return Image.fromarray(np.frombuffer(bz2.decompress(path.read_bytes()), np.uint8).reshape(768, 1024, 3))
    return Image.open(path).convert("RGB")


def part(image, random, learns):
    """A square part of the left three fifths, or of the right third of it, as the network takes it."""
    side = int(random.integers(64, 129))
    left, right = (0, image.width * 3 // 5) if learns else (image.width * 2 // 3, image.width)
    side = min(side, right - left)
    x, y = int(random.integers(left, right - side + 1)), int(random.integers(0, image.height - side + 1))
    seen = np.asarray(image.crop((x, y, x + side, y + side)).resize((SIZE, SIZE), Image.BILINEAR), np.float32).transpose(2, 0, 1)
    if learns:
        seen = seen[:, :, ::random.choice((-1, 1))]
        middle = seen.mean()
        seen = np.clip((seen - middle) * random.uniform(0.7, 1.3) + middle + random.uniform(-30, 30), 0, 255)
    return (seen - 127) / 128


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build/models")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."))
    options = parser.parse_args()
    images = [picture(options.data / name) for name in NAMES]
    random = np.random.default_rng(1)
    held = np.arange(16 * len(images)) % len(images)
    tried = {"image": np.stack([part(images[at], random, False) for at in held]).astype(np.float32)}
    model = efficientnet.network(efficientnet.checkpoint(options.data / "efficientnet_lite0.pth"), len(images))
    last = f"_blocks.{efficientnet.BLOCKS - 1}.*"
    before_last = ["_bn0"] + [f"_blocks.{block}._bn*" for block in range(efficientnet.BLOCKS - 1)]
    with evener.Runtime(threads=options.threads) as runtime:
        trainer = evener.Trainer(runtime, model, trainable=["_fc.*", "_conv_head.*", "_bn1.*", last], frozen=before_last, groups=[([last, "_conv_head.*", "_bn1.*"], 0.1, 0.0)],
                                 optimizer="adam", learning_rate=3e-3, schedule="cosine", schedule_steps=options.steps, warmup_steps=5)
        print(f"{len(trainer.parameters)} of {len(trainer.parameters) + len(trainer.describe('dict')['frozen'])} parameters and normalizations learn")
        before, losses, rates, accuracies = trainer.evaluate(tried, held).accuracy, [], [], []
        for at in range(options.steps):
            labels = random.permutation(np.arange(2 * len(images)) % len(images))
            step = trainer.step({"image": np.stack([part(images[label], random, True) for label in labels]).astype(np.float32)}, labels)
            losses.append(step.loss)
            rates.append(step.learning_rate)
            if at % 20 == 19:
                accuracies.append(trainer.evaluate(tried, held).accuracy)
                print(f"{at + 1} steps: loss {step.loss:.3f}, {accuracies[-1]:.1%} of parts that it has not seen", flush=True)
        trainer.finish(options.output / "pictures.onnx")
        session = runtime.session(options.output / "pictures.onnx")
        after = float((session.run(tried)["logits"].argmax(1) == held).mean())
    print(f"accuracy: {before:.1%} before, {after:.1%} after {options.steps} steps, of {len(held)} parts of {len(images)} pictures")
    curves.draw(options.output / "pictures.svg", loss=losses, learning_rate=rates, accuracy=accuracies)


if __name__ == "__main__":
    main()
