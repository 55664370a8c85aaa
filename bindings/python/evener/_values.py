"""What models take and give besides tensors: sequences as lists, optionals as None or what they hold, maps as dicts."""
import ctypes

import numpy

from . import _arrays, _raw, _tensor
from ._library import check, library, new_error, read_text

_NAMES = {name.removeprefix("EVN_DTYPE_").lower(): code for name, code in vars(_raw).items() if name.startswith("EVN_DTYPE_")}


class Type:
    """A type as the library writes it. `outer`: "tensor", "seq", "optional" or "map"; `inner`: the Type in it; `key`: "int64" or "string"."""

    def __init__(self, text):
        self.text = text
        self.outer, _, rest = text.partition("(")
        rest = rest[:-1]
        self.key = None
        if self.outer == "map":
            self.key, _, rest = rest.partition(",")
        self.inner = None if self.outer == "tensor" else Type(rest)
        self.dtype = _arrays.numpy_dtype(_NAMES[rest]) if self.outer == "tensor" else self.inner.dtype


class _Handles:
    """Releases values at the end of a `with`."""

    def __init__(self):
        self._handles = []

    def add(self, handle):
        self._handles.append(handle)
        return handle

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for handle in self._handles:
            library().evn_value_release(handle)


def _of_tensor(runtime, array, error):
    """A value of a copy of the array: values may live longer than the memory of their caller."""
    tensor = _arrays.copied(runtime, array, error)
    value = _raw.evn_value()
    try:
        check(library().evn_value_from_tensor(tensor, value, error), error)
    finally:
        library().evn_tensor_release(tensor)
    return value


def make(runtime, given, kind, error):
    """A value handle of a Python object, which the caller releases."""
    if kind.outer == "tensor":
        return _of_tensor(runtime, _arrays.input_array(given, kind.dtype), error)
    if kind.outer == "seq":
        parts = [(item, kind.inner) for item in given]
    elif kind.outer == "optional":
        parts = [] if given is None else [(given, kind.inner)]
    else:
        keys = numpy.array(list(given), dtype=object if kind.key == "string" else "int64")
        parts = [(keys, Type(f"tensor({kind.key})")), (numpy.array(list(given.values()), dtype=kind.dtype), kind.inner)]
    with _Handles() as handles:
        made = (_raw.evn_value * len(parts))(*[handles.add(make(runtime, item, inner, error)) for item, inner in parts])
        value = _raw.evn_value()
        check(library().evn_value_create(runtime, kind.text.encode(), made, len(parts), value, error), error)
        return value


def _tensor_of(value, error, on_device=False):
    tensor = _raw.evn_tensor()
    check(library().evn_value_get_tensor(value, tensor, error), error)
    owner = _arrays.OutputTensor(tensor)
    if on_device:
        return _tensor.of_output(owner, error)
    array = owner.array(error)
    return array if array.flags.writeable else array.copy()


def read(value, on_device=False):
    """The Python object of a value handle. `on_device`: of a tensor, a Tensor."""
    error = new_error()
    kind = Type(read_text(library().evn_value_get_type, value))
    if kind.outer == "tensor":
        return _tensor_of(value, error, on_device)
    count = ctypes.c_uint32()
    check(library().evn_value_part_count(value, count, error), error)
    parts = []
    for index in range(count.value):
        with _Handles() as handles:
            part = handles.add(_raw.evn_value())
            check(library().evn_value_part_at(value, index, part, error), error)
            parts.append(read(part))
    if kind.outer == "seq":
        return parts
    if kind.outer == "optional":
        return parts[0] if parts else None
    return dict(zip(parts[0].tolist(), parts[1].tolist()))
