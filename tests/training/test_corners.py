"""Derivatives at corners against PyTorch's (corner_reference.json, by make_corner_reference.py), in float64 and float32, and on an OpenCL device."""
import json
import os
import pathlib

import evener
import numpy as np
import pytest
from corners import CORNERS, FAR, TRAINING, Corner, a, recurrent
from onnx import TensorProto, helper

REFERENCE = json.loads(pathlib.Path(__file__).with_name("corner_reference.json").read_text())


@pytest.fixture(scope="module")
def runtime():
    with evener.Runtime(threads=2) as made:
        yield made


def check(name, runtime, dtype, **options):
    model, feeds = CORNERS[name].model(dtype)
    with runtime.session(model, **options) as session:
        found = [np.array(value) for value in session.run(feeds).values()]
    assert len(found) == len(REFERENCE[name])
    for got, want, by in zip(found, REFERENCE[name], CORNERS[name].by):
        want = np.array(want)
        largest = max(1.0, np.abs(want[np.isfinite(want)]).max(initial=0))  # of which float32 has seven digits
        tolerance = dict(rtol=1e-7, atol=1e-12) if dtype == np.float64 else dict(rtol=2e-5, atol=2e-6 * min(largest, 1e4))
        np.testing.assert_allclose(got, want, **tolerance, err_msg=f"{name} by input {by}")


def test_each_corner_has_a_reference():
    assert REFERENCE.keys() == CORNERS.keys()


@pytest.fixture(scope="module")
def opencl(runtime):
    try:
        runtime.device("opencl")
    except evener.Error:
        assert not os.environ.get("EVN_REQUIRE_OPENCL")
        pytest.skip("this machine has no OpenCL device")
    return runtime


@pytest.mark.parametrize("name", CORNERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
def test_derivatives_at_corners_are_those_of_pytorch(name, dtype, runtime):
    check(name, runtime, dtype)


@pytest.mark.parametrize("name", [name for name, corner in CORNERS.items() if corner.least == 0])  # a device may have no denormals
def test_derivatives_of_an_opencl_device_at_corners_are_those_of_pytorch(name, opencl):
    check(name, opencl, np.float32, device="opencl,cpu")


BELOW = a(-30, -18, -15, -10)
ABOVE = a(1e10, 1e19, 1e20)
SMALL = {  # slopes that are far below the tolerance of the corners
    "elu": (Corner("Elu", [BELOW], {"alpha": 0.75}), 0.75 * np.exp(BELOW)),
    "selu": (Corner("Selu", [BELOW]), 1.0507009873554805 * 1.6732632423543772 * np.exp(BELOW)),
    "celu": (Corner("Celu", [BELOW], {"alpha": 0.5}), np.exp(2 * BELOW)),
    "elu_of_a_recurrent_layer": (recurrent("Elu", BELOW), np.exp(BELOW)),
    "asinh": (Corner("Asinh", [ABOVE]), 1 / ABOVE),
    "acosh": (Corner("Acosh", [ABOVE]), 1 / ABOVE),
}


def check_small(name, runtime, **options):
    corner, slope = SMALL[name]
    model, feeds = corner.model(np.float32)
    with runtime.session(model, **options) as session:
        found, = [np.array(value) for value in session.run(feeds).values()]
    np.testing.assert_allclose(found.ravel(), slope * np.arange(1, slope.size + 1), rtol=2e-5)


@pytest.mark.parametrize("name", SMALL)
def test_small_slopes_keep_their_digits(name, runtime):
    check_small(name, runtime)


@pytest.mark.parametrize("name", SMALL)
def test_small_slopes_keep_their_digits_on_an_opencl_device(name, opencl):
    check_small(name, opencl, device="opencl,cpu")


def check_curve_of_gelu(approximate, runtime, **options):
    x = FAR[abs(FAR) >= 20].astype(np.float32)
    nodes, y = [helper.make_node("Gelu", ["x"], ["y"], approximate=approximate)], "y"
    for order in ("first", "second"):
        nodes += [helper.make_node("ReduceSum", [y], [f"{y}_sum"], keepdims=0),
                  helper.make_node("Gradient", ["x"], [order], name=order, domain=TRAINING, xs=["x"], y=f"{y}_sum")]
        y = order
    graph = helper.make_graph(nodes, "curve", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                              [helper.make_tensor_value_info("second", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(TRAINING, 1)], ir_version=10)
    with runtime.session(model.SerializeToString(), **options) as session:
        np.testing.assert_allclose(np.array(session.run({"x": x})["second"]), np.zeros_like(x), atol=1e-12)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_second_derivative_of_gelu_vanishes_far_from_0(approximate, runtime):
    check_curve_of_gelu(approximate, runtime)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_second_derivative_of_gelu_vanishes_far_from_0_on_an_opencl_device(approximate, opencl):
    check_curve_of_gelu(approximate, opencl, device="opencl,cpu")
