"""Custom operators: Python functions as the callbacks of evn_operator."""
import ctypes
import math
import typing

import numpy

from . import _arrays, _callbacks, _raw
from ._library import Error, Status, c_int64s, c_text, check, library, new_error, read_text, sized

_UNKNOWN_RANK = _VARIADIC = 2**32 - 1
_STATUSES = {ValueError: Status.INVALID_ARGUMENT, TypeError: Status.INVALID_ARGUMENT, MemoryError: Status.OUT_OF_MEMORY,
             KeyboardInterrupt: Status.CANCELLED}


class Spec(typing.NamedTuple):
    """What is known of a tensor before a run."""

    dtype: numpy.dtype
    shape: typing.Optional[tuple]                  # None where a dim is not known; None: even the rank is not
    value: typing.Optional[numpy.ndarray] = None


class Node:
    """A node of a custom operator, as its functions see it; to be used until they return."""

    def __init__(self, handle):
        self._library = library()
        self._handle = handle

    @property
    def name(self):
        return read_text(self._library.evn_operator_node_name, self._handle)

    def attribute(self, name, default=None):
        """The value of an attribute: int, float, bytes, an array, or a list of ints, floats or bytes; `default` when it is not given."""
        kind, error, key = ctypes.c_int32(), new_error(), c_text(name)
        check(self._library.evn_operator_attribute_type(self._handle, key, kind, error), error)
        if kind.value == _raw.EVN_ATTRIBUTE_NONE:
            return default
        if kind.value not in _READERS:
            raise TypeError(f"attribute '{name}' is of a kind that cannot be read")
        return _READERS[kind.value](self, key, error)

    def _int(self, key, error):
        value = ctypes.c_int64()
        check(self._library.evn_operator_attribute_int(self._handle, key, value, error), error)
        return value.value

    def _float(self, key, error):
        value = ctypes.c_float()
        check(self._library.evn_operator_attribute_float(self._handle, key, value, error), error)
        return value.value

    def _bytes(self, key, error):
        return _read_bytes(self._library.evn_operator_attribute_string, error, self._handle, key)

    def _strings(self, key, error):
        count = ctypes.c_uint32()
        check(self._library.evn_operator_attribute_string_count(self._handle, key, count, error), error)
        return [_read_bytes(self._library.evn_operator_attribute_string_at, error, self._handle, key, index) for index in range(count.value)]

    def _ints(self, key, error):
        values, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_size_t()
        check(self._library.evn_operator_attribute_ints(self._handle, key, values, count, error), error)
        return values[:count.value] if count.value else []

    def _floats(self, key, error):
        values, count = ctypes.POINTER(ctypes.c_float)(), ctypes.c_size_t()
        check(self._library.evn_operator_attribute_floats(self._handle, key, values, count, error), error)
        return values[:count.value] if count.value else []

    def _tensor(self, key, error):
        view = _raw.evn_tensor_view()
        check(self._library.evn_operator_attribute_tensor(self._handle, key, view, error), error)
        return _array(view)


def _read_bytes(function, error, *arguments):
    size = ctypes.c_size_t()
    check(function(*arguments, None, 0, size, error), error)
    buffer = ctypes.create_string_buffer(size.value)
    check(function(*arguments, buffer, len(buffer), size, error), error)
    return buffer.raw[:-1]


_READERS = {
    _raw.EVN_ATTRIBUTE_INT: Node._int, _raw.EVN_ATTRIBUTE_FLOAT: Node._float, _raw.EVN_ATTRIBUTE_STRING: Node._bytes,
    _raw.EVN_ATTRIBUTE_INTS: Node._ints, _raw.EVN_ATTRIBUTE_FLOATS: Node._floats, _raw.EVN_ATTRIBUTE_TENSOR: Node._tensor,
    _raw.EVN_ATTRIBUTE_STRINGS: Node._strings,
}


def _dtype(code):
    dtype = _arrays.DTYPES.get(code)
    if dtype is None:
        raise TypeError(f"arrays of element type {code} need the package ml_dtypes")
    return dtype


def _array(view):
    """A copy of a view's elements; None for one that is not given."""
    if view.dtype == _raw.EVN_DTYPE_UNDEFINED:
        return None
    dtype, shape = _dtype(view.dtype), tuple(view.dims[:view.rank])
    raw = ctypes.string_at(view.data, view.size_bytes) if view.size_bytes else b""
    data = numpy.frombuffer(raw, "uint8")
    if view.dtype in _arrays.BITS:
        return _arrays.unpack(data, dtype, _arrays.BITS[view.dtype], shape)
    return data.view(dtype).reshape(shape).copy()


def _spec(view):
    if view.dtype == _raw.EVN_DTYPE_UNDEFINED:
        return None
    shape = None
    if view.rank != _UNKNOWN_RANK:
        shape = tuple(dim if dim >= 0 else None for dim in view.dims[:view.rank])
    return Spec(_dtype(view.dtype), shape, _array(view) if view.data else None)


def _declare(view, answer):
    dtype, shape = answer
    dtype = numpy.dtype(dtype)
    if dtype not in _arrays.CODES:
        raise TypeError(f"infer gave the dtype {dtype}, which no tensor has")
    view.dtype = _arrays.CODES[dtype]
    if shape is None:
        view.rank = _UNKNOWN_RANK
        return
    if len(shape) > _raw.EVN_MAX_RANK:
        raise ValueError(f"infer gave a shape of rank {len(shape)}")
    view.rank = len(shape)
    for index, dim in enumerate(c_int64s([-1 if dim is None else dim for dim in shape])):
        view.dims[index] = dim


def _store(view, array):
    if view.dtype == _raw.EVN_DTYPE_UNDEFINED:
        return
    array, dtype, shape = numpy.asarray(array), _dtype(view.dtype), tuple(view.dims[:view.rank])
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(f"run gave {array.dtype}{list(array.shape)}, infer said {dtype}{list(shape)}")
    bits = _arrays.BITS.get(view.dtype)
    data = _arrays.pack(numpy.ascontiguousarray(array), bits) if bits else numpy.ascontiguousarray(array)
    if math.prod(shape):
        ctypes.memmove(view.data, data.tobytes(), view.size_bytes)


def _guarded(error, body):
    """Calls body() and returns a status; what is raised becomes the error's message."""
    try:
        body()
        return _raw.EVN_OK
    except BaseException as raised:
        status = next((s for kind, s in _STATUSES.items() if isinstance(raised, kind)), Status.INTERNAL)
        if isinstance(raised, Error):
            status = getattr(raised, "status", None)  # a subclass may lack it
            if not isinstance(status, Status) or status == Status.OK:
                status = Status.INTERNAL
        if error:
            error[0].message = _text_of(raised)[:500]
        return int(status)


def _text_of(raised):
    """The text of an exception as bytes; the name of its type alone if __str__ fails."""
    name = type(raised).__name__
    try:
        return f"{name}: {raised}".encode("utf-8", "replace")
    except BaseException:  # noqa: B902: nothing may be raised through C
        return name.encode("utf-8", "replace")


def _expect(answers, count, what):
    answers = list(answers)
    if len(answers) != count:
        raise ValueError(f"{what} gave {len(answers)} outputs, the node has {count}")
    return answers


def _infer(user, node, inputs, input_count, outputs, output_count, error):
    def body():
        infer, _ = _callbacks.find(user)
        answers = infer(Node(node), [_spec(inputs[i]) for i in range(input_count)])
        for i, answer in enumerate(_expect(answers, output_count, "infer")):
            _declare(outputs[i], answer)

    return _guarded(error, body)


def _run(user, node, inputs, input_count, outputs, output_count, error):
    def body():
        _, run = _callbacks.find(user)
        arrays = run(Node(node), [_array(inputs[i]) for i in range(input_count)])
        for i, array in enumerate(_expect(arrays, output_count, "run")):
            _store(outputs[i], array)

    return _guarded(error, body)


_INFER = _callbacks.callback(_raw.evn_operator_infer, _infer)
_RUN = _callbacks.callback(_raw.evn_operator_run, _run)


def _range(counts):
    least, most = (counts, counts) if isinstance(counts, int) else counts
    return least, _VARIADIC if most is None else most


def register(lib, runtime, domain, name, infer, run, inputs, outputs, since_version, value_inputs):
    op, error = sized(_raw.evn_operator), new_error()
    op.domain, op.name, op.since_version = c_text(domain), c_text(name), since_version
    op.min_inputs, op.max_inputs = _range(inputs)
    op.min_outputs, op.max_outputs = _range(outputs)
    op.value_inputs = sum(1 << index for index in set(value_inputs))
    op.infer, op.run, op.release = _INFER, _RUN, _callbacks.RELEASE
    with _callbacks.lent((infer, run)) as op.user:
        check(lib.evn_runtime_register_operator(runtime, op, error), error)
