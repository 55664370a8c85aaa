"""A device of a runtime, and what its memory is used for."""
import ctypes
import os
import dataclasses
import typing

from . import _arrays, _raw
from ._event import Event
from ._library import Status, c_int64s, check, fitting, library, new_error, read_text, sized, text_of
from ._object import Object
from ._tensor import Tensor

_KINDS = {_raw.EVN_DEVICE_CPU: "cpu", _raw.EVN_DEVICE_OPENCL: "opencl"}
_CLASSES = {_raw.EVN_DEVICE_CLASS_CPU: "cpu", _raw.EVN_DEVICE_CLASS_GPU: "gpu", _raw.EVN_DEVICE_CLASS_ACCELERATOR: "accelerator"}
_FEATURES = {"fp16": _raw.EVN_DEVICE_FP16, "bf16": _raw.EVN_DEVICE_BF16, "int8_dot": _raw.EVN_DEVICE_INT8_DOT,
             "unified_memory": _raw.EVN_DEVICE_UNIFIED_MEMORY, "subgroups": _raw.EVN_DEVICE_SUBGROUPS}
_MEMORY_CLASSES = ("tensors", "weights", "packed", "arenas", "scratch", "loading", "states", "heap")
_UNLIMITED = 2**64 - 1
_TRIMS = {"never": _raw.EVN_TRIM_NEVER, "idle": _raw.EVN_TRIM_IDLE, "always": _raw.EVN_TRIM_ALWAYS}
_TRIM_NAMES = {code: name for name, code in _TRIMS.items()}
_STATES = {_raw.EVN_DEVICE_READY: "ready", _raw.EVN_DEVICE_QUARANTINED: "quarantined", _raw.EVN_DEVICE_LOST: "lost"}


@dataclasses.dataclass(frozen=True)
class MemoryStats:
    """One device's memory in bytes, as the library's own ledger counts it."""

    current: int
    peak: int
    reserved: int
    limit: typing.Optional[int]  # None: no cap
    by_class: dict               # "tensors", "weights", "packed", "arenas", "scratch", "loading", "states", "heap" -> current
    allocations: int
    cache_hits: int
    largest_free_block: int
    cached: int                  # of `reserved`: blocks that nobody uses
    unused: int                  # of `reserved`: in blocks in use, beyond what was asked for
    free_blocks: int             # number of cached blocks
    fragmentation: float         # share of `cached` that is not in the largest free block
    weights_dropped: int         # bytes of packed weights given back so far, as others needed the memory
    weights_restored: int        # bytes of these that runs packed again
    cache_limit: typing.Optional[int]  # the most that `cached` may be; None: all that the limit has room for
    trim: str                    # when cached blocks are given back: "never", "idle" or "always"


class Device(Object):
    """A view of one device of a runtime.

    name           as the configuration or Runtime.device() names it
    kind           "cpu", "opencl" or "other"
    description    the processor's or driver's own name
    driver         platform and driver version, or the chosen instruction set of the CPU
    compute_units  threads of the CPU; compute units of an OpenCL device
    memory_bytes   memory that the device reports
    device_class   "cpu", "gpu", "accelerator" or "unknown": an OpenCL device may be any of them
    features       which of "fp16", "bf16", "int8_dot", "unified_memory" and "subgroups" it has: a frozenset
    largest_allocation  bytes of the largest buffer that it can have
    identity       tells it apart from other devices of this machine: a PCI address or UUID where the driver says so
    """

    _release = "evn_device_release"

    def __init__(self, handle):
        self._own(handle)
        info, error = sized(_raw.evn_device_info), new_error()
        check(self._library.evn_device_get_info(handle, info, error), error)
        self.name = text_of(info.name)
        self.kind = _KINDS.get(info.kind, "other")
        self.description = text_of(info.description)
        self.driver = text_of(info.driver)
        self.compute_units = info.compute_units
        self.memory_bytes = info.memory_bytes
        self.device_class = _CLASSES.get(info.device_class, "unknown")
        self.features = frozenset(name for name, bit in _FEATURES.items() if info.features & bit)
        self.largest_allocation = info.largest_allocation
        self.identity = text_of(info.identity)

    def memory(self):
        """The device's MemoryStats now."""
        stats, error = sized(_raw.evn_memory_stats), new_error()
        check(self._library.evn_device_get_memory_stats(self._handle, stats, error), error)
        return MemoryStats(
            current=stats.current, peak=stats.peak, reserved=stats.reserved,
            limit=None if stats.limit == _UNLIMITED else stats.limit, by_class=dict(zip(_MEMORY_CLASSES, stats.by_class)),
            allocations=stats.allocations, cache_hits=stats.cache_hits, largest_free_block=stats.largest_free_block,
            cached=stats.cached, unused=stats.unused, free_blocks=stats.free_blocks, fragmentation=stats.fragmentation,
            weights_dropped=stats.weights_dropped, weights_restored=stats.weights_restored,
            cache_limit=None if stats.cache_limit == _UNLIMITED else stats.cache_limit, trim=_TRIM_NAMES[stats.trim])

    def reset_memory_peak(self):
        """Sets the peak to what is in use now."""
        error = new_error()
        check(self._library.evn_device_reset_memory_peak(self._handle, error), error)

    def set_memory_limit(self, limit):
        """Changes the cap on what the library holds on the device, in bytes; None: no cap.

        Cached blocks and what sessions keep for runs to come are given back where that is needed. What is in use stays; what asks
        for more than the cap gets Status.OUT_OF_MEMORY until enough has been given back.
        """
        error = new_error()
        limit = _UNLIMITED if limit is None else fitting("limit", limit)
        check(self._library.evn_device_set_memory_limit(self._handle, limit, error), error)

    def trim_memory(self):
        """Gives cached blocks, and what sessions keep for runs to come, back to the system."""
        error = new_error()
        check(self._library.evn_device_trim_memory(self._handle, error), error)

    def set_cache_policy(self, cache_limit=None, trim="never"):
        """Changes what the device's pool keeps of blocks that nobody uses.

        cache_limit  bytes; None: all that the memory limit has room for
        trim         when they are given back all the same: "never", "idle" (when no run is under way) or "always"
        """
        if trim not in _TRIMS:
            raise ValueError(f'trim must be one of {", ".join(_TRIMS)}, not {trim!r}')
        error, limit = new_error(), _UNLIMITED if cache_limit is None else fitting("cache_limit", cache_limit)
        check(self._library.evn_device_set_cache_policy(self._handle, limit, _TRIMS[trim], error), error)

    @property
    def state(self):
        """Whether it can be used now: "ready", "quarantined" (it does not end work whose time is over) or "lost"."""
        info, error = sized(_raw.evn_device_info), new_error()
        check(self._library.evn_device_get_info(self._handle, info, error), error)
        return _STATES[info.state]

    @property
    def condition(self):
        """Why it is not ready; "" when it is."""
        return read_text(self._library.evn_device_condition, self._handle)

    def tensor(self, shape, dtype="float32"):
        """A Tensor of zeros in the device's memory."""
        tensor, error = _raw.evn_tensor(), new_error()
        dims = c_int64s(shape)
        code = _arrays.CODES[_arrays.numpy.dtype(dtype)]
        check(self._library.evn_tensor_create(self._handle, code, dims, len(shape), 0, tensor, error), error)
        return Tensor(tensor)

    def record_event(self):
        """An Event of all that the device has been given so far."""
        event, error = _raw.evn_event(), new_error()
        check(self._library.evn_device_record_event(self._handle, event, error), error)
        return Event(event)

    def wait_event(self, event):
        """What the device is given from now on begins after the Event."""
        error = new_error()
        check(self._library.evn_device_wait_event(self._handle, event._handle, error), error)

    def opencl_objects(self):
        """(cl_context, cl_device_id, cl_command_queue) of an OpenCL device as integers, which stay the device's."""
        objects, error = [ctypes.c_void_p() for _ in range(3)], new_error()
        check(self._library.evn_opencl_device_objects(self._handle, *objects, error), error)
        return tuple(each.value for each in objects)

    def wrap_opencl_buffer(self, mem, shape, dtype="float32", offset=0, read_only=False):
        """A Tensor over a cl_mem of the device's context, given as an integer, which it retains."""
        tensor, error = _raw.evn_tensor(), new_error()
        dims = c_int64s(shape)
        code, flags = _arrays.CODES[_arrays.numpy.dtype(dtype)], _raw.EVN_TENSOR_READ_ONLY if read_only else 0
        no_deleter, offset = ctypes.cast(None, _raw.evn_deleter), fitting("offset", offset)
        check(self._library.evn_opencl_wrap_buffer(self._handle, mem, offset, code, dims, len(shape), flags, no_deleter, None, tensor,
                                                   error), error)
        return Tensor(tensor)

    def import_opencl_event(self, native_event):
        """An Event of a cl_event of the device's context, given as an integer, which it retains."""
        event, error = _raw.evn_event(), new_error()
        check(self._library.evn_opencl_import_event(self._handle, native_event, event, error), error)
        return Event(event)

    def store_opencl_programs(self, folder, sources=False):
        """Builds all programs of an OpenCL device, and writes their binaries into a folder, for devices without a compiler
        (`devices.NAME.programs` of a configuration): (how many there are, how many the driver refused). sources=True: texts
        instead, of which scripts/make_il.py makes SPIR-V."""
        stored, refused, error = ctypes.c_uint32(), ctypes.c_uint32(), new_error()
        flags = _raw.EVN_PROGRAMS_SOURCES if sources else 0
        check(self._library.evn_opencl_store_programs(self._handle, os.fsencode(folder), flags, stored, refused, error), error)
        return stored.value, refused.value

    def __repr__(self):
        return f"<evener.Device {self.name}: {self.description}>"
