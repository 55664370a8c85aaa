"""Asynchronous runs: a future for each, and one thread of Python's that hands out what the library has finished."""
import atexit
import concurrent.futures
import ctypes
import itertools
import os
import sys
import threading
import time

from . import _arrays, _callbacks, _raw, _tensor, _values
from ._library import Error, Status, check, library, new_error, sized

_LOOK_NS = 100_000_000  # Polling interval of the thread, for the end of the interpreter.


class RunFuture(concurrent.futures.Future):
    """What Session.submit gives. cancel() also stops the run, unless the submission was given a token of its own."""

    _token = None

    def cancel(self):
        """True unless the run has ended: then it is stopped, and this future is cancelled at once."""
        cancelled = super().cancel()
        if cancelled and self._token is not None:
            self._token.cancel()
        return cancelled


class _Waiting:
    """A request that has not ended: its future, how its outputs are read, its token's handle, and the memory that the library reads."""

    __slots__ = ("future", "read", "token", "keep")

    def __init__(self, future, read, token, keep):
        self.future, self.read, self.token, self.keep = future, read, token, keep


class _Completions:
    """Requests in flight, and the queue by which the library tells of their ends."""

    def __init__(self):
        self._begin()

    def _begin(self):
        self._lock = threading.Lock()
        self._some = threading.Condition(self._lock)
        self._waiting = {}
        self._numbers = itertools.count(1)
        self._queue = None
        self._thread = None
        self._ends = False

    def begin_in_child(self):
        """A forked child has neither the thread nor what was under way: those futures fail there."""
        queue, waiting = self._queue, self._waiting
        self._begin()
        if queue is not None:
            library().evn_queue_release(queue)
        for each in waiting.values():
            each.future._condition = threading.Condition()  # a thread that is not there may have had its lock
            try:
                each.future.set_exception(Error(Status.FORKED, "the request was under way when the process forked"))
            except concurrent.futures.InvalidStateError:
                pass

    def options(self, waiting):
        """(number, options) of a submission; `waiting` is known by the number until it has ended, or drop() is called."""
        with self._lock:
            if self._ends:
                raise RuntimeError("no request can be submitted any more: the interpreter ends")
            if self._queue is None:
                queue, error = _raw.evn_queue(), new_error()
                check(library().evn_queue_create(queue, error), error)
                self._queue = queue
                atexit.register(self._end)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="evener-requests", daemon=True)
                self._thread.start()
            number = next(self._numbers)
            self._waiting[number] = waiting
            self._some.notify()
        options = sized(_raw.evn_submit_options)
        options.queue, options.user = self._queue, number
        return number, options

    def drop(self, number):
        with self._lock:
            self._waiting.pop(number, None)

    def _end(self):
        """Cancels all requests and waits for their ends: until then the library reads Python's memory and calls Python's functions."""
        with self._lock:
            self._ends = True
            self._some.notify()
            thread, waiting = self._thread, list(self._waiting.values())
        for each in waiting:
            library().evn_cancel_request(each.token.value)
        if thread is not None and thread.is_alive():
            thread.join(_callbacks.END_SECONDS)
            if thread.is_alive():
                _callbacks.interrupt()
                thread.join(1)
        if self._waiting:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._waiting))  # a leak, since the library may still read the memory

    def _work(self):
        lib, error = library(), new_error()
        request, user = _raw.evn_request(), ctypes.c_void_p()
        while True:
            with self._lock:
                while not self._waiting:
                    if self._ends:
                        return
                    self._some.wait()
            try:
                self._take_next(lib, request, user, error)
            except BaseException:  # pylint: disable=broad-except  # a done-callback may raise SystemExit, which is for this future alone
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
                time.sleep(_LOOK_NS / 1e9)  # limits the rate of reports if the queue fails

    def _take_next(self, lib, request, user, error):
        """Waits for the end of a request, and resolves its future."""
        check(lib.evn_queue_next(self._queue, _LOOK_NS, request, error), error)
        if not request:
            return
        try:
            lib.evn_request_user(request, user, error)
            with self._lock:
                waiting = self._waiting.pop(user.value, None)
            if waiting is not None:
                self._finish(waiting, request)
        finally:
            lib.evn_request_release(request)

    @staticmethod
    def _finish(waiting, request):
        future = waiting.future
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = waiting.read(request)
        except BaseException as error:  # pylint: disable=broad-except
            future.set_exception(error)
        else:
            future.set_result(result)


_completions = _Completions()
os.register_at_fork(after_in_child=_completions.begin_in_child)


def _tensor_reader(outputs, runtime, on_device):
    names = [value.name for value in outputs]

    def read(request):
        lib, error, results = library(), new_error(), (ctypes.c_void_p * len(names))()
        take = lib.evn_request_take
        check(take(request, ctypes.cast(results, ctypes.POINTER(_raw.evn_tensor)), len(names), error), error)
        owners = [_arrays.OutputTensor(tensor, None if on_device else runtime) for tensor in results]
        read_one = _tensor.of_output if on_device else _arrays.OutputTensor.array
        return {name: read_one(owner, error) for name, owner in zip(names, owners) if not owner.is_empty()}
    return read


def _value_reader(outputs, on_device):
    names = [value.name for value in outputs]

    def read(request):
        lib, error, results = library(), new_error(), (_raw.evn_value * len(names))()
        check(lib.evn_request_take_values(request, results, len(names), error), error)
        try:
            return {name: _values.read(result, on_device) for name, result in zip(names, results) if result}
        finally:
            for result in results:
                lib.evn_value_release(result)
    return read


def submit_tensors(session, slots, outputs, options, token, is_own, keep, runtime, on_device=False):
    """Submits a run of tensors. Returns a RunFuture; with `on_device`, of Tensors.

    slots    an array of handles
    token    the run's Cancel; `is_own`: the future's cancel() uses it
    keep     memory that must live until the request ends
    runtime  the owner of its handle
    """
    return _submit(library().evn_session_submit, session, ctypes.cast(slots, ctypes.POINTER(_raw.evn_tensor)), len(slots), outputs,
                   _tensor_reader(outputs, runtime, on_device), options, token, is_own, keep)


def submit_values(session, slots, outputs, options, token, is_own, on_device=False):
    """Submits a run of values as submit_tensors does. The library copies their memory."""
    return _submit(library().evn_session_submit_values, session, slots, len(slots), outputs, _value_reader(outputs, on_device), options,
                   token, is_own, None)


def _submit(function, session, slots, count, outputs, read, options, token, is_own, keep):
    future, error = RunFuture(), new_error()
    future._token = token if is_own else None
    number, submit = _completions.options(_Waiting(future, read, token._owned, keep))
    try:
        check(function(session, slots, count, None, len(outputs), options, submit, None, error), error)
    except Error:
        _completions.drop(number)
        raise
    return future
