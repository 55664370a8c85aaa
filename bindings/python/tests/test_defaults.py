"""Inputs that have an initializer: constants until a run gives one."""
import json

import evener
import numpy
import pytest
import tiny
from helpers import floats, in_threads
from onnx import helper, numpy_helper


def model(nodes, inputs, outputs, constants, ir=8):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(array, name) for name, array in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir).SerializeToString()


def scale(ir=8, k=2):
    """y = x * k + b, where k is 2 and b is 1, unless they are given."""
    return model([helper.make_node("Mul", ["x", "k"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])],
                 [tiny.value("k", "float32", []), tiny.value("x", "float32", ["n"]), tiny.value("b", "float32", [1])],
                 [tiny.value("y", "float32", ["n"])], {"k": numpy.float32(k), "b": floats(1)}, ir)


def give(**arrays):
    return {name: numpy.asarray(value, "float32") for name, value in arrays.items()}


@pytest.mark.parametrize("overridable", [(), ("k",), ("b", "k")])
def test_a_default_counts_until_a_run_gives_the_input(runtime, overridable):
    session = runtime.session(scale(), overridable=overridable)
    assert [value.name for value in session.inputs] == ["x"]
    assert [(value.name, value.shape) for value in session.defaults] == [("k", ()), ("b", (1,))]
    assert [value.name for value in session.model.defaults] == ["k", "b"]
    for _ in range(2):  # one after the other, and again
        assert session.run(give(x=[1, 2]))["y"].tolist() == [3, 5]
        assert session.run(give(x=[1, 2], k=5))["y"].tolist() == [6, 11]
        assert session.run(give(x=[1, 2], b=[0]))["y"].tolist() == [2, 4]
        assert session.run(give(x=[1, 2], k=3, b=[10]))["y"].tolist() == [13, 16]
        assert session.run(give(k=7, x=[1]))["y"].tolist() == [8]
    assert session.run(give(x=[1, 2]))["y"].tolist() == [3, 5]
    text = json.loads(session.explain("json"))["defaults"]
    opened = {entry["name"]: entry["as"] for entry in text}
    assert opened == {name: "open" if name in overridable else "constant, and open in another graph" for name in ("k", "b")}


def test_an_array_of_an_earlier_run_is_not_given_again(runtime):
    session, k, x = runtime.session(scale()), numpy.float32(5).reshape(()), floats(1, 2)
    for _ in range(3):
        assert session.run({"x": x, "k": k})["y"].tolist() == [6, 11]
        assert session.run({"x": x})["y"].tolist() == [3, 5]
        assert session.submit({"x": x, "k": k}).result(60)["y"].tolist() == [6, 11]
        assert session.submit({"x": x}).result(60)["y"].tolist() == [3, 5]


def test_sessions_are_compared_over_the_same_inputs_whichever_are_open(runtime):
    other = runtime.session(scale(), name="other", overridable=["b"])
    for session in (runtime.session(scale()), runtime.session(scale(), overridable=["k", "b"]), runtime.session(scale(), overridable=["b"])):
        for given in (give(x=[1, 2]), give(x=[1, 2], k=5), give(x=[1, 2], b=[3]), give(x=[1, 2], k=5, b=[3])):
            for a, b in ((session, other), (other, session)):
                assert a.compare(b, given)["outputs"][0]["largest_error"] == 0
    triple = runtime.session(scale(k=3))
    assert session.compare(triple, give(x=[1, 2]))["outputs"][0]["largest_error"] == 2  # each has its own defaults
    assert session.compare(triple, give(x=[1, 2], k=7))["outputs"][0]["largest_error"] == 0
    bare = runtime.session(scale(ir=3))  # which has none
    assert session.compare(bare, give(x=[1, 2]))["outputs"][0]["largest_error"] == 0
    with pytest.raises(evener.Error, match='input "k" is given'):
        session.compare(bare, give(x=[1, 2], k=5))


def test_a_trace_has_the_runs_that_give_an_input(runtime):
    session = runtime.session(scale())
    session.run(give(x=[1], b=[3]))  # a graph that is there before the trace begins
    with session.trace() as trace:
        for given in (give(x=[1, 2]), give(x=[1, 2], k=5), give(x=[1, 2], k=6), give(x=[1, 2], b=[3])):
            session.run(given)
    events = json.loads(trace.json())["traceEvents"]
    assert sum(event.get("cat") == "run" for event in events) == 4
    steps = [event["args"].get("open_inputs", "") for event in events if event.get("cat") == "kernel"]
    assert set(steps) == {"", "k", "b"} and steps.count("k") >= 2
    table = trace.table()
    assert table.startswith("4 runs") and "(with k)" in table and "(with b)" in table
    session.run(give(x=[1, 2], k=5))
    assert trace.table() == table  # it is over
    with session.trace() as trace:
        session.run(give(x=[1], k=5))
    assert trace.table().startswith("1 runs")


def test_before_version_4_initializers_are_no_defaults(runtime):
    session = runtime.session(scale(ir=3))
    assert session.defaults == ()
    with pytest.raises(evener.Error, match='no input "k"'):
        session.run(give(x=[1], k=5))
    with pytest.raises(evener.Error, match="with a default; there are: none"):
        runtime.session(scale(ir=3), overridable=["k"])


def test_mistakes(runtime):
    session = runtime.session(scale())
    with pytest.raises(evener.Error, match='no input "z"; there are: x, k, b'):
        session.run(give(x=[1], z=5))
    with pytest.raises(evener.Error, match="input 'x' is missing"):
        session.run(give(k=5))
    with pytest.raises(evener.Error, match='"k" has shape'):
        session.run(give(x=[1], k=[5, 6]))
    with pytest.raises(evener.Error, match='no input "x" with a default; there are: k, b'):
        runtime.session(scale(), overridable=["x"])
    assert session.run(give(x=[1]))["y"].tolist() == [3]


def test_declared_dims_count_for_what_is_given(runtime):
    """The initializer has two rows, the input any number."""
    source = model([helper.make_node("MatMul", ["x", "w"], ["y"])],
                   [tiny.value("x", "float32", [1, "k"]), tiny.value("w", "float32", ["k", 3])], [tiny.value("y", "float32", [1, 3])],
                   {"w": numpy.ones((2, 3), "float32")})
    session = runtime.session(source)
    assert session.defaults[0].shape == ("k", 3)
    assert session.run(give(x=[[1, 2]]))["y"].tolist() == [[3, 3, 3]]
    assert session.run(give(x=[[1, 2, 3]], w=numpy.full((3, 3), 2)))["y"].tolist() == [[12, 12, 12]]


def test_a_shape_and_a_branch_that_depend_on_a_default(runtime):
    """They are folded until they are given."""
    source = model([helper.make_node("Reshape", ["x", "s"], ["y"])], [tiny.value("x", "float32", [6]), tiny.value("s", "int64", [2])],
                   [tiny.value("y", "float32", None)], {"s": numpy.array([2, 3])})
    session = runtime.session(source)
    x = numpy.arange(6, dtype="float32")
    assert session.run({"x": x})["y"].shape == (2, 3)
    assert session.run({"x": x, "s": numpy.array([3, 2])})["y"].shape == (3, 2)
    assert session.run({"x": x, "s": numpy.array([-1, 6])})["y"].shape == (1, 6)
    assert session.run({"x": x})["y"].shape == (2, 3)


def test_a_weight_that_is_packed_and_one_that_is_folded(runtime, tmp_path):
    """A convolution with a batch normalization, whose weights may all be given: from bytes and from a file."""
    random = numpy.random.default_rng(0)
    constants = {"w": random.standard_normal((8, 4, 3, 3)), "scale": random.random(8) + 0.5, "bias": random.random(8), "mean": random.random(8),
                 "var": random.random(8) + 0.5}
    constants = {name: value.astype("float32") for name, value in constants.items()}
    source = model([helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
                    helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["y"])],
                   [tiny.value("x", "float32", [1, 4, 8, 8])] + [tiny.value(name, "float32", value.shape) for name, value in constants.items()],
                   [tiny.value("y", "float32", [1, 8, 8, 8])], constants)
    bare = model([helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
                  helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["y"])],
                 [tiny.value("x", "float32", [1, 4, 8, 8])], [tiny.value("y", "float32", [1, 8, 8, 8])], constants)
    (tmp_path / "m.onnx").write_bytes(source)
    x = random.standard_normal((1, 4, 8, 8)).astype("float32")
    expected = runtime.session(bare).run({"x": x})["y"]
    other = random.standard_normal((8, 4, 3, 3)).astype("float32")
    for given in (source, tmp_path / "m.onnx"):
        session = runtime.session(given)
        assert numpy.array_equal(session.run({"x": x})["y"], expected)  # the bits of a model in which they are constants
        numpy.testing.assert_allclose(session.run({"x": x, "w": constants["w"]})["y"], expected, rtol=1e-4, atol=1e-4)
        changed = session.run({"x": x, "w": other, "scale": 2 * constants["scale"]})["y"]
        want = runtime.session(bare, name="other").run({"x": x})["y"]
        assert not numpy.allclose(changed, want)
        assert numpy.array_equal(session.run({"x": x})["y"], expected)


def test_many_inputs_with_a_default_open_in_turns(runtime):
    """More sets of open inputs than a session keeps."""
    count = 12
    names = [f"k{number}" for number in range(count)]
    nodes, previous = [], "x"
    for name in names:
        nodes.append(helper.make_node("Add", [previous, name], [previous := f"s{name}"]))
    nodes.append(helper.make_node("Identity", [previous], ["y"]))
    session = runtime.session(model(nodes, [tiny.value("x", "float32", [1])] + [tiny.value(name, "float32", [1]) for name in names],
                                    [tiny.value("y", "float32", [1])], {name: floats(1) for name in names}))
    for _ in range(2):
        for name in names:
            assert session.run(give(x=[0], **{name: [10]}))["y"].tolist() == [count + 9]


def test_threads_give_different_inputs(runtime):
    session = runtime.session(scale())

    def work(number):
        for turn in range(50):
            given = give(x=[turn], **({"k": number} if number % 3 else {}), **({"b": [number]} if number % 2 else {}))
            assert session.run(given)["y"].tolist() == [turn * (number if number % 3 else 2) + (number if number % 2 else 1)]

    in_threads(work, 6)


def test_requests_that_give_an_input_are_joined_with_their_like_alone():
    with evener.Runtime(threads=1, cache_dir="") as runtime:
        session = runtime.session(scale(), batching={"max_batch": 8, "max_delay": 0.02}, concurrency=1)
        futures = [(number, session.submit(give(x=[number], **({"k": number % 4} if number % 4 else {})))) for number in range(40)]
        for number, future in futures:
            assert future.result(60)["y"].tolist() == [number * (number % 4 or 2) + 1]


def test_a_session_that_is_reconfigured(tmp_path):
    (tmp_path / "m.onnx").write_bytes(scale())
    text = "models: {m: {path: m.onnx%s}}\n"
    (tmp_path / "c.yaml").write_text(text % "")
    (tmp_path / "d.yaml").write_text(text % ", overridable: [k], warm: [{x: [2]}]")
    with evener.Runtime(tmp_path / "c.yaml", 1, cache_dir="") as runtime:
        session = runtime.session("m")
        for config in ("d.yaml", "c.yaml", "d.yaml"):
            assert session.run(give(x=[1], k=5))["y"].tolist() == [6] and session.run(give(x=[1]))["y"].tolist() == [3]
            runtime.reconfigure(tmp_path / config)
        assert json.loads(session.explain("json"))["defaults"][0] == {"name": "k", "as": "open"}
        (tmp_path / "e.yaml").write_text(text % ", overridable: [x]")
        with pytest.raises(evener.Error, match="with a default"):
            runtime.reconfigure(tmp_path / "e.yaml")


def test_a_state_goes_on_where_an_input_is_given(runtime):
    """h' = h * k + x"""
    source = model([helper.make_node("Mul", ["h", "k"], ["m"]), helper.make_node("Add", ["m", "x"], ["h_next"]),
                    helper.make_node("Identity", ["h_next"], ["y"])],
                   [tiny.value("x", "float32", [2]), tiny.value("h", "float32", [2]), tiny.value("k", "float32", [])],
                   [tiny.value("y", "float32", [2]), tiny.value("h_next", "float32", [2])], {"k": numpy.float32(2)})
    session = runtime.session(source)
    state = session.state([("h_next", "h")])
    have = 0
    for k in (None, 3, None, None, 5, 3):
        have = have * (2 if k is None else k) + 1
        given = give(x=[1, 1], **({} if k is None else {"k": k}))
        assert session.run(given, state=state)["y"].tolist() == [have, have]


def test_quantized_weights_with_a_scale_that_is_given(runtime):
    """DequantizeLinear of a constant is folded or rewritten until its scale is given."""
    q = numpy.array([[1, -2], [3, 4]], "int8")
    source = model([helper.make_node("DequantizeLinear", ["q", "s"], ["w"]), helper.make_node("MatMul", ["x", "w"], ["y"])],
                   [tiny.value("x", "float32", ["n", 2]), tiny.value("s", "float32", [])], [tiny.value("y", "float32", ["n", 2])],
                   {"q": q, "s": numpy.float32(0.5)})
    session = runtime.session(source)
    x = floats(1, 2).reshape(1, 2)
    for s in (None, 2, None, 0.25):
        made = session.run({"x": x, **({} if s is None else {"s": numpy.float32(s).reshape(())})})["y"]
        numpy.testing.assert_allclose(made, x @ (q * (0.5 if s is None else s)), rtol=1e-5)


def test_a_run_whose_time_is_over_before_the_other_graph_is_there(runtime):
    session = runtime.session(scale())
    with pytest.raises(evener.Error) as over:
        session.run(give(x=[1], k=5), deadline=1e-9)
    assert over.value.status == evener.Status.TIMEOUT
    assert session.run(give(x=[1], k=5), timeout=60)["y"].tolist() == [6]
