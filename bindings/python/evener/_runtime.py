"""Runtime, Device, Model and Session: the C API's objects as Python's."""
import asyncio
import ctypes
import dataclasses
import json
import os
import typing

import numpy

from . import _arrays, _call, _log, _operator, _raw, _requests, _tensor, _values
from ._library import Error, Status, c_path, c_text, check, library, new_error, read_text, set_source, sized, text_of

_FORMATS = {"text": _raw.EVN_FORMAT_TEXT, "json": _raw.EVN_FORMAT_JSON}
_PICTURES = {"dot": _raw.EVN_FORMAT_DOT, "svg": _raw.EVN_FORMAT_SVG}
_KINDS = {_raw.EVN_DEVICE_CPU: "cpu", _raw.EVN_DEVICE_OPENCL: "opencl"}
_MEMORY_CLASSES = ("tensors", "weights", "packed", "arenas", "scratch", "loading")
_UNKNOWN_RANK = 2**32 - 1
_UNLIMITED = 2**64 - 1


def _format(name, more=()):
    formats = {**_FORMATS, **dict(more)}
    if name not in formats:
        raise ValueError(f'format must be one of {", ".join(formats)}, not {name!r}')
    return formats[name]


class _Owned:
    """Releases a handle when nothing refers to it any more."""

    __slots__ = ("value", "_release")

    def __init__(self, value, release):
        self.value = value
        self._release = release

    def __del__(self):
        self._release(self.value)


class _Object:
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


@dataclasses.dataclass(frozen=True)
class MemoryStats:
    """One device's memory in bytes, as the library's own ledger counts it."""

    current: int
    peak: int
    reserved: int
    limit: typing.Optional[int]  # None: no cap
    by_class: dict               # "tensors", "weights", "packed", "arenas", "scratch", "loading" -> current
    allocations: int
    cache_hits: int
    largest_free_block: int


_PRECISIONS = ("fp32", "bf16", "fp16", "auto")


def _precision(name):
    if name not in _PRECISIONS:
        raise ValueError(f'precision must be one of {", ".join(_PRECISIONS)}, not {name!r}')
    return _raw.EVN_PRECISION_FP32 + _PRECISIONS.index(name)


_NUMERICS = ("fast", "strict")


def _numerics(name):
    if name not in _NUMERICS:
        raise ValueError(f'numerics must be one of {", ".join(_NUMERICS)}, not {name!r}')
    return _raw.EVN_NUMERICS_FAST + _NUMERICS.index(name)


class Device(_Object):
    """A view of one device of a runtime.

    name           as the configuration or Runtime.device() names it
    kind           "cpu", "opencl" or "other"
    description    the processor's or driver's own name
    driver         platform and driver version, or the chosen instruction set of the CPU
    compute_units  threads of the CPU; compute units of an OpenCL device
    memory_bytes   memory that the device reports
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

    def memory(self):
        """The device's MemoryStats now."""
        stats, error = sized(_raw.evn_memory_stats), new_error()
        check(self._library.evn_device_get_memory_stats(self._handle, stats, error), error)
        return MemoryStats(
            current=stats.current, peak=stats.peak, reserved=stats.reserved,
            limit=None if stats.limit == _UNLIMITED else stats.limit, by_class=dict(zip(_MEMORY_CLASSES, stats.by_class)),
            allocations=stats.allocations, cache_hits=stats.cache_hits, largest_free_block=stats.largest_free_block)

    def reset_memory_peak(self):
        """Sets the peak to what is in use now."""
        error = new_error()
        check(self._library.evn_device_reset_memory_peak(self._handle, error), error)

    def trim_memory(self):
        """Gives cached blocks back to the system."""
        error = new_error()
        check(self._library.evn_device_trim_memory(self._handle, error), error)

    def __repr__(self):
        return f"<evener.Device {self.name}: {self.description}>"


class Model(_Object):
    """An immutable graph and its weights; sessions made of one Model share them."""

    _release = "evn_model_release"

    def __init__(self, runtime, source, external_dir=None):
        lib, handle, error = library(), _raw.evn_model(), new_error()
        options = sized(_raw.evn_model_options)
        if external_dir is not None:
            options.external_dir = c_path(external_dir)
        if isinstance(source, (str, os.PathLike)):
            status = lib.evn_model_load_file(runtime._handle, c_path(source), options, handle, error)
        else:
            data = source if isinstance(source, bytes) else bytes(memoryview(source))
            status = lib.evn_model_load_buffer(runtime._handle, data, len(data), options, handle, error)
        check(status, error)
        self._own(handle)

    @property
    def inputs(self):
        """A tuple of Value in the model's order."""
        lib = self._library
        return _values_of(self._handle, lib.evn_model_input_count, lib.evn_model_get_input_info, lib.evn_model_input_name)

    @property
    def outputs(self):
        """A tuple of Value in the model's order."""
        lib = self._library
        return _values_of(self._handle, lib.evn_model_output_count, lib.evn_model_get_output_info, lib.evn_model_output_name)

    def metadata_keys(self):
        """The keys of the model's metadata, in the order of the file."""
        count, error = ctypes.c_uint32(), new_error()
        check(self._library.evn_model_metadata_count(self._handle, count, error), error)
        return [read_text(self._library.evn_model_metadata_key, self._handle, index) for index in range(count.value)]

    def metadata(self, key):
        """The value of the model's metadata entry `key`; KeyError when there is none."""
        try:
            return read_text(self._library.evn_model_get_metadata, self._handle, c_text(key))
        except Error as error:
            if error.status == Status.INVALID_ARGUMENT:
                raise KeyError(key) from error
            raise

    def describe(self, format="text"):
        """What the model is: inputs, outputs, operators, parameters."""
        return read_text(self._library.evn_model_describe, self._handle, _format(format))


@dataclasses.dataclass(frozen=True)
class Value:
    """An input or output of a model or session."""

    name: str
    shape: typing.Optional[tuple]  # ints, the model's symbol names, None where unknown; None: even the rank is unknown
    dtype: numpy.dtype
    type: str                      # "tensor(float32)", "seq(tensor(int64))", "optional(...)", "map(string,...)"

    @property
    def is_tensor(self):
        return self.type.startswith("tensor(")

    @classmethod
    def _of(cls, name, info):
        shape = None
        if info.rank != _UNKNOWN_RANK:
            symbols = [text_of(symbol.value) or None for symbol in info.symbols[:info.rank]]
            shape = tuple(dim if dim >= 0 else symbol for dim, symbol in zip(info.dims, symbols))
        return cls(name, shape, _arrays.numpy_dtype(info.dtype), text_of(info.type))


def _values_of(handle, count_function, info_function, name_function):
    """The inputs or outputs of a model or session."""
    count, error = ctypes.c_uint32(), new_error()
    check(count_function(handle, count, error), error)
    values = []
    for index in range(count.value):
        info = sized(_raw.evn_value_info)
        check(info_function(handle, index, info, error), error)
        values.append(Value._of(read_text(name_function, handle, index), info))
    return tuple(values)


class Cancel(_Object):
    """Asks runs that it is given to (Session.run, submit) to stop, for good."""

    _release = "evn_cancel_release"

    def __init__(self):
        lib, handle, error = library(), _raw.evn_cancel(), new_error()
        check(lib.evn_cancel_create(handle, error), error)
        self._own(handle)

    def cancel(self):
        """From any thread. The runs end soon after with Status.CANCELLED."""
        self._library.evn_cancel_request(self._handle)


def _batching(given):
    """What evn_batching_options says of a dict."""
    options = sized(_raw.evn_batching_options)
    unknown = sorted(set(given) - {"max_batch", "max_delay", "mask", "buckets"})
    if unknown:
        raise TypeError(f"batching has no {unknown[0]!r}: there are max_batch, max_delay, mask and buckets")
    delay = given.get("max_delay", 0)
    if not delay >= 0:
        raise ValueError(f"max_delay is {delay}")
    options.max_batch = given.get("max_batch", 8)
    options.max_delay_ns = round(delay * 1e9)
    if given.get("mask") is not None:
        options.mask = c_text(given["mask"])
    buckets = list(given.get("buckets", ()))
    options.buckets = (ctypes.c_int64 * len(buckets))(*buckets)
    options.bucket_count = len(buckets)
    return options


class Session(_Object):
    """A model placed on the devices of a runtime. Any number of threads may run it at a time.

    inputs, outputs  tuples of Value in the model's order
    model            the Model
    """

    _release = "evn_session_release"

    def __init__(self, runtime, model, device=None, cache=None, cache_write=True, cache_map=False, precision=None, keep_fp32=(),
                 numerics=None, disabled_passes=(), concurrency=None, batching=None):
        lib, handle, error = library(), _raw.evn_session(), new_error()
        options = sized(_raw.evn_session_options)
        if device is not None:
            options.device = c_text(device.name if isinstance(device, Device) else device)
        if cache is not None:
            options.cache_file = c_path(cache)
            options.cache_flags = (0 if cache_write else _raw.EVN_CACHE_READ_ONLY) | (_raw.EVN_CACHE_MAP if cache_map else 0)
        if precision is not None:
            options.precision = _precision(precision)
        if numerics is not None:
            options.numerics = _numerics(numerics)
        patterns = [c_text(pattern) for pattern in ([keep_fp32] if isinstance(keep_fp32, str) else keep_fp32)]
        options.keep_fp32 = (ctypes.c_char_p * len(patterns))(*patterns)
        options.keep_fp32_count = len(patterns)
        names = [c_text(name) for name in ([disabled_passes] if isinstance(disabled_passes, str) else disabled_passes)]
        options.disabled_passes = (ctypes.c_char_p * len(names))(*names)
        options.disabled_pass_count = len(names)
        if concurrency is not None:
            options.concurrency = concurrency
        if batching is not None:
            options.batching = ctypes.pointer(_batching(batching))
        check(lib.evn_session_create(runtime._handle, model._handle, options, handle, error), error)
        self._own(handle)
        self._runtime = runtime._owned  # arrays are wrapped with it, also when the runtime has been closed
        self.model = model
        self.inputs = _values_of(handle, lib.evn_session_input_count, lib.evn_session_get_input_info, lib.evn_session_input_name)
        self.outputs = _values_of(handle, lib.evn_session_output_count, lib.evn_session_get_output_info, lib.evn_session_output_name)
        self._only_tensors = all(value.is_tensor for value in self.inputs + self.outputs)
        self._index = {value.name: index for index, value in enumerate(self.inputs)}
        self._calls = []  # that are not running

    def close(self):
        super().close()
        self._calls.clear()

    def _find_input(self, name, error):
        """The index of an input by its name, or the library's Error with the names there are."""
        index = ctypes.c_uint32()
        check(self._library.evn_session_find_input(self._handle, c_text(name), index, error), error)
        return index.value

    def run(self, inputs, timeout=None, seed=0, cancel=None, deadline=None, priority=0):
        """Runs the model once.

        inputs   {name: array}; every input of the model. Arrays are read in place where they are C-contiguous, and must not
                 be written until the call ends. A Tensor, or another object that has __dlpack__, is always read in place
        timeout  seconds, or None
        seed     another one makes operators that draw random numbers draw others
        cancel   a Cancel, or None: the run ends with Status.CANCELLED once that is asked for
        deadline of time.monotonic(), or None: the run ends with Status.TIMEOUT then, or after the timeout if that is earlier
        priority -7 to 7: while a run computes, those of lower priorities wait
        Returns {name: array} in the model's order; the arrays are the library's own memory, theirs as long as they live.
        Strings are arrays of objects. Sequences are lists, optionals None or what they hold, maps dicts; all these are copied.
        """
        options = self._options(timeout, seed, cancel, deadline, priority)
        if not self._only_tensors:
            return self._run_values(inputs, options, new_error())
        call = self._take_call()
        try:
            self._give(call, inputs)
            return call.run(self._handle, options)
        finally:
            call.end()
            self._calls.append(call)

    def submit(self, inputs, timeout=None, seed=0, cancel=None, deadline=None, priority=0):
        """Has the library's own threads run the model, and returns at once: a concurrent.futures.Future of what run() gives.

        Arguments as of run(); the timeout counts from now on. Arrays must stay as they are until the future is done. Requests wait in
        the order of their priorities, then of their deadlines. The future's cancel() stops the run too, unless it has a Cancel of its own.
        """
        token = Cancel() if cancel is None else None
        options = self._options(timeout, seed, token or cancel, deadline, priority)
        if not self._only_tensors:
            slots, error = (_raw.evn_value * len(self.inputs))(), new_error()
            try:
                self._make_values(slots, inputs, error)
                return _requests.submit_values(self._handle, slots, self.outputs, options, token, None)
            finally:
                for slot in slots:
                    if slot:
                        self._library.evn_value_release(slot)
        call = self._take_call()
        try:
            self._give(call, inputs)
            slots, memory = call.submission()
            return _requests.submit_tensors(self._handle, slots, self.outputs, options, token, (inputs, memory))
        finally:
            call.end()
            self._calls.append(call)

    async def run_async(self, inputs, timeout=None, seed=0, cancel=None, deadline=None, priority=0):
        """submit() for asyncio: `await session.run_async(inputs)` gives what run() gives. A task that is cancelled stops the run."""
        return await asyncio.wrap_future(self.submit(inputs, timeout, seed, cancel, deadline, priority))

    def _take_call(self):
        try:
            return self._calls.pop()
        except IndexError:  # the first run, or as many at a time as never before
            return _call.Call(self.inputs, self.outputs)

    def _give(self, call, inputs):
        for name, value in inputs.items():
            index = self._index.get(name)
            if index is None:
                index = self._find_input(name, call.error)
            if not isinstance(value, (numpy.ndarray, numpy.generic)) and hasattr(value, "__dlpack__"):
                call.give_tensor(index, _tensor.import_dlpack(self._runtime.value, value, call.error))
            else:
                call.give(self._runtime.value, index, value)

    @staticmethod
    def _options(timeout, seed, cancel, deadline, priority):
        if timeout is None and seed == 0 and cancel is None and deadline is None and priority == 0:
            return None
        options = sized(_raw.evn_run_options)
        options.random_seed = seed
        options.priority = priority
        if timeout is not None:
            options.timeout_ns = max(1, int(timeout * 1e9))
        if cancel is not None:
            if cancel._handle is None:
                raise ValueError("the Cancel is closed")
            options.cancel = cancel._handle
        if deadline is not None:
            options.deadline_ns = max(1, int(deadline * 1e9))
        return options

    def _make_values(self, slots, inputs, error):
        for name, value in inputs.items():
            index = self._index.get(name)
            if index is None:
                index = self._find_input(name, error)
            slots[index] = _values.make(self._runtime.value, value, _values.Type(self.inputs[index].type), error)
        for value, slot in zip(self.inputs, slots):
            if not slot:
                raise Error(Status.INVALID_ARGUMENT, f"input '{value.name}' is missing")

    def _run_values(self, inputs, options, error):
        slots = (_raw.evn_value * len(self.inputs))()
        results = (_raw.evn_value * len(self.outputs))()
        try:
            self._make_values(slots, inputs, error)
            check(self._library.evn_session_run_values(self._handle, slots, len(slots), results, len(results), options, error), error)
            return {value.name: _values.read(result) for value, result in zip(self.outputs, results)}
        finally:
            for slot in (*slots, *results):
                if slot:
                    self._library.evn_value_release(slot)

    def metadata(self, key):
        """The value of the model's metadata entry `key`; KeyError when there is none."""
        return self.model.metadata(key)

    def explain(self, format="text"):
        """For each node its device, kernel and the reason, the copies between devices, the memory: "text" or "json".

        "dot" and "svg" draw the graph, coloured by device, in Graphviz's language or as a picture.
        """
        return read_text(self._library.evn_session_explain, self._handle, _format(format, _PICTURES))

    def compare(self, other, inputs):
        """How far the outputs of another session of the same runtime are from this one's over {name: array}, and both times, as a dict;
        evn_session_compare of the C API documents its keys."""
        error, tensors = new_error(), (_raw.evn_tensor * len(self.inputs))()
        try:
            for name, value in inputs.items():
                index = self._find_input(name, error)
                self._library.evn_tensor_release(tensors[index])
                tensors[index] = _arrays.copied(self._runtime.value, _arrays.input_array(value, None), error)
            capacity = 1 << 16  # asking for the size would run both
            while True:
                buffer, size = ctypes.create_string_buffer(capacity), ctypes.c_size_t()
                status = self._library.evn_session_compare(self._handle, other._handle, tensors, len(tensors), _raw.EVN_FORMAT_JSON, buffer,
                                                           len(buffer), size, error)
                if status != _raw.EVN_ERROR_BUFFER_TOO_SMALL:
                    check(status, error)
                    return json.loads(text_of(buffer.value))
                capacity = 2 * error.bytes_requested
        finally:
            for tensor in tensors:
                self._library.evn_tensor_release(tensor)

    def trace(self, events=65536):
        """A Trace with room for so many events; later ones are counted, and dropped.

            with session.trace() as trace:
                session.run(inputs)
            print(trace.table())
        """
        return Trace(self, events)


class Trace:
    """What the runs of a session did, and when; made by Session.trace()."""

    def __init__(self, session, events):
        self._session = session
        self._events = events

    def start(self):
        """Runs that begin from now on are recorded."""
        error = new_error()
        check(self._session._library.evn_session_trace_start(self._session._handle, self._events, error), error)
        return self

    def stop(self):
        """Ends recording. What was recorded stays until the session's next trace."""
        error = new_error()
        check(self._session._library.evn_session_trace_stop(self._session._handle, error), error)

    def table(self):
        """A text: count, median and total time, share, GFLOPS and GB/s by node."""
        return self._read("text")

    def json(self):
        """The text of a trace that chrome://tracing and Perfetto open."""
        return self._read("json")

    def save(self, path):
        """Writes json() to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.json())

    def _read(self, format):
        return read_text(self._session._library.evn_session_get_trace, self._session._handle, _format(format))

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


class Runtime(_Object):
    """Devices, memory pools and threads. Many may live in one process.

    config        path of a YAML file (config/schema.yaml documents the keys)
    threads       threads of the CPU device, the caller's included; None: from the configuration, else all the process may use
    config_text   the YAML itself instead of a path
    cache_dir     folder for compiled OpenCL programs; "" for none
    memory_limit  cap of the CPU device in bytes
    log           a function that gets a LogRecord for each thing that happens, on the thread on which it happens; it must not call the
                  package. None: no log
    log_level     the last level that is delivered: "error", "warning", "info" or "debug"
    """

    _release = "evn_runtime_release"

    def __init__(self, config=None, threads=None, *, config_text=None, cache_dir=None, memory_limit=None, log=None, log_level="warning"):
        lib, handle, error = library(), _raw.evn_runtime(), new_error()
        options = sized(_raw.evn_runtime_options)
        options.thread_count = 0 if threads is None else threads
        options.cpu_memory_limit_bytes = 0 if memory_limit is None else memory_limit
        if config is not None:
            options.config_path = c_path(config)
        if config_text is not None:
            if not isinstance(config_text, str):
                raise TypeError(f"config_text must be a str, not {type(config_text).__name__}")
            text = config_text.encode()
            options.config_text, options.config_size = text, len(text)
        if cache_dir is not None:
            options.cache_dir = c_path(cache_dir)
        with _log.delivered(options, log, log_level):
            check(lib.evn_runtime_create(options, handle, error), error)
        self._own(handle)

    @property
    def devices(self):
        """The devices opened so far; the first is the CPU."""
        count, error = ctypes.c_uint32(), new_error()
        check(self._library.evn_runtime_device_count(self._handle, count, error), error)
        devices = []
        for index in range(count.value):
            handle = _raw.evn_device()
            check(self._library.evn_runtime_device_at(self._handle, index, handle, error), error)
            devices.append(Device(handle))
        return devices

    def device(self, name):
        """A device by its string: "cpu", "gpu", "gpu:1", "opencl:0" or a name of the configuration. Opens it if need be."""
        handle, error = _raw.evn_device(), new_error()
        check(self._library.evn_runtime_device_find(self._handle, c_text(name), handle, error), error)
        return Device(handle)

    def describe_devices(self, format="text"):
        """Every platform and device that this machine offers, opened or not."""
        return read_text(self._library.evn_runtime_describe_devices, self._handle, _format(format))

    def model(self, path_or_bytes, external_dir=None):
        """Loads an ONNX model from a file or from its bytes. `external_dir`: folder of external data for a model from bytes."""
        return Model(self, path_or_bytes, external_dir)

    def inspect(self, path_or_bytes, shapes=None, external_dir=None):
        """What a model needs, as a dict, also when it cannot be loaded; evn_model_inspect of the C API documents its keys.

        shapes  {input: dims} of inputs whose dims the model leaves open, for the estimate of multiply-adds and memory
        """
        options = sized(_raw.evn_inspect_options)
        path = set_source(options, path_or_bytes, external_dir)
        given = (_raw.evn_input_shape * len(shapes or {}))()
        for row, (name, dims) in zip(given, (shapes or {}).items()):
            row.name, row.rank = c_text(name), len(dims)
            row.dims = (ctypes.c_int64 * len(dims))(*dims)
        options.shapes, options.shape_count = given, len(given)
        capacity = 1 << 16  # asking for the size would inspect it twice
        while True:
            buffer, size, error = ctypes.create_string_buffer(capacity), ctypes.c_size_t(), new_error()
            status = self._library.evn_model_inspect(self._handle, path, options, _raw.EVN_FORMAT_JSON, buffer, capacity, size, error)
            if status != Status.BUFFER_TOO_SMALL:
                check(status, error)
                return json.loads(buffer.value.decode("utf-8", "replace"))
            capacity = error.bytes_requested

    def register_operator(self, domain, name, infer, run, *, inputs=1, outputs=1, since_version=1, value_inputs=()):
        """Adds a custom operator to those that models which this runtime loads from now on may use; it runs on the CPU.

        infer         infer(node, inputs) -> [(dtype, shape), ...], one for each output. `inputs` are Spec: dtype, shape (None where it
                      is not known, with None for a dim that is not known) and value (None but for value_inputs that are known);
                      None stands for an input that is not given. Shapes of outputs may be unknown in the same way
                      as long as those of inputs are
        run           run(node, arrays) -> [array, ...], of the dtypes and shapes that infer gave. The arrays are copies
        inputs        how many there are: a number, or (least, most), with None for any number
        outputs       the same
        value_inputs  indices of inputs on whose values the shapes of outputs depend
        node          has .name, and .attribute(name, default)

        Both are called on any thread, also several at a time. What they raise becomes an Error that names the node.
        """
        _operator.register(self._library, self._handle, domain, name, infer, run, inputs, outputs, since_version, value_inputs)

    def session(self, model, device=None, cache=None, cache_write=True, cache_map=False, precision=None, keep_fp32=(),
                numerics=None, disabled_passes=(), concurrency=None, batching=None):
        """A session of a model: a file's path, the bytes of one, or a Model.

        device       for nodes that no rule places
        cache        path of a file in which packed weights are kept from one process to the next; one that ends in / is a folder,
                     with a file for each model. None: as the configuration says; "": none
        cache_write  whether it is written when it lacks something
        cache_map    whether its weights are used where they lie, unchecked
        precision    "fp32", "bf16", "fp16" or "auto": the lowest to which products may round their operands. None: as the
                     configuration says, else fp32
        keep_fp32    nodes that stay float32 all the same: globs of their names, or "type:Gemm"
        numerics     "fast" or "strict": strict has no Winograd and keeps numbers below 2^-126. None: as the configuration says,
                     else fast
        disabled_passes  names of passes of "when" "session" (passes()) that are left out, beside the configuration's
        concurrency  how many runs of it compute at a time at most. None: as the configuration says, else as many as there are cores
        batching     how submitted runs are joined to batches: {"max_batch": rows, "max_delay": seconds, "mask": name of an input,
                     "buckets": lengths}, each of which may be left out. None: as the configuration says, else they are not
        """
        model = model if isinstance(model, Model) else self.model(model)
        return Session(self, model, device, cache, cache_write, cache_map, precision, keep_fp32, numerics, disabled_passes,
                       concurrency, batching)


def passes():
    """What is done to models so that they run faster: a list of dicts of "name", "when" ("load" or "session") and "summary"."""
    return json.loads(read_text(library().evn_describe_passes, _format("json")))


def inspect(path_or_bytes, shapes=None, external_dir=None):
    """Runtime.inspect() with a runtime of its own."""
    with Runtime(threads=1, cache_dir="") as runtime:
        return runtime.inspect(path_or_bytes, shapes, external_dir)
