#!/usr/bin/env python3
"""What an OpenCL device adds to the start of a program: with empty caches on disk (cold), with those that the run before left (warm), and
beside the CPU, in turns, a process for each.

usage: start.py [--rounds N] [--models LIST] [--kernels auto|cpu|gpu] [--programs] [--markdown FILE]

Each process opens its devices, makes a session (for `ocr`, those of config/examples/ocr.yaml with their warm runs, and it reads the lines of
build/models/page.png), and runs twice. Caches are folders of their own: EVN_CACHE_DIR, and the driver's (POCL_CACHE_DIR). Printed are medians in ms:

open      the runtime and its devices
load      the session, of `ocr` both and their warm runs
first     the first run
second    the second run
start     open + load + first - second: all that is done once
added     start, less that of the CPU alone in the same round

--programs  also the programs of one cold process, with the time that each took to build
Models are names of build/models (scripts/fetch_models.py ocr photo skeletons).
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
MODELS = REPOSITORY / "build" / "models"
PARTS = ("open", "load", "first", "second")
WAYS = ("cpu", "cold", "warm")


def ocr_example():
    spec = importlib.util.spec_from_file_location("ocr", REPOSITORY / "examples" / "python" / "ocr.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def configuration(model, device, kernels):
    """The configuration of a process; paths of models are relative to its folder, so that it lies there."""
    if model == "ocr":
        text = (REPOSITORY / "config" / "examples" / "ocr.yaml").read_text()
        return text.replace("device: gpu", f"device: {device}").replace("optional: true", f"kernels: {kernels}")
    opencl = f"  gpu: {{type: opencl, kernels: {kernels}}}\n" if device == "gpu" else ""
    return f"version: 1\ndevices:\n  cpu: {{type: cpu}}\n{opencl}placement: {{default: {'[gpu, cpu]' if opencl else 'cpu'}}}\n"


def child(arguments):
    sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))
    import evener
    import numpy

    programs = []
    parts = {}

    def note(record):
        if record.event in ("program.compiled", "program.restored"):
            programs.append(record.message)

    def clock(name, function):
        begin = time.perf_counter()
        result = function()
        parts[name] = 1e3 * (time.perf_counter() - begin)
        return result

    if arguments.model == "ocr":
        from PIL import Image
        example = ocr_example()
        image = Image.open(MODELS / "page.png").convert("RGB")

    runtime = clock("open", lambda: evener.Runtime(arguments.config, log=note, log_level="debug"))
    if arguments.model == "ocr":
        sessions = clock("load", lambda: [runtime.session(name=name) for name in ("ocr_det", "ocr_rec")])
        ocr = example.Ocr(*map(example.runner, sessions), example.alphabet_of(sessions[1].metadata("character")))
        run = lambda: [ocr.recognize(image, line) for line in ocr.detect(image)]
    else:
        session = clock("load", lambda: runtime.session(str(MODELS / f"{arguments.model}.onnx")))
        shape = lambda value: [d if isinstance(d, int) and d > 0 else 1 if axis == 0 else 128 for axis, d in enumerate(value.shape)]
        inputs = {value.name: numpy.zeros(shape(value), str(value.dtype)) for value in session.inputs}
        run = lambda: session.run(inputs)
    clock("first", run)
    clock("second", run)
    print(json.dumps({"parts": parts, "programs": programs}))


def start_one(model, way, kernels, folder):
    device = "cpu" if way == "cpu" else "gpu"
    caches = pathlib.Path(folder) / "caches"
    for name in ("evn", "pocl"):
        (caches / name).mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=MODELS.resolve()) as config:
        config.write(configuration(model, device, kernels))
        config.flush()
        environment = dict(os.environ, EVN_CACHE_DIR=str(caches / "evn"), POCL_CACHE_DIR=str(caches / "pocl"))
        command = [sys.executable, __file__, "--child", "--model", model, "--config", config.name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"start.py: {model}, {way}: {done.stderr.strip()}")
    result = json.loads(done.stdout.splitlines()[-1])
    result["parts"]["start"] = sum(result["parts"][part] for part in PARTS[:3]) - result["parts"]["second"]
    return result


def measure(model, arguments):
    """For each way, the parts of all rounds; and the programs of the last cold process."""
    rounds = {way: [] for way in WAYS}
    programs = []
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for way in WAYS:
                result = start_one(model, way, arguments.kernels, folder)
                parts = result["parts"]
                parts["added"] = parts["start"] - (rounds["cpu"][-1]["start"] if way != "cpu" else parts["start"])
                rounds[way].append(parts)
                if way == "cold":
                    programs = result["programs"]
    return rounds, programs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", default="ocr,mobilenet_v2,resnet50")
    parser.add_argument("--kernels", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--config", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments)
    columns = (*PARTS, "start", "added")
    lines = ["| model | | " + " | ".join(columns) + " |", "|---|---|" + "---:|" * len(columns)]
    for model in arguments.models.split(","):
        rounds, programs = measure(model, arguments)
        for way in WAYS:
            cells = [f"{statistics.median(parts[column] for parts in rounds[way]):.0f}" for column in columns]
            lines.append(f"| {model} | {way} | " + " | ".join(cells) + " |")
        if arguments.programs:
            print("\n".join(programs))
    print("\n".join(lines))
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
