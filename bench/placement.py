#!/usr/bin/env python3
"""`default: auto` beside each device alone, and how well costs predict: CPU and OpenCL, in turns.

usage: placement.py [--models LIST] [--cpu-threads LIST] [--rounds N] [--kernels auto|cpu|gpu] [--split N] [--markdown FILE]

For each model and number of CPU threads, costs are measured anew in a folder of their own; then sessions on the CPU, on the first OpenCL
device (with the CPU for what it does not take), and of `default: auto` run in turns. Printed are medians in ms, what auto chose, its time over
that of the better device alone, and of a second runtime, which finds the costs in the folder, |predicted / measured - 1| of the steps of all
three (median) and of whole runs. Predicted and measured times are divided by that of a product of matrices that is timed beside each, so that
a machine that has become faster or slower in between does not count.

--split N   instead: batches of N rows of each model on one OpenCL device and on two (POCL_DEVICES="pthread pthread", and
            POCL_MAX_PTHREAD_COUNT=1 for a core each)
Models are names of build/models (scripts/fetch_models.py skeletons). Numbers of PoCL's threads: POCL_MAX_PTHREAD_COUNT.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))
import evener  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

MODELS = ("simple_cnn,mobilenet_v2,mobilenet_v3_small,squeezenet1_1,shufflenet_v2_x1_0,efficientnet_lite0,resnet18,resnet50,densenet121,"
          "bert_mini,gpt_kv,vit_b_16,lstm_gru,minilm_l3,yolo_like_640")
TYPES = {"float32": numpy.float32, "int64": numpy.int64, "int32": numpy.int32, "bool": bool, "uint8": numpy.uint8}


def path_of(name):
    return REPOSITORY / "build" / "models" / f"{name}.onnx"


def reference_model():
    weight = numpy_helper.from_array(numpy.full((512, 512), 0.5, numpy.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "reference",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [512, 512])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [512, 512])], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def zeros_of(session, rows=1):
    shape = lambda value: [d if isinstance(d, int) and d >= 0 else rows if axis == 0 else 128 for axis, d in enumerate(value.shape)]
    return {value.name: numpy.zeros(shape(value), TYPES[str(value.dtype)]) for value in session.inputs}


def timed(session, inputs):
    begin = time.perf_counter()
    session.run(inputs)
    return 1e3 * (time.perf_counter() - begin)


def medians(sessions, inputs, rounds):
    """Of runs in turns, in ms."""
    times = {name: [] for name in sessions}
    for session in sessions.values():
        timed(session, inputs)
    for _ in range(rounds):
        for name, session in sessions.items():
            times[name].append(timed(session, inputs))
    return {name: statistics.median(t) for name, t in times.items()}


def error_of_steps(session, inputs, scale):
    """Of each step with a prediction: |predicted / measured - 1|, measured being the mean over some traced runs."""
    with session.trace() as trace:
        for _ in range(5):
            session.run(inputs)
    del trace
    nodes = json.loads(session.explain("json"))["nodes"]
    return [abs(n["predicted_ns"] * scale / n["measured_ns"] - 1) for n in nodes if n["predicted_ns"] and n["measured_ns"]]


def config(threads, arguments, default):
    return (f"devices: {{cpu: {{type: cpu, threads: {threads}}}, gpu: {{type: opencl, kernels: {arguments.kernels}}}}}\n"
            f"placement: {{default: {default}}}\n")


def compare(name, threads, arguments):
    with tempfile.TemporaryDirectory() as folder:
        runtime = evener.Runtime(config=config(threads, arguments, "auto"), cache_dir=folder)
        reference = runtime.session(runtime.model(reference_model()), device="cpu")
        x = numpy.ones((512, 512), numpy.float32)
        before = min(timed(reference, {"x": x}) for _ in range(30))
        chosen = runtime.session(runtime.model(path_of(name)))
        summary = json.loads(chosen.explain("json"))["auto"]
        del chosen, reference, runtime
        # What a second process would find.
        runtime = evener.Runtime(config=config(threads, arguments, "auto"), cache_dir=folder)
        model = runtime.model(path_of(name))
        reference = runtime.session(runtime.model(reference_model()), device="cpu")
        sessions = {"cpu": runtime.session(model, device="cpu"), "gpu": runtime.session(model, device="gpu,cpu"), "auto": runtime.session(model)}
        inputs = zeros_of(sessions["cpu"])
        found = medians(sessions, inputs, arguments.rounds)
        scale = min(timed(reference, {"x": x}) for _ in range(30)) / before
        errors, runs = [], []
        for key, session in sessions.items():
            runs.append(abs(json.loads(session.explain("json"))["predicted_ns"] * 1e-6 * scale / found[key] - 1))
            errors += error_of_steps(session, inputs, scale)
        placed = {}
        for node in json.loads(sessions["auto"].explain("json"))["nodes"]:
            placed[node["device"]] = placed.get(node["device"], 0) + 1
        return found, placed, errors, runs, summary


def split(name, rows, rounds):
    devices = "devices: {a: {type: opencl, match: {index: 0}}, b: {type: opencl, match: {index: 1}}}\n"
    one = evener.Runtime(config=devices + "placement: {default: [a, cpu]}")
    two = evener.Runtime(config=devices + "placement: {default: cpu, split: [a, b]}")
    sessions = {"one": one.session(one.model(path_of(name))), "two": two.session(two.model(path_of(name)))}
    inputs = zeros_of(sessions["one"], rows)
    for _ in range(3):
        sessions["two"].run(inputs)
    found = medians(sessions, inputs, rounds)
    shares = [(part["device"], part["rows"]) for part in json.loads(sessions["two"].explain("json"))["split"]]
    return found["one"], found["two"], shares


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--cpu-threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--split", type=int)
    parser.add_argument("--markdown")
    arguments = parser.parse_args()
    lines = []

    def say(line):
        lines.append(line)
        print(line, flush=True)

    if arguments.split:
        say("| model | one device, ms | two, ms | ratio | rows |")
        say("|---|---:|---:|---:|---|")
        for name in arguments.models.split(","):
            one, two, shares = split(name, arguments.split, arguments.rounds)
            say(f"| {name} | {one:.2f} | {two:.2f} | {one / two:.2f} | {' '.join(f'{d} {n}' for d, n in shares)} |")
    else:
        say("| model | CPU threads | cpu, ms | gpu, ms | auto, ms | to the better alone | nodes of auto | error of steps | of runs |")
        say("|---|---:|---:|---:|---:|---:|---|---:|---:|")
        ratios, all_steps, all_runs, mixed = [], [], [], []
        for name in arguments.models.split(","):
            for threads in map(int, arguments.cpu_threads.split(",")):
                found, placed, errors, runs, summary = compare(name, threads, arguments)
                ratio = found["auto"] / min(found["cpu"], found["gpu"])
                ratios.append(ratio)
                all_steps += errors
                all_runs += runs
                if "cpu + gpu" in summary.split(";")[0]:
                    mixed.append((round(ratio, 2), name, threads))
                say(f"| {name} | {threads} | {found['cpu']:.2f} | {found['gpu']:.2f} | {found['auto']:.2f} | {ratio:.2f} | "
                    f"{', '.join(f'{n} {d}' for d, n in sorted(placed.items()))} | {statistics.median(errors):.2f} | "
                    f"{' '.join(f'{r:.2f}' for r in runs)} |")
        say("")
        say(f"auto to the better device alone: median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}; mixed: {sorted(mixed)}")
        say(f"|predicted / measured - 1|: median of {len(all_steps)} steps {statistics.median(all_steps):.2f}, "
            f"of {len(all_runs)} runs {statistics.median(all_runs):.2f}")
    if arguments.markdown:
        pathlib.Path(arguments.markdown).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
