"""numpy arrays as the library's tensors and back, both without a copy of the elements."""
import ctypes
import math

import numpy

from . import _raw
from ._library import check, library, library_with_gil, sized

try:
    import ml_dtypes  # numpy has none of these of its own
except ImportError:
    ml_dtypes = None
_BFLOAT16 = numpy.dtype("V2") if ml_dtypes is None else numpy.dtype(ml_dtypes.bfloat16)

# Every type whose elements numpy has; strings are arrays of objects.
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
# Of ml_dtypes only: without it these have no numpy counterpart. Names as ml_dtypes has them; a version may lack some.
_SMALL = {
    _raw.EVN_DTYPE_FLOAT8E4M3FN: "float8_e4m3fn", _raw.EVN_DTYPE_FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    _raw.EVN_DTYPE_FLOAT8E5M2: "float8_e5m2", _raw.EVN_DTYPE_FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    _raw.EVN_DTYPE_FLOAT8E8M0: "float8_e8m0fnu", _raw.EVN_DTYPE_UINT4: "uint4", _raw.EVN_DTYPE_INT4: "int4",
    _raw.EVN_DTYPE_FLOAT4E2M1: "float4_e2m1fn", _raw.EVN_DTYPE_UINT2: "uint2", _raw.EVN_DTYPE_INT2: "int2",
}
DTYPES.update({code: numpy.dtype(getattr(ml_dtypes, name)) for code, name in _SMALL.items() if hasattr(ml_dtypes, name)})
# Elements of less than a byte: ml_dtypes gives each a byte, the library several to one. Such arrays are copied.
BITS = {_raw.EVN_DTYPE_UINT4: 4, _raw.EVN_DTYPE_INT4: 4, _raw.EVN_DTYPE_FLOAT4E2M1: 4, _raw.EVN_DTYPE_UINT2: 2, _raw.EVN_DTYPE_INT2: 2}
CODES = {dtype: code for code, dtype in DTYPES.items()}
STRING = numpy.dtype("object")
# How arrays' interfaces name them; numpy does not know the names of ml_dtypes, whose arrays are viewed.
_TYPE_TEXTS = {code: f"|V{dtype.itemsize}" if code >= _raw.EVN_DTYPE_BFLOAT16 else dtype.str for code, dtype in DTYPES.items()}
_READ, _READ_WRITE = _raw.EVN_MAP_READ, _raw.EVN_MAP_READ | _raw.EVN_MAP_WRITE


def numpy_dtype(code):
    """numpy's dtype of an EVN_DTYPE_..., `object` for strings; None where the model does not say."""
    return STRING if code == _raw.EVN_DTYPE_STRING else DTYPES.get(code)


def input_array(value, dtype):
    """A C-contiguous array in native byte order with the elements of `value`: itself where it is one already.

    Python's own numbers and sequences, which have no dtype, get the model's `dtype`. Arrays keep theirs: whether it fits
    is for the library to say.
    """
    if isinstance(value, (bool, int, float, complex, str, bytes, list, tuple)):
        array = numpy.array(value, dtype=dtype)
    else:
        array = numpy.asarray(value)
    if array.dtype.kind in "OSUT":
        return array.astype(object)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    if array.dtype not in CODES:
        raise TypeError(f"arrays of dtype {array.dtype} cannot be given to a model")
    return array


def pack(array, bits):
    """The bytes of elements that have `bits` bits, the first in the lowest bits of a byte; rank 1."""
    codes = array.reshape(-1).view("uint8") & ((1 << bits) - 1)
    codes = numpy.pad(codes, (0, -codes.size % (8 // bits))).reshape(-1, 8 // bits)
    return numpy.bitwise_or.reduce(codes << numpy.arange(0, 8, bits, dtype="uint8"), axis=1).astype("uint8")


def unpack(data, dtype, bits, shape):
    """The opposite: an array of its own."""
    codes = (data[:, None] >> numpy.arange(0, 8, bits, dtype="uint8") & ((1 << bits) - 1)).reshape(-1)[:math.prod(shape)]
    if dtype.name.startswith("int"):  # ml_dtypes keeps integers sign-extended
        codes = numpy.where(codes >> (bits - 1), codes | (0xFF << bits & 0xFF), codes).astype("uint8")
    return codes.view(dtype).reshape(shape)


def _text(element):
    """The bytes of a string element."""
    if isinstance(element, str):
        return element.encode("utf-8", "surrogateescape")
    if isinstance(element, bytes):
        return element
    raise TypeError(f"an element of a string tensor is of type {type(element).__name__}")


def copied(runtime, array, error):
    """A tensor of a runtime's CPU device with the elements of `array`. The caller releases it."""
    lib, device, tensor = library(), _raw.evn_device(), _raw.evn_tensor()
    strings = array.dtype == STRING
    code = _raw.EVN_DTYPE_STRING if strings else CODES[array.dtype]
    dims = (ctypes.c_int64 * array.ndim)(*array.shape)
    check(lib.evn_runtime_device_at(runtime, 0, device, error), error)
    try:
        check(lib.evn_tensor_create(device, code, dims, array.ndim, 0, tensor, error), error)
    finally:
        lib.evn_device_release(device)
    try:
        if strings:
            texts = [_text(element) for element in array.ravel()]
            sizes = (ctypes.c_size_t * len(texts))(*map(len, texts))
            check(lib.evn_tensor_set_strings(tensor, (ctypes.c_char_p * len(texts))(*texts), sizes, len(texts), error), error)
        elif array.size:
            data = ctypes.c_void_p()
            check(lib.evn_tensor_map(tensor, _raw.EVN_MAP_WRITE, data, None, error), error)
            memory = pack(array, BITS[code]) if code in BITS else array
            ctypes.memmove(data, memory.__array_interface__["data"][0], memory.nbytes)
            check(lib.evn_tensor_unmap(tensor, error), error)
    except BaseException:
        lib.evn_tensor_release(tensor)
        raise
    return tensor


def wrap(runtime, array, error):
    """A tensor over the memory of `array`, or of a packed copy, which must outlive it; and that memory. Strings are copied. The caller
    releases the tensor."""
    if array.dtype == STRING:
        return copied(runtime, array, error), None
    tensor = _raw.evn_tensor()
    code, rank = CODES[array.dtype], array.ndim
    dims = (ctypes.c_int64 * rank)(*array.shape)
    memory = pack(array, BITS[code]) if code in BITS else array
    check(library().evn_tensor_wrap(runtime, memory.__array_interface__["data"][0], memory.nbytes, code, dims, rank, _NO_DELETER, None,
                                    tensor, error), error)
    return tensor, memory


_NO_DELETER = _raw.evn_deleter()


class OutputTensor:
    """Owns a tensor of the library while arrays look at its memory.

    runtime  the owner of the runtime's handle, where the tensor lies on the CPU. It keeps the runtime alive longer than the tensor, so
             that neither mapping nor releasing the tensor waits for anything, and the GIL is held meanwhile. None: it is released
    """

    __slots__ = ("_library", "_runtime", "_tensor", "__array_interface__")

    def __init__(self, tensor, runtime=None):
        # Kept here: module globals may be gone when the last array ends at exit.
        self._library = library() if runtime is None else library_with_gil()
        self._runtime = runtime
        self._tensor = tensor

    def has_strings(self, error):
        info = sized(_raw.evn_tensor_info)
        check(self._library.evn_tensor_get_info(self._tensor, info, error), error)
        return info.dtype == _raw.EVN_DTYPE_STRING

    def is_empty(self):
        """Whether there is no tensor: of an output that was skipped."""
        return not self._tensor

    def array(self, error, info=None, data=None):
        """Maps the tensor and returns an array over its memory, which keeps `self` alive; writable unless the tensor is read-only.
        `info`, `data`: to be written to, where the caller has them."""
        info = sized(_raw.evn_tensor_info) if info is None else info
        data = ctypes.c_void_p() if data is None else data
        lib = self._library
        check(lib.evn_tensor_get_info(self._tensor, info, error), error)
        code = info.dtype
        if code == _raw.EVN_DTYPE_STRING:
            return self._strings(tuple(info.dims[:info.rank]), error)
        dtype = DTYPES.get(code)
        if dtype is None:
            raise TypeError(f"arrays of element type {code} need the package ml_dtypes")
        shape = tuple(info.dims[:info.rank])
        read_only = bool(info.flags & _raw.EVN_TENSOR_READ_ONLY)
        check(lib.evn_tensor_map(self._tensor, _READ if read_only else _READ_WRITE, data, None, error), error)
        address = data.value
        if not address:
            return numpy.empty(shape, dtype)
        if code in BITS:
            packed = (ctypes.c_uint8 * -(-math.prod(shape) * BITS[code] // 8)).from_address(address)
            return unpack(numpy.frombuffer(packed, "uint8"), dtype, BITS[code], shape)
        self.__array_interface__ = {"version": 3, "shape": shape, "data": (address, read_only), "typestr": _TYPE_TEXTS[code]}
        array = numpy.asarray(self)
        return array if array.dtype == dtype else array.view(dtype)

    def _strings(self, shape, error):
        """An array of str. Bytes that are not UTF-8 stand in it as surrogates."""
        count, size = math.prod(shape), ctypes.c_size_t()
        begins = (ctypes.c_size_t * (count + 1))()
        check(self._library.evn_tensor_get_strings(self._tensor, None, 0, None, count, size, error), error)
        buffer = ctypes.create_string_buffer(size.value + 1)
        check(self._library.evn_tensor_get_strings(self._tensor, buffer, size, begins, count, None, error), error)
        text, at = buffer.raw, list(begins)
        array = numpy.empty(count, STRING)
        array[:] = [text[begin:end - 1].decode("utf-8", "surrogateescape") for begin, end in zip(at, at[1:])]
        return array.reshape(shape)

    def give_up(self):
        """The handle, which is the caller's from now on."""
        tensor, self._tensor = self._tensor, None
        return tensor

    def __del__(self):
        self._library.evn_tensor_release(self._tensor)  # also ends the mapping
