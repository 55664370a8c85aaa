"""Python functions that the library calls: it is given a number by which they are found, and says when it has no more use for it."""
import contextlib
import ctypes
import itertools

from . import _raw

_kept = {}  # number -> what callbacks find
_numbers = itertools.count(1)


def immortal(thunk):
    """A C function that may be called when the modules of an interpreter that ends are gone already: it is never freed."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thunk))
    return thunk


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
