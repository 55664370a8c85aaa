"""Events, and copies that devices do while the caller goes on; OpenCL objects shared with other libraries, as integers."""
import ctypes

from . import _raw
from ._library import Status, check, library, new_error
from ._object import Object

_FOREVER = 2**64 - 1


class Event(Object):
    """The end of something that a device does; made by copy_async, Device.record_event and Device.import_opencl_event."""

    _release = "evn_event_release"

    def __init__(self, handle):
        self._own(handle)

    def wait(self, timeout=None):
        """Whether it has happened; waits so many seconds for it, None: as long as it takes. Raises the error with which it ended."""
        error = new_error()
        nanoseconds = _FOREVER if timeout is None else int(min(max(0, timeout * 1e9), _FOREVER))
        status = self._library.evn_event_wait(self._handle, nanoseconds, error)
        if status == Status.TIMEOUT:
            return False
        check(status, error)
        return True

    def export_opencl(self, device):
        """A cl_event of the device's context that ends as this does, as an integer; the caller releases it."""
        native, error = ctypes.c_void_p(), new_error()
        check(self._library.evn_opencl_export_event(self._handle, device._handle, native, error), error)
        return native.value


def copy_async(source, target, after=()):
    """Has a device copy a Tensor into another behind the Events of `after`, and returns an Event of its end at once.

    Memory of the host that the tensors share must stay, and not be written or read, until then.
    """
    after = list(after)
    event, error = _raw.evn_event(), new_error()
    waits = (_raw.evn_event * len(after))(*(one._handle for one in after))
    check(library().evn_tensor_copy_async(source._handle, target._handle, waits, len(after), event, error), error)
    return Event(event)
