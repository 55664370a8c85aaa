"""numpy arrays as the library's tensors and back, both without a copy of the elements."""
import ctypes

import numpy

from . import _raw
from ._library import check, library

try:
    from ml_dtypes import bfloat16 as _bfloat16  # numpy has no bfloat16 of its own
    _BFLOAT16 = numpy.dtype(_bfloat16)
except ImportError:
    _BFLOAT16 = numpy.dtype("V2")

# Every type that has a numpy counterpart; strings are not among them.
DTYPES = {
    _raw.EVN_DTYPE_FLOAT32: numpy.dtype("float32"),
    _raw.EVN_DTYPE_UINT8: numpy.dtype("uint8"),
    _raw.EVN_DTYPE_INT8: numpy.dtype("int8"),
    _raw.EVN_DTYPE_UINT16: numpy.dtype("uint16"),
    _raw.EVN_DTYPE_INT16: numpy.dtype("int16"),
    _raw.EVN_DTYPE_INT32: numpy.dtype("int32"),
    _raw.EVN_DTYPE_INT64: numpy.dtype("int64"),
    _raw.EVN_DTYPE_BOOL: numpy.dtype("bool"),
    _raw.EVN_DTYPE_FLOAT16: numpy.dtype("float16"),
    _raw.EVN_DTYPE_FLOAT64: numpy.dtype("float64"),
    _raw.EVN_DTYPE_UINT32: numpy.dtype("uint32"),
    _raw.EVN_DTYPE_UINT64: numpy.dtype("uint64"),
    _raw.EVN_DTYPE_COMPLEX64: numpy.dtype("complex64"),
    _raw.EVN_DTYPE_COMPLEX128: numpy.dtype("complex128"),
    _raw.EVN_DTYPE_BFLOAT16: _BFLOAT16,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
STRING = numpy.dtype("object")


def numpy_dtype(code):
    """numpy's dtype of an EVN_DTYPE_..., `object` for strings; None where the model does not say."""
    return STRING if code == _raw.EVN_DTYPE_STRING else DTYPES.get(code)


def input_array(value, dtype):
    """A C-contiguous array in native byte order with the elements of `value`: itself where it is one already.

    Python's own numbers and sequences, which have no dtype, get the model's `dtype`. Arrays keep theirs: whether it fits
    is for the library to say.
    """
    if isinstance(value, (bool, int, float, complex, list, tuple)):
        array = numpy.array(value, dtype=dtype)
    else:
        array = numpy.asarray(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    if array.dtype not in CODES:
        raise TypeError(f"arrays of dtype {array.dtype} cannot be given to a model")
    return array


def wrap(runtime, array, error):
    """A tensor over the memory of `array`, which must outlive it. The caller releases it."""
    tensor = _raw.evn_tensor()
    rank = array.ndim
    dims = (ctypes.c_int64 * rank)(*array.shape)
    check(library().evn_tensor_wrap(runtime, array.__array_interface__["data"][0], array.nbytes, CODES[array.dtype], dims, rank,
                                    _NO_DELETER, None, tensor, error), error)
    return tensor


_NO_DELETER = _raw.evn_deleter()


class OutputTensor:
    """Owns a tensor of the library while arrays look at its memory."""

    __slots__ = ("_library", "_tensor", "_mapped", "__array_interface__")

    def __init__(self, tensor):
        self._library = library()  # kept here: module globals may be gone when the last array ends at exit
        self._tensor = tensor
        self._mapped = False

    def array(self, error):
        """Maps the tensor and returns a writable array over its memory, which keeps `self` alive."""
        info = _raw.evn_tensor_info()
        info.struct_size = ctypes.sizeof(info)
        check(self._library.evn_tensor_get_info(self._tensor, info, error), error)
        dtype = DTYPES[info.dtype]
        shape = tuple(info.dims[:info.rank])
        data = ctypes.c_void_p()
        flags = _raw.EVN_MAP_READ | _raw.EVN_MAP_WRITE
        check(self._library.evn_tensor_map(self._tensor, flags, data, None, error), error)
        self._mapped = True
        if not data.value:
            return numpy.empty(shape, dtype)
        self.__array_interface__ = {
            "version": 3, "shape": shape, "data": (data.value, False),
            "typestr": "|V2" if info.dtype == _raw.EVN_DTYPE_BFLOAT16 else dtype.str,
        }
        array = numpy.asarray(self)
        return array if array.dtype == dtype else array.view(dtype)

    def __del__(self):
        if self._mapped:
            self._library.evn_tensor_unmap(self._tensor, None)
        self._library.evn_tensor_release(self._tensor)
