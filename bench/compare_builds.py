#!/usr/bin/env python3
"""Times two builds of the library in one process, run by run in turns: models of one node, and what a run costs beside its kernels.

usage: compare_builds.py OLD/libevener.so NEW/libevener.so [--threads N] [--seconds S] [PART OF A NAME...]

A run of one build follows a run of the other, so that whatever else the machine does hits both alike: 1 % shows on a busy machine.
Ratios are NEW to OLD: of medians, the median of neighbouring runs, and of the fastest tenths. A line is marked where all three are above
1.02. EVN_CPU_ISA=avx2 and the like choose the kernels of both.
"""
import argparse
import functools
import itertools
import os
import pathlib
import statistics
import sys
import time

import numpy
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bindings" / "python"))
CONTRIB = "com.microsoft"
BYTE = numpy.uint8


class Maker:
    """Makes models of one node, and what they are fed with; the same numbers each time."""

    def __init__(self):
        self.random = numpy.random.default_rng(1)

    def floats(self, *shape):
        return self.random.standard_normal(shape).astype(numpy.float32)

    def bytes(self, *shape):
        return self.random.integers(0, 255, shape).astype(BYTE)

    def weights(self, *shape):
        return self.random.integers(-90, 90, shape).astype(numpy.int8)

    @staticmethod
    def ints(*values):
        return numpy.array(values, numpy.int64)

    @staticmethod
    def scale(value):
        return numpy.array(value, numpy.float32)

    @staticmethod
    def zero(value, dtype=BYTE):
        return numpy.array(value, dtype)

    @staticmethod
    def node(op, inputs, constants=(), outputs=1, domain="", opset=13, dtype=None, **attributes):
        """The bytes of a model of `op`, whose inputs with numbers in `constants` are initializers, and the feeds of the others."""
        names, graph_inputs, initializers, feeds = [], [], [], {}
        for i, array in enumerate(inputs):
            name = "" if array is None else f"i{i}"
            names.append(name)
            if i in constants:
                initializers.append(numpy_helper.from_array(array, name))
            elif array is not None:
                graph_inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
                feeds[name] = array
        results = [f"o{i}" for i in range(outputs)]
        infos = [helper.make_tensor_value_info(r, dtype, None) if dtype else helper.make_empty_tensor_value_info(r) for r in results]
        graph = helper.make_graph([helper.make_node(op, names, results, domain=domain, **attributes)], "g", graph_inputs, infos, initializers)
        opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
        return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString(), feeds


def convolution(m, x, w, pad, stride=1, group=1, constants=(1, 2)):
    return m.node("Conv", [m.floats(*x), m.floats(*w), m.floats(w[0])], constants, pads=[pad] * 4, strides=[stride] * 2, group=group)


def byte_convolution(m, x, w, pad, stride=1, group=1):
    inputs = [m.bytes(*x), m.scale(.02), m.zero(100), m.weights(*w), m.scale(.01), m.zero(0, numpy.int8), m.scale(9), m.zero(90)]
    return m.node("QLinearConv", inputs, range(1, 8), pads=[pad] * 4, strides=[stride] * 2, group=group)


def pool(m, op, x, kernel, stride, dtype=None):
    pad = kernel // 2 if kernel % 2 else 0
    x = m.bytes(*x) if dtype else m.floats(*x)
    return m.node(op, [x], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, dtype=dtype)


def reductions():
    for shape in ((4096, 16), (512, 200), (4096, 64), (8, 1 << 14), (4, 1 << 18)):
        yield f"reduce {shape[0]}x{shape[1]}", lambda m, s=shape: m.node("ReduceMean", [m.floats(*s)], axes=[1], keepdims=0)
    yield "reduce columns 64", lambda m: m.node("ReduceMean", [m.floats(64, 64, 256)], axes=[1], keepdims=0)
    yield "reduce columns 8192", lambda m: m.node("ReduceMean", [m.floats(8192, 256)], axes=[0], keepdims=0)
    for shape in ((4096, 16), (1024, 100), (64, 1000), (8, 1 << 15), (4, 1 << 17)):
        for op in ("Softmax", "LogSoftmax"):
            yield f"{op} {shape[0]}x{shape[1]}", lambda m, s=shape, o=op: m.node(o, [m.floats(*s)], axis=-1)
    for shape in ((16, 64, 64), (1, 21, 4096), (1, 8192, 64)):
        yield f"Softmax columns {shape[1]}", lambda m, s=shape: m.node("Softmax", [m.floats(*s)], axis=1)
    for rows, line in ((1024, 64), (128, 768), (4, 1 << 17)):
        yield (f"LayerNormalization {rows}x{line}",
               lambda m, r=rows, n=line: m.node("LayerNormalization", [m.floats(r, n), m.floats(n), m.floats(n)], [1, 2], opset=17))
    yield "InstanceNormalization", lambda m: m.node("InstanceNormalization", [m.floats(1, 64, 28, 28), m.floats(64), m.floats(64)], [1, 2])
    yield "BatchNormalization", lambda m: m.node(
        "BatchNormalization", [m.floats(1, 64, 28, 28), m.floats(64), m.floats(64), m.floats(64), abs(m.floats(64))], [1, 2, 3, 4])
    yield "LRN", lambda m: m.node("LRN", [m.floats(1, 64, 28, 28)], size=5)
    yield "TopK", lambda m: m.node("TopK", [m.floats(64, 1000), m.ints(5)], [1], outputs=2, opset=11)


def moves():
    for x, mode in (((1, 64, 28, 28), "constant"), ((1, 64, 112, 112), "constant"), ((1, 256, 14, 14), "constant"), ((1, 64, 56, 56), "reflect")):
        yield (f"Pad {mode} {x[3]}",
               lambda m, s=x, k=mode: m.node("Pad", [m.floats(*s), m.ints(0, 0, 1, 1, 0, 0, 1, 1)], [1], mode=k))
    for mode in ("nearest", "linear", "cubic"):
        for side in (28, 64):
            yield (f"Resize {mode} {side}",
                   lambda m, k=mode, s=side: m.node("Resize", [m.floats(1, 16, s, s), None, numpy.float32([1, 1, 2, 2])], [2], mode=k))
    yield "Resize bytes", lambda m: m.node("Resize", [m.bytes(1, 32, 56, 56), None, numpy.float32([1, 1, 2, 2])], [2], mode="nearest",
                                           dtype=TensorProto.UINT8)
    for shape, axis, count in (((1000, 8), 0, 4096), ((30000, 256), 0, 1024), ((256, 300), 1, 200), ((64, 64, 64), 1, 32)):
        yield (f"Gather {'x'.join(map(str, shape))}", lambda m, s=shape, a=axis, n=count: m.node(
            "Gather", [m.floats(*s), m.random.integers(0, s[a], n).astype(numpy.int64)], [1] if a else [], axis=a))
    for shape, perm in (((128, 12, 64), (1, 0, 2)), ((512, 512), (1, 0)), ((1, 64, 28, 28), (0, 2, 3, 1))):
        yield f"Transpose {'x'.join(map(str, shape))}", lambda m, s=shape, p=perm: m.node("Transpose", [m.floats(*s)], perm=p)
    yield "Concat channels", lambda m: m.node("Concat", [m.floats(1, 64, 112, 112), m.floats(1, 64, 112, 112)], axis=1)
    yield "Concat short rows", lambda m: m.node("Concat", [m.floats(2048, 33), m.floats(2048, 5)], axis=1)
    yield "Split", lambda m: m.node("Split", [m.floats(1024, 192)], outputs=3, axis=1)
    yield "Slice", lambda m: m.node("Slice", [m.floats(512, 100), m.ints(0, 3), m.ints(512, 90), m.ints(0, 1)], [1, 2, 3])
    yield "Slice steps", lambda m: m.node("Slice", [m.floats(512, 100), m.ints(0), m.ints(100), m.ints(1), m.ints(2)], [1, 2, 3, 4])
    yield "Expand", lambda m: m.node("Expand", [m.floats(512, 1), m.ints(512, 64)], [1])


def elementwise():
    shapes = (((1024, 64), (64,)), ((1024, 64), (1024, 1)), ((4096, 16), (4096, 1)), ((16, 64, 8, 8), (1, 64, 1, 8)),
              ((1, 64, 56, 56), (1, 64, 1, 1)), ((1 << 18,), (1 << 18,)))
    for x, z in shapes:
        yield f"Add {x} {z}".replace(" ", ""), lambda m, x=x, z=z: m.node("Add", [m.floats(*x), m.floats(*z)])
    yield "Pow", lambda m: m.node("Pow", [abs(m.floats(1 << 16)) + .1, m.scale(1.7)])
    for op in ("Relu", "Sigmoid", "Erf"):
        yield op, lambda m, o=op: m.node(o, [m.floats(1 << 16)])


def pools():
    for op in ("MaxPool", "AveragePool"):
        for kernel, stride, side, channels in ((3, 2, 112, 64), (2, 2, 56, 64), (3, 1, 28, 64), (5, 1, 13, 256)):
            x = (1, channels, side, side)
            yield f"{op} {kernel}/{stride} {side}", lambda m, o=op, x=x, k=kernel, s=stride: pool(m, o, x, k, s)
    for kernel, stride, side, channels in ((3, 2, 56, 64), (2, 2, 14, 256)):
        x = (1, channels, side, side)
        yield f"MaxPool bytes {kernel}/{stride} {side}", lambda m, x=x, k=kernel, s=stride: pool(m, "MaxPool", x, k, s, TensorProto.UINT8)
    for channels, side in ((1280, 7), (512, 14), (64, 56)):
        x = (1, channels, side, side)
        yield f"GlobalAveragePool {side}", lambda m, x=x: m.node("GlobalAveragePool", [m.floats(*x)])
    yield "QLinearGlobalAveragePool", lambda m: m.node(
        "QLinearGlobalAveragePool", [m.bytes(1, 1280, 7, 7), m.scale(.05), m.zero(7), m.scale(.06), m.zero(11)], [1, 2, 3, 4], domain=CONTRIB,
        channels_last=0, dtype=TensorProto.UINT8)


def convolutions():
    shapes = {"thin 3": ((1, 3, 112, 112), (32, 3, 3, 3), 1, 2), "thin 7": ((1, 3, 112, 112), (64, 3, 7, 7), 3, 2),
              "depthwise 3": ((1, 64, 56, 56), (64, 1, 3, 3), 1, 1, 64), "depthwise 3/2": ((1, 64, 56, 56), (64, 1, 3, 3), 1, 2, 64),
              "depthwise 5": ((1, 256, 14, 14), (256, 1, 5, 5), 2, 1, 256), "1x1 28": ((1, 64, 28, 28), (64, 64, 1, 1), 0),
              "1x1 14": ((1, 256, 14, 14), (256, 256, 1, 1), 0), "3x3": ((1, 64, 28, 28), (64, 64, 3, 3), 1),
              "3x3/2": ((1, 64, 28, 28), (64, 64, 3, 3), 1, 2), "3x3 groups": ((1, 64, 28, 28), (64, 16, 3, 3), 1, 1, 4),
              "3x3 groups 14": ((1, 160, 14, 14), (160, 16, 3, 3), 1, 1, 10), "3x3 groups 56": ((1, 144, 56, 56), (144, 16, 3, 3), 1, 1, 9), "3x3 groups of 4": ((1, 128, 28, 28), (128, 4, 3, 3), 1, 1, 32),
              "3x3 groups of 8": ((1, 256, 14, 14), (256, 8, 3, 3), 1, 1, 32), "depthwise 7": ((1, 96, 28, 28), (96, 1, 7, 7), 3, 1, 96)}
    for name, shape in shapes.items():
        yield f"Conv {name}", lambda m, s=shape: convolution(m, *s)
    for name in ("3x3", "3x3/2", "thin 3", "3x3 groups of 4"):
        yield f"Conv computed {name}", lambda m, s=shapes[name]: convolution(m, *s, constants=())
    for name in ("3x3", "1x1 28", "thin 3", "depthwise 3"):
        yield f"QLinearConv {name}", lambda m, s=shapes[name]: byte_convolution(m, *s)
    yield "QLinearConv depthwise 14", lambda m: byte_convolution(m, (1, 256, 14, 14), (256, 1, 3, 3), 1, 1, 256)
    for kernel, pad in ((2, 0), (4, 1)):
        yield (f"ConvTranspose {kernel}", lambda m, k=kernel, p=pad: m.node(
            "ConvTranspose", [m.floats(1, 64, 14, 14), m.floats(64, 32, k, k)], [1], strides=[2, 2], pads=[p] * 4))
    yield "ConvTranspose computed 4", lambda m: m.node("ConvTranspose", [m.floats(1, 64, 14, 14), m.floats(64, 32, 4, 4)], strides=[2, 2], pads=[1] * 4)


def products():
    for m_, k, n in ((1, 512, 512), (8, 512, 512), (64, 512, 512), (128, 64, 128)):
        yield f"MatMul {m_}x{k}x{n}", lambda m, r=m_, k=k, n=n: m.node("MatMul", [m.floats(r, k), m.floats(k, n)], [1])
    yield "MatMul computed", lambda m: m.node("MatMul", [m.floats(12, 64, 64), m.floats(12, 64, 64)])
    yield "MatMul float64", lambda m: m.node(
        "MatMul", [m.floats(16, 64).astype(numpy.float64), m.floats(64, 32).astype(numpy.float64)], dtype=TensorProto.DOUBLE)
    yield "Gemm", lambda m: m.node("Gemm", [m.floats(32, 512), m.floats(256, 512), m.floats(256)], [1, 2], transB=1)
    for rows in (1, 8, 64, 256):
        yield (f"MatMulInteger {rows}",
               lambda m, r=rows: m.node("MatMulInteger", [m.bytes(r, 512), m.weights(512, 512), m.zero(3)], [1, 2]))
    yield "MatMulInteger computed", lambda m: m.node("MatMulInteger", [m.bytes(64, 512), m.weights(512, 512)])
    yield "QLinearMatMul", lambda m: m.node(
        "QLinearMatMul", [m.bytes(64, 512), m.scale(.02), m.zero(100), m.weights(512, 512), m.scale(.01), m.zero(0, numpy.int8), m.scale(9),
                          m.zero(90)], range(1, 8))
    for rows in (1, 8):
        yield (f"MatMulNBits {rows}", lambda m, r=rows: m.node(
            "MatMulNBits", [m.floats(r, 1024), m.bytes(512, 32, 16), abs(m.floats(512 * 32))], [1, 2], domain=CONTRIB, K=1024, N=512, bits=4,
            block_size=32, dtype=TensorProto.FLOAT))
    for queries, keys in ((64, 64), (1, 256)):
        yield (f"Attention {queries} of {keys}", lambda m, q=queries, k=keys: m.node(
            "Attention", [m.floats(1, 8, q, 64), m.floats(1, 8, k, 64), m.floats(1, 8, k, 64)], opset=23))
    for op, gates in (("LSTM", 4), ("GRU", 3)):
        yield op, lambda m, o=op, g=gates: m.node(
            o, [m.floats(16, 1, 64), m.floats(1, 64 * g, 64), m.floats(1, 64 * g, 64)], [1, 2], hidden_size=64)


def quantizing():
    zeros = {"whole": lambda m: (m.floats(1 << 18), m.scale(.02), m.zero(7), 1), "rows": lambda m: (m.floats(512, 49), abs(m.floats(512)) + .01, m.bytes(512), 0),
             "columns": lambda m: (m.floats(1024, 64), abs(m.floats(64)) + .01, m.bytes(64), 1)}
    for name, make in zeros.items():
        def quantize(m, make=make):
            x, scale, zero, axis = make(m)
            return m.node("QuantizeLinear", [x, scale, zero], [1, 2], **({} if scale.ndim == 0 else {"axis": axis}))

        def dequantize(m, make=make):
            x, scale, zero, axis = make(m)
            return m.node("DequantizeLinear", [m.bytes(*x.shape), scale, zero], [1, 2], **({} if scale.ndim == 0 else {"axis": axis}))

        yield f"QuantizeLinear {name}", quantize
        yield f"DequantizeLinear {name}", dequantize
    yield "DynamicQuantizeLinear", lambda m: m.node("DynamicQuantizeLinear", [m.floats(1 << 16)], outputs=3, opset=11)
    yield "QLinearAdd", lambda m: m.node(
        "QLinearAdd", [m.bytes(1 << 18), m.scale(.02), m.zero(3), m.bytes(1 << 18), m.scale(.013), m.zero(5), m.scale(.017), m.zero(0)],
        [1, 2, 4, 5, 6, 7], domain=CONTRIB, dtype=TensorProto.UINT8)


FAMILIES = (reductions, moves, elementwise, pools, convolutions, products, quantizing)


def load(library):
    """The package, bound to a library of its own; "LIBRARY:FOLDER" has the package in that folder."""
    path, _, folder = library.partition(":")
    for name in [n for n in sys.modules if n.split(".")[0] == "evener"]:
        del sys.modules[name]
    sys.path.insert(0, folder or str(pathlib.Path(__file__).resolve().parents[1] / "bindings" / "python"))
    os.environ["EVENER_LIBRARY"] = str(pathlib.Path(path).resolve())
    import evener
    evener.Runtime(threads=1)  # the library is opened at its first use
    return evener


def operators(runtimes):
    """Runs of one-node models: a name, and a call for each runtime."""
    for name, make in (case for family in FAMILIES for case in family()):
        def calls(make=make):
            model, feeds = make(Maker())
            return [functools.partial(runtime.session(model).run, feeds) for runtime in runtimes]

        yield name, calls


def overheads(runtimes):
    """What is done for each run, each new shape and each session beside the kernels, with one node and with 40."""
    for count in (1, 40):
        def chain(count=count):
            nodes = [helper.make_node("Sigmoid", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
            ends = [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, ["rows", 4]) for i in (0, count)]
            graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
            return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9).SerializeToString()

        x = numpy.ones((3, 4), numpy.float32)

        def new_shapes(runtime, chain=chain):
            session, lengths = runtime.session(chain()), itertools.cycle(range(1, 700))
            return lambda: session.run({"v0": numpy.ones((next(lengths), 4), numpy.float32)})

        yield f"run of {count} small", lambda c=chain: [functools.partial(r.session(c()).run, {"v0": x}) for r in runtimes]
        yield f"new shape of {count} small", lambda n=new_shapes: [n(r) for r in runtimes]
        yield f"session of {count} small", lambda c=chain: [lambda r=r, m=c(): r.session(m).run({"v0": x}) for r in runtimes]


def compare(calls, seconds):
    """Times of both calls in turns, in ns."""
    def timed(call):
        begin = time.perf_counter_ns()
        call()
        return time.perf_counter_ns() - begin

    for _ in range(5):
        once = sum(timed(call) for call in calls)
    times = ([], [])
    for i in range(int(max(60, min(4000, seconds * 1e9 / once)))):
        for which in ((0, 1) if i % 2 else (1, 0)):
            times[which].append(timed(calls[which]))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case")
    options = parser.parse_args()
    runtimes = [load(path).Runtime(threads=options.threads) for path in (options.old, options.new)]
    found = False
    print(f"{'case':32} {'old':>9} {'new':>9}     medians, pairs, tenths")
    for name, make_calls in itertools.chain(operators(runtimes), overheads(runtimes)):
        if options.names and not any(part in name for part in options.names):
            continue
        found = True
        old, new = compare(make_calls(), options.seconds)
        ratios = [statistics.median(new) / statistics.median(old), statistics.median(n / o for o, n in zip(old, new)),
                  sorted(new)[len(new) // 10] / sorted(old)[len(old) // 10]]
        print(f"{name:32} {statistics.median(old) / 1e3:9.1f} {statistics.median(new) / 1e3:9.1f} us  "
              + "  ".join(f"{r:.3f}" for r in ratios) + ("  slower" if min(ratios) > 1.02 else ""), flush=True)
    if not found:
        parser.error(f"no case's name contains {' or '.join(options.names)}")


if __name__ == "__main__":
    main()
