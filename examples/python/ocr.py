#!/usr/bin/env python3
"""Reads the text of a picture with two models: one finds the lines, one reads them.

usage: ocr.py --config YAML --image PICTURE [--threads N] [--output PNG]

The configuration names two models, ocr_det and ocr_rec: PP-OCRv4's detection and recognition networks, as in
config/examples/ocr.yaml. It says where they are and which device runs what; nothing here depends on it. Needs numpy and Pillow;
Evener's Python package must be importable.
"""
import argparse
import json
import math
import os
import pathlib
import sys
import time

import numpy
from PIL import Image, ImageDraw

DETECTION_LONG_SIDE = 960    # pixels; pictures are scaled to it, up or down
PIXEL_THRESHOLD = 0.3        # a pixel belongs to a line of text from this probability on
LINE_THRESHOLD = 0.5         # mean probability of the pixels of a line
UNCLIP_RATIO = 1.6           # the network draws lines thinner than they are: area * ratio / perimeter is added on each side
SMALLEST_SIDE = 4            # pixels of the probability map
LINE_HEIGHT = 48             # pixels, the recognition network's
LINE_WIDTH_STEP = 32         # widths are padded to a multiple, so that few different shapes are planned


def bgr(image):
    """The picture's pixels as float32 height x width x 3, blue first, as the networks were trained."""
    return numpy.asarray(image.convert("RGB"), numpy.float32)[:, :, ::-1]


def detection_input(image):
    """The picture as 1 x 3 x H x W with sides that are multiples of 32, and its size in pixels before scaling."""
    scale = DETECTION_LONG_SIDE / max(image.size)
    width, height = (max(32, round(side * scale / 32) * 32) for side in image.size)
    pixels = bgr(image.resize((width, height), Image.Resampling.BICUBIC)) / 255
    pixels = (pixels - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    return numpy.ascontiguousarray(pixels.transpose(2, 0, 1)[None], numpy.float32)


def runs_of(row):
    """The stretches of True in a row, as (begin, end) pairs."""
    edges = numpy.flatnonzero(numpy.diff(row, prepend=False, append=False))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist()))


def components(mask):
    """The 8-connected components of a boolean image: lists of (row, begin, end), by joining the runs of neighbouring rows."""
    parent = []

    def root(label):
        while parent[label] != label:
            parent[label] = parent[parent[label]]
            label = parent[label]
        return label

    labelled, above = [], []
    for y, row in enumerate(mask):
        here = []
        for begin, end in runs_of(row):
            label = len(parent)
            parent.append(label)
            for other_begin, other_end, other in above:
                if other_begin <= end and begin <= other_end:
                    parent[root(other)] = root(label)
            here.append((begin, end, label))
        labelled += [(y, begin, end, label) for begin, end, label in here]
        above = here
    found = {}
    for y, begin, end, label in labelled:
        found.setdefault(root(label), []).append((y, begin, end))
    return list(found.values())


class Line:
    """Where a line of text stands: a parallelogram with upright sides, corners from the upper left clockwise, in pixels."""

    def __init__(self, corners, score):
        self.corners = corners
        self.score = score
        self.width = math.dist(corners[0], corners[1])
        self.height = corners[3][1] - corners[0][1]
        self.middle = sum(y for _, y in corners) / 4


def fit_line(runs, probability):
    """The Line that a component (lists of row, begin, end) covers in the probability map; None for specks and doubtful ones."""
    x = numpy.concatenate([numpy.arange(begin, end) for _, begin, end in runs])
    y = numpy.concatenate([numpy.full(end - begin, row) for row, begin, end in runs])
    width = x.max() - x.min() + 1
    slope = 0.0
    if width > 3 * (runs[-1][0] - runs[0][0] + 1) / 2:  # a stretch of text, not a single letter
        centred = x - x.mean()
        slope = float((centred * (y - y.mean())).sum() / (centred * centred).sum())
    offset = y - slope * x
    top, bottom = offset.min(), offset.max() + 1
    score = float(probability[y, x].mean())
    if min(width, bottom - top) < SMALLEST_SIDE or score < LINE_THRESHOLD:
        return None
    grow = width * (bottom - top) * UNCLIP_RATIO / (2 * (width + bottom - top))
    left, right, top, bottom = x.min() - grow, x.max() + 1 + grow, top - grow, bottom + grow
    corners = ((left, top), (right, top), (right, bottom), (left, bottom))
    return Line([(float(px), float(slope * px + py)) for px, py in corners], score)


def text_lines(probability, size):
    """The Lines of a probability map, in pixels of a picture of `size` and in reading order."""
    scale_x, scale_y = size[0] / probability.shape[1], size[1] / probability.shape[0]
    found = []
    for runs in components(probability > PIXEL_THRESHOLD):
        line = fit_line(runs, probability)
        if line:
            found.append(Line([(x * scale_x, y * scale_y) for x, y in line.corners], line.score))
    return reading_order(found)


def reading_order(lines):
    """From the top, and from the left where lines share most of their height."""
    rows = []
    for line in sorted(lines, key=lambda line: line.middle):
        if rows and line.middle - rows[-1][0].middle < rows[-1][0].height / 3:
            rows[-1].append(line)
        else:
            rows.append([line])
    return [line for row in rows for line in sorted(row, key=lambda line: line.corners[0])]


def recognition_input(image, line):
    """The part of the picture under a Line as 1 x 3 x 48 x W."""
    width = max(8, round(LINE_HEIGHT * line.width / line.height))
    scale = max(1, math.ceil(line.height / LINE_HEIGHT))  # take all of a large picture's pixels before scaling them down
    upper_left, upper_right, lower_right, lower_left = line.corners
    quad = [*upper_left, *lower_left, *lower_right, *upper_right]
    crop = image.transform((width * scale, LINE_HEIGHT * scale), Image.Transform.QUAD, quad, Image.Resampling.BICUBIC)
    crop = crop.resize((width, LINE_HEIGHT), Image.Resampling.BOX)
    padded = numpy.zeros((1, 3, LINE_HEIGHT, math.ceil(width / LINE_WIDTH_STEP) * LINE_WIDTH_STEP), numpy.float32)
    padded[0, :, :, :width] = ((bgr(crop) / 255 - 0.5) / 0.5).transpose(2, 0, 1)
    return padded


def decode(probabilities, alphabet):
    """The text of steps x classes by the greedy rule of CTC (0 is the blank, repeated classes count once), and its score."""
    classes = probabilities.argmax(axis=1)
    keep = (classes != 0) & (classes != numpy.concatenate([[0], classes[:-1]]))
    if not keep.any():
        return "", 0.0
    return "".join(alphabet[index] for index in classes[keep]), float(probabilities[keep, classes[keep]].mean())


def alphabet_of(metadata):
    """The classes of the recognition network: the blank, the characters of the model's metadata, the space."""
    return ["", *metadata.split("\n"), " "]


class Ocr:
    """The two networks as one function. `detector` and `recognizer` map one array to one array."""

    def __init__(self, detector, recognizer, alphabet):
        self.detector = detector
        self.recognizer = recognizer
        self.alphabet = alphabet

    def detect(self, image):
        return text_lines(self.detector(detection_input(image))[0, 0], image.size)

    def recognize(self, image, line):
        return decode(self.recognizer(recognition_input(image, line))[0], self.alphabet)


def runner(session):
    """A session of one input and one output as a function."""
    return lambda array: next(iter(session.run({session.inputs[0].name: array}).values()))


def draw(image, lines, path):
    """Saves the picture, enlarged where it is small, with a box around each line."""
    factor = max(1, round(DETECTION_LONG_SIDE / max(image.size)))
    picture = image.convert("RGB").resize(tuple(side * factor for side in image.size), Image.Resampling.LANCZOS)
    pen = ImageDraw.Draw(picture)
    for line in lines:
        corners = [(x * factor, y * factor) for x, y in line.corners]
        pen.line([*corners, *corners[:2]], fill=(220, 30, 30), width=max(2, factor), joint="curve")
    picture.save(path)


class Clock:
    """Says what is being done on stderr, and how long it took in the end."""

    def __init__(self):
        self.parts = []

    def __call__(self, name, function):
        print(f"{name} ...", file=sys.stderr, flush=True)
        begin = time.perf_counter()
        result = function()
        self.parts.append((name, time.perf_counter() - begin))
        return result


def show_compilation(record):
    """Takes the library's log: says on stderr what a run waits for."""
    if record.event == "program.compiling":
        print(f"  {record.message}", file=sys.stderr, flush=True)


def placement(name, session):
    """One paragraph: how many nodes of a model each device has, and what is copied between devices."""
    plan = json.loads(session.explain("json"))
    nodes = {}
    for node in plan["nodes"]:
        nodes[node["device"]] = nodes.get(node["device"], 0) + 1
    lines = [f"{name}: " + ", ".join(f"{count} nodes on {device}" for device, count in nodes.items())]
    for copy in plan["copies"]:
        lines.append(f"  copies {copy['value']} from {copy['from']} to {copy['to']}, {copy['bytes']} bytes")
    return "\n".join(lines), set(nodes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--config", required=True, help="YAML file that names the models ocr_det and ocr_rec")
    parser.add_argument("--image", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, help="how many threads compute")
    parser.add_argument("--output", type=pathlib.Path, default="demo-ocr.png", help="picture with the boxes")
    arguments = parser.parse_args()
    try:
        read(arguments)
    except (evener.Error, OSError) as error:
        sys.exit(f"ocr.py: {error}")


def read(arguments):
    clock = Clock()
    image = Image.open(arguments.image)
    image.load()
    image = image.convert("RGB")
    runtime = clock("open the devices", lambda: evener.Runtime(arguments.config, arguments.threads, log=show_compilation, log_level="info"))
    detection = clock("load the detection network", lambda: runtime.session(name="ocr_det"))
    recognition = clock("load the recognition network", lambda: runtime.session(name="ocr_rec"))
    ocr = Ocr(runner(detection), runner(recognition), alphabet_of(recognition.metadata("character")))
    lines = clock("find the lines (programs for new shapes are built, one by one, or come from the cache)", lambda: ocr.detect(image))
    clock("find the lines again", lambda: ocr.detect(image))
    texts = clock(f"read {len(lines)} lines", lambda: [ocr.recognize(image, line) for line in lines])
    clock("draw the boxes", lambda: draw(image, lines, arguments.output))

    print("\nDevices")
    for device in runtime.devices:
        print(f"  {device.name}: {device.description} ({device.driver})")
    print("\nPlacement")
    used = set()
    for name, session in (("detection", detection), ("recognition", recognition)):
        text, devices = placement(name, session)
        used |= devices
        print("  " + text.replace("\n", "\n  "))
    if len(used) == 1:
        print(f"  Everything ran on {used.pop()}.")
    print("\nTime")
    for name, seconds in clock.parts:
        print(f"  {seconds * 1000:9.1f} ms  {name}")
    print("\nText")
    for text, score in texts:
        print(f"  {score:.3f}  {text}")
    print(f"\nThe boxes are drawn in {os.path.relpath(arguments.output)}")


if __name__ == "__main__":
    try:
        import evener
    except ImportError:
        sys.exit("ocr.py: the package `evener` is not importable: set PYTHONPATH to bindings/python of Evener's source tree")
    main()
