"""Tiny ONNX models as bytes."""
import numpy
from onnx import helper, numpy_helper

OPSET = 17


def value(name, dtype, shape):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype)), shape)


def model(nodes, inputs, outputs, constants=None, metadata=None):
    tensors = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    for key, text in (metadata or {}).items():
        proto.metadata_props.add(key=key, value=text)
    return proto.SerializeToString()


def add(shape=("n", 3)):
    """y = a + b"""
    return model([helper.make_node("Add", ["a", "b"], ["y"], name="sum")],
                 [value("a", "float32", shape), value("b", "float32", shape)], [value("y", "float32", shape)])


def scale(factor=2.0, metadata=None):
    """y = x * factor, of any length"""
    return model([helper.make_node("Mul", ["x", "factor"], ["y"], name="scale")], [value("x", "float32", ["n"])],
                 [value("y", "float32", ["n"])], {"factor": numpy.array([factor], "float32")}, metadata)


def identity(dtype, shape):
    return model([helper.make_node("Identity", ["x"], ["y"], name="same")], [value("x", dtype, shape)], [value("y", dtype, shape)])


def two_outputs():
    """z = -x, y = |x|: in this order"""
    nodes = [helper.make_node("Abs", ["x"], ["y"], name="abs"), helper.make_node("Neg", ["x"], ["z"], name="neg")]
    return model(nodes, [value("x", "float32", [4])], [value("z", "float32", [4]), value("y", "float32", [4])])


def sequence():
    """s = [x], a sequence"""
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, ["n"]))
    return model([helper.make_node("SequenceConstruct", ["x"], ["s"], name="pack")], [value("x", "float32", ["n"])],
                 [helper.make_value_info("s", kind)])


def matmul(size):
    """y = x w with a constant w of ones"""
    return model([helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], [value("x", "float32", ["m", size])],
                 [value("y", "float32", ["m", size])], {"w": numpy.ones((size, size), "float32")})


def unknown_operator():
    return model([helper.make_node("Abs", ["x"], ["t"], name="fine"), helper.make_node("NoSuchOperator", ["t"], ["y"], name="strange")],
                 [value("x", "float32", [4])], [value("y", "float32", [4])])
