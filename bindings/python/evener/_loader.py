"""Loader: batches of a data set, which a thread of the library prepares ahead (evener/train.h)."""
import atexit
import collections.abc
import ctypes
import itertools
import math
import os
import weakref
import zipfile

import numpy

from . import _arrays, _callbacks, _raw
from ._library import c_int64s, c_text, check, fitting, library, new_error, refuse_zeros, sized
from ._object import Object, _Owned
from ._tensor import Tensor

_live = weakref.WeakSet()


@atexit.register
def _close_all():
    """A loader's thread may be waiting for the GIL, which nobody gets when the interpreter has ended."""
    for loader in list(_live):
        loader.close()


class _OwnedLoader(_Owned):
    """What the loader's thread reads from, as long as there is one."""

    __slots__ = ("keep", "runtime")


def open_npz(path):
    """{name: array} of an archive. Entries as numpy.savez writes them are mapped: their pages are read when they are looked at. Those of
    numpy.savez_compressed are read into memory."""
    arrays = {}
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            label = f"{os.fspath(path)}({info.filename})"
            if info.compress_type != zipfile.ZIP_STORED:
                with archive.open(info) as entry:
                    arrays[info.filename.removesuffix(".npy")] = numpy.lib.format.read_array(entry, allow_pickle=False)
                continue
            file.seek(info.header_offset)
            head = file.read(30)
            if len(head) < 30 or head[:4] != b"PK\x03\x04":
                raise ValueError(f"{label}: the .npz archive is damaged")
            begin = info.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
            file.seek(begin)
            version = numpy.lib.format.read_magic(file)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"{label}: a .npy version that is not known")
            read = numpy.lib.format.read_array_header_1_0 if version == (1, 0) else numpy.lib.format.read_array_header_2_0
            shape, is_fortran, dtype = read(file)
            size = int(numpy.prod(shape, dtype=numpy.int64)) * dtype.itemsize
            if dtype.hasobject or file.tell() + size != begin + info.file_size or begin + info.file_size > os.path.getsize(path):
                raise ValueError(f"{label}: the file's size is not what its header says")
            arrays[info.filename.removesuffix(".npy")] = numpy.memmap(
                path, dtype, "r", file.tell(), shape, "F" if is_fortran else "C") if size else numpy.empty(shape, dtype)
    return arrays


def _as_label(array):
    """Whole numbers are classes, which the library has as int64."""
    return numpy.dtype("int64") if array.dtype.kind in "iu" else array.dtype.newbyteorder("=")


class _Field:
    """An array of a batch: its name, and what a sample of it is."""

    def __init__(self, name, dtype, shape, data=None):
        if dtype not in _arrays.CODES:
            raise TypeError(f"{name}: arrays of dtype {dtype} cannot be given to a model")
        self.name, self.dtype, self.shape, self.data = name, dtype, tuple(shape), data

    def view(self, address, count):
        size = count * int(numpy.prod(self.shape, dtype=numpy.int64)) * self.dtype.itemsize
        return numpy.frombuffer((ctypes.c_char * size).from_address(address), self.dtype).reshape(count, *self.shape)


class _Source:
    """What fills batches, and what it raised."""

    raised = None

    def __call__(self, samples, count, buffers, made):
        targets = {field.name: field.view(buffers[at], count) for at, field in enumerate(self.fields) if buffers[at]}
        made[0] = self.fill([samples[i] for i in range(count)], targets)


class _ArraySource(_Source):
    """Arrays of which not all lie as the library has them."""

    def __init__(self, arrays, labels):
        self.fields, self.arrays = [], {}
        for name, array in arrays.items():
            array = array if isinstance(array, numpy.ndarray) else numpy.asarray(array)
            if array.ndim == 0:
                raise ValueError(f"{name}: an array has a dim of samples, which a scalar lacks")
            dtype = _as_label(array) if name == labels else array.dtype.newbyteorder("=")
            is_direct = array.dtype == dtype and array.dtype.isnative and array.flags.c_contiguous and array.size
            self.fields.append(_Field(name, dtype, array.shape[1:], array if is_direct else None))
            if not is_direct:
                self.arrays[name] = array
        counts = {len(array) for array in arrays.values()}
        if len(counts) != 1:
            raise ValueError("the arrays have different numbers of samples: " + ", ".join(f"{name} {len(array)}" for name, array in arrays.items()))
        self.count = counts.pop()
        self.is_direct = not self.arrays

    def fill(self, numbers, targets):
        for name, target in targets.items():
            target[...] = self.arrays[name][numbers]
        return len(numbers)


class _SampleSource(_Source):
    """Samples one by one: (inputs, label), or inputs alone, which are {name: array}."""

    is_direct = False

    def __init__(self, first, labels):
        inputs, label = self.parts(first)
        self.has_label = label is not None
        if labels in inputs:
            raise ValueError(f"an input has the name of the labels, {labels!r}")
        self.fields = [_Field(name, array.dtype.newbyteorder("="), array.shape)
                       for name, array in ((name, numpy.asarray(value)) for name, value in inputs.items())]
        if self.has_label:
            label = numpy.asarray(label)
            self.fields.append(_Field(labels, _as_label(label), label.shape))
        self.labels = labels

    @staticmethod
    def parts(sample):
        inputs, label = sample if isinstance(sample, tuple) else (sample, None)
        if not isinstance(inputs, collections.abc.Mapping):
            raise TypeError(f"a sample is (inputs, label) or inputs, {{name: array}}, not {type(inputs).__name__}")
        return inputs, label

    def put(self, number, sample, place, targets):
        inputs, label = self.parts(sample)
        values = dict(inputs)
        if self.has_label:
            values[self.labels] = label
        if values.keys() != targets.keys():
            raise ValueError(f"sample {number} has {sorted(values)}, the first one {sorted(targets)}")
        for name, value in values.items():
            value = numpy.asarray(value)
            if value.shape != targets[name].shape[1:]:
                raise ValueError(f"{name} of sample {number} has the shape {value.shape}, that of the first one {targets[name].shape[1:]}")
            if not numpy.can_cast(value.dtype, targets[name].dtype, "same_kind"):
                raise TypeError(f"{name} of sample {number} is {value.dtype}, that of the first one {targets[name].dtype}")
            targets[name][place] = value


class _MapSource(_SampleSource):
    def __init__(self, data, labels):
        self.data, self.count = data, len(data)
        if self.count == 0:
            raise ValueError("there are no samples")
        super().__init__(data[0], labels)

    def fill(self, numbers, targets):
        for place, number in enumerate(numbers):
            self.put(number, self.data[number], place, targets)
        return len(numbers)


class _StreamSource(_SampleSource):
    def __init__(self, data, labels):
        self.data, self.count = data, 0
        iterator = iter(data)
        self.is_once = iterator is data
        try:
            first = next(iterator)
        except StopIteration:
            raise ValueError("there are no samples") from None
        self.iterator, self.at = itertools.chain([first], iterator), 0
        super().__init__(first, labels)

    def fill(self, numbers, targets):
        if numbers[0] < self.at:
            if self.is_once:
                raise ValueError("an iterator has one epoch: for several give something that can be iterated over again")
            self.iterator, self.at = iter(self.data), 0
        skipped = numbers[0] - self.at
        self.at = math.inf  # until all samples are there: after one that raises the iterator is somewhere else
        made = 0
        for sample in itertools.islice(self.iterator, skipped, skipped + len(numbers)):
            self.put(numbers[made], sample, made, targets)
            made += 1
        self.at = numbers[0] + made
        return made


def _produce(context, samples, count, buffers, made, error):
    source = _callbacks.find(context)
    try:
        source(samples, count, buffers, made)
        return _raw.EVN_OK
    except BaseException as raised:  # noqa: B902: nothing may be raised through C
        source.raised = raised
        return _raw.EVN_ERROR_INTERNAL


_PRODUCE = _callbacks.callback(_raw.evn_loader_produce, _produce)


def _source_of(data, labels):
    """The source, and the name of the labels or None."""
    if isinstance(data, (str, os.PathLike)):
        data = open_npz(data)
    if isinstance(data, collections.abc.Mapping):
        arrays, name = dict(data), labels
        if labels is not None and not isinstance(labels, str):
            name = "labels"
            if name in arrays:
                raise ValueError('there are an array "labels" and labels')
            arrays[name] = labels
        elif labels is not None and labels not in arrays:
            raise ValueError(f"there is no array {labels!r}; there are: {', '.join(map(str, arrays))}")
        if not arrays:
            raise ValueError("there are no arrays")
        return _ArraySource(arrays, name), name
    if labels is not None:
        raise ValueError("samples have their labels themselves: (inputs, label)")
    is_map = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    source = (_MapSource if is_map else _StreamSource)(data, "labels")
    return source, "labels" if source.has_label else None


class Loader(Object):
    """Gives the batches of a data set as (inputs, labels), {name: Tensor} and a Tensor or None; evener/train.h says how.

        loader = evener.Loader(runtime, {"image": images}, labels=classes, batch=64, shuffle=True)
        for epoch in range(5):
            for inputs, labels in loader.epoch(epoch):
                trainer.step(inputs, labels)

    Tensors are of this batch until the next one is asked for: then they are closed, and their memory is used again. tensor.numpy().copy() keeps
    what is in one.

    data      {name: array}, the first dim of which is that of samples; numpy.memmap is read by pages. Or the path of a .npz: what numpy.savez has
              written is read by pages too, what numpy.savez_compressed has written lies in memory. Or samples, each (inputs, label) or inputs, {name: array}: an object with __len__ and
              __getitem__, or what can be iterated over; they are asked for on the loader's thread
    labels    an array, or which of `data` is that of labels; whole numbers are classes
    batch     samples a batch, of all ranks together
    shuffle   in another order in each epoch, a function of `seed` and the epoch alone
    drop_last  without a last batch that is not full
    prefetch  batches that are ready before they are asked for
    rank, ranks  this process, and how many divide each batch
    device    where the tensors lie; None: host memory
    """

    _release = "evn_loader_release"

    def __init__(self, runtime, data, labels=None, *, batch, shuffle=False, drop_last=False, seed=0, prefetch=2, rank=0, ranks=1, device=None):
        lib, handle, error = library(), _raw.evn_loader(), new_error()
        source, self._labels = _source_of(data, labels)
        fields, keep = source.fields, []
        arrays = (_raw.evn_loader_array * len(fields))()
        for row, field in zip(arrays, fields):
            keep += [c_text(field.name), c_int64s(field.shape), field.data]
            row.name, row.dims = keep[-3], keep[-2]
            row.data = field.data.__array_interface__["data"][0] if field.data is not None else None
            row.dtype, row.rank = _arrays.CODES[field.dtype], len(field.shape)
        is_stream = isinstance(source, _StreamSource)
        refuse_zeros(prefetch=prefetch)
        options = sized(_raw.evn_loader_options)
        options.arrays, options.array_count, options.sample_count = arrays, len(fields), source.count
        options.batch, options.seed, options.prefetch, options.rank, options.rank_count = batch, seed, prefetch, rank, ranks
        flags = ((shuffle, _raw.EVN_LOADER_SHUFFLE), (drop_last, _raw.EVN_LOADER_DROP_LAST), (is_stream, _raw.EVN_LOADER_STREAM))
        options.flags = sum(flag for wanted, flag in flags if wanted)
        options.device = None if device is None else c_text(device)
        if source.is_direct:
            check(lib.evn_loader_create(runtime._handle, options, handle, error), error)
        else:
            options.produce, options.produce_release = _PRODUCE, _callbacks.RELEASE
            with _callbacks.lent(source) as options.produce_context:
                check(lib.evn_loader_create(runtime._handle, options, handle, error), error)
        self._own(handle)
        self._owned.keep, self._owned.runtime = keep, runtime._owned
        self._source, self._is_stream, self._next_epoch, self._given = source, is_stream, 0, []
        self._names = [field.name for field in fields]
        _live.add(self)

    def _own(self, handle):
        self._library = library()
        self._owned = _OwnedLoader(handle, self._library.evn_loader_release)

    def __len__(self):
        """The number of batches of an epoch; TypeError where that is not known."""
        if self._is_stream:
            raise TypeError("how many samples there are is not known")
        count, error = ctypes.c_uint64(), new_error()
        check(self._library.evn_loader_batch_count(self._handle, count, error), error)
        return count.value

    def __iter__(self):
        """The next epoch: the first time 0."""
        return self.epoch(self._next_epoch)

    def epoch(self, number, first_batch=0):
        """The batches of an epoch, from first_batch on. Another one that is under way ends."""
        error = new_error()
        number, first_batch = fitting("number", number), fitting("first_batch", first_batch)
        self._close_given()
        self._source.raised = None
        check(self._library.evn_loader_start_epoch(self._handle, number, first_batch, error), error)
        self._next_epoch = number + 1
        self._under_way = token = object()
        return self._batches(token)

    def _batches(self, token):
        while self._under_way is token:
            batch = self._next()
            if batch is None:
                return
            yield batch
        raise RuntimeError("another epoch has begun")

    def _close_given(self):
        for tensor in self._given:
            tensor.close()
        self._given = []

    def _next(self):
        error, samples = new_error(), ctypes.c_uint32()
        handles = (_raw.evn_tensor * len(self._names))()
        self._close_given()
        status = self._library.evn_loader_next(self._handle, handles, len(handles), samples, error)
        if status and self._source.raised is not None:
            raise self._source.raised
        check(status, error)
        if samples.value == 0:
            return None
        for handle in handles:
            self._given.append(Tensor(_view(self._library, handle, error)))
        inputs = dict(zip(self._names, self._given))
        labels = inputs.pop(self._labels) if self._labels is not None else None
        return inputs, labels


def _view(lib, handle, error):
    """A handle of our own for the same memory: when it is released, who uses it gets an error and not the next batch."""
    info, view = sized(_raw.evn_tensor_info), _raw.evn_tensor()
    check(lib.evn_tensor_get_info(handle, info, error), error)
    check(lib.evn_tensor_create_view(handle, 0, info.dims, info.rank, view, error), error)
    return view
