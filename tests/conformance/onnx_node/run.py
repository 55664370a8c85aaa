#!/usr/bin/env python3
"""Runs ONNX's own backend node tests through the C API (by the Python binding) and compares what comes out with expected.txt.

usage: run.py [--once] [--write] [--sample N] [PATTERN...]      PATTERN: a regular expression that a test's whole name must match

Each runs as it is written, with dims that the model does not tell, without even ranks, with all inputs but the first as
initializers, and with all of them, so that it is folded; with --once as it is written only. Prints passed, failed, refused and
skipped; the exit status is 1 when a test fails that is not in the list, or one of the list runs. --write takes from the list what
runs now, and puts in what is refused. --sample takes N of them, spread evenly over their names in order; under EVN_TEST_FULL=1 all.
"""
import argparse
import collections
import os
import pathlib
import re
import sys
import time

import numpy
import onnx

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bindings" / "python"), str(pathlib.Path(__file__).parent)]

import cases as onnx_cases  # noqa: E402
import evener  # noqa: E402

# |a - b| <= rtol * |b| + atol * max|b|; other types are exact. Of bfloat16 the library rounds once, by 2^-8 of a number at most, and what ONNX
# recorded is rounded at each of its steps: of attention the weights, which sum to 1, and the result, so that 3 * 2^-8 = 1.2e-2 bounds them;
# less has been seen.
TOLERANCE = {"float32": (1e-3, 1e-6), "float64": (1e-6, 1e-9), "float16": (2e-3, 1e-4), "bfloat16": (1e-2, 1e-6)}
MODULE = pathlib.Path(os.environ.get("EVENER_LIBRARY", "")).resolve().parent / "libevener_image.so"
SIGMAS = 6  # of the means of two random streams; seeds are fixed, so that a run gives what another does


class Wrong(Exception):
    """An output is not what it should be."""


def plain(value):
    """A stored value as the binding takes and gives it: an array, a list of them for a sequence, None for an absent optional."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    return value if value is None else numpy.asarray(value)


def is_tensor(value):
    return isinstance(value, numpy.ndarray)


# ---------------------------------------------------------------------------------------------- ways to write a model

def copy_of(model):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    return copy


def with_open_dims(model):
    copy = copy_of(model)
    for value in [*copy.graph.input, *copy.graph.output]:
        for index, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"{value.name}_{index}"
    return copy


def without_ranks(model):
    copy = copy_of(model)
    for value in [*copy.graph.input, *copy.graph.output]:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return copy


def with_initializers(model, inputs, first):
    """With the values of the inputs from `first` on in the model."""
    copy = copy_of(model)
    copy.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in list(inputs.items())[first:])
    del copy.graph.input[first:]
    return copy


def ways(model, inputs):
    yield "as written", model
    yield "with open dims", with_open_dims(model)
    yield "without ranks", without_ranks(model)
    if all(is_tensor(value) for value in inputs.values()):
        yield "with initializers", with_initializers(model, inputs, 1)
        yield "with initializers only", with_initializers(model, inputs, 0)


# --------------------------------------------------------------------------------------------------------- comparing

def check(holds, why):
    if not holds:
        raise Wrong(why)


def compare(actual, wanted):
    if not is_tensor(wanted):
        check(isinstance(actual, list) == isinstance(wanted, list) and (actual is None) == (wanted is None), f"{actual}, not {wanted}")
        check(len(actual or []) == len(wanted or []), f"a sequence of {len(actual or [])}, not {len(wanted or [])}")
        for a, b in zip(actual or [], wanted or []):
            compare(a, b)
        return
    check((actual.shape, actual.dtype) == (wanted.shape, wanted.dtype), f"{actual.dtype}{actual.shape}, not {wanted.dtype}{wanted.shape}")
    if wanted.dtype.name.startswith(("float8", "float4")):
        actual, wanted = (array.astype("float64") for array in (actual, wanted))
        numpy.testing.assert_array_equal(numpy.signbit(actual), numpy.signbit(wanted))
    if wanted.dtype.name not in TOLERANCE or actual.dtype != wanted.dtype:
        numpy.testing.assert_array_equal(actual, wanted)
        return
    rtol, atol = TOLERANCE[wanted.dtype.name]
    a, b = actual.astype("float64"), wanted.astype("float64")
    finite = numpy.isfinite(b)
    numpy.testing.assert_array_equal(a[~finite], b[~finite])  # the same NaN and infinities
    numpy.testing.assert_allclose(a[finite], b[finite], rtol, atol * numpy.abs(b[finite]).max(initial=0))


def compare_streams(actual, wanted):
    """Two samples of one distribution: the same shape and dtype, means and spreads that chance explains."""
    check((actual.shape, actual.dtype) == (wanted.shape, wanted.dtype), f"{actual.dtype}{actual.shape}, not {wanted.dtype}{wanted.shape}")
    a, b = actual.astype("float64").ravel(), wanted.astype("float64").ravel()
    spread = max(a.std(), b.std())
    bound = SIGMAS * spread * (2 / a.size) ** 0.5
    check(abs(a.mean() - b.mean()) <= bound, f"mean {a.mean()}, not {b.mean()} +- {bound}")
    check(abs(a.std() - b.std()) <= bound, f"standard deviation {a.std()}, not {b.std()} +- {bound}")


def run_once(runtime, model, inputs, wanted, comparing):
    session = runtime.session(model.SerializeToString())
    results = list(session.run({value.name: inputs[value.name] for value in model.graph.input}).values())
    check(len(results) == len(wanted), f"{len(results)} outputs, not {len(wanted)}")
    for actual, expected in zip(results, wanted):
        comparing(actual, expected)


def run_case(runtime, case, kind, once):
    """Raises Wrong, AssertionError, evener.Error or what the binding raises, all with the way of writing the model in front."""
    comparing = compare_streams if kind == "random" else compare
    for inputs, wanted in case.data_sets:
        named = {value.name: plain(given) for value, given in zip(case.model.graph.input, inputs, strict=True)}
        for way, model in ways(case.model, named):
            try:
                run_once(runtime, model, named, [plain(value) for value in wanted], comparing)
            except (Wrong, AssertionError) as error:
                raise Wrong(f"{way}: {error}") from None
            if once:
                break


# ------------------------------------------------------------------------------------------------------------ judging

def judge(runtime, case, expectation, once):
    """"passed", "refused", "built without" what it needs, or a sentence on what is wrong."""
    kind, message, _ = expectation or ("", "", "")
    try:
        run_case(runtime, case, kind, once)
    except evener.Error as error:
        if kind == "refused" and error.status == evener.Status.UNSUPPORTED and message in str(error):
            return "refused"
        if "needs libevener_image.so" in str(error) and not MODULE.exists():
            return "built without"
        return f"{error.status.name}: {error}"
    except (Wrong, TypeError, ValueError) as error:
        return " ".join(str(error).split())
    return "passes, but expected.txt says that it is refused" if kind == "refused" else "passed"


def selected(patterns):
    return {name: case for name, case in onnx_cases.cases().items() if not patterns or any(re.fullmatch(p, name) for p in patterns)}


def sampled(chosen, count):
    """`count` of them, at even distances in the order of their names; the same ones each time."""
    names = sorted(chosen)
    return {name: chosen[name] for name in (names[at * len(names) // count] for at in range(min(count, len(names))))}


def rewrite(expected, results):
    """expected.txt without what passes and with what is refused."""
    kept = {name: fields for name, fields in expected.items() if "expected.txt" not in results.get(name, "")}
    for name, result in results.items():
        if result.startswith("UNSUPPORTED: "):
            message = result.split(": ")[-1].split(" [node")[0]
            kept[name] = ("refused", message, kept[name][2] if name in kept else message)
    head = [line for line in onnx_cases.EXPECTED.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    lines = [" | ".join([name, *dict.fromkeys(kept[name])]) for name in sorted(kept)]
    onnx_cases.EXPECTED.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--once", action="store_true", help="each test as it is written only")
    parser.add_argument("--write", action="store_true", help="bring expected.txt up to date")
    parser.add_argument("--sample", type=int, metavar="N", help="N of them only, spread evenly; all under EVN_TEST_FULL=1")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    arguments = parser.parse_args()
    start = time.monotonic()
    expected, chosen = onnx_cases.expectations(), selected(arguments.patterns)
    if arguments.sample and os.environ.get("EVN_TEST_FULL") != "1":
        chosen = sampled(chosen, arguments.sample)
    failures = [f"{name}: in expected.txt, and no test of this version of onnx" for name in expected if name not in onnx_cases.cases()]
    if len(onnx_cases.cases()) != onnx_cases.COUNT:
        failures.append(f"this version of onnx has {len(onnx_cases.cases())} node tests, not {onnx_cases.COUNT}")
    runtime = evener.Runtime(threads=1)
    results = {name: judge(runtime, case, expected.get(name), arguments.once) for name, case in chosen.items()}
    fine = ("passed", "refused", "built without")
    counts = collections.Counter(result if result in fine else "failed" for result in results.values())
    failures += [f"{name}: {result}" for name, result in results.items() if result not in fine]
    if arguments.write:
        rewrite(expected, results)
    for failure in failures:
        print(f"FAILED {failure}")
    random = sum(name in chosen and kind == "random" for name, (kind, _, _) in expected.items())
    print(f"{len(chosen)} node tests of onnx {onnx.__version__}: {counts['passed']} passed ({random} of them random streams, by their statistics), "
          f"{counts['failed']} failed, {counts['refused']} refused as expected.txt says, {len(onnx_cases.cases()) - len(chosen) + counts['built without']} skipped; "
          f"{time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
