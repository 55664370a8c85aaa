"""Lifetimes of objects, threads, the library file and the log, as users of the package see them."""
import gc
import itertools
import os
import sys
import threading
import time

import evener
import numpy
import pytest
import tiny
from evener import _callbacks, _library
from gate import Gate
from helpers import dying, floats, in_threads, run_python
from onnx import helper


def test_objects_may_end_in_any_order():
    for order in itertools.permutations(["runtime", "device", "model", "session", "output"]):
        alive = {"runtime": evener.Runtime(threads=1)}
        alive["device"] = alive["runtime"].devices[0]
        alive["model"] = alive["runtime"].model(tiny.scale())
        alive["session"] = alive["runtime"].session(alive["model"])
        alive["output"] = alive["session"].run({"x": floats(1, 2)})["y"]
        for name in order:
            del alive[name]
            if "output" in alive:
                assert alive["output"].tolist() == [2, 4]


def test_a_session_runs_after_its_runtime_was_closed():
    with evener.Runtime(threads=1) as runtime:
        session = runtime.session(tiny.scale())
    assert session.run({"x": floats(4)})["y"] == 8


def test_what_was_closed_gives_an_error_and_may_be_closed_again():
    runtime = evener.Runtime(threads=1)
    session = runtime.session(tiny.scale())
    session.close()
    session.close()
    with pytest.raises(evener.Error) as caught:
        session.run({"x": floats(1)})
    assert caught.value.status == evener.Status.INVALID_HANDLE
    runtime.close()
    with pytest.raises(evener.Error):
        runtime.session(tiny.scale())


def test_the_interpreter_ends_cleanly_with_everything_alive():
    done = run_python("""
import evener, numpy, threading, tiny
runtime = evener.Runtime(threads=2)
session = runtime.session(tiny.matmul(64))
kept = session.run({"x": numpy.ones((64, 64), "float32")})["y"]
cycle = [session, kept]; cycle.append(cycle)
def forever():
    while True:
        session.run({"x": numpy.ones((64, 64), "float32")})
threading.Thread(target=forever, daemon=True).start()
print(kept[0, 0])
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "64.0\n", "")


# Threads

def test_other_threads_run_while_a_model_does(runtime):
    session = runtime.session(tiny.matmul(256))
    x = numpy.ones((256, 256), "float32")
    session.run({"x": x})
    order, barrier = [], threading.Barrier(2)

    def runs():
        barrier.wait()
        for _ in range(100):
            order.append("run")
            session.run({"x": x})

    def counts():
        barrier.wait()
        for _ in range(100000):
            order.append("count")
            time.sleep(0)
            if order.count("run") == 100:
                break

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # from here on a thread goes on until it gives the interpreter's lock away itself
    try:
        threads = [threading.Thread(target=target) for target in (runs, counts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    first = order.index("run")
    last = len(order) - 1 - order[::-1].index("run")
    assert "count" in order[first:last]


def test_many_threads_run_one_session(runtime):
    session = runtime.session(tiny.matmul(32))
    wrong = []

    def work(number):
        x = numpy.full((number + 1, 32), number, "float32")
        for _ in range(50):
            if not (session.run({"x": x})["y"] == number * 32).all():
                wrong.append(number)

    in_threads(work, 4)
    assert not wrong


def test_closing_a_session_lets_its_runs_end(runtime):
    x = numpy.ones((64, 64), "float32")
    for _ in range(20):
        session = runtime.session(tiny.matmul(64))
        started, outcomes = threading.Event(), []

        def work():
            started.set()
            try:
                while True:
                    outcomes.append(float(session.run({"x": x})["y"][0, 0]))
            except evener.Error as error:
                outcomes.append(error.status)

        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        session.close()
        thread.join()
        assert outcomes[-1] == evener.Status.INVALID_HANDLE and set(outcomes[:-1]) <= {64.0}


# Arrays that runs read

class Fresh(dict):
    """Makes new arrays at each look, as numpy.load("in.npz") does."""

    def items(self):
        return ((name, dying(*value)) for name, value in super().items())


def test_arrays_that_nobody_else_holds_live_until_the_run_ends(runtime):
    session = runtime.session(tiny.add((3,)))
    for _ in range(2):
        assert session.run(Fresh(a=(1, 2, 3), b=(4, 5, 6)))["y"].tolist() == [5, 7, 9]


@pytest.mark.parametrize("was_seen", [False, True])
def test_a_request_reads_the_arrays_that_it_was_given(was_seen):
    gate = Gate(evener.Runtime(threads=2, cache_dir=""))
    feed = {"x": dying(1, 2)}
    if was_seen:
        gate.open.set()
        gate.session.run(feed)
        gate.open.clear()
        gate.began.acquire()
    gate.occupy(floats(0, 0), threads=2)
    future = gate.session.submit(feed)
    feed["x"] = None
    gate.open.set()
    assert future.result(60)["y"].tolist() == [1, 2]


@pytest.mark.parametrize("was_seen", [False, True])
def test_a_run_reads_the_arrays_that_it_was_given(was_seen):
    def run(_node, arrays):
        if not was_seen or len(runs) == 1:
            feed["x"] = None
        runs.append(arrays[0])
        return arrays

    feed, runs = {"x": dying(1, 2)}, []
    opened = evener.Runtime(threads=1, cache_dir="")
    opened.register_operator("mine", "Rebind", lambda node, inputs: [inputs[0][:2]], run)
    nodes = [helper.make_node("Rebind", ["x"], ["r"], domain="mine"), helper.make_node("Add", ["x", "r"], ["y"])]
    graph = helper.make_graph(nodes, "g", [tiny.value("x", "float32", [2])], [tiny.value("y", "float32", [2])])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)])
    session = opened.session(model.SerializeToString())
    for _ in range(1 + was_seen):
        assert session.run(feed)["y"].tolist() == [2, 4]


def test_an_array_that_is_resized_after_a_run_is_read_where_it_lies(runtime):
    session, x = runtime.session(tiny.scale()), numpy.ones(1000, "float32")
    session.run({"x": x})
    try:
        x.resize(1_000_000, refcheck=False)
        between = numpy.zeros(1000, "float32")  # may lie where x was
        x.resize(1000, refcheck=False)
        del between
    except ValueError:  # numpy refuses
        pass
    assert (session.run({"x": x})["y"] == 2).all()


# The library file

def test_version_is_three_numbers():
    assert len([int(part) for part in evener.version().split(".")]) == 3


def test_a_library_that_does_not_exist_is_an_os_error():
    done = run_python("import evener; evener.Runtime()", EVENER_LIBRARY="/nowhere/libevener.so")
    assert done.returncode == 1 and "OSError: /nowhere/libevener.so" in done.stderr


def test_another_library_is_refused_by_name():
    done = run_python("import evener; evener.Runtime()", EVENER_LIBRARY="libc.so.6")
    assert done.returncode == 1 and "libc.so.6 is no Evener library" in done.stderr


def test_the_library_is_the_one_that_the_environment_names():
    path = os.path.abspath(_library.library_path())
    done = run_python("import evener; evener.version(); print(evener.library_path())", EVENER_LIBRARY=path)
    assert done.stdout.strip() == path, done.stderr


def test_importing_loads_no_library():
    done = run_python("import evener", EVENER_LIBRARY="/nowhere/libevener.so")
    assert (done.returncode, done.stderr) == (0, "")


# The log

def test_the_log_goes_to_a_function_up_to_its_level():
    def events(**options):
        records = []
        with evener.Runtime(threads=1, cache_dir="", log=records.append, **options) as opened:
            session = opened.session(tiny.add())
            session.run({"a": numpy.ones((1, 3), "float32"), "b": numpy.ones((1, 3), "float32")})
        return records
    assert events() == []  # warnings
    told = events(log_level="info")
    assert [record.event for record in told] == ["device.opened", "runtime.created", "model.loaded", "session.created"]
    assert told[0].level == "info" and told[0].device == "cpu" and told[0].message.startswith("opened device cpu")
    assert told[1].fields["threads"] == "1"
    assert [record.event for record in events(log_level="debug")] == [record.event for record in told] + ["plan.created"]


def test_a_log_that_is_none_is_refused():
    with pytest.raises(TypeError, match="function"):
        evener.Runtime(log="stderr")
    with pytest.raises(ValueError, match="error, warning, info, debug, not 'all'"):
        evener.Runtime(log=print, log_level="all")


def test_the_log_ends_with_the_last_session_of_its_runtime():
    records, kept = [], set(_callbacks._kept)
    opened = evener.Runtime(threads=1, cache_dir="", log=records.append, log_level="debug")
    assert len(_callbacks._kept) == len(kept) + 1
    session = opened.session(tiny.scale())
    opened.close()
    count = len(records)
    session.run({"x": numpy.ones(2, "float32")})
    assert [record.event for record in records[count:]] == ["plan.created"]
    model = session.model
    del session, opened
    gc.collect()
    assert len(_callbacks._kept) == len(kept) + 1, "the model keeps the runtime"
    del model
    gc.collect()
    assert set(_callbacks._kept) == kept
    with pytest.raises(evener.Error):
        evener.Runtime(threads=-1, log=records.append)
    assert set(_callbacks._kept) == kept
