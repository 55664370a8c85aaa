"""ONNX's own node tests on an OpenCL device that gets all of each: nothing that runs there is wrong."""
import collections
import pathlib
import sys

import evener
from common import config, opencl_runtime

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "conformance" / "onnx_node"))
import run  # noqa: E402

LEAST = 1100  # of 1,884; the others are refused: float64, optimizers, losses, products of bytes that are computed, attention with past keys


def result_of(runtime, case):
    try:
        run.run_case(runtime, case, "", once=True)
    except evener.Error as error:
        if error.status == evener.Status.UNSUPPORTED:
            return "refused"
        raise
    return "passed"


def test_what_runs_wholly_on_opencl_is_right():
    runtime = opencl_runtime(config(default="gpu"))
    known = run.onnx_cases.expectations()
    counts, wrong = collections.Counter(), []
    for name, case in run.onnx_cases.cases().items():
        if name in known:
            continue
        try:
            counts[result_of(runtime, case)] += 1
        except (run.Wrong, AssertionError, evener.Error) as error:
            wrong.append(f"{name}: {error}")
    assert not wrong
    assert counts["passed"] >= LEAST, counts
