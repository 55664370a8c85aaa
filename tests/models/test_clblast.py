"""Products of matrices that go to CLBlast because the configuration says so, against ONNX Runtime."""
import ctypes
import json
import os

import evener
import numpy
import onnx
import onnxruntime
import pytest
from common import opencl_runtime
from onnx import TensorProto, helper, numpy_helper

CONFIG = "devices: {gpu: {type: opencl, clblast: MODE}}\nplacement: {default: gpu}\n"


def layers():
    """Two dense layers and a product with a batch of rows, 48 rows wide at least."""
    random = numpy.random.default_rng(7)
    weights = {name: random.standard_normal(shape).astype("float32") for name, shape in
               {"w1": (64, 96), "b1": (96,), "w2": (32, 96), "b2": (1, 32), "w3": (32, 80)}.items()}
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="first"), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("Gemm", ["r", "w2", "b2"], ["g"], name="second", transB=1, alpha=0.5),
             helper.make_node("MatMul", ["g", "w3"], ["y"], name="third")]
    graph = helper.make_graph(nodes, "layers", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [48, 64])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [48, 80])],
                              [numpy_helper.from_array(array, name) for name, array in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


@pytest.mark.parametrize("mode, suffix", [("always", "_clblast"), ("never", "")])
def test_configuration_says_who_multiplies(mode, suffix):
    if mode == "always" and os.environ.get("EVN_REQUIRE_OPENCL") != "1":
        try:
            ctypes.CDLL("libclblast.so.1")
        except OSError as error:
            pytest.skip(str(error))
    session = opencl_runtime(CONFIG.replace("MODE", mode)).session(layers())
    kernels = {node["op"]: node["kernel"] for node in json.loads(session.explain(format="json"))["nodes"]}
    assert kernels == {"Gemm": "gemm" + suffix, "MatMul": "matmul" + suffix}
    x = numpy.random.default_rng(8).standard_normal((48, 64)).astype("float32")
    wanted = onnxruntime.InferenceSession(layers(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    numpy.testing.assert_allclose(session.run({"x": x})["y"], wanted, rtol=1e-3, atol=1e-4)


def test_devices_say_what_other_libraries_they_use():
    found = {device["id"]: device["libraries"] for backend in json.loads(evener.Runtime().describe_devices("json"))["backends"]
             for device in backend["devices"]}
    assert found["cpu"].startswith("OpenBLAS: ")
    assert all(text.startswith("CLBlast: ") for id, text in found.items() if id.startswith("opencl:"))
