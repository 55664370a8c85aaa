"""The scripts in Python: what bench/compare.py takes for a wrong output, and the noise that fills skeletons."""
import pathlib
import subprocess
import sys

import numpy
import onnx
import pytest
from onnx import helper, numpy_helper

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "bench"), str(REPOSITORY / "bench" / "models")]

import compare  # noqa: E402
import skeleton  # noqa: E402

RIGHT = numpy.array([1.0, -2.0, 4.0], "float32")


def test_an_output_within_the_tolerance_is_right():
    assert compare.difference(RIGHT * numpy.float32(1.0005), RIGHT) == ""
    assert compare.difference(RIGHT + numpy.float32(3e-4), RIGHT) == ""


@pytest.mark.parametrize("wrong", [RIGHT * numpy.float32(1.01), RIGHT + numpy.float32(0.01), RIGHT[:2], RIGHT.astype("float64"),
                                   numpy.array([1, numpy.nan, 4], "float32"), numpy.array([1, numpy.inf, 4], "float32")])
def test_an_output_beyond_the_tolerance_is_wrong(wrong):
    assert compare.difference(wrong, RIGHT)


def test_nan_and_infinity_are_right_only_where_they_are_expected():
    special = numpy.array([1, numpy.nan, numpy.inf, 3], "float32")
    assert compare.difference(special.copy(), special) == ""
    assert compare.difference(numpy.array([1, numpy.nan, -numpy.inf, 3], "float32"), special)


def test_constant_expectations_prove_nothing():
    assert "nothing" in compare.difference(numpy.zeros(4, "float32"), numpy.zeros(4, "float32"))
    assert compare.difference(numpy.full(4, numpy.nan), numpy.full(4, numpy.nan))


def small_model():
    """Two weights: one that a skeleton keeps, one that it drops."""
    generator = numpy.random.default_rng(4)
    weights = [numpy_helper.from_array(generator.standard_normal((64, 64)).astype("float32"), "large"),
               numpy_helper.from_array(generator.standard_normal((4, 4)).astype("float32"), "small")]
    nodes = [helper.make_node("MatMul", ["x", "large"], ["y"])]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64]) for name in ("x", "y")]
    return helper.make_model(helper.make_graph(nodes, "small", values[:1], values[1:], weights))


def test_a_filled_skeleton_has_the_moments_of_the_original_and_is_the_same_each_time():
    original = {tensor.name: numpy_helper.to_array(tensor) for tensor in small_model().graph.initializer}
    stripped = small_model()
    skeleton.strip(stripped)
    assert len(stripped.SerializeToString()) < len(small_model().SerializeToString()) / 4
    filled = []
    for _ in range(2):
        model = onnx.ModelProto.FromString(stripped.SerializeToString())
        skeleton.fill(model)
        onnx.checker.check_model(model)
        filled.append({tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer})
    large = filled[0]["large"]
    assert large.tobytes() == filled[1]["large"].tobytes() != original["large"].tobytes()
    assert abs(large.mean() - original["large"].mean()) < 0.1 and abs(large.std() - original["large"].std()) < 0.1
    assert filled[0]["small"].tobytes() == original["small"].tobytes()


def test_a_model_that_is_no_skeleton_is_refused():
    with pytest.raises(SystemExit, match="no skeleton"):
        skeleton.fill(small_model())


def test_the_layers_are_kept():
    done = subprocess.run([sys.executable, REPOSITORY / "scripts" / "check_layers.py", REPOSITORY], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_unknown_sets_are_refused_by_fetch_models():
    done = subprocess.run([sys.executable, REPOSITORY / "scripts" / "fetch_models.py", "nothing"], capture_output=True, text=True)
    assert done.returncode == 2 and "there are: ocr photo more" in done.stderr
