"""stream(): runs over many items, the next ones of which are loaded while the last ones are computed."""
import collections
import concurrent.futures
import inspect
import os
import pathlib
import threading

import numpy

from . import _arrays
from ._session import Session

_PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
_ALIGNMENT = 64  # what the library reads without a copy


class StreamError(Exception):
    """An item could not be loaded or run: the text names it, and __cause__ is the reason.

    item  what the source gave: a path, an array, ...; None where the source itself failed
    """

    def __init__(self, item, error):
        what = os.fspath(item) if isinstance(item, (str, os.PathLike)) else f"an item of type {type(item).__name__}"
        super().__init__(f"{'the source' if item is None else what}: {error}")
        self.item = item


def stream(session, source, *, load=None, prefetch=4, with_items=False, **options):
    """Runs a session over the items of a source, and gives the outputs in the order of the items.

    session     a Session; or another object with submit(value) that gives a future; or a function of a value, which one thread calls
    source      a folder, whose pictures are taken in the order of their names; or an iterable of paths of pictures, of arrays (of a
                session with one input) or of {name: array}
    load        load(item) -> an array or {name: array}, in place of decoding pictures. Called on a thread of the stream's own
    prefetch    how many items are loaded or computed ahead of the one that was given last, at most. Each has its own buffers, which
                are used again
    with_items  give (item, outputs) in place of outputs
    options     of Session.submit: timeout, deadline, priority, ...

        with evener.stream(session, "pictures", prefetch=8) as results:
            for outputs in results:
                ...

    Pictures are decoded with Pillow: as RGB in the session's layout, N x 3 x H x W or N x H x W x 3, scaled to H and W where the model
    says them; integers as they are, floating point from 0 to 1. An item that fails raises a StreamError in its turn, after which the
    stream is closed. close(), the end of a `with`, and letting go of the stream stop what is under way.
    """
    return Stream(session, source, load, prefetch, with_items, options)


class Stream:
    """What stream() gives: an iterator of outputs."""

    def __init__(self, session, source, load, prefetch, with_items, options):
        if prefetch < 1:
            raise ValueError(f"prefetch must be at least 1, not {prefetch}")
        self._with_items = with_items
        self._line = _Line(prefetch)
        begin = _begin_function(session, load, options)
        items = iter(_pictures_of(source) if isinstance(source, (str, os.PathLike)) else source)
        self._thread = threading.Thread(target=_work, args=(self._line, items, begin), name="evener-stream", daemon=True)
        self._thread.start()

    def __iter__(self):
        return self

    def __next__(self):
        entry = self._line.first()
        if entry is None:
            self.close()
            raise StopIteration
        item, _, future, failure = entry
        try:
            if failure is not None:
                raise StreamError(item, failure) from failure
            try:
                outputs = future.result()
            except concurrent.futures.CancelledError:
                raise
            except Exception as error:
                raise StreamError(item, error) from error
        except BaseException:
            self.close()
            raise
        self._line.give_back(entry)
        return (item, outputs) if self._with_items else outputs

    def close(self):
        """Stops what is under way, and waits for the item that is being loaded."""
        self._line.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        line = getattr(self, "_line", None)
        if line is not None:
            line.stop()  # the thread ends by itself


class _Line:
    """The items under way in their order, and the buffers of those that may come. The thread and the stream share it."""

    def __init__(self, count):
        self._changed = threading.Condition()
        self._free = [_Buffers() for _ in range(count)]
        self._entries = collections.deque()
        self._ended = False
        self._stopped = False

    def take_buffers(self):
        """Waits for free ones; None: the stream was stopped."""
        with self._changed:
            while not self._free and not self._stopped:
                self._changed.wait()
            return None if self._stopped else self._free.pop()

    def add(self, entry):
        with self._changed:
            stopped = self._stopped
            if not stopped:
                self._entries.append(entry)
                self._changed.notify_all()
        if stopped and entry[2] is not None:
            entry[2].cancel()

    def end(self):
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def first(self):
        """The next entry, for which it waits; None: there is no more."""
        with self._changed:
            while not self._entries and not self._ended and not self._stopped:
                self._changed.wait()
            return self._entries.popleft() if self._entries and not self._stopped else None

    def give_back(self, entry):
        with self._changed:
            self._free.append(entry[1])
            self._changed.notify_all()

    def stop(self):
        with self._changed:
            self._stopped = True
            entries = list(self._entries)
            self._entries.clear()
            self._changed.notify_all()
        for _, _, future, _ in entries:
            if future is not None:
                future.cancel()


class _Buffers:
    """Memory for the inputs of one item at a time, which stays for later ones of no more bytes."""

    def __init__(self):
        self._memory = {}

    def copy(self, name, array):
        if array.dtype == _arrays.STRING:
            return array
        memory = self._memory.get(name)
        if memory is None or memory.nbytes < array.nbytes:
            raw = numpy.empty(array.nbytes + _ALIGNMENT, "uint8")
            offset = -raw.ctypes.data % _ALIGNMENT
            memory = self._memory[name] = raw[offset:offset + array.nbytes]
        copy = memory[:array.nbytes].view(array.dtype).reshape(array.shape)
        numpy.copyto(copy, array)
        return copy


def _work(line, items, begin):
    """Loads and submits item by item, on the stream's thread. An entry: item, buffers, future, failure."""
    try:
        while True:
            buffers = line.take_buffers()
            if buffers is None:
                return
            item = None
            try:
                item = next(items)
                future = begin(item, buffers)
            except StopIteration:
                return
            except Exception as error:  # pylint: disable=broad-except
                line.add((item, buffers, None, error))
                return
            line.add((item, buffers, future, None))
            del item, buffers, future
    finally:
        if inspect.isgenerator(items):
            items.close()
        line.end()


def _begin_function(session, load, options):
    """begin(item, buffers) -> a future of the outputs."""
    if not isinstance(session, Session):
        if hasattr(session, "submit"):
            return lambda item, _: session.submit(_loaded(item, load, None), **options)
        worker = concurrent.futures.ThreadPoolExecutor(1, "evener-stream-run")
        return lambda item, _: worker.submit(session, _loaded(item, load, None), **options)
    inputs = session.inputs
    dtypes = {value.name: value.dtype for value in inputs}

    def begin(item, buffers):
        value = _loaded(item, load, inputs)
        if not isinstance(value, dict):
            if len(inputs) != 1:
                raise TypeError(f"the model has {len(inputs)} inputs: items must be dicts of their names")
            value = {inputs[0].name: value}
        given = {}
        for name, array in value.items():
            plain = isinstance(array, numpy.ndarray) or not hasattr(array, "__dlpack__")
            given[name] = buffers.copy(name, _arrays.input_array(array, dtypes.get(name))) if plain else array
        return session.submit(given, **options)

    return begin


def _loaded(item, load, inputs):
    if load is not None:
        return load(item)
    if isinstance(item, (str, os.PathLike)):
        return _decode(item, inputs)
    return item


def _pictures_of(folder):
    """The paths of the pictures in a folder by name."""
    return sorted(path for path in pathlib.Path(folder).iterdir() if path.suffix.lower() in _PICTURES)


def _layout(inputs):
    """(height, width, channels are last, dtype) that the input of a session wants; None for what the model does not say."""
    if inputs is None:
        return None, None, True, numpy.dtype("uint8")
    if len(inputs) != 1 or inputs[0].shape is None or len(inputs[0].shape) != 4 or 3 not in inputs[0].shape[1::2]:
        raise TypeError("the model does not take one picture of N x 3 x H x W or N x H x W x 3: give a load function")
    shape = [dim if isinstance(dim, int) else None for dim in inputs[0].shape]
    last = shape[1] != 3
    height, width = shape[1:3] if last else shape[2:4]
    return height, width, last, inputs[0].dtype


def _decode(path, inputs):
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("pictures are decoded with Pillow, which is not installed: install it, or give a load function") from error
    height, width, last, dtype = _layout(inputs)
    with Image.open(path) as image:
        image = image.convert("RGB")
        size = (width or image.width, height or image.height)
        if size != image.size:
            image = image.resize(size, Image.Resampling.BILINEAR)
        pixels = numpy.asarray(image)
    pixels = pixels.astype(dtype) / dtype.type(255) if dtype.kind == "f" else pixels.astype(dtype, copy=False)
    return pixels[None] if last else pixels.transpose(2, 0, 1)[None]
