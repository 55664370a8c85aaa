#!/usr/bin/env python3
"""`default: auto` beside each device alone, and how well costs predict: CPU and OpenCL, in turns.

usage: placement.py [--models LIST] [--cpu-threads LIST] [--isas LIST] [--factors LIST] [--rounds N] [--best-of N]
                    [--kernels auto|cpu|gpu] [--split N] [--markdown FILE]

For each model and number of CPU threads, costs are measured anew in a folder of their own; then sessions on the CPU, on the first OpenCL
device (with the CPU for what it does not take), and of `default: auto` run in turns. Printed are medians in ms, what auto chose, its time over
that of the better device alone, and of a second runtime, which finds the costs in the folder, |predicted / measured - 1| of the steps of all
three (median) and of whole runs. Predicted and measured times are divided by that of a product of matrices that is timed beside each, so that
a machine that has become faster or slower in between does not count.

--isas      instruction sets of the CPU (EVN_CPU_ISA), of which "best" is the machine's own: devices of other relations
--factors   the OpenCL device is that many times slower, by a layer of the OpenCL loader: EVENER_SLOW_OPENCL is its file, libopencl_slow.so of
            a build with -DEVN_BENCH=ON
--best-of N the placements of contiguous segments with up to three cuts that are predicted to be the N fastest, by the times of nodes that
            explain shows and the copies at the cuts, run in turns with auto
--split N   instead: batches of N rows of each model on one OpenCL device and on two (POCL_DEVICES="pthread pthread", and
            POCL_MAX_PTHREAD_COUNT=1 for a core each)
Models are names of build/models (scripts/fetch_models.py) or of the skeletons in bench/models. Numbers of PoCL's threads:
POCL_MAX_PTHREAD_COUNT.
"""
import argparse
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import onnx

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "bindings" / "python"), str(REPOSITORY / "bench" / "models")]
import evener  # noqa: E402
import networks  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

MODELS = ("simple_cnn,mobilenet_v2,mobilenet_v3_small,squeezenet1_1,shufflenet_v2_x1_0,efficientnet_lite0,resnet18,resnet50,densenet121,"
          "bert_mini,gpt_kv,vit_b_16,lstm_gru,yolo_like_640")
TYPES = {"float32": numpy.float32, "int64": numpy.int64, "int32": numpy.int32, "bool": bool, "uint8": numpy.uint8}


def path_of(name):
    """Of the model's file. A skeleton is filled with noise for weights, once for this process and its children."""
    known = REPOSITORY / "build" / "models" / f"{name}.onnx"
    if known.exists():
        return known
    path = pathlib.Path(os.environ["EVENER_BENCH_FOLDER"]) / f"{name}.onnx"
    if not path.exists():
        path.write_bytes(networks.filled_skeleton(name))
    return path


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
        runtime = evener.Runtime(config_text=config(threads, arguments, "auto"), cache_dir=folder)
        reference = runtime.session(runtime.model(reference_model()), device="cpu")
        x = numpy.ones((512, 512), numpy.float32)
        before = min(timed(reference, {"x": x}) for _ in range(30))
        chosen = runtime.session(runtime.model(path_of(name)))
        summary = json.loads(chosen.explain("json"))["auto"]
        del chosen, reference, runtime
        # What a second process would find.
        runtime = evener.Runtime(config_text=config(threads, arguments, "auto"), cache_dir=folder)
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


# ------------------------------------------------------------------------------------------- the best-predicted placements

def node_times(explained):
    """Per node of the model, its time on the CPU and on the GPU in ns, as the reasons of auto say; a node fused into another one has 0, one that
    a device cannot run infinity."""
    unit = {"us": 1e3, "ms": 1e6}

    def time_of(reason, device):
        found = re.search(rf"{device} (?:([0-9.]+) (us|ms)|(cannot))", reason)
        return 0.0 if found is None else float("inf") if found[3] else float(found[1]) * unit[found[2]]
    return [(time_of(n["reason"], "cpu"), time_of(n["reason"], "gpu")) for n in explained["nodes"]]


def value_bytes(path):
    """Bytes of the values whose shapes are known, batches of one row."""
    model = onnx.load(str(path))
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.shape.dim and not value.type.tensor_type.shape.dim[0].dim_value:
            value.type.tensor_type.shape.dim[0].dim_value = 1
    inferred = onnx.shape_inference.infer_shapes(model).graph
    constants = {c.name for c in inferred.initializer}
    return {v.name: 4 * numpy.prod([d.dim_value for d in v.type.tensor_type.shape.dim], dtype=float)
            for v in (*inferred.input, *inferred.value_info, *inferred.output) if v.name not in constants}


def best_predicted(explained, path, copies, count):
    """The `count` fastest placements with up to three cuts, as lists of booleans: whether a node is on the GPU. The device alone counts as one."""
    nodes, sizes = explained["nodes"], value_bytes(path)
    times = numpy.array(node_times(explained)).T
    sums = numpy.concatenate([numpy.zeros((2, 1)), times.cumsum(1)], axis=1)
    made = {v: i for i, n in enumerate(nodes) for v in n["outputs"]}
    last = {v: i for i, n in enumerate(nodes) for v in n["inputs"] if v}
    crossing = numpy.zeros((2, len(nodes) + 1))  # ns to move what is read behind a cut before node i, up and down
    for value, read in last.items():
        size = sizes.get(value, 0)
        for way, copy in enumerate(copies):
            crossing[way, made.get(value, -1) + 1:read + 1] += copy["latency_ns"] + copy["ns_per_mib"] * size / 2**20 if size else 0
    works = [i for i in range(1, len(nodes)) if times[:, i].max() > 0]
    found = []
    for cuts in range(4):
        for at in itertools.combinations(works, cuts):
            edges = (0, *at, len(nodes))
            for first in (0, 1):
                on = [(first + k) % 2 for k in range(cuts + 1)]
                ns = sum(sums[d, e] - sums[d, b] for d, b, e in zip(on, edges, edges[1:]))
                ns += sum(crossing[0 if on[k + 1] else 1, c] for k, c in enumerate(at)) + crossing[0, 0] * on[0]
                if numpy.isfinite(ns):
                    found.append((ns, on, edges))
        found = sorted(found, key=lambda f: f[0])[:4 * count]
    return [[bool(d) for d, b, e in zip(on, edges, edges[1:]) for _ in range(b, e)] for _, on, edges in found[:count]]


def compare_with_best(name, threads, arguments):
    """Medians in ms of auto and of the best-predicted placements, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        runtime = evener.Runtime(config_text=config(threads, arguments, "auto"), cache_dir=folder)
        auto = runtime.session(runtime.model(path_of(name)))
        explained = json.loads(auto.explain("json"))
        copies = runtime.calibrate(runtime.model(path_of(name)))["devices"][1]
        sessions, kept = {"auto": auto}, []
        for number, on_gpu in enumerate(best_predicted(explained, path_of(name), (copies["upload"], copies["download"]), arguments.best_of)):
            names = [n["name"] for n, gpu in zip(explained["nodes"], on_gpu) if gpu]
            rules = f"  rules: [{{match: {{name: {json.dumps(names)}}}, device: gpu, policy: prefer}}]\n" if names else ""
            kept.append(evener.Runtime(config_text=config(threads, arguments, "cpu").rstrip("}\n").replace("placement: {", "placement:\n  ") + "\n" + rules,
                                       cache_dir=folder))
            sessions[number] = kept[-1].session(kept[-1].model(path_of(name)))
        return medians(sessions, zeros_of(auto), arguments.rounds)


def with_open_batch(path):
    """The model's bytes, with the first dim of what goes in and comes out open."""
    model = onnx.load(str(path))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.value_info[:]
    return model.SerializeToString()


def split(name, rows, rounds):
    devices = "devices: {a: {type: opencl, match: {index: 0}}, b: {type: opencl, match: {index: 1}}}\n"
    one = evener.Runtime(config_text=devices + "placement: {default: [a, cpu]}")
    two = evener.Runtime(config_text=devices + "placement: {default: cpu, split: [a, b]}")
    content = with_open_batch(path_of(name))
    sessions = {"one": one.session(one.model(content)), "two": two.session(two.model(content))}
    inputs = zeros_of(sessions["one"], rows)
    for _ in range(3):
        sessions["two"].run(inputs)
    found = medians(sessions, inputs, rounds)
    shares = [(part["device"], part["rows"]) for part in json.loads(sessions["two"].explain("json"))["split"]]
    return found["one"], found["two"], shares


def run_child(what, name, threads, isa, factor, arguments):
    """`what` of this program in a process of its own, with the CPU's instruction set and the OpenCL device's factor; what it found."""
    environment = dict(os.environ)
    if isa != "best":
        environment["EVN_CPU_ISA"] = isa
    if factor != 1:
        environment["OPENCL_LAYERS"] = os.environ["EVENER_SLOW_OPENCL"]
        environment["EVN_SLOW_OPENCL"] = str(factor)
    command = [sys.executable, __file__, "--child", what, "--models", name, "--cpu-threads", str(threads), "--rounds", str(arguments.rounds),
               "--kernels", arguments.kernels, "--best-of", str(arguments.best_of or 0)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {done.stderr[-1000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--cpu-threads", default="1,2")
    parser.add_argument("--isas", default="best")
    parser.add_argument("--factors", default="1")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--split", type=int)
    parser.add_argument("--best-of", type=int)
    parser.add_argument("--markdown")
    parser.add_argument("--child", choices=["compare", "best"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        todo = {"compare": compare, "best": compare_with_best}[arguments.child]
        print(json.dumps(todo(arguments.models, int(arguments.cpu_threads), arguments)))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("EVENER_BENCH_FOLDER", folder)
        measure(arguments)


def measure(arguments):
    lines = []

    def say(line):
        lines.append(line)
        print(line, flush=True)

    pairs = [(name, threads, isa, factor) for name in arguments.models.split(",") for threads in map(int, arguments.cpu_threads.split(","))
             for isa in arguments.isas.split(",") for factor in map(float, arguments.factors.split(","))]
    if arguments.split:
        say("| model | one device, ms | two, ms | ratio | rows |")
        say("|---|---:|---:|---:|---|")
        for name in arguments.models.split(","):
            one, two, shares = split(name, arguments.split, arguments.rounds)
            say(f"| {name} | {one:.2f} | {two:.2f} | {one / two:.2f} | {' '.join(f'{d} {n}' for d, n in shares)} |")
    elif arguments.best_of:
        say(f"| model | CPU | OpenCL | auto, ms | best of {arguments.best_of}, ms | auto to it |")
        say("|---|---|---|---:|---:|---:|")
        for name, threads, isa, factor in pairs:
            found = run_child("best", name, threads, isa, factor, arguments)
            auto = found.pop("auto")
            say(f"| {name} | {isa} x {threads} | {factor:g} x | {auto:.2f} | {min(found.values()):.2f} | {auto / min(found.values()):.2f} |")
    else:
        say("| model | CPU | OpenCL | cpu, ms | gpu, ms | auto, ms | to the better alone | nodes of auto | error of steps | of runs |")
        say("|---|---|---|---:|---:|---:|---:|---|---:|---:|")
        ratios, all_steps, all_runs, mixed = [], [], [], []
        for name, threads, isa, factor in pairs:
            found, placed, errors, runs, summary = run_child("compare", name, threads, isa, factor, arguments)
            ratio = found["auto"] / min(found["cpu"], found["gpu"])
            ratios.append(ratio)
            all_steps += errors
            all_runs += runs
            if "cpu + gpu" in summary.split(";")[0]:
                mixed.append((round(ratio, 2), name, isa, threads, factor))
            say(f"| {name} | {isa} x {threads} | {factor:g} x | {found['cpu']:.2f} | {found['gpu']:.2f} | {found['auto']:.2f} | {ratio:.2f} | "
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
