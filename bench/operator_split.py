#!/usr/bin/env python3
"""Single operators shared by two devices (rules with `split`) beside each of them alone, in turns.

usage: operator_split.py [--rounds N] [--devices opencl|cpu] [--models LIST]

--devices  the two devices: the first two of OpenCL, or the CPU with one thread and the first of OpenCL. With PoCL, a core for each is
           POCL_DEVICES="pthread basic" POCL_MAX_PTHREAD_COUNT=1, and POCL_MAX_PTHREAD_COUNT=1 alone beside the CPU.
--models   names of build/models or of the skeletons in bench/models, whose products all are shared with `split: auto`; without it large operators,
           with both devices in the list

Printed are medians in ms, the ratio of the better device alone to the shared run, the shares when the runs are over, and whether the results have
the bits of the first device (largest difference, over the largest value, where they do not).
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import numpy
from onnx import TensorProto, helper, numpy_helper

import placement
from placement import evener

CPU_AND_OPENCL = "devices: {cpu: {type: cpu, threads: 1}, b: {type: opencl, match: {index: 0}}}\n"
TWO_OPENCL = "devices: {cpu: {type: cpu, threads: 1}, a: {type: opencl, match: {index: 0}}, b: {type: opencl, match: {index: 1}}}\n"
PRODUCTS = "[Conv, ConvTranspose, MatMul, Gemm, QLinearConv, QLinearMatMul, MatMulNBits]"


def model_of(inputs, nodes, constants, output):
    random = numpy.random.default_rng(7)
    initializers = [numpy_helper.from_array(random.standard_normal(shape).astype(numpy.float32) * 0.05, name) for name, shape in constants.items()]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
                              [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def operators():
    conv = [helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", pads=[1, 1, 1, 1])]
    yield "Conv 256 -> 256, 3x3, 28x28", model_of({"x": [1, 256, 28, 28]}, conv, {"w": (256, 256, 3, 3), "b": (256,)}, "y")
    points = [helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv")]
    yield "Conv 512 -> 512, 1x1, 28x28", model_of({"x": [1, 512, 28, 28]}, points, {"w": (512, 512, 1, 1), "b": (512,)}, "y")
    product = [helper.make_node("MatMul", ["x", "w"], ["y"], name="matmul")]
    yield "MatMul 256 x 1024 x 1024", model_of({"x": [256, 1024]}, product, {"w": (1024, 1024)}, "y")
    yield "MatMul 1 x 4096 x 4096", model_of({"x": [1, 4096]}, product, {"w": (4096, 4096)}, "y")
    yield "MatMul of two tensors, 512 x 512 x 512", model_of({"x": [512, 512], "w": [512, 512]}, product, {}, "y")


def compare(name, content, arguments, split, policy):
    devices = CPU_AND_OPENCL if arguments.devices == "cpu" else TWO_OPENCL
    first = "cpu" if arguments.devices == "cpu" else "a"
    split = split or f"[{first}, b]"
    default = "cpu" if first == "cpu" else "[a, cpu]"
    rule = f"placement: {{default: {default}, rules: [{{match: {{op: {PRODUCTS}}}, split: {split}, policy: {policy}}}]}}"
    sessions, kept = {}, []
    for key, placed in ((first, f"placement: {{default: {default}}}"), ("b", "placement: {default: [b, cpu]}"), ("split", rule)):
        runtime = evener.Runtime(config_text=devices + placed)
        kept.append(runtime)
        sessions[key] = runtime.session(runtime.model(content))
    random = numpy.random.default_rng(3)
    inputs = {k: random.standard_normal(v.shape).astype(v.dtype) if v.dtype == numpy.float32 else v
              for k, v in placement.zeros_of(sessions[first]).items()}
    for _ in range(12):  # the shares settle
        sessions["split"].run(inputs)
    time.sleep(1)
    times = {key: [] for key in sessions}
    for _ in range(arguments.rounds):
        for key, session in sessions.items():
            begin = time.perf_counter()
            session.run(inputs)
            times[key].append(time.perf_counter() - begin)
    medians = {key: 1e3 * statistics.median(t) for key, t in times.items()}
    results = {key: list(session.run(inputs).values()) for key, session in sessions.items()}
    same = all(numpy.array_equal(a, b) for a, b in zip(results[first], results["split"]))
    worst = max((numpy.abs(a - b).max() / max(numpy.abs(a).max(), 1e-30) for a, b in zip(results[first], results["split"]) if a.size), default=0)
    parts = json.loads(sessions["split"].explain("json"))["split_nodes"]
    nodes = len({p["node"] for p in parts})
    shares = " ".join(f"{p['device']} {p['units']}" for p in parts) if nodes == 1 else f"{nodes} nodes"
    best = min(medians[first], medians["b"])
    print(f"| {name} | {medians[first]:.2f} | {medians['b']:.2f} | {medians['split']:.2f} | {best / medians['split']:.2f} | {shares} | "
          f"{'the same' if same else f'{worst:.1e}'} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--devices", choices=["opencl", "cpu"], default="opencl")
    parser.add_argument("--models")
    arguments = parser.parse_args()
    print("| | first device, ms | second, ms | shared, ms | ratio | shares | bits |")
    print("|---|---:|---:|---:|---:|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("EVENER_BENCH_FOLDER", folder)
        if arguments.models:
            for name in arguments.models.split(","):
                compare(name, placement.path_of(name).read_bytes(), arguments, "auto", "prefer")
            return
        for name, content in operators():
            compare(name, content, arguments, None, "require")


if __name__ == "__main__":
    sys.exit(main())
