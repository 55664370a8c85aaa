#!/usr/bin/env python3
"""Every operator by itself against ONNX Runtime, over sizes and layouts as real models have them, interleaved and with outputs compared.

usage: operators.py [--threads N] [--seconds S] [--above RATIO] [--markdown FILE] [NAME...]

Each case is a model of one node. Both engines run it in turns in one process, with so many threads, for at least S seconds; printed are the medians
in microseconds, their quotient (ours to theirs), the kernel that ran it here, and whether the outputs agree. NAMEs are parts of names of cases.
At the end stand the geometric mean and, with --above, only the cases whose quotient is above RATIO.
What is timed is the engine's call, not its Python binding (bench/pair.py).
"""
import argparse
import math
import os
import pathlib
import statistics
import sys

import numpy
from onnx import helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import operator_cases  # noqa: E402
import pair  # noqa: E402
from table import Table  # noqa: E402


def model_of(case, feeds):
    """The model of one node, whose inputs are graph inputs but for the constants of the case."""
    inputs, initializers = [], []
    for name, value in feeds.items():
        dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
        if name in case.constants:
            initializers.append(helper.make_tensor(name, dtype, value.shape, value.tobytes(), raw=True))
        else:
            dims = [f"{name}_{axis}" for axis in range(value.ndim)] if name in case.open else value.shape
            inputs.append(helper.make_tensor_value_info(name, dtype, dims))
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, case.input_names(), outputs, domain=case.domain, **case.attributes)
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    opsets = [helper.make_opsetid("", case.opset)] + ([helper.make_opsetid(case.domain, 1)] if case.domain else [])
    return helper.make_model(helper.make_graph([node], "g", inputs, made, initializers), opset_imports=opsets, ir_version=10).SerializeToString()


def agree(ours, theirs):
    for a, b in zip(ours, theirs):
        a, b = numpy.asarray(a), numpy.asarray(b)
        if a.shape != b.shape:
            return False
        if a.dtype.kind == "f":
            limit = 2e-2 if a.dtype == numpy.float16 else 1e-3
            scale = float(numpy.nanmax(numpy.abs(b.astype("float64")), initial=0))
            if not numpy.allclose(a.astype("float64"), b.astype("float64"), rtol=limit, atol=limit * max(scale, 1e-6), equal_nan=True):
                return False
        elif not numpy.array_equal(a, b):
            return False
    return True


class Case(pair.Pair):
    def __init__(self, case, threads):
        feeds = case.feeds(numpy.random.default_rng(3))
        super().__init__(model_of(case, feeds), {name: value for name, value in feeds.items() if name not in case.constants}, threads)
        self.kernel = ", ".join(sorted({step["kernel"] for step in self.steps()}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--above", type=float, default=0)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(arguments.threads))
    table = Table("case", "ours, us", "ONNX Runtime, us", "quotient", "kernel", "outputs")
    quotients, wrong = [], []
    for case in operator_cases.cases():
        if arguments.names and not any(name in case.name for name in arguments.names):
            continue
        try:
            made = Case(case, arguments.threads)
            same = agree(made.run_ours(), made.run_theirs())
            ours, theirs = made.measure(arguments.seconds)
        except Exception as error:  # noqa: BLE001: what one engine refuses is a row of the table
            table.add(case.name, "-", "-", "-", "-", f"{type(error).__name__}: {str(error).splitlines()[0][:80]}")
            continue
        quotients.append(ours / theirs)
        wrong += [] if same else [case.name]
        if ours / theirs > arguments.above:
            table.add(case.name, f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.2f}", made.kernel, "agree" if same else "DIFFER")
    table.write(arguments.markdown)
    if quotients:
        mean = math.exp(statistics.fmean(map(math.log, quotients)))
        print(f"{len(quotients)} cases: geometric mean {mean:.2f}, {sum(q > 1.1 for q in quotients)} above 1.1, most {max(quotients):.1f}; "
              f"{len(wrong)} differ {wrong}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
