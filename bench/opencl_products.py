#!/usr/bin/env python3
"""Products of matrices on an OpenCL device of the same cores: the library's own kernels and CLBlast's, beside OpenBLAS on the CPU, in turns.

usage: opencl_products.py [--sizes LIST] [--rounds N] [--threads N] [--markdown FILE]

Sizes are MxKxN, or N for N x N x N; the right side is a constant of the model, as in networks. Printed are medians in GFLOPS (2 operations for a
multiply-add) over rounds of some runs each, and the medians over the rounds of the ratios of the own kernels to OpenBLAS and to CLBlast. OpenBLAS
has --threads threads; the OpenCL device has as many as its driver takes (PoCL: POCL_MAX_PTHREAD_COUNT).
"""
import argparse
import pathlib
import statistics
import sys
import time

import numpy
from onnx import TensorProto, helper, numpy_helper

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))
import evener  # noqa: E402

WAYS = {
    "own": "devices: {{gpu: {{type: opencl, clblast: never}}}}\nplacement: {{default: gpu}}\n",
    "CLBlast": "devices: {{gpu: {{type: opencl, clblast: always}}}}\nplacement: {{default: gpu}}\n",
    "OpenBLAS": "devices: {{cpu: {{type: cpu, threads: {threads}, products: openblas}}}}\nplacement: {{default: cpu}}\n",
}


def product(m, k, n):
    weight = numpy_helper.from_array(numpy.random.default_rng(1).standard_normal((k, n), numpy.float32), "w")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", [m, k]), ("y", [m, n]))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", values[:1], values[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


class Way:
    """One library's session, with input and output where it computes, so that nothing is copied."""

    def __init__(self, name, text, model, x):
        self.runtime = evener.Runtime(config_text="version: 1\n" + text)
        self.session = self.runtime.session(model)
        device = self.runtime.devices[-1] if name != "OpenBLAS" else self.runtime.devices[0]
        self.x = device.tensor(x.shape)
        host = self.runtime.devices[0].tensor(x.shape)
        numpy.from_dlpack(host)[...] = x
        evener.copy_async(host, self.x).wait()
        self.y = self.session.run({"x": x})["y"]

    def seconds(self, runs):
        begin = time.perf_counter()
        for _ in range(runs):
            self.session.run({"x": self.x})
        return (time.perf_counter() - begin) / runs


def measure(size, arguments):
    m, k, n = size if len(size) == 3 else size * 3
    x = numpy.random.default_rng(2).standard_normal((m, k), numpy.float32)
    model = product(m, k, n)
    ways = {name: Way(name, text.format(threads=arguments.threads), model, x) for name, text in WAYS.items()}
    for name, way in ways.items():
        numpy.testing.assert_allclose(way.y, ways["OpenBLAS"].y, rtol=1e-3, atol=1e-3 * k ** 0.5, err_msg=name)
    flops = 2.0 * m * k * n
    runs = max(2, int(2e9 / flops))
    rates = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            rates[name].append(flops / way.seconds(runs) / 1e9)
    ratio = lambda other: statistics.median(a / b for a, b in zip(rates["own"], rates[other]))
    cells = [f"{statistics.median(rates[name]):.0f}" for name in ways] + [f"{ratio('OpenBLAS'):.2f}", f"{ratio('CLBlast'):.1f}"]
    return f"| {m} x {k} x {n} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sizes", default="256,512,1024,128x3072x768,196x256x2304")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--markdown", type=pathlib.Path)
    arguments = parser.parse_args()
    lines = ["| M x K x N | " + " | ".join(WAYS) + " | own / OpenBLAS | own / CLBlast |", "|---|" + "---:|" * (len(WAYS) + 2)]
    for size in arguments.sizes.split(","):
        lines.append(measure(tuple(map(int, size.split("x"))), arguments))
    print("\n".join(lines))
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
