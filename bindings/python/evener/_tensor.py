"""Tensor: the library's tensors as Python objects, shared with other libraries by DLPack, without copies."""
import ctypes
import math

import numpy

from . import _arrays, _raw
from ._library import c_int64s, check, fitting, library, new_error, sized, text_of

# From DLPack's specification: what the Python side needs of the two structs, which is where their deleters are.
_KDLCPU = 1
_NAMES = {False: b"dltensor_versioned", True: b"dltensor"}        # by "legacy"
_USED_NAMES = {False: b"used_dltensor_versioned", True: b"used_dltensor"}
_DELETER_OFFSETS = {False: 16, True: 56}
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def _python(name, result, *parameters):
    """A function of Python's C API with prototypes of our own: those of ctypes.pythonapi are shared with everybody."""
    return ctypes.PYFUNCTYPE(result, *parameters)((name, ctypes.pythonapi))


_capsule_new = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_capsule_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_capsule_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_capsule_set_name = _python("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
# Inside of a destructor the capsule has no references: no Python object may be made of it.
_dying_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_dying_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)


def _drop_unused(legacy):
    name, offset = _NAMES[legacy], _DELETER_OFFSETS[legacy]
    valid, pointer, deleter_type, c_void_p = _dying_is_valid, _dying_pointer, _DELETER, ctypes.c_void_p

    def destroy(capsule):
        if valid(capsule, name):  # nobody has consumed it
            managed = pointer(capsule, name)
            deleter = c_void_p.from_address(managed + offset).value
            if deleter:
                deleter_type(deleter)(managed)

    return _DESTRUCTOR(destroy)


_DESTRUCTORS = {legacy: _drop_unused(legacy) for legacy in (False, True)}
for _callback in _DESTRUCTORS.values():  # capsules may outlive this module at exit
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))


class _ElsewhereError(BufferError):
    """The tensor lies on another device than the CPU."""


class Tensor:
    """A tensor of the library: numpy.from_dlpack(tensor) and torch.from_dlpack(tensor) share its memory.

    shape, dtype  as numpy has them
    device        name of the device that holds it
    read_only     whether it may be written
    """

    def __init__(self, handle):
        self._library = library()
        self._handle = handle
        info, error = sized(_raw.evn_tensor_info), new_error()
        check(self._library.evn_tensor_get_info(handle, info, error), error)
        self.shape = tuple(info.dims[:info.rank])
        self.dtype = _arrays.DTYPES[info.dtype]
        self.device = text_of(info.device)
        self.read_only = bool(info.flags & _raw.EVN_TENSOR_READ_ONLY)

    def close(self):
        """Ends this object; what shares its memory keeps that."""
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            self._library.evn_tensor_release(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    __del__ = close

    def __repr__(self):
        return f"<evener.Tensor {self.dtype}{list(self.shape)} on {self.device}>"

    def __dlpack_device__(self):
        return _KDLCPU, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule of the same memory. BufferError when it cannot be given as asked for."""
        if stream is not None:
            raise BufferError("host memory has no stream")
        if dl_device is not None and tuple(dl_device) != (_KDLCPU, 0):
            raise BufferError(f"the tensor cannot be given on DLPack device {tuple(dl_device)}")
        if copy:
            raise BufferError("the tensor is given without a copy only")
        legacy = max_version is None or max_version[0] < 1
        managed, error = ctypes.c_void_p(), new_error()
        status = self._library.evn_tensor_to_dlpack(self._handle, _raw.EVN_DLPACK_LEGACY if legacy else 0, managed, error)
        if status == _raw.EVN_ERROR_UNSUPPORTED:
            raise (_ElsewhereError if text_of(error.device) else BufferError)(text_of(error.message))
        check(status, error)
        return _capsule_new(managed, _NAMES[legacy], ctypes.cast(_DESTRUCTORS[legacy], ctypes.c_void_p))

    def numpy(self):
        """An array that shares the memory; of a tensor on another device than the CPU, a copy."""
        try:
            return numpy.from_dlpack(self)
        except _ElsewhereError:
            view = _full_view(self)
            return _arrays.OutputTensor(view).array(new_error()).copy()

    def view(self, first, shape):
        """A tensor over a part of the memory, which it keeps: elements from number `first` on, in row-major order, as `shape`.

        What is written through one is seen through the other. On another device than the CPU it must begin at the device's alignment.
        """
        shape = tuple(shape)
        tensor, error = _raw.evn_tensor(), new_error()
        dims = c_int64s(shape)
        if first < 0:
            raise IndexError(f"first is {first}")
        check(self._library.evn_tensor_create_view(self._handle, fitting("first", first), dims, len(shape), tensor, error), error)
        return Tensor(tensor)

    def opencl_buffer(self):
        """(cl_mem, offset in bytes) of a tensor on an OpenCL device; valid as long as the tensor."""
        mem, offset, error = ctypes.c_void_p(), ctypes.c_uint64(), new_error()
        check(self._library.evn_opencl_get_buffer(self._handle, mem, offset, error), error)
        return mem.value, offset.value

    def rows(self, start, stop=None):
        """A view of some positions of the first axis, as the slice tensor[start:stop] would be: rows(2, 5) has shape (3, ...)."""
        if not self.shape:
            raise IndexError("a scalar has no rows")
        start, stop, _ = slice(start, stop).indices(self.shape[0])
        rest = self.shape[1:]
        return self.view(start * math.prod(rest), (max(0, stop - start), *rest))


def _full_view(tensor):
    """A handle of its own, for the same memory."""
    handle, error = _raw.evn_tensor(), new_error()
    dims = (ctypes.c_int64 * len(tensor.shape))(*tensor.shape)
    check(library().evn_tensor_create_view(tensor._handle, 0, dims, len(tensor.shape), handle, error), error)
    return handle


def of_output(owner, error):
    """The Tensor of an _arrays.OutputTensor, which has it no more; strings, which have no such memory, are an array."""
    if owner.has_strings(error):
        return owner.array(error)
    handle = owner.give_up()
    return Tensor(handle if isinstance(handle, _raw.evn_tensor) else _raw.evn_tensor(handle))


def _capsule_of(value):
    try:
        return value.__dlpack__(max_version=(1, 0))
    except TypeError:  # made before DLPack 1.0
        return value.__dlpack__()


def import_dlpack(runtime, value, error):
    """A handle of a tensor of `runtime`, a handle, over the memory of an object that has __dlpack__."""
    try:
        capsule = _capsule_of(value)
    except _ElsewhereError:
        return _full_view(value)
    for legacy, name in _NAMES.items():
        if _capsule_is_valid(capsule, name):
            break
    else:
        raise TypeError(f"{type(value).__name__}.__dlpack__() gave no capsule of DLPack that is unused")
    tensor = _raw.evn_tensor()
    flags = _raw.EVN_DLPACK_LEGACY if legacy else 0
    check(library().evn_tensor_from_dlpack(runtime, _capsule_pointer(capsule, name), flags, tensor, error), error)
    _capsule_set_name(capsule, _USED_NAMES[legacy])  # the library calls the deleter now
    return tensor
