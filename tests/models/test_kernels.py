"""Every optimized kernel of the CPU meets an independent judge: drawn cases that explain says it ran, against ONNX Runtime and ONNX's own
evaluator.

Which kernels there are, and which of them this CPU and build can run, the library says (list_operators --kernels; EVN_CPU_ISA counts).
EVN_SHARE=i/n as in test_differential.py; EVN_TEST_FULL=1: 100 cases of each, otherwise 6.
"""
import dataclasses
import os
import pathlib

import evener
import numpy
import pytest
from differential import kernels, reach, trial
from onnx import TensorProto, helper

BUILD = os.environ.get("EVENER_BUILD") or str(pathlib.Path(__file__).resolve().parents[2] / "build" / "release")
CASES = 100 if os.environ.get("EVN_TEST_FULL") == "1" else 6
KERNELS = trial.cpu_kernels(BUILD)
RUN_HERE = [name for name, row in KERNELS.items() if row["available"] and name not in kernels.NOT_REACHED]
SHARE, SHARES = (int(part) for part in os.environ.get("EVN_SHARE", "0/1").split("/"))


@pytest.fixture(scope="module")
def trials():
    with evener.Runtime() as runtime:  # kernels of training are there once something is trained
        weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 1], [1, 2])
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])], [weight])
        evener.Trainer(runtime, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString(), "mse")
    return trial.Trials(trial.operator_rows(BUILD))


@pytest.mark.parametrize("name", RUN_HERE[SHARE::SHARES])
def test_a_kernel_meets_a_judge(trials, name):
    count = reach.reach(trials, KERNELS[name], CASES)
    assert not count.failures, "\n".join(count.failures)
    assert count.counted >= CASES, f"{count.line()}: {count.dropped}"


def test_kernels_that_meet_none_have_a_reason():
    assert set(kernels.NOT_REACHED) <= set(KERNELS) and all(kernels.NOT_REACHED.values())
    assert set(kernels.REACHES) <= set(KERNELS)
    assert len({row["operator"] for row in KERNELS.values()}) > 50  # the tables were read


@pytest.mark.parametrize("channels, side", [(256, 8), (256, 14), (256, 16), (256, 20), (257, 14)])
def test_filters_are_packed_before_the_size_of_images_is_known(trials, channels, side):
    """A session of a model that leaves sizes open packs filters once, for images of any size."""
    draw = kernels.Draw(numpy.random.default_rng(side), "", "Conv", 21, ())
    case = draw.case([draw.values((1, channels, side, side), low=-1, high=1), draw.values((256, channels, 3, 3), low=-1, high=1)], {"pads": [1, 1, 1, 1]})
    count = trial.Count()
    trials.judge([dataclasses.replace(case, constant={1}, open_dims=True)], count, ["float32"])
    assert not count.failures, count.failures
    assert count.counted == 1
