"""Python functions that the library calls: it is given a number by which they are found, and says when it has no more use for it."""
import atexit
import contextlib
import ctypes
import itertools
import os
import threading
import time

from . import _raw

END_SECONDS = 5  # Time that callbacks, and requests, have to end when the interpreter ends.

_kept = {}  # number -> what callbacks find
_numbers = itertools.count(1)
_running = {}  # Calls of callbacks that have not returned: object -> thread.
_ended = threading.Event()
os.register_at_fork(after_in_child=_running.clear)


def immortal(thunk):
    """A C function that may be called when the modules of an interpreter that ends are gone already: it is never freed."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thunk))
    return thunk


def callback(kind, function):
    """An immortal C function of the type `kind` that calls `function`, or fails when the interpreter ends."""
    def call(*arguments, running=_running, ended=_ended, thread=threading.get_ident):
        if ended.is_set():
            return _raw.EVN_ERROR_CANCELLED
        key = object()
        running[key] = thread()
        try:
            return function(*arguments)
        finally:
            running.pop(key, None)

    return immortal(kind(call))


def interrupt():
    """Raises KeyboardInterrupt in callbacks that have not returned, as soon as their threads execute Python code."""
    for thread in set(_running.values()):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))


def _wait(seconds):
    """Waits until all callbacks have returned. Returns false if the time is over."""
    end = time.monotonic() + seconds
    while _running and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.05)  # lets threads that are just behind or before a callback have the GIL: new calls fail
    return not _running


@atexit.register
def _end():
    """Ends all callbacks: an interpreter that has ended ends their threads, which aborts the process in frames of C++."""
    _ended.set()
    if _kept and not _wait(END_SECONDS):
        interrupt()
        _wait(1)


def find(number):
    """What was lent under the number."""
    return _kept[number]


def _take_back(number, pop=_kept.pop):
    pop(number, None)


RELEASE = immortal(_raw.evn_user_release(_take_back))


@contextlib.contextmanager
def lent(value):
    """Gives a number for `value`. It is the library's, which ends it by RELEASE, unless the body raises."""
    number = next(_numbers)
    _kept[number] = value
    try:
        yield number
    except BaseException:
        _kept.pop(number, None)
        raise
