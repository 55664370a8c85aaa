"""Models that several files of tests run."""
import numpy as np
import pytest
from command import save, value
from onnx import helper, numpy_helper


@pytest.fixture
def conv(tmp_path):
    """Conv, Relu, and a matrix product: x [1,3,8,8] -> y [1,4,8,8]."""
    rng = np.random.default_rng(1)
    weight = numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv_1", pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["c"], ["r"], name="relu_1"),
             helper.make_node("Sub", ["r", "c"], ["y"], name="sub_1")]
    return save(tmp_path / "conv.onnx", nodes, [value("x", [1, 3, 8, 8])], [value("y", [1, 4, 8, 8])], [weight])


@pytest.fixture
def add(tmp_path):
    """Two inputs with unknown dimensions, two outputs with names that are no file names."""
    nodes = [helper.make_node("Add", ["a", "b"], ["out/sum:0"], name="add_1"),
             helper.make_node("Mul", ["a", "b"], ["out_sum_0"], name="mul_1")]
    return save(tmp_path / "add.onnx", nodes, [value("a", ["n", 3]), value("b", ["n", 3])],
                [value("out/sum:0", ["n", 3]), value("out_sum_0", ["n", 3])])
