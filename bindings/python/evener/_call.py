"""What a run of a session needs on the C side, made once and used by one run at a time: handles, dims, an error.

The functions are those of _raw with addresses for arguments, which ctypes passes on without making objects.
"""
import ctypes
import weakref

import numpy

from . import _arrays, _raw, _tensor
from ._library import Error, Status, check, library, new_error, library_with_gil, sized

_POINTER, _INT32, _UINT32, _SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t
_POINTER_SIZE = ctypes.sizeof(_POINTER)


def _function(lib, name, *parameters):
    function = lib[name]  # an object of its own, unlike lib.name
    function.restype, function.argtypes = _INT32, parameters
    return function


def _type_text(dtype):
    """How an array's interface names this type in native byte order; None where an array must be looked at more closely."""
    return dtype.str if dtype is not None and dtype.kind in "biufc" else None


class _Seen:
    """An array of an earlier run, so that the same one is known again without a look at its memory. It is not kept alive."""

    __slots__ = ("reference", "shape", "strides", "dtype")

    def __init__(self, array):
        self.reference, self.shape, self.strides, self.dtype = weakref.ref(array), array.shape, array.strides, array.dtype

    def is_it(self, array):
        """An array's shape, strides and dtype can be set. Its address stays: numpy resizes no array that has a weak reference."""
        return self.reference() is array and array.shape == self.shape and array.dtype is self.dtype and array.strides == self.strides


class Call:
    """The C side of one run of tensors. `inputs`, `outputs`: of the session; the first `required` inputs are given in every run."""

    def __init__(self, inputs, outputs, required):
        self._wrap = _function(library_with_gil(), "evn_tensor_wrap", _POINTER, _POINTER, _SIZE, _INT32, _POINTER, _UINT32, _POINTER, _POINTER,
                               _POINTER, _POINTER)
        self._session_run = _function(library(), "evn_session_run", _POINTER, _POINTER, _UINT32, _POINTER, _UINT32, _POINTER, _POINTER)
        self._release = _function(library(), "evn_tensor_release", _POINTER)  # may call a deleter of another library
        self._release_wrapped = _function(library_with_gil(), "evn_tensor_release", _POINTER)
        self._inputs = inputs
        self._required = required
        self._outputs = outputs
        self._names = [value.name for value in outputs]
        self._into = {}                          # arrays of this run, by their outputs' places
        self._targets = [None] * len(outputs)    # for which address and shape there is a tensor: (address, shape, handle, array seen)
        self._no_results = [None] * len(outputs)
        self._type_texts = [_type_text(value.dtype) for value in inputs]
        self._codes = [_arrays.CODES.get(value.dtype) for value in inputs]
        self._shapes = [None] * len(inputs)   # for which the next three are right
        self._dims = [None] * len(inputs)
        self._dims_at = [0] * len(inputs)
        self._sizes = [0] * len(inputs)
        self._slots = (_POINTER * len(inputs))()
        self._seen = [None] * len(inputs)     # the array that is wrapped
        self._wrapped = [None] * len(inputs)  # the address that the tensor in the slot was made for; None: it ends with the run
        self._given = [False] * len(inputs)
        self._none_given = [False] * len(inputs)
        self._has_own = False                 # a tensor that ends with the run
        self._results = (_POINTER * len(outputs))()
        self._slots_at, self._results_at = ctypes.addressof(self._slots), ctypes.addressof(self._results)
        self._arrays = [None] * len(inputs)   # Memory that the run reads: the caller's arrays, or copies.
        self._no_arrays = [None] * len(inputs)
        self.error, self._info, self._data = new_error(), sized(_raw.evn_tensor_info), _POINTER()
        self._error_at = ctypes.addressof(self.error)

    def give(self, runtime, index, value):
        """Input `index` is an array or what numpy makes one of. It is read in place where that can be. `runtime`: a handle."""
        seen = self._seen[index]
        if seen is not None and seen.is_it(value):
            self._given[index] = True
            self._arrays[index] = value
            return
        if type(value) is numpy.ndarray and self._type_texts[index] is not None:
            interface = value.__array_interface__
            if interface["strides"] is None and interface["typestr"] == self._type_texts[index]:
                return self._give_memory(runtime, index, interface["shape"], interface["data"][0], value)
        array = _arrays.input_array(value, self._inputs[index].dtype)
        tensor, self._arrays[index] = _arrays.wrap(runtime, array, self.error)
        self.give_tensor(index, tensor)

    # A tensor over memory owns nothing, and serves again where the memory of a later run has the same address and shape.
    def _give_memory(self, runtime, index, shape, data, array):
        self._given[index] = True
        self._arrays[index] = array
        if data == self._wrapped[index] and shape == self._shapes[index]:
            self._seen[index] = _Seen(array)
            return
        if shape != self._shapes[index]:
            dims = (ctypes.c_int64 * len(shape))(*shape)
            self._shapes[index], self._dims[index], self._dims_at[index] = shape, dims, ctypes.addressof(dims)
            self._sizes[index] = array.nbytes
        if self._slots[index]:
            self._drop(index)
        status = self._wrap(runtime, data, self._sizes[index], self._codes[index], self._dims_at[index], len(shape), None, None,
                            self._slots_at + index * _POINTER_SIZE, self._error_at)
        if status:
            check(status, self.error)
        self._wrapped[index] = data
        self._seen[index] = _Seen(array)

    def give_tensor(self, index, tensor):
        """Input `index` is a handle, which the call takes over."""
        self._drop(index)
        self._given[index] = self._has_own = True
        self._slots[index] = tensor.value

    def leave_out(self, index):
        """Input `index` is a state's."""
        self._drop(index)
        self._given[index] = True

    def give_output(self, runtime, index, array):
        """Output `index` is written into an array. `runtime`: a handle."""
        target = self._targets[index]
        if target is not None and target[3].is_it(array) and array.flags.writeable:
            self._results[index] = target[2]
            self._into[index] = array
            return
        text, name = _type_text(self._outputs[index].dtype), self._names[index]
        if type(array) is not numpy.ndarray or text is None:
            raise TypeError(f"out: output '{name}' cannot be written into {type(array).__name__}: a numpy array of a plain element type is wanted")
        interface = array.__array_interface__
        data, is_read_only = interface["data"]
        if interface["typestr"] != text or interface["strides"] is not None or is_read_only:
            raise ValueError(f"out: the array for '{name}' must be of {self._outputs[index].dtype}, C-contiguous and writable")
        shape = interface["shape"]
        if target is None or target[0] != data or target[1] != shape:
            self._drop_target(index)
            dims, tensor = (ctypes.c_int64 * len(shape))(*shape), _POINTER()
            status = self._wrap(runtime, data, array.nbytes, _arrays.CODES[array.dtype], ctypes.addressof(dims), len(shape), None, None,
                                ctypes.addressof(tensor), self._error_at)
            if status:
                check(status, self.error)
            target = self._targets[index] = (data, shape, tensor.value, _Seen(array))
        self._results[index] = target[2]
        self._into[index] = array

    def _drop_target(self, index):
        if self._targets[index] is not None:
            self._release_wrapped(self._targets[index][2])
            self._targets[index] = None

    def _drop(self, index):
        if self._slots[index]:
            release = self._release if self._wrapped[index] is None else self._release_wrapped
            release(self._slots[index])
            self._slots[index] = self._wrapped[index] = self._seen[index] = None

    def run(self, session, options, runtime, on_device=False):
        """Runs, and returns {name: array} of the outputs that are wanted; with `on_device`, {name: Tensor}. `runtime`: the owner of its
        handle."""
        self._check_given()
        status = self._session_run(session, self._slots_at, len(self._inputs), self._results_at, len(self._names),
                                   None if options is None else ctypes.addressof(options), self._error_at)
        if status:
            check(status, self.error)
        results = self._results
        into = self._into
        if len(into) == len(results):
            return {name: into[index] for index, name in enumerate(self._names)}
        for index in into:
            results[index] = None
        on_cpu = None if on_device else runtime
        owners = [_arrays.OutputTensor(tensor, on_cpu) for tensor in results]  # all of them before anything can fail
        results[:] = self._no_results  # else the next run would write there
        if on_device:
            made = {name: _tensor.of_output(owner, self.error) for name, owner in zip(self._names, owners) if not owner.is_empty()}
        else:
            made = {name: owner.array(self.error, self._info, self._data) for name, owner in zip(self._names, owners)
                    if not owner.is_empty()}
        if not into:
            return made
        made.update((self._names[index], array) for index, array in into.items())
        return {name: made[name] for name in self._names if name in made}

    def submission(self):
        """Returns the array of handles for a request, which keeps the tensors, and the arrays that must live until the request ends."""
        self._check_given()
        return self._slots, list(self._arrays)

    def _check_given(self):
        """An input with a default may be missing: its slot is empty then."""
        if False not in self._given:
            return
        missing = self._given.index(False)
        if missing < self._required:
            raise Error(Status.INVALID_ARGUMENT, f"input '{self._inputs[missing].name}' is missing")
        for index in range(missing, len(self._inputs)):
            if not self._given[index]:
                self._drop(index)

    def end(self):
        """Lets inputs, and arrays for outputs, go."""
        if self._into:
            self._into.clear()
            self._results[:] = self._no_results
        self._given[:] = self._none_given
        self._arrays[:] = self._no_arrays
        if self._has_own:
            self._has_own = False
            for index, wrapped in enumerate(self._wrapped):
                if wrapped is None:
                    self._drop(index)

    def __del__(self):
        for tensor in self._slots:
            if tensor:
                self._release(tensor)
        for index in range(len(self._targets)):
            self._drop_target(index)
