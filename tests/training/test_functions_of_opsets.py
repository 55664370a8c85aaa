"""A function may import an older opset of ai.onnx than its model: its nodes mean the same when they are trained."""
import evener
import numpy
from onnx import TensorProto, helper, numpy_helper


def content():
    node, opset = helper.make_node, helper.make_opsetid
    function = helper.make_function("mine", "F", ["a"], ["b"], [node("Softmax", ["a"], ["b"])], [opset("", 12)])
    value = helper.make_tensor_value_info
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("F", ["h"], ["p"], domain="mine"), node("ReduceMean", ["p"], ["y"], axes=[2], keepdims=0)]
    weight = numpy_helper.from_array(numpy.random.default_rng(1).normal(size=(3, 4)).astype("float32"), "w")
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, ["n", 2, 3])], [value("y", TensorProto.FLOAT, ["n", 2])], [weight])
    return helper.make_model(graph, functions=[function], opset_imports=[opset("", 17), opset("mine", 1)], ir_version=9).SerializeToString()


def test_softmax_of_opset_12_stays_so(tmp_path):
    runtime = evener.Runtime(threads=1)
    x = numpy.random.default_rng(2).normal(size=(5, 2, 3)).astype("float32")
    before = runtime.session(content()).run({"x": x})["y"]
    trainer = evener.Trainer(runtime, content(), loss="mse", learning_rate=1e-12)
    trainer.step({"x": x}, before)
    trainer.finish(tmp_path / "trained.onnx")
    numpy.testing.assert_allclose(runtime.session(str(tmp_path / "trained.onnx")).run({"x": x})["y"], before, rtol=1e-4, atol=1e-6)
