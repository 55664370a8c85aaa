"""Finds and loads the shared library, and turns its statuses into exceptions."""
import array
import ctypes
import ctypes.util
import enum
import functools
import operator
import os
import pathlib
import sys

from . import _raw

Status = enum.IntEnum("Status", {
    name.removeprefix("EVN_").removeprefix("ERROR_"): value
    for name, value in vars(_raw).items() if name == "EVN_OK" or name.startswith("EVN_ERROR_")
})
Status.__doc__ = "What a call came to; the values of the C API."


class Error(Exception):
    """A failure that the library reported.

    status           a Status
    message          one line
    node             the graph node concerned, or ""
    device           the device concerned, or ""
    bytes_requested  for memory, limits and buffers: bytes asked for, else 0
    bytes_available  for memory and limits: bytes that were left, else 0
    """

    def __init__(self, status, message, node="", device="", bytes_requested=0, bytes_available=0):
        super().__init__(status, message, node, device, bytes_requested, bytes_available)
        self.status = Status(status) if status in Status._value2member_map_ else status
        self.message = message
        self.node = node
        self.device = device
        self.bytes_requested = bytes_requested
        self.bytes_available = bytes_available

    def __str__(self):
        name = self.status.name if isinstance(self.status, Status) else f"status {self.status}"
        where = "".join(f" [{what} {value}]" for what, value in (("node", self.node), ("device", self.device)) if value)
        return f"{name}: {self.message}{where}"


def text_of(raw):
    """The str of UTF-8 bytes that may have been cut."""
    return raw.decode("utf-8", "backslashreplace")


def sized(kind):
    """A struct of the C API with its struct_size set and everything else zero."""
    value = kind()
    value.struct_size = ctypes.sizeof(kind)
    return value


def refuse_zeros(**options):
    """Raises ValueError for an option that is 0, where C has 0 for one that is not given."""
    for name, value in options.items():
        if value is not None and value == 0:
            raise ValueError(f"{name} is 0: a number above it is wanted")


def new_error():
    return sized(_raw.evn_error)


def check(status, error):
    """Raises what `error` says unless `status` is EVN_OK."""
    if status != _raw.EVN_OK:
        raise Error(status, text_of(error.message), text_of(error.node), text_of(error.device),
                    error.bytes_requested, error.bytes_available)


def c_path(path):
    """The bytes of a file's path as C wants them."""
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise ValueError("embedded null byte in a path")
    return raw


def c_text(text):
    """The bytes of a name as C wants them; TypeError for what is no str."""
    if not isinstance(text, str):
        raise TypeError(f"a name must be a str, not {type(text).__name__}")
    raw = text.encode("utf-8", "surrogateescape")
    if b"\0" in raw:
        raise ValueError("embedded null character")
    return raw


def c_texts(names):
    """A C array of names, and their number. A str is a list of one name."""
    texts = [c_text(name) for name in ([names] if isinstance(names, str) else names)]
    return (ctypes.c_char_p * max(1, len(texts)))(*texts), len(texts)  # an empty list is not NULL


def c_int64s(values):
    """A C array of integers. Raises OverflowError for one that does not fit: ctypes itself keeps the lower bits alone."""
    return (ctypes.c_int64 * len(values))(*array.array("q", values))


def fitting(name, value, bits=64):
    """Returns an integer argument of C. Raises OverflowError unless it fits into so many bits without a sign."""
    value = operator.index(value)
    if not 0 <= value < 2 ** bits:
        raise OverflowError(f"{name} is {value}, expected 0 to {2 ** bits - 1}")
    return value


def set_source(options, model, external_dir):
    """Puts a model's bytes, where it is no path, and its folder of external data into options. Returns the path for C, or None."""
    if external_dir is not None:
        options.external_dir = c_path(external_dir)
    if isinstance(model, (str, os.PathLike)):
        return c_path(model)
    data = model if isinstance(model, bytes) else bytes(memoryview(model))
    options.data, options.size = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data)
    return None


def read_text(function, *arguments):
    """Calls a function that ends in (buffer, capacity, size, error) and returns its text."""
    error = new_error()
    size = ctypes.c_size_t()
    check(function(*arguments, None, 0, size, error), error)
    while True:
        buffer = ctypes.create_string_buffer(size.value)
        status = function(*arguments, buffer, len(buffer), size, error)
        if status != _raw.EVN_ERROR_BUFFER_TOO_SMALL or error.bytes_requested <= len(buffer):
            check(status, error)
            return text_of(buffer.value)
        size.value = error.bytes_requested  # the text has grown between the two calls


def _file_name():
    return {"darwin": "libevener.dylib", "win32": "evener.dll"}.get(sys.platform, "libevener.so")


def _candidates():
    """Where the library may be, without EVENER_LIBRARY: files first, then a name for the system's loader."""
    here = pathlib.Path(__file__).resolve().parent
    repository = here.parents[2]
    if (repository / "include" / "evener" / "evener.h").exists():
        yield str(repository / "build" / "release" / _file_name())
    yield str(here / _file_name())
    found = ctypes.util.find_library("evener")
    if found:
        yield found


def _dotted(version):
    return f"{version >> 16}.{version >> 8 & 255}.{version & 255}"


def _open(path):
    """Loads a library; OSError where it does not fit this package, with both versions, before a function of it takes a struct."""
    opened = ctypes.CDLL(path)
    expected = _raw.EVN_VERSION_MAJOR << 16 | _raw.EVN_VERSION_MINOR << 8 | _raw.EVN_VERSION_PATCH
    try:
        found = _raw.bind_one(opened, "evn_version_number")()
    except AttributeError:
        raise OSError(f"{path} is no Evener library: it has no evn_version_number") from None
    refused = f"{path} does not fit this package: expected ABI {_dotted(expected)}, found {_dotted(found)}"
    if found < expected or found >> 16 != _raw.EVN_ABI_MAJOR:
        raise OSError(refused)
    try:
        library = _raw.bind(opened)
    except AttributeError as error:
        raise OSError(f"{refused}, {error}") from None
    difference = _raw.difference(library.evn_abi_layout)
    if difference is not None:
        raise OSError(f"{refused}: {difference}")
    return library


@functools.cache  # has no lock, which a forked child might find locked: threads may load the library twice at first
def _load():
    """The path or name of the library, and the library."""
    named = os.environ.get("EVENER_LIBRARY")
    if named:
        return named, _open(named)
    tried = []
    for path in _candidates():
        if os.sep not in path or os.path.exists(path):
            return path, _open(path)
        tried.append(path)
    raise OSError("there is no Evener library: set EVENER_LIBRARY to the path of " + _file_name() +
                  ", or build it (cmake --preset release && cmake --build --preset release); looked for " +
                  ", ".join(tried) + " and asked the system's loader")


def library():
    """The loaded library; loads it at the first call. OSError says where it was looked for."""
    return _load()[1]


@functools.cache
def library_with_gil():
    """The library, with functions that are called without releasing the GIL: for those that return at once and wait for nothing. To
    release the GIL and to get it back from other threads costs more than such a call."""
    path, _ = _load()
    return _raw.bind(ctypes.PyDLL(path))


def library_path():
    """The path or name by which the library was loaded."""
    return _load()[0]


def version():
    """The library's version, as "0.3.0"."""
    return library().evn_version().decode()
