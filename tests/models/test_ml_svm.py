"""Support vector machines of ai.onnx.ml, with ONNX Runtime as the judge."""
import evener
import numpy
import pytest
from common import onnx_runtime
from test_ml import NUMBERS, ROWS, TRANSFORMS, f32, f64, i32, i64, model_of

VECTORS = numpy.random.default_rng(4).normal(size=(6, 4))
KERNELS = [("LINEAR", [0.0, 0.0, 0.0]), ("POLY", [0.5, 0.25, 3.0]), ("POLY", [0.25, 6.0, 2.5]), ("RBF", [0.5, 0.0, 0.0]), ("SIGMOID", [0.25, 0.5, 0.0])]
DUAL = [0.5, -1.0, 0.25, 0.75, -0.5, -0.125]


def machine(kernel, params, coefficients, rho, vectors=VECTORS):
    lists = {"coefficients": coefficients, "rho": rho, "support_vectors": vectors.astype(f32).ravel().tolist()}
    return lists | {"kernel_type": kernel, "kernel_params": params}


def svm_cases():
    x, whole = ROWS[6:].astype(f32), numpy.trunc(ROWS[6:] * 3)
    linear = {"coefficients": DUAL[:4], "rho": [0.25], "kernel_params": [0.0] * 3}
    yield "SVMRegressor", 1, [x], linear
    yield "SVMRegressor", 1, [x], linear | {"one_class": 1}
    for kernel, params in KERNELS:
        attributes = machine(kernel, params, DUAL, [0.125]) | {"n_supports": 6}
        yield "SVMRegressor", 1, [x], attributes
        yield "SVMRegressor", 1, [x], attributes | {"one_class": 1}
        yield "SVMClassifier", 1, [x], machine(kernel, params, DUAL, [0.125]) | {"vectors_per_class": [2, 4], "classlabels_strings": ["no", "é"]}
        three = machine(kernel, params, [*DUAL, *DUAL[::-1]], [0.1, -0.2, 0.3]) | {"vectors_per_class": [1, 2, 3], "classlabels_ints": [5, -1, 7]}
        for dtype in (f32, f64, i64, i32):
            yield "SVMClassifier", 1, [whole.astype(dtype)], three
        yield "SVMClassifier", 1, [x], three | {"prob_a": [-1.5, -0.5, -2.0], "prob_b": [0.1, 0.2, -0.3]}
    for transform in TRANSFORMS:
        pair = machine("RBF", [0.5, 0.0, 0.0], DUAL, [0.125]) | {"vectors_per_class": [2, 4], "classlabels_ints": [4, 9], "post_transform": transform}
        if transform != "PROBIT":  # of which ONNX Runtime writes the first of the two scores only
            yield "SVMClassifier", 1, [x], pair
        yield "SVMClassifier", 1, [x], pair | {"prob_a": [-1.5], "prob_b": [0.1]}
        yield "SVMClassifier", 1, [x], three | {"post_transform": transform}
        yield "SVMClassifier", 1, [x], three | {"prob_a": [-1.5, -0.5, -2.0], "prob_b": [0.1, 0.2, -0.3], "post_transform": transform}
        rows = {"coefficients": [*DUAL, *DUAL[::-1]], "rho": [0.25], "kernel_params": [0.0] * 3, "post_transform": transform}
        yield "SVMClassifier", 1, [x], rows | {"classlabels_strings": ["a", "é", "c"]}
        yield "SVMClassifier", 1, [x], rows | {"classlabels_ints": [5, -1, 7], "rho": [0.25, 1.0, 2.0]}  # of which only the first counts
    four = numpy.random.default_rng(5).normal(size=(3, 6)).ravel().tolist()
    attributes = machine("RBF", [0.25, 0.0, 0.0], four, [0.1, -0.2, 0.3, 0.0, -0.1, 0.2]) | {"vectors_per_class": [1, 0, 3, 2]}
    attributes |= {"classlabels_strings": ["a", "b", "c", "d"]}
    yield "SVMClassifier", 1, [x], attributes
    yield "SVMClassifier", 1, [x], attributes | {"prob_a": [-1.5, -0.5, -2.0, -1.0, -1.25, -3.0], "prob_b": [0.1, 0.2, -0.3, 0.0, 0.5, -1.0]}


CASES = list(svm_cases())


@pytest.fixture(scope="module")
def runtime():
    return evener.Runtime(threads=1)


@pytest.mark.parametrize("case", CASES, ids=[f"{index}-{case[0]}" for index, case in enumerate(CASES)])
def test_agrees_with_onnx_runtime(runtime, case):
    model = model_of(*case)
    actual = runtime.session(model).run({"x0": case[2][0]})
    for name, wanted in zip(("y", "z"), onnx_runtime(model).run(None, {"x0": case[2][0]})):
        assert (actual[name].shape, actual[name].dtype.kind) == (wanted.shape, wanted.dtype.kind)
        if wanted.dtype.kind == "f":  # whose probit is an approximation
            rtol = 2e-3 if case[3].get("post_transform") == "PROBIT" else 2e-5
            numpy.testing.assert_allclose(actual[name], wanted, rtol=rtol, atol=rtol)
        else:
            assert actual[name].tolist() == wanted.tolist()


PAIRS = machine("RBF", [0.5, 0.0, 0.0], [*DUAL, *DUAL[::-1]], [0.1, -0.2, 0.3]) | {"vectors_per_class": [1, 2, 3], "classlabels_ints": [5, -1, 7]}
ONE = machine("POLY", [0.5, 0.25, 3.0], DUAL, [0.125]) | {"n_supports": 6}


def test_the_machines_that_the_refused_ones_come_from_are_taken(runtime):
    for op, attributes in (("SVMClassifier", PAIRS), ("SVMRegressor", ONE)):
        assert runtime.session(model_of(op, 1, [NUMBERS.astype(i64)], attributes)).run({"x0": NUMBERS.astype(i64)})["y"].shape[0] == 2


@pytest.mark.parametrize("op, change, named", [
    *[("SVMClassifier", change, named) for change, named in (
        ({"rho": [0.0]}, "rho"), ({"coefficients": [1.0]}, "coefficients"), ({"vectors_per_class": [1, 5]}, "vectors_per_class"),
        ({"vectors_per_class": [2**62] * 4}, "vectors_per_class"), ({"vectors_per_class": [-1, 2, 3]}, "vectors_per_class"),
        ({"vectors_per_class": [1, 2, 2]}, "support_vectors"), ({"vectors_per_class": [0, 0, 0]}, "support_vectors"),
        ({"support_vectors": [1.0] * 5}, "support_vectors"), ({"classlabels_ints": [1]}, "vectors_per_class"), ({"prob_a": [1.0] * 3}, "prob_b"),
        ({"prob_a": [1.0] * 2, "prob_b": [1.0] * 2}, "prob_a"), ({"prob_b": [1.0] * 3}, "prob_b"), ({"kernel_params": [1.0]}, "kernel_params"),
        ({"kernel_type": "CUBIC"}, "kernel_type"), ({"post_transform": "NO"}, "post_transform"), ({"classlabels_strings": ["a"]}, "labels"),
        ({"prob_a": [float("nan")] * 3, "prob_b": [1.0] * 3}, "prob_a[0]"))],
    *[("SVMRegressor", change, named) for change, named in (
        ({"n_supports": 2**62}, "coefficients"), ({"n_supports": -1}, "n_supports"), ({"n_supports": 0}, "support_vectors"),
        ({"rho": []}, "rho"), ({"rho": [1.0, 2.0]}, "rho"), ({"rho": [float("inf")]}, "rho[0]"), ({"support_vectors": [1.0] * 6}, "input 0"),
        ({"coefficients": [*DUAL[:5], float("nan")]}, "coefficients[5]"), ({"kernel_params": [float("inf"), 0.0, 1.0]}, "kernel_params[0]"))],
    ("ZipMap", {}, "classlabels"), ("ZipMap", {"classlabels_int64s": [1, 2]}, "input 0"), ("ZipMap", {"classlabels_int64s": [4, 1, 2, 1]}, "[1] and [3]"),
    ("ZipMap", {"classlabels_int64s": [1, 2, 3, 4], "classlabels_strings": ["a", "b", "c", "d"]}, "classlabels_strings"),
    ("ZipMap", {"classlabels_strings": ["a", "b", "a", "d"]}, "classlabels_strings[0] and [2]"),
])
def test_lists_that_do_not_fit_are_refused_with_node_and_attribute(runtime, op, change, named):
    base = {"SVMClassifier": PAIRS, "SVMRegressor": ONE, "ZipMap": {}}[op]
    attributes = {name: value for name, value in (base | change).items() if value != []}
    with pytest.raises(evener.Error) as failure:
        runtime.session(model_of(op, 1, [NUMBERS.astype(f32)], attributes))
    assert failure.value.status == evener.Status.INVALID_MODEL and failure.value.node == "node"
    assert named in str(failure.value)


def test_a_machine_takes_all_types_and_applies_the_transform(runtime):
    """ONNX Runtime's SVMRegressor takes float32 only, and ignores the transform."""
    plain = runtime.session(model_of("SVMRegressor", 1, [NUMBERS.astype(f32)], ONE)).run({"x0": NUMBERS.astype(f32)})["y"]
    for dtype in (f64, i64, i32):
        assert (runtime.session(model_of("SVMRegressor", 1, [NUMBERS.astype(dtype)], ONE)).run({"x0": NUMBERS.astype(dtype)})["y"] == plain).all()
    logistic = runtime.session(model_of("SVMRegressor", 1, [NUMBERS.astype(f32)], ONE | {"post_transform": "LOGISTIC"}))
    numpy.testing.assert_allclose(logistic.run({"x0": NUMBERS.astype(f32)})["y"], 1 / (1 + numpy.exp(-plain.astype(f64))), rtol=1e-6)


def test_of_two_classes_without_vectors_the_larger_score_is_chosen(runtime):
    """Of which ONNX Runtime chooses the second where any score is above 0."""
    attributes = {"coefficients": [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0], "rho": [0.5], "classlabels_strings": ["no", "yes"]}
    session = runtime.session(model_of("SVMClassifier", 1, [NUMBERS.astype(f32)], attributes))
    result = session.run({"x0": NUMBERS.astype(f32)})
    assert result["y"].tolist() == ["no", "yes"] and result["z"].tolist() == [[3.5, -0.5], [2.5, 3.5]]
