"""States: caches that grow and values of fixed dims that go from run to run."""
import asyncio
import gc
import json

import evener
import numpy
import onnx
import pytest
from onnx import helper

FLOAT = onnx.TensorProto.FLOAT
PAIRS = [("all", "past", 40), ("next", "last", 0)]


@pytest.fixture(scope="module")
def model():
    """all = past with x behind it, sum over all of it, next = last + 1."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["all"], axis=1, name="append"),
        helper.make_node("ReduceSum", ["all", "axes"], ["sum"], keepdims=0),
        helper.make_node("Add", ["last", "one"], ["next"]),
    ]
    inputs = [helper.make_tensor_value_info("x", FLOAT, [1, "S", 2]), helper.make_tensor_value_info("past", FLOAT, [1, "P", 2]),
              helper.make_tensor_value_info("last", FLOAT, [1, 3])]
    outputs = [helper.make_tensor_value_info(name, FLOAT, None) for name in ("all", "sum", "next")]
    constants = [helper.make_tensor("axes", onnx.TensorProto.INT64, [1], [1]), helper.make_tensor("one", FLOAT, [], [1.0])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


@pytest.fixture
def session(runtime, model):
    return runtime.session(model)


def rows(count, value):
    return {"x": numpy.full((1, count, 2), value, "float32")}


def test_outputs_go_to_the_next_runs_inputs(session):
    state = session.state(PAIRS)
    assert list(session.run(rows(2, 1.0), state=state)) == ["sum"]
    assert session.run(rows(3, 10.0), state=state)["sum"].tolist() == [[32.0, 32.0]]
    assert session.submit(rows(1, 100.0), state=state).result(60)["sum"].tolist() == [[132.0, 132.0]]
    assert asyncio.run(session.run_async(rows(1, 100.0), state=state))["sum"].tolist() == [[232.0, 232.0]]
    assert len(state) == state.length(0) == 7 and state.length(1) == 0
    assert [(p["storage"], p["positions"], p["capacity"]) for p in state.describe()] == [("pages", 7, 40), ("double_buffered", 0, 0)]
    json.dumps(state.describe())


def test_runs_with_and_without_a_state_may_alternate(session):
    state = session.state(PAIRS)
    given = {"past": numpy.ones((1, 4, 2), "float32"), "last": numpy.zeros((1, 3), "float32")}
    for count in range(1, 6):
        assert session.run(rows(1, 1.0), state=state)["sum"].tolist() == [[count, count]]
        outputs = session.run({**rows(1, 2.0), **given})
        assert outputs["sum"].tolist() == [[6.0, 6.0]] and outputs["next"].tolist() == [[1.0] * 3]


def test_fork_truncate_reset_save_and_restore(session):
    state = session.state(PAIRS, on_demand=True)
    session.run(rows(20, 1.0), state=state)
    beam = state.fork()
    session.run(rows(2, 5.0), state=beam)
    assert session.run(rows(1, 1.0), state=state)["sum"].tolist() == [[21.0, 21.0]]
    assert session.run(rows(1, 0.0), state=beam)["sum"].tolist() == [[30.0, 30.0]]
    saved = beam.save()
    state.restore(saved)
    assert state.save() == saved and len(state) == 23
    state.truncate(20)
    assert session.run(rows(1, 0.0), state=state)["sum"].tolist() == [[20.0, 20.0]]
    state.reset()
    assert len(state) == 0 and session.run(rows(1, 3.0), state=state)["sum"].tolist() == [[3.0, 3.0]]
    with pytest.raises(evener.Error) as error:
        state.restore(saved[:-1])
    assert error.value.status == evener.Status.INVALID_ARGUMENT


def test_misuse_is_an_error_and_changes_nothing(runtime, session, model):
    state = session.state(PAIRS)
    session.run(rows(39, 1.0), state=state)
    for call, status in [
        (lambda: session.run(rows(2, 1.0), state=state), evener.Status.LIMIT),
        (lambda: session.run({**rows(1, 1.0), "last": numpy.zeros((1, 3), "float32")}, state=state), evener.Status.INVALID_ARGUMENT),
        (lambda: runtime.session(model).run(rows(1, 1.0), state=state), evener.Status.INVALID_HANDLE),
        (lambda: session.state([("all", "nothing", 4)]), evener.Status.INVALID_ARGUMENT),
        (lambda: session.state([]), evener.Status.INVALID_ARGUMENT),
        (lambda: state.length(9), evener.Status.INVALID_ARGUMENT),
        (lambda: session.run({}, state=state), evener.Status.INVALID_ARGUMENT),
    ]:
        with pytest.raises(evener.Error) as error:
            call()
        assert error.value.status == status, error.value
    assert len(state) == 39
    state.close()
    state.close()
    with pytest.raises(ValueError):
        session.run(rows(1, 1.0), state=state)
    with pytest.raises(evener.Error):
        state.reset()


def test_a_state_outlives_what_it_was_made_of(model):
    runtime = evener.Runtime(threads=1, cache_dir="")
    session = runtime.session(model)
    state = session.state(PAIRS)
    session.run(rows(2, 1.0), state=state)
    session.close()
    runtime.close()
    del session, runtime
    gc.collect()
    assert len(state) == 2
    state.reset()
