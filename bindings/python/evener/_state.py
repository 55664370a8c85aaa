"""States of streams: what goes from an output of one run to an input of the next."""
import ctypes
import json

from . import _raw
from ._library import c_int64s, c_text, check, fitting, library, new_error, read_text, sized
from ._object import Object

_CACHES = {None: 0, "float16": _raw.EVN_STATE_FLOAT16, "int8": _raw.EVN_STATE_INT8}


class State(Object):
    """What one stream keeps from run to run; made by Session.state(), used by run(..., state=), submit and run_async.

    One run uses it at a time. After a run that fails it is as it was before.
    """

    _release = "evn_state_release"

    def __init__(self, session, pairs, dims, on_demand, caches):
        if caches not in _CACHES:
            raise ValueError(f"caches is {caches!r}: None, \"float16\" or \"int8\"")
        lib, handle, error = library(), _raw.evn_state(), new_error()
        made = [tuple(pair) + (0,) * (3 - len(tuple(pair))) for pair in pairs]
        items = (_raw.evn_state_pair * len(made))()
        for item, (output, given, capacity) in zip(items, made):
            item.output, item.input, item.capacity = c_text(output), c_text(given), capacity
        options = sized(_raw.evn_state_options)
        options.flags = (_raw.EVN_STATE_ON_DEMAND if on_demand else 0) | _CACHES[caches]
        shapes = (_raw.evn_input_shape * len(dims))()
        for shape, (name, values) in zip(shapes, dims.items()):
            shape.name, shape.dims, shape.rank = c_text(name), c_int64s(values), len(values)
        options.dims, options.dim_count = shapes, len(dims)
        check(lib.evn_state_create(session._handle, items, len(made), options, handle, error), error)
        self._own(handle)
        self.inputs = frozenset(given for _, given, _ in made)
        self.outputs = frozenset(output for output, _, _ in made)
        self._pairs = tuple(made)

    def _forked(self):
        copy = object.__new__(State)
        handle, error = _raw.evn_state(), new_error()
        check(self._library.evn_state_fork(self._handle, handle, error), error)
        copy._own(handle)
        copy.inputs, copy.outputs, copy._pairs = self.inputs, self.outputs, self._pairs
        return copy

    def reset(self):
        """Makes it as it was when it was made."""
        error = new_error()
        check(self._library.evn_state_reset(self._handle, error), error)

    def fork(self):
        """Another state of the same contents, which goes its own way: a beam of a search."""
        return self._forked()

    def __len__(self):
        """Positions of the first pair that has a capacity; 0 where none has."""
        for index, (_, _, capacity) in enumerate(self._pairs):
            if capacity > 0:
                return self.length(index)
        return 0

    def __bool__(self):
        return self._owned is not None

    def length(self, index=0):
        """Positions of the pair at `index`."""
        positions, error = ctypes.c_int64(), new_error()
        check(self._library.evn_state_length(self._handle, fitting("index", index, 32), positions, error), error)
        return positions.value

    def truncate(self, positions):
        """Cuts caches back to their first `positions`."""
        error = new_error()
        check(self._library.evn_state_truncate(self._handle, c_int64s([positions])[0], error), error)

    def save(self):
        """The contents as bytes."""
        size, error = ctypes.c_size_t(), new_error()
        check(self._library.evn_state_save(self._handle, None, 0, size, error), error)
        buffer = ctypes.create_string_buffer(size.value)
        check(self._library.evn_state_save(self._handle, buffer, size.value, size, error), error)
        return buffer.raw

    def restore(self, data):
        """Puts what save() gave in the place of the contents."""
        error = new_error()
        check(self._library.evn_state_restore(self._handle, bytes(data), len(data), error), error)

    def describe(self):
        """A list of dicts, one for each pair: names, dims, positions, bytes, how it is held and why."""
        return json.loads(read_text(self._library.evn_state_describe, self._handle, _raw.EVN_FORMAT_JSON))
