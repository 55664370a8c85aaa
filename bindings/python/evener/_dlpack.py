"""Tensors over memory that others own, by DLPack."""
import threading

from . import _tensor
from ._library import new_error
from ._runtime import Runtime

_shared = None
_shared_lock = threading.Lock()


def _shared_runtime():
    """The runtime of tensors that are made without one. Sessions of other runtimes take them all the same, without a copy."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Runtime(threads=1, cache_dir="")
        return _shared


def from_dlpack(value, runtime=None):
    """A Tensor over the memory of an array, tensor or other object in host memory that has __dlpack__. Nothing is copied, so it
    must be C-contiguous. The memory lives as long as the Tensor, or a run that reads it."""
    runtime = runtime if runtime is not None else _shared_runtime()
    return _tensor.Tensor(_tensor.import_dlpack(runtime._handle, value, new_error()))
