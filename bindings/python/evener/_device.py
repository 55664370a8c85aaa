"""A device of a runtime, and what its memory is used for."""
import dataclasses
import typing

from . import _raw
from ._library import Status, check, library, new_error, sized, text_of
from ._object import Object

_KINDS = {_raw.EVN_DEVICE_CPU: "cpu", _raw.EVN_DEVICE_OPENCL: "opencl"}
_CLASSES = {_raw.EVN_DEVICE_CLASS_CPU: "cpu", _raw.EVN_DEVICE_CLASS_GPU: "gpu", _raw.EVN_DEVICE_CLASS_ACCELERATOR: "accelerator"}
_FEATURES = {"fp16": _raw.EVN_DEVICE_FP16, "bf16": _raw.EVN_DEVICE_BF16, "int8_dot": _raw.EVN_DEVICE_INT8_DOT,
             "unified_memory": _raw.EVN_DEVICE_UNIFIED_MEMORY, "subgroups": _raw.EVN_DEVICE_SUBGROUPS}
_MEMORY_CLASSES = ("tensors", "weights", "packed", "arenas", "scratch", "loading", "states")
_UNLIMITED = 2**64 - 1


@dataclasses.dataclass(frozen=True)
class MemoryStats:
    """One device's memory in bytes, as the library's own ledger counts it."""

    current: int
    peak: int
    reserved: int
    limit: typing.Optional[int]  # None: no cap
    by_class: dict               # "tensors", "weights", "packed", "arenas", "scratch", "loading", "states" -> current
    allocations: int
    cache_hits: int
    largest_free_block: int
    cached: int                  # of `reserved`: blocks that nobody uses
    unused: int                  # of `reserved`: in blocks in use, beyond what was asked for
    free_blocks: int             # number of cached blocks
    fragmentation: float         # share of `cached` that is not in the largest free block
    weights_dropped: int         # bytes of packed weights given back so far, as others needed the memory
    weights_restored: int        # bytes of these that runs packed again


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
            weights_dropped=stats.weights_dropped, weights_restored=stats.weights_restored)

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
        check(self._library.evn_device_set_memory_limit(self._handle, _UNLIMITED if limit is None else limit, error), error)

    def trim_memory(self):
        """Gives cached blocks, and what sessions keep for runs to come, back to the system."""
        error = new_error()
        check(self._library.evn_device_trim_memory(self._handle, error), error)

    def __repr__(self):
        return f"<evener.Device {self.name}: {self.description}>"
