"""Gradient through If, Loop and Scan, judged by central differences of the graph itself."""
import evener
import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_gradient import TOLERANCE, assert_near, along, gradient, model_of, slope

node, info, graph_of = helper.make_node, helper.make_tensor_value_info, helper.make_graph
DOUBLE = TensorProto.DOUBLE


def real(*shape, seed=1):
    return numpy.random.default_rng([seed, *shape]).uniform(-1, 1, shape)


def run_of(content, threads=1):
    session = evener.Runtime(threads=threads).session(content)
    return lambda feeds: list(session.run(feeds).values())


def check(nodes, feeds, xs, y="y", opset=21, constants=None, zs=(), second=True):
    """The derivatives of sum(y * r) by `xs` are those of central differences; so are those of their own sum, by a second Gradient."""
    constants = constants or {}
    forward = run_of(model_of(nodes, feeds, [y], opset, constants))
    r = numpy.random.default_rng(7).uniform(0.5, 1.5, forward(feeds)[0].shape)
    weighted = [*nodes, node("Mul", [y, "r_"], ["p_"])]
    first = [*weighted, gradient([*xs, *zs, "r_"], [f"d_{x}" for x in xs], xs, "p_", [*zs, "r_"])]
    back = run_of(model_of(first, {**feeds, "r_": r}, [f"d_{x}" for x in xs], opset, constants))

    def gradients(at):
        return dict(zip(xs, back({**at, "r_": r})))

    found = gradients(feeds)
    size = max(1.0, *(float(abs(g).sum()) for g in found.values()))
    for x in xs:
        assert found[x].shape == feeds[x].shape and found[x].dtype == numpy.float64
        for index in numpy.ndindex(feeds[x].shape):
            direction = {x: numpy.zeros_like(feeds[x])}
            direction[x][index] = 1
            assert_near(float(found[x][index]), slope(lambda at: float((forward(at)[0] * r).sum()), feeds, direction), size, f"{x}{list(index)}")
    if second:
        sums = [node("ReduceSum", [f"d_{x}"], [f"s_{x}"], keepdims=0) for x in xs] + [node("Sum", [f"s_{x}" for x in xs], ["s_"])]
        twice = [*first, *sums, gradient([*xs, *zs, "r_"], [f"dd_{x}" for x in xs], xs, "s_", [*zs, "r_"], name="second")]
        hessian = dict(zip(xs, run_of(model_of(twice, {**feeds, "r_": r}, [f"dd_{x}" for x in xs], opset, constants))({**feeds, "r_": r})))
        random = numpy.random.default_rng(9)
        for _ in range(2):
            direction = {x: numpy.asarray(random.uniform(-1, 1, feeds[x].shape)) for x in xs}
            wanted = slope(lambda at: sum(float(g.sum()) for g in gradients(at).values()), feeds, direction)
            assert_near(along(hessian, direction), wanted, max(1.0, *(float(abs(h).sum()) for h in hessian.values())), "second derivative", 5 * TOLERANCE)
    return found


# ---------------------------------------------------------------------------------------------------------------- If --

def branch(nodes, *outputs):
    return graph_of(nodes, "branch", [], [info(name, DOUBLE, None) for name in outputs])


FLAGS = [numpy.array(True), numpy.array(False)]


@pytest.mark.parametrize("flag", FLAGS, ids=str)
def test_of_what_branches_compute(flag):
    """`w` is read by one branch, `x` by both, and twice by one; the If gives two values."""
    then = branch([node("MatMul", ["x", "w"], ["m"]), node("Tanh", ["m"], ["t"]), node("Mul", ["x", "x"], ["t2"])], "t", "t2")
    other = branch([node("Sin", ["x"], ["e"]), node("ReduceSum", ["x"], ["s"], keepdims=1), node("Mul", ["s", "x"], ["e2"])], "e", "e2")
    nodes = [node("If", ["flag"], ["a", "b"], then_branch=then, else_branch=other), node("Mul", ["a", "b"], ["y"])]
    found = check(nodes, {"x": real(3, 3), "w": real(3, 3, seed=2), "flag": flag}, ["x", "w"])
    assert found["w"].any() == bool(flag)


@pytest.mark.parametrize("flag", FLAGS, ids=str)
def test_of_branches_that_hand_on_what_is_outside(flag):
    nodes = [node("Exp", ["x"], ["o"]),
             node("If", ["flag"], ["a"], then_branch=branch([node("Identity", ["o"], ["i"])], "i"), else_branch=branch([node("Mul", ["o", "x"], ["j"])], "j")),
             node("Mul", ["a", "o"], ["y"])]
    check(nodes, {"x": real(2, 3), "flag": flag}, ["x"])
    check(nodes, {"x": real(), "flag": flag}, ["x"])


@pytest.mark.parametrize("flag", FLAGS, ids=str)
@pytest.mark.parametrize("inner", FLAGS, ids=str)
def test_of_branches_in_branches(flag, inner):
    def decide(scale):
        return node("If", ["inner"], [f"i{scale}"], then_branch=branch([node("Mul", [f"c{scale}", "w"], [f"p{scale}"])], f"p{scale}"),
                    else_branch=branch([node("Cos", ["x"], [f"q{scale}"])], f"q{scale}"))

    then = branch([node("Sin", ["x"], ["c1"]), decide(1), node("Mul", ["i1", "c1"], ["t"])], "t")
    other = branch([node("Mul", ["x", "w"], ["c2"]), decide(2), node("Add", ["i2", "x"], ["e"])], "e")
    nodes = [node("If", ["flag"], ["a"], then_branch=then, else_branch=other), node("Mul", ["a", "x"], ["y"])]
    check(nodes, {"x": real(4), "w": real(4, seed=2), "flag": flag, "inner": inner}, ["x", "w"])


@pytest.mark.parametrize("flag", FLAGS, ids=str)
def test_by_a_value_that_a_condition_is_computed_of(flag):
    """And of branches that give other shapes."""
    nodes = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Greater", ["sum", "bound"], ["over"]),
             node("If", ["over"], ["a"], then_branch=branch([node("ReduceMean", ["x"], ["m"], keepdims=0), node("Exp", ["m"], ["t"])], "t"),
                  else_branch=branch([node("ReduceSumSquare", ["x"], ["e"], keepdims=0)], "e")), node("Mul", ["a", "sum"], ["y"])]
    check(nodes, {"x": real(2, 3), "bound": numpy.array(-100.0 if flag else 100.0)}, ["x"])


def test_a_gradient_in_a_branch_goes_through_an_if_around_it():
    inner = [node("Mul", ["o", "x"], ["z"]), gradient(["x"], ["u"], ["x"], "z")]
    nodes = [node("If", ["flag"], ["o"], then_branch=branch([node("Sin", ["x"], ["t"])], "t"), else_branch=branch([node("Mul", ["x", "x"], ["e"])], "e")),
             node("If", ["flag"], ["y"], then_branch=branch(inner, "u"), else_branch=branch([node("Neg", ["x"], ["n"])], "n"))]
    x = real(3)
    for flag, wanted in ((True, numpy.sin(x) + x * numpy.cos(x)), (False, -x)):
        y, = run_of(model_of(nodes, {"x": x, "flag": numpy.array(flag)}, ["y"], 21))({"x": x, "flag": numpy.array(flag)})
        numpy.testing.assert_allclose(y, wanted)


# -------------------------------------------------------------------------------------------------------------- Scan --

def body(nodes, inputs, outputs):
    """Inputs by name with their shape; outputs by name."""
    return graph_of(nodes, "body", [info(name, DOUBLE, shape) for name, shape in inputs.items()], [info(name, DOUBLE, None) for name in outputs])


def cell(**attributes):
    """h' = tanh(x w + h u), which it gives too, and a running product."""
    nodes = [node("MatMul", ["xt", "w"], ["a"]), node("MatMul", ["h", "u"], ["b"]), node("Add", ["a", "b"], ["c"]), node("Tanh", ["c"], ["h2"]),
             node("Mul", ["g", "h2"], ["g2"]), node("Mul", ["h2", "xt"], ["o"]), node("Identity", ["h2"], ["o2"])]
    return node("Scan", ["h0", "g0", "x"], ["hn", "gn", "os", "hs"], num_scan_inputs=1,
                body=body(nodes, {"h": [2, 3], "g": [2, 3], "xt": [2, 3]}, ["h2", "g2", "o", "o2"]), **attributes)


FEEDS = {"x": real(4, 2, 3), "h0": real(2, 3, seed=2), "g0": real(2, 3, seed=3), "w": real(3, 3, seed=4), "u": real(3, 3, seed=5)}


@pytest.mark.parametrize("y", ["hn", "gn", "os", "hs"])
def test_of_every_output_of_a_scan(y):
    check([cell()], FEEDS, list(FEEDS), y=y)


def test_of_all_outputs_of_a_scan_together():
    nodes = [cell(), node("ReduceSum", ["os", "axis"], ["s"], keepdims=0), node("ReduceMax", ["hs", "axis"], ["m"], keepdims=0), node("Sum", ["hn", "gn", "s", "m"], ["y"])]
    check(nodes, FEEDS, list(FEEDS), constants={"axis": numpy.array([0])})


@pytest.mark.parametrize("into, out, axis, to", [(1, [0, 0], 0, [0, 0]), (0, [1, 0], 2, [-1, 1]), (1, [1, 1], -2, [0, 2])])
def test_of_directions_and_axes_of_a_scan(into, out, axis, to):
    feeds = {**FEEDS, "x": numpy.moveaxis(FEEDS["x"], 0, axis).copy()}
    nodes = [cell(scan_input_directions=[into], scan_output_directions=out, scan_input_axes=[axis], scan_output_axes=to)]
    nodes += [node("Tanh", ["os"], ["t"]), node("ReduceSum", ["t"], ["s1"], keepdims=0), node("Sin", ["hs"], ["n"]), node("ReduceSum", ["n"], ["s2"], keepdims=0), node("Mul", ["s1", "s2"], ["y"])]
    check(nodes, feeds, list(feeds))


def test_of_a_scan_without_states_and_of_one_without_steps():
    nodes = [node("Scan", ["x"], ["y"], num_scan_inputs=1, body=body([node("Mul", ["xt", "w"], ["a"]), node("Exp", ["a"], ["o"])], {"xt": [2, 3]}, ["o"]))]
    check(nodes, {"x": FEEDS["x"], "w": real(2, 3, seed=8)}, ["x", "w"])
    feeds = {**FEEDS, "x": FEEDS["x"][:0]}
    found = check([cell()], feeds, list(feeds), y="hn", second=False)
    assert (found["h0"] > 0).all() and not found["w"].any()


def test_of_a_scan_at_other_values():
    x = {n: a for n, a in FEEDS.items()}
    nodes = [cell(), gradient(["at_h0", "at_w"], ["d_h0", "d_w"], ["h0", "w"], "gn"), gradient(["h0", "w"], ["e_h0", "e_w"], ["h0", "w"], "gn", name="here")]
    other = {"at_h0": real(2, 3, seed=12), "at_w": real(3, 3, seed=14)}
    moved = run_of(model_of(nodes, {**x, **other}, ["d_h0", "d_w", "e_h0", "e_w"], 21))({**x, **other})
    there = run_of(model_of(nodes, {**x, **other}, ["e_h0", "e_w"], 21))({**x, "h0": other["at_h0"], "w": other["at_w"], **other})
    numpy.testing.assert_allclose(moved[:2], there) if moved[0].shape == moved[1].shape else [numpy.testing.assert_allclose(a, b) for a, b in zip(moved, there)]
    assert abs(moved[0] - moved[2]).max() > 1e-3


# -------------------------------------------------------------------------------------------------------------- Loop --

def loop_body(nodes, carried, outputs):
    inputs = [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, [])]
    inputs += [info(name, kind, shape) for name, (kind, shape) in carried.items()]
    return graph_of(nodes, "body", inputs, [info(name, TensorProto.BOOL if k == 0 else DOUBLE, None) for k, name in enumerate(outputs)])


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_of_a_loop_with_a_trip_count(trips):
    """It carries an integer too, reads the number of the iteration, and stacks what it makes."""
    nodes = [node("Cast", ["i"], ["fi"], to=11), node("MatMul", ["v", "w"], ["m"]), node("Add", ["m", "fi"], ["a"]), node("Sin", ["a"], ["v2"]), node("Add", ["n", "two"], ["n2"]),
             node("Cast", ["n2"], ["f"], to=11), node("Mul", ["v2", "f"], ["o"]), node("Identity", ["go"], ["still"])]
    made = loop_body(nodes, {"v": (DOUBLE, [2, 3]), "n": (TensorProto.INT64, [])}, ["still", "v2", "n2", "o"])
    made.output[2].type.tensor_type.elem_type = TensorProto.INT64
    outer = [node("Loop", ["count", "", "x", "zero"], ["vn", "nn", "os"], body=made), node("ReduceSum", ["os"], ["s"], keepdims=0), node("Mul", ["vn", "vn"], ["q"]), node("Add", ["q", "s"], ["y"])]
    constants = {"count": numpy.array(trips), "zero": numpy.array(0), "two": numpy.array(2)}
    check(outer, {"x": real(2, 3), "w": real(3, 3, seed=2)}, ["x", "w"], constants=constants, second=trips > 0)


def test_of_a_loop_that_ends_by_its_condition():
    """x is halved and bent until it is small: the number of iterations depends on the numbers."""
    nodes = [node("Mul", ["v", "w"], ["h"]), node("Tanh", ["h"], ["v2"]), node("ReduceMax", ["v2"], ["m"], keepdims=0), node("Greater", ["m", "least"], ["still"])]
    outer = [node("Loop", ["", "start", "x"], ["y"], body=loop_body(nodes, {"v": (DOUBLE, [3])}, ["still", "v2"]))]
    for scale in (1.0, 0.2):
        check(outer, {"x": numpy.array([0.9, 0.5, 0.1]) * scale, "w": numpy.array([0.7, 0.6, 0.5])}, ["x", "w"], constants={"start": numpy.array(True), "least": numpy.array(0.05)})


def test_of_a_loop_that_carries_nothing():
    nodes = [node("Cast", ["i"], ["f"], to=11), node("Mul", ["x", "f"], ["m"]), node("Sin", ["m"], ["o"]), node("Identity", ["go"], ["still"])]
    outer = [node("Loop", ["count", ""], ["y"], body=loop_body(nodes, {}, ["still", "o"]))]
    check(outer, {"x": real(2, 2)}, ["x"], constants={"count": numpy.array(4)})


def test_of_loops_and_branches_in_loops():
    """Inside, an If by the number of the iteration, and a Scan over rows of a value of the outer graph."""
    scan = node("Scan", ["v", "rows"], ["s", "all"], num_scan_inputs=1,
                body=body([node("Mul", ["h", "row"], ["p"]), node("Sin", ["p"], ["h2"]), node("Add", ["h2", "w"], ["each"])], {"h": [3], "row": [3]}, ["h2", "each"]))
    nodes = [node("Equal", ["i", "one"], ["odd"]),
             node("If", ["odd"], ["k"], then_branch=branch([scan, node("ReduceSum", ["all", "axis"], ["r"], keepdims=0), node("Add", ["s", "r"], ["t"])], "t"),
                  else_branch=branch([node("Mul", ["v", "w"], ["e"])], "e")),
             node("Tanh", ["k"], ["v2"]), node("Identity", ["go"], ["still"])]
    outer = [node("Loop", ["count", "", "x"], ["y"], body=loop_body(nodes, {"v": (DOUBLE, [3])}, ["still", "v2"]))]
    constants = {"count": numpy.array(3), "one": numpy.array(1), "axis": numpy.array([0])}
    check(outer, {"x": real(3), "rows": real(2, 3, seed=2), "w": real(3, seed=3)}, ["x", "rows", "w"], constants=constants)


def test_of_a_loop_in_a_branch():
    nodes = [node("Mul", ["v", "w"], ["v2"]), node("Identity", ["go"], ["still"])]
    loop = node("Loop", ["count", "", "x"], ["l"], body=loop_body(nodes, {"v": (DOUBLE, [3])}, ["still", "v2"]))
    outer = [node("If", ["flag"], ["y"], then_branch=branch([loop], "l"), else_branch=branch([node("Neg", ["x"], ["n"])], "n"))]
    for flag in FLAGS:
        check(outer, {"x": real(3), "w": real(3, seed=2), "flag": flag}, ["x", "w"], constants={"count": numpy.array(3)})


def test_results_are_the_same_for_every_number_of_threads():
    nodes = [cell(), gradient(["w", "u", "x"], ["d_w", "d_u", "d_x"], ["w", "u", "x"], "os")]
    single = {n: a.astype(numpy.float32) for n, a in FEEDS.items()}
    model = onnx.load_from_string(model_of(nodes, single, ["d_w", "d_u", "d_x"], 21))
    for value in (*model.graph.output, *model.graph.node[0].attribute[0].g.input, *model.graph.node[0].attribute[0].g.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    results = [run_of(model.SerializeToString(), threads)(single) for threads in (1, 2, 5, 16)]
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other))


# ----------------------------------------------------------------------------------------------------------- refusals --

def refusal(nodes, feeds, text, constants=None, opset=21):
    with pytest.raises(evener.Error) as error:
        run_of(model_of([*nodes, gradient(["x"], ["dx"], ["x"], "y")], feeds, ["dx"], opset, constants))
    assert text in str(error.value), error.value


def test_what_is_refused():
    draw = [node("RandomNormalLike", ["v"], ["z"]), node("Mul", ["v", "z"], ["v2"]), node("Identity", ["go"], ["still"])]
    made = loop_body(draw, {"v": (DOUBLE, [3])}, ["still", "v2"])
    refusal([node("Loop", ["count", "", "x"], ["y"], body=made, name="drawn")], {"x": real(3)}, "node 'drawn' cannot be differentiated: its body draws random numbers", {"count": numpy.array(3)})
    scan = node("Scan", ["", "s0", "x"], ["y", "o"], num_scan_inputs=1, name="old", body=body([node("Add", ["s", "xt"], ["t"]), node("Identity", ["t"], ["u"])], {"s": [3], "xt": [3]}, ["t", "u"]))
    refusal([scan], {"x": real(2, 4, 3), "s0": real(2, 3)}, "node 'old' cannot be differentiated: before version 9", opset=8)
    inner = loop_body([node("Det", ["v"], ["d"]), node("Mul", ["v", "d"], ["v2"]), node("Identity", ["go"], ["still"])], {"v": (DOUBLE, [2, 2])}, ["still", "v2"])
    refusal([node("Loop", ["count", "", "x"], ["y"], body=inner)], {"x": real(2, 2)}, "operator Det", {"count": numpy.array(3)})
    then = branch([node("Det", ["x"], ["d"])], "d")
    refusal([node("If", ["flag"], ["y"], then_branch=then, else_branch=branch([node("ReduceSum", ["x"], ["e"], keepdims=0)], "e"))], {"x": real(2, 2), "flag": FLAGS[0]}, "operator Det")


def test_what_has_a_derivative_of_its_own_operator_is_differentiated_once():
    nodes = [node("RNN", ["x", "w", "r"], ["y"], hidden_size=3), gradient(["x"], ["dx1"], ["x"], "y", name="first"), gradient(["x"], ["dx"], ["x"], "dx1", name="second")]
    feeds = {"x": real(2, 2, 3), "w": real(1, 3, 3, seed=2), "r": real(1, 3, 3, seed=3)}
    with pytest.raises(evener.Error, match="RNNGradient .* cannot be differentiated.*first/RNN_0"):
        run_of(model_of(nodes, feeds, ["dx"], 21))


def test_bodies_that_do_not_fit_are_refused():
    short = loop_body([node("Identity", ["go"], ["still"])], {"v": (DOUBLE, [3])}, ["still"])
    refusal([node("Loop", ["count", "", "x"], ["y"], body=short)], {"x": real(3)}, "Loop", {"count": numpy.array(3)})
    many = body([node("Neg", ["xt"], ["o"])], {"xt": [3]}, ["o"])
    refusal([node("Scan", ["x"], ["y"], num_scan_inputs=5, body=many)], {"x": real(2, 3)}, "Scan")
    refusal([node("Scan", ["x"], ["y"], num_scan_inputs=1, scan_input_axes=[7], body=body([node("Neg", ["xt"], ["o"])], {"xt": None}, ["o"]))], {"x": real(2, 3)}, "Scan")
