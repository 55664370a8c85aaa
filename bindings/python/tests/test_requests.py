"""Asynchronous runs: futures, asyncio, cancellation, errors, values, and the end of the interpreter."""
import asyncio
import concurrent.futures
import gc
import threading

import evener
import numpy
import onnx
import pytest
import tiny
from gate import Gate
from evener import _requests
from helpers import floats, run_python
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
    done = run_python(code)
    assert done.returncode == (3 if end else 0), done.stderr
    assert done.stderr == ""


def test_the_end_of_the_interpreter_cancels_requests_that_read_arrays():
    done = run_python("""
import atexit, tiny, evener, numpy
def late():
    try:
        session.submit({"a": x, "b": x})
    except RuntimeError as error:
        print(error)
atexit.register(late)
session = evener.Runtime(threads=1, cache_dir="").session(tiny.add((25_000_000,)))
x, cancel = numpy.ones(25_000_000, "float32"), evener.Cancel()
for i in range(20):
    future = session.submit({"a": x, "b": x}, cancel=cancel if i % 2 else None)
future.add_done_callback(lambda each: print(each.exception().status.name))
cancel.close()
""")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "CANCELLED\nno request can be submitted any more: the interpreter ends\n"


@pytest.mark.parametrize("end", ["monotonic() + 0.5", "inf"])
def test_the_interpreter_ends_while_an_operator_spins(end):
    done = run_python(f"""
import evener, numpy, threading
from gate import Gate
from math import inf
from time import monotonic
evener._callbacks.END_SECONDS = 1
class Spins(Gate):
    def _run(self, node, arrays):
        self.began.release()
        end = {end}
        while monotonic() < end:
            pass
        return arrays
gate = Spins(evener.Runtime(threads=1, cache_dir=""))
future = gate.session.submit({{"x": numpy.ones(2, "float32")}})
gate.began.acquire()
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_ends_while_an_operator_waits():
    done = run_python("""
import evener, numpy
from gate import Gate
evener._callbacks.END_SECONDS = 0.5
gate = Gate(evener.Runtime(threads=1, cache_dir=""))
gate.session.submit({"x": numpy.ones(2, "float32")})
gate.began.acquire()
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_ends_while_a_log_function_runs():
    done = run_python("""
import evener, numpy, threading, time, tiny
began = threading.Event()
def log(record):
    if record.event == "plan.created":
        began.set()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            pass
session = evener.Runtime(threads=1, cache_dir="", log=log, log_level="debug").session(tiny.scale())
session.submit({"x": numpy.ones(2, "float32")})
began.wait()
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_ends_while_other_threads_run_operators():
    done = run_python("""
import evener, numpy, threading, time
from gate import Gate
class Spins(Gate):
    def _run(self, node, arrays):
        self.began.release()
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pass
        return arrays
gate = Spins(evener.Runtime(threads=1, cache_dir=""))
def forever():
    try:
        while True:
            gate.session.run({"x": numpy.ones(2, "float32")})
    except evener.Error as error:
        assert error.status == evener.Status.CANCELLED
for _ in range(3):
    threading.Thread(target=forever, daemon=True).start()
gate.began.acquire()
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_done_callback_that_exits_ends_no_other_future(gate, monkeypatch):
    def leave(_):
        raise SystemExit

    reported = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: reported.append(arguments.exc_type))
    futures = gate.occupy(floats(1, 2), threads=2)
    for future in futures:
        future.add_done_callback(leave)
    gate.open.set()
    assert gate.session.submit({"x": floats(3, 4)}).result(60)["y"].tolist() == [3, 4]
    assert [future.result(60)["y"].tolist() for future in futures] == [[1, 2]] * 2
    assert reported and set(reported) == {SystemExit}


@pytest.mark.parametrize("hook_fails", [False, True])
def test_requests_go_on_after_an_error_of_their_queue(runtime, monkeypatch, hook_fails):
    completions, session, reported, failed = _requests._completions, runtime.session(tiny.add()), [], threading.Event()
    whole = completions._take_next

    def report(arguments):
        reported.append(arguments.exc_value)
        if hook_fails:
            raise SystemExit

    def take_next(*arguments):
        if not failed.is_set():
            failed.set()
            raise evener.Error(evener.Status.OUT_OF_MEMORY, "no memory for the queue")
        whole(*arguments)

    session.submit(INPUTS).result(60)
    monkeypatch.setattr(threading, "excepthook", report)
    monkeypatch.setattr(completions, "_take_next", take_next)
    first, thread = session.submit(INPUTS), completions._thread
    assert failed.wait(60)
    if hook_fails:
        thread.join(60)
    assert session.submit(INPUTS).result(60)["y"].tolist() == SUM
    assert first.result(60)["y"].tolist() == SUM
    assert reported[0].status == evener.Status.OUT_OF_MEMORY
