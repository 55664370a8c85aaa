"""Forked children: what runs there, and what fails at once instead of waiting for threads that are not there."""
import os
import signal
import traceback

import evener
import pytest
import tiny
from helpers import floats, fork_when_others_sleep, run_python

INPUTS = {"a": floats(1, 2, 3)[None], "b": floats(4, 5, 6)[None]}
SUM = [[5, 7, 9]]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # newer Pythons warn of forks beside threads


def in_child(body):
    """Whether the body ended without an exception in a child."""
    child = fork_when_others_sleep()
    if child == 0:
        signal.alarm(60)  # kills a child that hangs
        try:
            body()
            os._exit(0)
        except BaseException:  # pylint: disable=broad-except
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def use(session):
    assert session.run(INPUTS)["y"].tolist() == SUM
    assert session.submit(INPUTS).result(60)["y"].tolist() == SUM


def test_a_child_runs_and_submits(runtime):
    session = runtime.session(tiny.add())
    use(session)

    def child():
        use(session)
        use(runtime.session(tiny.add()))
        assert in_child(lambda: use(session))

    assert in_child(child)
    use(session)


def test_futures_in_flight_fail_in_the_child():
    code = """
import os, signal, sys, numpy, evener, gate, helpers
runtime = evener.Runtime(threads=1, cache_dir="")
held = gate.Gate(runtime)
session = held.session
x = numpy.ones(2, "float32")
futures = [session.submit({"x": x}) for _ in range(3)]
assert held.began.acquire(timeout=60)
child = helpers.fork_when_others_sleep()
if child == 0:
    signal.alarm(60)
    for future in futures:
        assert future.exception(10).status == evener.Status.FORKED
    try:
        session.run({"x": x})
    except evener.Error as error:
        assert error.status == evener.Status.FORKED
    else:
        os._exit(2)
    session.close()
    runtime.close()
    sys.exit(7)  # with all that the interpreter and the library do at an end
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
held.open.set()
assert [future.result(60)["y"].tolist() for future in futures] == [[1, 1]] * 3
sys.exit(code)
"""
    # What the parent's threads had on their stacks is nobody's in the child: LeakSanitizer would report it there (decision 0062).
    done = run_python(code, PYTHONWARNINGS="ignore", ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
    assert done.returncode == 7, done.stderr


@pytest.mark.parametrize("module, function, use", [("_library", "_open", "evener.version()"),
                                                   ("_dlpack", "Runtime", "evener.from_dlpack(numpy.ones(2))")])
def test_a_child_loads_what_another_thread_was_loading(module, function, use):
    code = f"""
import os, signal, threading, numpy, evener, helpers
from evener import {module} as module
whole, began, go_on, parent = module.{function}, threading.Event(), threading.Event(), os.getpid()
def slow(*arguments, **named):
    if os.getpid() == parent:
        began.set()
        go_on.wait()
    return whole(*arguments, **named)
module.{function} = slow
thread = threading.Thread(target=lambda: {use})
thread.start()
began.wait()
child = helpers.fork_when_others_sleep()
if child == 0:
    signal.alarm(20)
    {use}
    os._exit(7)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go_on.set()
thread.join()
{use}
raise SystemExit(code)
"""
    done = run_python(code, PYTHONWARNINGS="ignore", ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
    assert done.returncode == 7, done.stderr
