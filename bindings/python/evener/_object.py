"""What owns a handle of the library's."""
from ._library import library


class _Owned:
    """Releases a handle when nothing refers to it any more."""

    __slots__ = ("value", "_release")

    def __init__(self, value, release):
        self.value = value
        self._release = release

    def __del__(self):
        self._release(self.value)


class Object:
    """Owns one handle. Closing it, twice, or in any order with others, is safe: what others still use stays."""

    _release = None  # name of the function that ends the handle
    _owned = None

    def _own(self, handle):
        self._library = library()
        self._owned = _Owned(handle, getattr(self._library, self._release))

    @property
    def _handle(self):
        """The handle; None, which the library refuses as an invalid one, after close()."""
        owned = self._owned
        return owned.value if owned else None

    def close(self):
        """Ends this object; calls that are under way on other threads end normally. Later ones raise an Error."""
        self._owned = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
