"""The operator Gradient of ai.onnx.preview.training. No other engine has it: each rule of differentiation is judged by central
differences of the node itself, run by Evener, by ONNX Runtime where it has the node in float64, and by onnx's reference evaluator;
the operator as a whole by closed forms and by a training that must get better.
"""
import subprocess
import sys

import evener
import numpy
import onnx
import onnx.reference
import onnxruntime
import pytest
from gradient_cases import Case, all_cases
from onnx import TensorProto, helper, numpy_helper

TRAINING = "ai.onnx.preview.training"
STEP = 1e-5     # of a difference: its error is about STEP ** 2, and 1e-16 / STEP
TOLERANCE = 2e-7
SINGLE = ("Erf", "Gelu", "Shrink", "GroupNormalization")  # the other engines have them in single precision
FLOAT32 = ("LSTM", "GRU", "RNN")                          # and these of float32 alone
EVALUATED = ("Attention",)                                # and these are not what the operator says in all cases of ONNX Runtime
STEPS = {op: (1e-3 if op in FLOAT32 else 1e-2, 1e-3) for op in SINGLE + FLOAT32}  # with their tolerances


def dtype_of(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def model_of(nodes, inputs, outputs, opset, constants=None, symbolic=False):
    """`inputs` are arrays by name, `outputs` names with or without a dtype."""
    def dims(name, array):
        return [f"{name}_{i}" for i in range(array.ndim)] if symbolic else array.shape

    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, dtype_of(a), dims(n, a)) for n, a in inputs.items()],
                              [helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in outputs],
                              [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(TRAINING, 1)], ir_version=10)
    return made.SerializeToString()


def gradient(inputs, outputs, xs, y, zs=None, name="gradient"):
    attributes = {} if zs is None else {"zs": zs}
    return helper.make_node("Gradient", inputs, outputs, name=name, domain=TRAINING, xs=xs, y=y, **attributes)


def session_of(content):
    return evener.Runtime(threads=1).session(content)


def evener_engine(content):
    session = session_of(content)
    return lambda feeds: list(session.run(feeds).values())


def evaluator(content):
    made = onnx.reference.ReferenceEvaluator(onnx.load_from_string(content))
    return lambda feeds: made.run(None, feeds)


def other_engine(content):
    """ONNX Runtime, or onnx's evaluator where that lacks an operator in float64."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        return lambda feeds: session.run(None, feeds)
    except (onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented, onnxruntime.capi.onnxruntime_pybind11_state.Fail,
            onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph):
        return evaluator(content)


def in_float32(content):
    """ONNX Runtime with all of float64 in float32."""
    model = onnx.load_from_string(content)
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.DOUBLE:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for t in model.graph.initializer:
        if t.data_type == TensorProto.DOUBLE:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(numpy.float32), t.name))
    engine = other_engine(model.SerializeToString())

    def cast(arrays, old, new):
        return [a.astype(new) if a.dtype == old else a for a in arrays]

    return lambda feeds: cast(engine(dict(zip(feeds, cast(feeds.values(), numpy.float64, numpy.float32)))), numpy.float32, numpy.float64)


def slope(function, feeds, direction, step=STEP):
    """Of a function of feeds along a direction of some of them, by central differences."""
    def at(t):
        return function({**feeds, **{n: numpy.asarray(feeds[n] + t * d) for n, d in direction.items()}})

    return (at(step) - at(-step)) / (2 * step)


def assert_near(actual, wanted, scale, what, tolerance=TOLERANCE):
    assert abs(actual - wanted) <= tolerance * max(1.0, scale), f"{what}: {actual}, by differences {wanted}"


def along(gradients, direction):
    return sum(float((gradients[n] * d).sum()) for n, d in direction.items())


class Subject:
    """One case with its models: sum(y * r) is differentiated."""

    def __init__(self, case, symbolic=False):
        self.case = case
        self.names = [f"x{i}" for i in case.xs()]
        arrays = {f"x{i}": x for i, x in enumerate(case.inputs) if x is not None}
        self.constants = {f"x{i}": arrays[f"x{i}"] for i in case.constant}
        self.feeds = {n: a for n, a in arrays.items() if n not in self.constants}
        self.symbolic = symbolic
        self.forward = self.model([case.node()], self.feeds, ["y"])
        y = evener_engine(self.forward)(self.feeds)[0]
        random = numpy.random.default_rng(7)
        self.r = random.uniform(0.5, 1.5, y.shape)
        self.random = random

    def model(self, nodes, inputs, outputs):
        return model_of(nodes, inputs, outputs, self.case.opset, self.constants, self.symbolic)

    def value(self, engine):
        return lambda feeds: float((engine(feeds)[0] * self.r).sum())

    def first(self, given=None):
        nodes = [self.case.node(), helper.make_node("Mul", ["y", "r"], ["p"])]
        dx = [f"d_{n}" for n in self.names]
        return [*nodes, gradient([*(given or self.names), "r"], dx, self.names, "p", ["r"])], dx

    def gradients(self):
        nodes, dx = self.first()
        engine = evener_engine(self.model(nodes, {**self.feeds, "r": self.r}, dx))
        return lambda feeds: dict(zip(self.names, engine({**feeds, "r": self.r})))

    def directions(self, count):
        for _ in range(count):
            yield {n: numpy.asarray(self.random.uniform(-1, 1, self.feeds[n].shape)) for n in self.names}


CASES = list(all_cases())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_derivative_is_that_of_central_differences(case):
    s = Subject(case)
    found = s.gradients()(s.feeds)
    for name in s.names:
        assert found[name].shape == s.feeds[name].shape and found[name].dtype == numpy.float64
    own = s.value(evener_engine(s.forward))
    size = max([1.0, *(float(abs(g).sum()) for g in found.values())])
    for name in s.names:
        for index in numpy.ndindex(s.feeds[name].shape):
            direction = {name: numpy.zeros_like(s.feeds[name])}
            direction[name][index] = 1
            assert_near(float(found[name][index]), slope(own, s.feeds, direction), size, f"{name}{list(index)}")
    if not case.has_other:
        return
    engine = in_float32 if case.op in FLOAT32 else evaluator if case.op in EVALUATED else other_engine
    other = s.value(engine(s.forward))
    step, tolerance = STEPS.get(case.op, (STEP, TOLERANCE))
    for direction in s.directions(2):
        assert_near(along(found, direction), slope(other, s.feeds, direction, step), size, "along a direction, of the other engine", tolerance)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_the_same_with_unknown_dims_and_at_other_values(case):
    s = Subject(case)
    wanted = s.gradients()(s.feeds)
    unknown = Subject(case, symbolic=True).gradients()(s.feeds)
    given = [f"at_{n}" for n in s.names]
    nodes, dx = s.first(given)
    feeds = {**{n: numpy.zeros_like(a) if n in s.names else a for n, a in s.feeds.items()}, "r": s.r, **{f"at_{n}": s.feeds[n] for n in s.names}}
    moved = evener_engine(s.model(nodes, feeds, dx))(feeds)
    for name, at in zip(s.names, moved):
        numpy.testing.assert_allclose(unknown[name], wanted[name], rtol=1e-12, atol=1e-13)
        numpy.testing.assert_allclose(at, wanted[name], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("case", [case for case in CASES if case.has_second], ids=str)
def test_a_derivative_has_a_derivative(case):
    s = Subject(case)
    nodes, dx = s.first()
    weights = {f"s_{n}": s.random.uniform(0.5, 1.5, s.feeds[n].shape) for n in s.names}
    for n in s.names:
        nodes += [helper.make_node("Mul", [f"d_{n}", f"s_{n}"], [f"m_{n}"]), helper.make_node("ReduceSum", [f"m_{n}"], [f"q_{n}"], keepdims=0)]
    nodes += [helper.make_node("Sum", [f"q_{n}" for n in s.names], ["q"])]
    nodes += [gradient([*s.names, "r"], [f"dd_{n}" for n in s.names], s.names, "q", ["r"], name="second")]
    engine = evener_engine(s.model(nodes, {**s.feeds, "r": s.r, **weights}, [f"dd_{n}" for n in s.names]))
    found = dict(zip(s.names, engine({**s.feeds, "r": s.r, **weights})))
    first = s.gradients()

    def value(feeds):
        return sum(float((g * weights[f"s_{n}"]).sum()) for n, g in first(feeds).items())

    size = max([1.0, *(float(abs(g).sum()) for g in found.values())])
    for direction in s.directions(3):
        assert_near(along(found, direction), slope(value, s.feeds, direction), size, "second derivative")


# ------------------------------------------------------------------------------------------------ the operator as a whole --

def run_nodes(nodes, feeds, outputs, constants=None, opset=21):
    return evener_engine(model_of(nodes, feeds, outputs, opset, constants))(feeds)


def values(*shape, seed=3):
    return numpy.random.default_rng(seed).normal(size=shape)


def test_the_first_example_of_the_specification():
    """Y = (W * X) Z; the derivatives by W and Z at what the graph has."""
    w, x, z = values(2, 3), values(3, 4), values(4, 2)
    nodes = [helper.make_node("MatMul", ["W", "X"], ["H"]), helper.make_node("Gemm", ["H", "Z"], ["Y"]),
             gradient(["W", "Z", "X"], ["dW", "dZ"], ["W", "Z"], "Y", ["X"])]
    dw, dz = run_nodes(nodes, {"W": w, "X": x, "Z": z}, ["dW", "dZ"])
    ones = numpy.ones((2, 2))
    numpy.testing.assert_allclose(dw, ones @ z.T @ x.T)
    numpy.testing.assert_allclose(dz, (w @ x).T @ ones)


def test_by_an_intermediate_tensor_and_at_another_value_of_it():
    w, x, z, h1, z1 = values(2, 3), values(3, 4), values(4, 2), values(2, 4, seed=8), values(4, 2, seed=9)
    nodes = [helper.make_node("MatMul", ["W", "X"], ["H"]), helper.make_node("MatMul", ["H", "Z"], ["T"]), helper.make_node("Exp", ["T"], ["Y"]),
             gradient(["H", "Z"], ["dH", ""], ["H", "Z"], "Y", name="first"),
             gradient(["H1", "Z1"], ["dH1", "dZ1"], ["H", "Z"], "Y", name="second"),
             gradient(["H1", "Z"], ["", "dZ2"], ["H", "Z"], "Y", name="third")]
    dh, dh1, dz1, dz2 = run_nodes(nodes, {"W": w, "X": x, "Z": z, "H1": h1, "Z1": z1}, ["dH", "dH1", "dZ1", "dZ2"])
    numpy.testing.assert_allclose(dh, numpy.exp(w @ x @ z) @ z.T)
    numpy.testing.assert_allclose(dh1, numpy.exp(h1 @ z1) @ z1.T)
    numpy.testing.assert_allclose(dz1, h1.T @ numpy.exp(h1 @ z1))
    numpy.testing.assert_allclose(dz2, h1.T @ numpy.exp(h1 @ z))


def test_two_names_may_be_given_one_value():
    a, b = values(3), values(3, seed=5)
    nodes = [helper.make_node("Sin", ["A"], ["S"]), helper.make_node("Mul", ["S", "B"], ["Y"]), gradient(["B", "B"], ["dA", "dB"], ["A", "B"], "Y")]
    da, db = run_nodes(nodes, {"A": a, "B": b}, ["dA", "dB"])
    numpy.testing.assert_allclose(da, numpy.cos(b) * b)
    numpy.testing.assert_allclose(db, numpy.sin(b))


def test_the_names_may_be_given_each_others_values():
    a, b = values(3), values(3, seed=5)
    nodes = [helper.make_node("Sin", ["A"], ["S"]), helper.make_node("Mul", ["S", "B"], ["Y"]), gradient(["B", "A"], ["dA", "dB"], ["A", "B"], "Y")]
    da, db = run_nodes(nodes, {"A": a, "B": b}, ["dA", "dB"])
    numpy.testing.assert_allclose(da, numpy.cos(b) * a)
    numpy.testing.assert_allclose(db, numpy.sin(b))


def test_the_second_derivatives_of_the_specification():
    """O = sum((X W - L)^2): d(dO/dW)/dX and d2O/dW2, of the sum of dO/dW."""
    x, w, label = values(4, 3), values(3, 2), values(4, 2, seed=6)
    nodes = [helper.make_node("Gemm", ["X", "W"], ["Y"]), helper.make_node("Sub", ["Y", "L"], ["D"]), helper.make_node("Mul", ["D", "D"], ["S"]),
             helper.make_node("ReduceSum", ["S"], ["O"], keepdims=0),
             gradient(["X", "W", "L"], ["dO/dX", "dO/dW"], ["X", "W"], "O", ["L"], name="first"),
             gradient(["X", "W", "L"], ["d(dO/dW)dX", "d2O/dW2"], ["X", "W"], "dO/dW", ["L"], name="second")]
    dx, dw, dwdx, dw2 = run_nodes(nodes, {"X": x, "W": w, "L": label}, ["dO/dX", "dO/dW", "d(dO/dW)dX", "d2O/dW2"])
    d, ones = x @ w - label, numpy.ones((3, 2))
    numpy.testing.assert_allclose(dx, 2 * d @ w.T)
    numpy.testing.assert_allclose(dw, 2 * x.T @ d)
    # sum(2 X^T D) = 2 sum_i (sum_j X_ij) (sum_k D_ik)
    numpy.testing.assert_allclose(dwdx, 2 * (d @ ones.T + x @ ones @ w.T))
    numpy.testing.assert_allclose(dw2, 2 * x.T @ x @ ones)


def test_derivatives_of_any_order():
    x = values(5)
    nodes, y = [helper.make_node("Sin", ["x"], ["y0"])], "y0"
    for order in range(1, 6):
        nodes.append(gradient(["x"], [f"y{order}"], ["x"], y, name=f"order_{order}"))
        y = f"y{order}"
    found = run_nodes(nodes, {"x": x}, [f"y{order}" for order in range(1, 6)])
    for order, actual in enumerate(found, 1):
        numpy.testing.assert_allclose(actual, numpy.sin(x + order * numpy.pi / 2), atol=1e-14)


def test_what_y_does_not_depend_on_has_zeros():
    x, z = values(2, 3), values(4)
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"]), helper.make_node("Floor", ["x"], ["f"]), helper.make_node("Shape", ["f"], ["s"]),
             helper.make_node("Cast", ["s"], ["c"], to=11), gradient(["x", "z"], ["dx", "dz"], ["x", "z"], "y"),
             gradient(["x"], ["df"], ["x"], "f", name="floor"), gradient(["x"], ["dc"], ["x"], "c", name="shape"), gradient(["x"], ["d1"], ["x"], "x", name="own")]
    dx, dz, df, dc, d1 = run_nodes(nodes, {"x": x, "z": z}, ["dx", "dz", "df", "dc", "d1"])
    numpy.testing.assert_allclose(dx, 2 * x)
    for actual, shape in ((dz, (4,)), (df, (2, 3)), (dc, (2, 3))):
        assert actual.shape == shape and not actual.any()
    assert (d1 == 1).all()


def test_the_rank_behind_an_identity_is_known():
    x, w = values(2, 3), values(3, 2)
    nodes = [helper.make_node("Identity", ["x"], ["i"]), helper.make_node("MatMul", ["i", "w"], ["y"]), gradient(["w"], ["dw"], ["w"], "y")]
    dw, = run_nodes(nodes, {"x": x, "w": w}, ["dw"])
    numpy.testing.assert_allclose(dw, numpy.repeat(x.sum(axis=0)[:, None], 2, axis=1))


def test_an_initializer_can_be_differentiated_by_and_many_uses_add_up():
    w, x = values(3), values(2, 3)
    nodes = [helper.make_node("Mul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "w"], ["b"]), helper.make_node("Mul", ["b", "a"], ["y"]),
             gradient(["w"], ["dw"], ["w"], "y")]
    dw, = run_nodes(nodes, {"x": x}, ["dw"], {"w": w})
    numpy.testing.assert_allclose(dw, (2 * w * (x * x + x)).sum(axis=0))


@pytest.mark.parametrize("dtype, tolerance", [(numpy.float16, 2e-3), (numpy.float32, 1e-6)])
def test_of_other_types(dtype, tolerance):
    x = values(2, 3).astype(dtype)
    nodes = [helper.make_node("Softplus", ["x"], ["s"]), helper.make_node("ReduceMean", ["s"], ["m"], keepdims=0), helper.make_node("Mul", ["m", "m"], ["y"]),
             gradient(["x"], ["dx"], ["x"], "y")]
    content = onnx.load_from_string(model_of(nodes, {"x": x}, ["dx"], 21))
    content.graph.output[0].type.tensor_type.elem_type = dtype_of(x)
    dx, = evener_engine(content.SerializeToString())({"x": x})
    exact = x.astype(float)
    assert dx.dtype == dtype
    numpy.testing.assert_allclose(dx, 2 * numpy.logaddexp(0, exact).mean() / 6 / (1 + numpy.exp(-exact)), rtol=tolerance)


def test_numbers_of_16_bit_derivatives_have_the_range_of_float32():
    def of_half(nodes, x, constants=None):
        content = onnx.load_from_string(model_of([*nodes, gradient(["x"], ["dx"], ["x"], "y")], {"x": x}, ["dx"], 23, constants))
        content.graph.output[0].type.tensor_type.elem_type = dtype_of(x)
        return evener_engine(content.SerializeToString())({"x": x})[0]

    many = numpy.ones((256, 257), numpy.float16)  # 65,792 elements, which float16 has not as a number
    numpy.testing.assert_allclose(of_half([helper.make_node("ReduceMean", ["x"], ["y"], keepdims=0)], many), 1 / 65792, rtol=2e-2)
    rows = numpy.zeros((2, 4), numpy.float16)
    normed = [helper.make_node("RMSNormalization", ["x", "one"], ["y"], epsilon=1e-8)]
    assert numpy.isfinite(of_half(normed, rows, {"one": numpy.ones(4, numpy.float16)})).all()


@pytest.mark.parametrize("open_dims", [False, True])
@pytest.mark.parametrize("equation, shapes", [("bi,bi->b", [(2, 3), (1, 3)]), ("bi,bi->b", [(1, 3), (4, 3)]), ("bij,bjk->ik", [(1, 2, 3), (5, 3, 2)]),
                                              ("bi,bj->j", [(1, 3), (4, 2)]), ("b,b->", [(1,), (3,)])])
def test_einsum_of_dims_that_are_broadcast(equation, shapes, open_dims):
    feeds = {f"x{i}": values(*shape) for i, shape in enumerate(shapes)}
    nodes = [helper.make_node("Einsum", [*feeds], ["e"], equation=equation), helper.make_node("Mul", ["e", "e"], ["s"]),
             helper.make_node("ReduceSum", ["s"], ["y"], keepdims=0), gradient([*feeds], ["d0", "d1"], [*feeds], "y")]
    found = evener_engine(model_of(nodes, feeds, ["d0", "d1"], 21, symbolic=open_dims))(feeds)
    whole = numpy.broadcast_shapes(*((shape[equation.replace(",", "->").split("->")[i].index("b")],) for i, shape in enumerate(shapes)))[0]
    for i, got in enumerate(found):
        def loss(x, i=i):
            full = [numpy.repeat(a, whole // a.shape[0], axis=0) for a in ({**feeds, f"x{i}": x}).values()]
            return (numpy.einsum(equation, *full) ** 2).sum()
        x = feeds[f"x{i}"]
        want = numpy.zeros_like(x)
        for at in numpy.ndindex(x.shape):
            step = numpy.zeros_like(x)
            step[at] = 1e-5
            want[at] = (loss(x + step) - loss(x - step)) / 2e-5
        assert got.shape == x.shape
        numpy.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_bounds_of_clip_may_have_a_rank_above_that_of_x(rank):
    for x in (numpy.array(0.5), values(2, 3)):
        low, high = (numpy.full([1] * rank, bound) for bound in (-0.4, 0.6))
        nodes = [helper.make_node("Clip", ["x", "low", "high"], ["y"]), gradient(["x"], ["dx"], ["x"], "y")]
        dx, = run_nodes(nodes, {"x": x}, ["dx"], {"low": low, "high": high})
        assert dx.shape == x.shape
        numpy.testing.assert_array_equal(dx, (x > -0.4) & (x < 0.6))


def test_through_a_cast_to_integers_nothing_comes_back():
    x = values(4) * 3
    nodes = [helper.make_node("Cast", ["x"], ["i"], to=7), helper.make_node("Cast", ["i"], ["f"], to=11), helper.make_node("Mul", ["x", "f"], ["y"]),
             gradient(["x"], ["dx"], ["x"], "y")]
    dx, = run_nodes(nodes, {"x": x}, ["dx"])
    numpy.testing.assert_allclose(dx, numpy.trunc(x))


def test_dropout_in_training_uses_the_mask_that_was_drawn():
    x = values(400) + 5
    nodes = [helper.make_node("Dropout", ["x", "ratio", "training"], ["y"], seed=1), gradient(["x"], ["dx"], ["x"], "y")]
    y, dx = run_nodes(nodes, {"x": x}, ["y", "dx"], {"ratio": numpy.array(0.25), "training": numpy.array(True)})
    assert 60 < (y == 0).sum() < 140
    numpy.testing.assert_allclose(dx, y / x)


def test_inside_functions_and_branches_names_mean_what_is_there():
    x = values(3)
    inner = [helper.make_node("Sin", ["a"], ["t"]), helper.make_node("Mul", ["t", "a"], ["q"]), gradient(["a"], ["b"], ["a"], "q")]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(TRAINING, 1)]
    function = helper.make_function("local", "F", ["a"], ["b"], inner, imports)
    output = helper.make_tensor_value_info("u", TensorProto.DOUBLE, None)
    branches = [helper.make_graph([helper.make_node("Exp", ["x"], ["e"]), gradient(["x"], ["u"], ["x"], y)], "b", [], [output]) for y in ("e", "o")]
    branches[1].node.pop(0)
    nodes = [helper.make_node("F", ["x"], ["f"], domain="local"), helper.make_node("Mul", ["x", "x"], ["o"]),
             helper.make_node("If", ["flag"], ["z"], then_branch=branches[0], else_branch=branches[1])]
    made = onnx.load_from_string(model_of(nodes, {"x": x, "flag": numpy.array(True)}, ["f", "z"], 21))
    made.functions.append(function)
    made.opset_import.append(helper.make_opsetid("local", 1))
    engine = evener_engine(made.SerializeToString())
    for flag, wanted in ((True, numpy.exp(x)), (False, 2 * x)):
        f, z = engine({"x": x, "flag": numpy.array(flag)})
        numpy.testing.assert_allclose(f, numpy.sin(x) + x * numpy.cos(x))
        numpy.testing.assert_allclose(z, wanted)


def test_inside_a_loop():
    """Newton's iteration for x^3 = 2, whose slope is a Gradient in the body."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Mul", ["v", "v"], ["v2"]), helper.make_node("Mul", ["v2", "v"], ["v3"]), helper.make_node("Sub", ["v3", "two"], ["r"]),
         gradient(["v"], ["slope"], ["v"], "r"), helper.make_node("Div", ["r", "slope"], ["step"]), helper.make_node("Sub", ["v", "step"], ["next"]),
         helper.make_node("Identity", ["go"], ["still"])],
        "body", [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("v", TensorProto.DOUBLE, [])],
        [info("still", TensorProto.BOOL, []), info("next", TensorProto.DOUBLE, [])])
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["root"], body=body)]
    root, = run_nodes(nodes, {"x": numpy.array(1.0)}, ["root"], {"count": numpy.array(8), "two": numpy.array(2.0)})
    assert abs(root - 2 ** (1 / 3)) < 1e-14


# ------------------------------------------------------------------------------------------------------------ a training --

def digits(count, seed):
    """Images of 8x8: a bar that lies, stands or slopes, with noise."""
    random = numpy.random.default_rng(seed)
    kinds = random.integers(0, 3, count)
    images = random.normal(scale=0.3, size=(count, 1, 8, 8))
    for image, kind in zip(images, kinds):
        at = random.integers(1, 7)
        if kind == 0:
            image[0, at, :] += 1
        elif kind == 1:
            image[0, :, at] += 1
        else:
            image[0] += numpy.eye(8)
    return images.astype(numpy.float32), kinds.astype(numpy.int64)


def trainer(optimizer):
    """One step of a small convolutional network in one graph: loss, derivatives, and new parameters from the old ones."""
    random = numpy.random.default_rng(0)
    shapes = {"w1": (4, 1, 3, 3), "b1": (4,), "scale": (4,), "shift": (4,), "w2": (64, 3), "b2": (3,)}
    parameters = {n: (random.normal(size=s) * 0.2 + (n == "scale")).astype(numpy.float32) for n, s in shapes.items()}
    names = list(parameters)
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "zeros", "ones"], ["n", "m_", "v_"], training_mode=1),
        helper.make_node("Relu", ["n"], ["r"]), helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]), helper.make_node("Gemm", ["f", "w2", "b2"], ["logits"]),
        helper.make_node("SoftmaxCrossEntropyLoss", ["logits", "labels"], ["loss"]),
        gradient([*names, "x"], [f"d_{n}" for n in names], names, "loss", ["x"]),
    ]
    state = {f"{k}_{n}": numpy.zeros_like(parameters[n]) for k in (("m", "v") if optimizer == "Adam" else ("v",)) for n in names}
    attributes = {"Adam": {"alpha": 0.9, "beta": 0.999, "epsilon": 1e-8},
                  "Momentum": {"alpha": 0.9, "beta": 1.0, "mode": "standard", "norm_coefficient": 0.0}}[optimizer]
    kept = [*names, *state]
    new = [f"new_{n}" for n in kept]
    nodes.append(helper.make_node(optimizer, ["rate", "step", *names, *[f"d_{n}" for n in names], *state], new, domain=TRAINING, **attributes))
    arrays = {**parameters, **state}
    inputs = {"x": numpy.zeros((1, 1, 8, 8), numpy.float32), "labels": numpy.zeros(1, numpy.int64), "rate": numpy.array(0, numpy.float32), "step": numpy.array(0), **arrays}
    made = onnx.load_from_string(model_of(nodes, inputs, ["loss", *new], 21, {"zeros": numpy.zeros(4, numpy.float32), "ones": numpy.ones(4, numpy.float32)}))
    for output in made.graph.output:
        output.type.tensor_type.elem_type = TensorProto.FLOAT
    for name in ("x", "labels"):
        next(i for i in made.graph.input if i.name == name).type.tensor_type.shape.dim[0].dim_param = "N"
    return evener_engine(made.SerializeToString()), arrays


@pytest.mark.parametrize("optimizer, rate", [("Adam", 0.01), ("Momentum", 0.05)])
def test_a_small_network_learns(optimizer, rate):
    engine, arrays = trainer(optimizer)
    losses = []
    for step in range(80):
        x, labels = digits(16, seed=step)
        loss, *new = engine({"x": x, "labels": labels, "rate": numpy.array(rate, numpy.float32), "step": numpy.array(step), **arrays})
        arrays = dict(zip(arrays, new))
        losses.append(float(loss))
    assert numpy.mean(losses[:3]) > 0.8, losses
    assert numpy.mean(losses[-10:]) < 0.15, losses


# --------------------------------------------------------------------------------------------------------------- refusals --

def refusal(nodes, inputs=None, constants=None, text=""):
    inputs = inputs or {"x": values(2, 3), "z": values(2, 3), "k": numpy.array([1, 2])}
    with pytest.raises(evener.Error) as error:
        session_of(model_of(nodes, inputs, ["dx"], 21, constants))
    assert text in str(error.value), error.value
    return error.value


MUL = [helper.make_node("Mul", ["x", "z"], ["y"], name="mul")]
REFUSED = {
    "attribute 'xs' of Gradient names 'nothing'": gradient(["x"], ["dx"], ["nothing"], "y"),
    "attribute 'zs' of Gradient names ''": gradient(["x", "z"], ["dx"], ["x"], "y", [""]),
    "attribute 'y' of Gradient names 'nothing'": gradient(["x"], ["dx"], ["x"], "nothing"),
    "name 'x' twice": gradient(["x", "z"], ["dx"], ["x", "x"], "y"),
    "and 'zs' of Gradient name 'x' twice": gradient(["x", "z"], ["dx"], ["x"], "y", ["x"]),
    "has 2 inputs for 1 names": gradient(["x", "z"], ["dx"], ["x"], "y"),
    "has 1 inputs for 2 names": gradient(["x"], ["dx"], ["x"], "y", ["z"]),
    "input 1 of Gradient is missing": gradient(["x", ""], ["dx"], ["x"], "y", ["z"]),
    "has 2 outputs for 1 names": gradient(["x"], ["dx", "d2"], ["x"], "y"),
    "has 0 outputs for 1 names": gradient(["x"], [""], ["x"], "y"),
    "attribute 'xs' of Gradient is missing": helper.make_node("Gradient", ["x"], ["dx"], name="gradient", domain=TRAINING, y="y"),
    "attribute 'y' of Gradient is missing": helper.make_node("Gradient", ["x"], ["dx"], name="gradient", domain=TRAINING, xs=["x"]),
    "attribute 'xs' of Gradient has no list of names": helper.make_node("Gradient", ["x"], ["dx"], name="gradient", domain=TRAINING, xs="x", y="y"),
    "attribute 'more'": helper.make_node("Gradient", ["x"], ["dx"], name="gradient", domain=TRAINING, xs=["x"], y="y", more=1),
    "'z', attribute 'y' of Gradient, is computed by no node here": gradient(["x"], ["dx"], ["x"], "z"),
    "is computed from it": gradient(["x", "y"], ["dx"], ["x", "y"], "y"),
    "of attribute 'xs' of Gradient is int64": gradient(["k"], ["dx"], ["k"], "y"),
    "input 0 of Gradient is int64 for 'x'": gradient(["k"], ["dx"], ["x"], "y"),
    "the graph has a cycle": gradient(["x"], ["dx"], ["x"], "loop"),
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda t: t.replace(" ", "_"))
def test_a_gradient_that_means_nothing_is_refused(text):
    nodes = [*MUL, helper.make_node("Mul", ["y", "dx"], ["loop"], name="loop"), REFUSED[text]]
    if REFUSED[text].output[0] != "dx":
        nodes.append(helper.make_node("Neg", ["x"], ["dx"]))
    error = refusal(nodes, text=text)
    assert error.status == evener.Status.INVALID_MODEL and error.node in ("gradient", "loop", "mul")


def test_an_integer_y_is_refused():
    nodes = [helper.make_node("ArgMax", ["x"], ["y"]), gradient(["x"], ["dx"], ["x"], "y")]
    assert refusal(nodes, text="'y' of attribute 'y' of Gradient is int64").status == evener.Status.INVALID_MODEL


def test_names_inside_a_body_are_not_seen_outside():
    output = helper.make_tensor_value_info("u", TensorProto.DOUBLE, None)
    branch = helper.make_graph([helper.make_node("Exp", ["x"], ["inner"]), helper.make_node("Neg", ["inner"], ["u"])], "b", [], [output])
    nodes = [helper.make_node("If", ["flag"], ["w"], then_branch=branch, else_branch=branch), gradient(["x"], ["dx"], ["x"], "inner")]
    refusal(nodes, {"x": values(2), "flag": numpy.array(True)}, text="attribute 'y' of Gradient names 'inner'")


def test_an_operator_without_a_rule_is_named():
    nodes = [helper.make_node("Det", ["x"], ["y"], name="det"), gradient(["x"], ["dx"], ["x"], "y")]
    error = refusal(nodes, {"x": values(3, 3)}, text="operator Det (domain ai.onnx) of node 'det' cannot be differentiated: it has no rule")
    assert error.status == evener.Status.UNSUPPORTED and error.node == "det"


def test_the_import_is_needed():
    made = onnx.load_from_string(model_of([*MUL, gradient(["x"], ["dx"], ["x"], "y")], {"x": values(2), "z": values(2)}, ["dx"], 21))
    made.opset_import.pop()
    with pytest.raises(evener.Error, match="does not import"):
        session_of(made.SerializeToString())


def test_a_chain_of_gradients_ends_at_the_limit_of_nodes():
    nodes, y = [helper.make_node("Tanh", ["x"], ["y0"])], "y0"
    for order in range(1, 40):
        nodes.append(gradient(["x"], [f"y{order}"], ["x"], y, name=f"order_{order}"))
        y = f"y{order}"
    content = model_of(nodes, {"x": values(2)}, [y], 21)
    with pytest.raises(evener.Error, match="more than 5000 nodes") as error:
        evener.Runtime(config_text="limits: {nodes: 5000}", threads=1).model(content)
    assert error.value.node.startswith("order_")


BAD_FIRST = """
import sys, evener
try:
    evener.Runtime(threads=1).model(sys.stdin.buffer.read())
except evener.Error as error:
    print(error.status.name, error)
"""


def test_a_model_with_a_gradient_that_is_the_first_error_of_a_process():
    """The library's own exception goes through the module's frames, in a process where the module has thrown nothing yet."""
    nodes = [helper.make_node("Add", ["x", "w"], ["sum"], name="adds"), helper.make_node("ReduceSum", ["sum"], ["l"], keepdims=0),
             gradient(["x"], ["dx"], ["x"], "l")]
    content = model_of(nodes, {"x": numpy.zeros((2, 3)), "w": numpy.zeros((4, 5))}, ["dx"], 17)
    done = subprocess.run([sys.executable, "-c", BAD_FIRST], input=content, capture_output=True)
    assert done.returncode == 0, (done.returncode, done.stderr.decode())
    assert done.stdout.startswith(b"INVALID_MODEL") and b"adds" in done.stdout, done.stdout
