"""Asynchronous runs: futures, asyncio, cancellation, errors, values, and the end of the interpreter."""
import asyncio
import concurrent.futures
import gc
import subprocess
import sys
import threading

import evener
import numpy
import onnx
import pytest
import tiny
from gate import Gate
from helpers import floats
from onnx import helper

INPUTS = {"a": floats(1, 2, 3)[None], "b": floats(4, 5, 6)[None]}
SUM = [[5, 7, 9]]


@pytest.fixture
def gate():
    """A gate in a runtime of its own, with two threads."""
    made = Gate(evener.Runtime(threads=2, cache_dir=""))
    yield made
    made.open.set()


def test_submit_gives_a_future_of_what_run_gives(runtime):
    session = runtime.session(tiny.add())
    future = session.submit(INPUTS)
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(60)["y"].tolist() == SUM
    numpy.testing.assert_array_equal(future.result()["y"], session.run(INPUTS)["y"])


def test_many_futures_in_flight(runtime):
    session = runtime.session(tiny.add((None, 3)))
    futures = [session.submit({"a": numpy.full((1, 3), i, "float32"), "b": INPUTS["b"]}, priority=i % 3) for i in range(500)]
    for i, future in enumerate(futures):
        assert future.result(60)["y"].tolist() == [[i + 4, i + 5, i + 6]]


def test_arrays_and_sessions_may_be_abandoned_while_requests_run(gate):
    future = gate.session.submit({"x": numpy.array([1, 2], "float32")})
    del gate.session
    gc.collect()
    gate.open.set()
    assert future.result(60)["y"].tolist() == [1, 2]


def test_errors_of_the_run_come_from_the_future_and_others_at_once(runtime):
    session = runtime.session(tiny.add())
    with pytest.raises(evener.Error) as wrong:
        session.submit({"a": floats(1), "b": floats(1)}).result(60)
    assert wrong.value.status == evener.Status.INVALID_ARGUMENT
    with pytest.raises(evener.Error, match="'b' is missing"):
        session.submit({"a": INPUTS["a"]})
    with pytest.raises(evener.Error, match="priority"):
        session.submit(INPUTS, priority=8)
    with pytest.raises(evener.Error) as late:
        session.submit(INPUTS, timeout=1e-9).result(60)
    assert late.value.status == evener.Status.TIMEOUT


def test_cancelling_a_future_stops_its_run(gate):
    running = gate.session.submit({"x": floats(1, 2)})
    assert gate.began.acquire(timeout=60)
    assert running.cancel() and running.cancelled()
    gate.open.set()
    with pytest.raises(concurrent.futures.CancelledError):
        running.result(60)
    assert gate.session.submit({"x": floats(3, 4)}).result(60)["y"].tolist() == [3, 4]
    done = gate.session.submit({"x": floats(3, 4)})
    done.result(60)
    assert not done.cancel()


def test_a_token_of_the_callers_ends_several(gate):
    cancel = evener.Cancel()
    futures = [gate.session.submit({"x": floats(1, 2)}, cancel=cancel) for _ in range(3)]
    assert gate.began.acquire(timeout=60)
    cancel.cancel()
    gate.open.set()
    for future in futures:
        with pytest.raises(evener.Error) as ended:
            future.result(60)
        assert ended.value.status == evener.Status.CANCELLED


def test_awaited_runs(runtime):
    session = runtime.session(tiny.add())

    async def several():
        return await asyncio.gather(*(session.run_async(INPUTS, priority=i) for i in range(5)))

    assert [result["y"].tolist() for result in asyncio.run(several())] == [SUM] * 5


def test_a_task_that_is_cancelled_stops_its_run(gate):
    async def cancelled():
        task = asyncio.ensure_future(gate.session.run_async({"x": floats(1, 2)}))
        await asyncio.to_thread(gate.began.acquire)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    gate.open.set()


def test_values_that_are_no_tensors(runtime):
    ends = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2]),
            helper.make_tensor_sequence_value_info("y", onnx.TensorProto.FLOAT, None)]
    graph = helper.make_graph([helper.make_node("SequenceConstruct", ["x", "x"], ["y"])], "g", ends[:1], ends[1:])
    session = runtime.session(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    result = session.submit({"x": floats(1, 2)}).result(60)["y"]
    assert [array.tolist() for array in result] == [[1, 2], [1, 2]]


def test_concurrency_is_a_sessions(runtime):
    session = runtime.session(tiny.add(), concurrency=1)
    assert [future.result(60)["y"].tolist() for future in [session.submit(INPUTS) for _ in range(4)]] == [SUM] * 4
    with pytest.raises(evener.Error, match="concurrency"):
        runtime.session(tiny.add(), concurrency=-1)


def test_batching_is_a_sessions(gate):
    runtime = gate.runtime
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 3]) for name in "xy"]
    nodes = [helper.make_node("Softmax", ["x"], ["y"], "it", axis=axis) for axis in (0, 1)]
    mixing, model = (helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:]), ir_version=9,
                                       opset_imports=[helper.make_opsetid("", 17)]).SerializeToString() for node in nodes)
    session = runtime.session(model, batching={"max_batch": 8, "max_delay": 0.002})
    gate.occupy(floats(1, 2), threads=2)
    rows = [floats(i, 1, -i)[None] for i in range(40)]
    futures = [session.submit({"x": row}) for row in rows]
    gate.open.set()
    alone = runtime.session(model)
    for row, future in zip(rows, futures):
        numpy.testing.assert_array_equal(future.result(60)["y"], alone.run({"x": row})["y"])
    assert sum(batch["rows"] * batch["count"] for batch in session.statistics()["batches"]) == 40
    assert max(batch["rows"] for batch in session.statistics()["batches"]) == 8
    with pytest.raises(evener.Error, match="\"it\" works along the axis") as caught:
        runtime.session(mixing, batching={})
    assert caught.value.node == "it"
    with pytest.raises(evener.Error, match="max_batch is 1"):
        runtime.session(model, batching={"max_batch": 1})
    with pytest.raises(evener.Error, match="buckets need a mask"):
        runtime.session(model, batching={"buckets": [16, 32]})
    with pytest.raises(evener.Error, match="no input"):
        runtime.session(model, batching={"mask": "attention_mask"})
    with pytest.raises(TypeError, match="'size'"):
        runtime.session(model, batching={"size": 3})
    with pytest.raises(ValueError, match="max_delay is -1"):
        runtime.session(model, batching={"max_delay": -1})


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "os._exit(3)"])
def test_the_interpreter_ends_with_requests_in_flight(end):
    code = ("import os, sys, tiny, evener, numpy\n"
            "session = evener.Runtime(threads=1, cache_dir='').session(tiny.add())\n"
            "x = numpy.ones((1, 3), 'float32')\n"
            "futures = [session.submit({'a': x, 'b': x}) for _ in range(300)]\n"
            f"futures[0].result()\n{end}\n")
    done = subprocess.run([sys.executable, "-c", code], env=None, capture_output=True, text=True, timeout=120,
                          cwd=tiny.__file__.rsplit("/", 1)[0])
    assert done.returncode == (3 if end else 0), done.stderr
    assert done.stderr == ""
