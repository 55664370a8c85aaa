#!/usr/bin/env python3
"""Finds the faces on a picture and draws a box around each.

usage: faces.py --model blazeface_back.onnx --image PICTURE [--config YAML] [--threads N] [--output PNG]

The models are MediaPipe's BlazeFace networks (scripts/fetch_models.py faces people): front, 128 x 128 pixels, and back,
256 x 256. Source: Bazarevsky et al. 2019, "BlazeFace: Sub-millisecond Neural Face Detection on Mobile GPUs".
Needs numpy and Pillow; Evener's Python package must be importable.
"""
import argparse

import numpy
from PIL import Image, ImageDraw

import evener

GRIDS = ((16, 2), (8, 6))  # cells along a side, anchors in each; outputs come in this order
SCORE_THRESHOLD = 0.5
OVERLAP_THRESHOLD = 0.3    # intersection over union from which two boxes are one face


def anchors(cells, count):
    """Centres of the anchors, as fractions of the picture: (cells * cells * count) x 2."""
    centres = (numpy.arange(cells) + 0.5) / cells
    y, x = numpy.meshgrid(centres, centres, indexing="ij")
    return numpy.repeat(numpy.stack([x.ravel(), y.ravel()], axis=1), count, axis=0)


def decode(outputs, side):
    """Boxes as left, top, right, bottom (fractions of the picture), and their scores."""
    scores, raw = outputs[:2], outputs[2:]
    centres = numpy.concatenate([anchors(*grid) for grid in GRIDS])
    logits = numpy.clip(numpy.concatenate([s[0, :, 0] for s in scores]), -80, 80)
    score = 1 / (1 + numpy.exp(-logits))
    box = numpy.concatenate([r[0, :, :4] for r in raw]) / side
    middle, half = box[:, :2] + centres, box[:, 2:] / 2
    return numpy.concatenate([middle - half, middle + half], axis=1), score


def overlap(a, b):
    """Intersection over union of one box with many."""
    width = numpy.clip(numpy.minimum(a[2], b[:, 2]) - numpy.maximum(a[0], b[:, 0]), 0, None)
    height = numpy.clip(numpy.minimum(a[3], b[:, 3]) - numpy.maximum(a[1], b[:, 1]), 0, None)
    area = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    both = width * height
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + area - both)


def faces(boxes, scores):
    """The best box of each face, averaged with those that it overlaps, best first."""
    order = numpy.flatnonzero(scores >= SCORE_THRESHOLD)
    order = order[numpy.argsort(-scores[order], kind="stable")]
    found = []
    while len(order):
        same = overlap(boxes[order[0]], boxes[order]) >= OVERLAP_THRESHOLD
        weights = scores[order[same]]
        found.append(((boxes[order[same]] * weights[:, None]).sum(0) / weights.sum(), float(scores[order[0]])))
        order = order[~same]
    return found


def find_faces(session, image):
    """(box in pixels, score) of each face."""
    side = session.inputs[0].shape[1]
    longest = max(image.size)
    square = Image.new("RGB", (longest, longest))
    square.paste(image, ((longest - image.width) // 2, (longest - image.height) // 2))
    pixels = numpy.asarray(square.resize((side, side), Image.Resampling.BILINEAR), numpy.float32)[None] / 127.5 - 1
    outputs = list(session.run({session.inputs[0].name: pixels}).values())
    offset = numpy.array([(longest - image.width) // 2, (longest - image.height) // 2] * 2)
    return [(box * longest - offset, score) for box, score in faces(*decode(outputs, side))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--config")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--output", default="faces.png")
    arguments = parser.parse_args()
    image = Image.open(arguments.image).convert("RGB")
    session = evener.Runtime(config=arguments.config, threads=arguments.threads).session(arguments.model)
    found = find_faces(session, image)
    draw = ImageDraw.Draw(image)
    for box, score in found:
        print(f"{score:.2f}  left {box[0]:.0f}, top {box[1]:.0f}, right {box[2]:.0f}, bottom {box[3]:.0f}")
        draw.rectangle(box.tolist(), outline=(255, 0, 0), width=3)
    image.save(arguments.output)
    print(f"{len(found)} face(s); the boxes are drawn in {arguments.output}")


if __name__ == "__main__":
    main()
