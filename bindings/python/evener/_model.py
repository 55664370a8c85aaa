"""A loaded model, and its inputs and outputs."""
import ctypes
import dataclasses
import os
import typing

import numpy

from . import _arrays, _raw
from ._library import Error, Status, c_path, c_text, check, library, new_error, read_text, sized, text_of
from ._object import Object

_FORMATS = {"text": _raw.EVN_FORMAT_TEXT, "json": _raw.EVN_FORMAT_JSON}
_UNKNOWN_RANK = 2**32 - 1


def _format(name, more=()):
    formats = {**_FORMATS, **dict(more)}
    if name not in formats:
        raise ValueError(f'format must be one of {", ".join(formats)}, not {name!r}')
    return formats[name]


class Model(Object):
    """An immutable graph and its weights; sessions made of one Model share them."""

    _release = "evn_model_release"

    def __init__(self, runtime, source, external_dir=None, allowed_roots=(), map_files=False):
        lib, handle, error = library(), _raw.evn_model(), new_error()
        options = sized(_raw.evn_model_options)
        if external_dir is not None:
            options.external_dir = c_path(external_dir)
        roots = [c_path(root) for root in ([allowed_roots] if isinstance(allowed_roots, (str, os.PathLike)) else allowed_roots)]
        options.allowed_roots = (ctypes.c_char_p * len(roots))(*roots)
        options.allowed_root_count = len(roots)
        options.flags = _raw.EVN_MODEL_MAP if map_files else 0
        if isinstance(source, (str, os.PathLike)):
            status = lib.evn_model_load_file(runtime._handle, c_path(source), options, handle, error)
        else:
            data = source if isinstance(source, bytes) else bytes(memoryview(source))
            status = lib.evn_model_load_buffer(runtime._handle, data, len(data), options, handle, error)
        check(status, error)
        self._own(handle)

    @property
    def inputs(self):
        """A tuple of Value in the model's order."""
        lib = self._library
        return _values_of(self._handle, lib.evn_model_input_count, lib.evn_model_get_input_info, lib.evn_model_input_name)

    @property
    def defaults(self):
        """Inputs that need not be given, since they have a default: a tuple of Value."""
        lib = self._library
        return _values_of(self._handle, lib.evn_model_default_count, lib.evn_model_get_input_info, lib.evn_model_input_name, len(self.inputs))

    @property
    def outputs(self):
        """A tuple of Value in the model's order."""
        lib = self._library
        return _values_of(self._handle, lib.evn_model_output_count, lib.evn_model_get_output_info, lib.evn_model_output_name)

    def metadata_keys(self):
        """The keys of the model's metadata, in the order of the file."""
        count, error = ctypes.c_uint32(), new_error()
        check(self._library.evn_model_metadata_count(self._handle, count, error), error)
        return [read_text(self._library.evn_model_metadata_key, self._handle, index) for index in range(count.value)]

    def metadata(self, key):
        """The value of the model's metadata entry `key`; KeyError when there is none."""
        try:
            return read_text(self._library.evn_model_get_metadata, self._handle, c_text(key))
        except Error as error:
            if error.status == Status.INVALID_ARGUMENT:
                raise KeyError(key) from error
            raise

    def describe(self, format="text"):
        """What the model is: inputs, outputs, operators, parameters."""
        return read_text(self._library.evn_model_describe, self._handle, _format(format))


@dataclasses.dataclass(frozen=True)
class Value:
    """An input or output of a model or session."""

    name: str
    shape: typing.Optional[tuple]  # ints, the model's symbol names, None where unknown; None: even the rank is unknown
    dtype: numpy.dtype
    type: str                      # "tensor(float32)", "seq(tensor(int64))", "optional(...)", "map(string,...)"

    @property
    def is_tensor(self):
        return self.type.startswith("tensor(")

    @classmethod
    def _of(cls, name, info):
        shape = None
        if info.rank != _UNKNOWN_RANK:
            symbols = [text_of(symbol.value) or None for symbol in info.symbols[:info.rank]]
            shape = tuple(dim if dim >= 0 else symbol for dim, symbol in zip(info.dims, symbols))
        return cls(name, shape, _arrays.numpy_dtype(info.dtype), text_of(info.type))


def _values_of(handle, count_function, info_function, name_function, first=0):
    """The inputs or outputs of a model or session, from index `first` on."""
    count, error = ctypes.c_uint32(), new_error()
    check(count_function(handle, count, error), error)
    values = []
    for index in range(first, first + count.value):
        info = sized(_raw.evn_value_info)
        check(info_function(handle, index, info, error), error)
        values.append(Value._of(read_text(name_function, handle, index), info))
    return tuple(values)
