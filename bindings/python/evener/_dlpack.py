"""Tensors over memory that others own, by DLPack."""
import functools

from . import _tensor
from ._library import new_error
from ._runtime import Runtime


@functools.cache  # has no lock, which a forked child might find locked
def _shared_runtime():
    """The runtime of tensors that are made without one. Sessions of other runtimes take them all the same, without a copy."""
    return Runtime(threads=1, cache_dir="")


def from_dlpack(value, runtime=None):
    """A Tensor over the memory of an array, tensor or other object in host memory that has __dlpack__. Nothing is copied, so it
    must be C-contiguous. The memory lives as long as the Tensor, or a run that reads it."""
    runtime = runtime if runtime is not None else _shared_runtime()
    return _tensor.Tensor(_tensor.import_dlpack(runtime._handle, value, new_error()))
