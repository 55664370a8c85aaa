"""Runtime, Device, Model and Session: the C API's objects as Python's."""
import asyncio
import ctypes
import dataclasses
import json
import os
import re
import typing

import numpy

from . import _arrays, _call, _log, _operator, _raw, _requests, _state, _tensor, _values
from ._library import Error, Status, c_path, c_text, check, library, new_error, read_text, set_source, sized, text_of
from ._object import Object

_FORMATS = {"text": _raw.EVN_FORMAT_TEXT, "json": _raw.EVN_FORMAT_JSON}
_PROMETHEUS = {"prometheus": _raw.EVN_FORMAT_PROMETHEUS}
_PICTURES = {"dot": _raw.EVN_FORMAT_DOT, "svg": _raw.EVN_FORMAT_SVG}
_KINDS = {_raw.EVN_DEVICE_CPU: "cpu", _raw.EVN_DEVICE_OPENCL: "opencl"}
_MEMORY_CLASSES = ("tensors", "weights", "packed", "arenas", "scratch", "loading", "states")
_UNKNOWN_RANK = 2**32 - 1
_UNLIMITED = 2**64 - 1
_NAME = re.compile("[A-Za-z][A-Za-z0-9_.-]{0,62}")  # of a model in a configuration


def _format(name, more=()):
    formats = {**_FORMATS, **dict(more)}
    if name not in formats:
        raise ValueError(f'format must be one of {", ".join(formats)}, not {name!r}')
    return formats[name]


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


@dataclasses.dataclass(frozen=True)
class SessionMemoryStats:
    """What a session holds on all its devices together, in bytes; weights and their packed copies are its model's."""

    arena_bytes: int        # intermediate values of runs: those under way, and those that are kept
    idle_arena_bytes: int   # of these, kept for runs to come
    peak_arena_bytes: int   # highest arena_bytes so far
    arena_count: int        # runs for which there is memory now, under way or not
    arenas_made: int        # that were taken from a device so far
    arenas_reused: int      # runs that found what an earlier one had left
    arenas_dropped: int     # given back for others, least recently used first
    plan_count: int         # plans that are kept, one for each signature of shapes
    plan_bytes: int         # of their bookkeeping
    state_bytes: int        # what states of the session hold


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


class Device(Object):
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


class Model(Object):
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


class Cancel(Object):
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


class Session(Object):
    """A model placed on the devices of a runtime. Any number of threads may run it at a time.

    inputs, outputs  tuples of Value in the model's order
    model            the Model; None where the configuration names it
    """

    _release = "evn_session_release"

    def __init__(self, runtime, model, device=None, cache=None, cache_write=True, cache_map=False, precision=None, keep_fp32=(),
                 numerics=None, disabled_passes=(), concurrency=None, batching=None, idle_arena_bytes=None, name=None):
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
        if idle_arena_bytes is not None:
            options.idle_arena_bytes = idle_arena_bytes
        if name is not None:
            options.name = c_text(name)
        if batching is not None:
            options.batching = ctypes.pointer(_batching(batching))
        check(lib.evn_session_create(runtime._handle, model._handle, options, handle, error), error)
        self._take(handle, runtime, model)

    @classmethod
    def _deployed(cls, runtime, name):
        """The session of a model that the configuration names."""
        handle, error = _raw.evn_session(), new_error()
        check(library().evn_runtime_session(runtime._handle, c_text(name), handle, error), error)
        session = cls.__new__(cls)
        session._take(handle, runtime, None)
        return session

    def _take(self, handle, runtime, model):
        lib = library()
        self._own(handle)
        self._runtime = runtime._owned  # arrays are wrapped with it, also when the runtime has been closed
        self.model = model
        self._metadata = None
        self.inputs = _values_of(handle, lib.evn_session_input_count, lib.evn_session_get_input_info, lib.evn_session_input_name)
        self.outputs = _values_of(handle, lib.evn_session_output_count, lib.evn_session_get_output_info, lib.evn_session_output_name)
        self._only_tensors = all(value.is_tensor for value in self.inputs + self.outputs)
        self._index = {value.name: index for index, value in enumerate(self.inputs)}
        self._calls = []  # that are not running

    def close(self):
        super().close()
        self._calls.clear()

    def memory_stats(self):
        """The session's SessionMemoryStats now."""
        stats, error = sized(_raw.evn_session_memory_stats), new_error()
        check(self._library.evn_session_get_memory_stats(self._handle, stats, error), error)
        return SessionMemoryStats(**{field.name: getattr(stats, field.name) for field in dataclasses.fields(SessionMemoryStats)})

    def _find_input(self, name, error):
        """The index of an input by its name, or the library's Error with the names there are."""
        index = ctypes.c_uint32()
        check(self._library.evn_session_find_input(self._handle, c_text(name), index, error), error)
        return index.value

    def run(self, inputs, timeout=None, seed=0, cancel=None, deadline=None, priority=0, outputs_on_device=False, skip=(), state=None):
        """Runs the model once.

        inputs   {name: array}; every input of the model. Arrays are read in place where they are C-contiguous, and must not
                 be written until the call ends. A Tensor, or another object that has __dlpack__, is always read in place
        timeout  seconds, or None
        seed     another one makes operators that draw random numbers draw others
        cancel   a Cancel, or None: the run ends with Status.CANCELLED once that is asked for
        deadline of time.monotonic(), or None: the run ends with Status.TIMEOUT then, or after the timeout if that is earlier
        priority -7 to 7: while a run computes, those of lower priorities wait
        outputs_on_device  True: outputs stay on the devices where they are made, and are Tensors, which later runs take as inputs
        state    a State of this session, or None: it gives and takes the inputs and outputs of its pairs, which are left out
        skip     names of outputs that are not wanted: what only they need is not computed
        Returns {name: array} in the model's order; the arrays are the library's own memory, theirs as long as they live.
        Strings are arrays of objects. Sequences are lists, optionals None or what they hold, maps dicts; all these are copied.
        """
        options = self._options(timeout, seed, cancel, deadline, priority, outputs_on_device, skip, state)
        if not self._only_tensors:
            return self._run_values(inputs, options, new_error(), outputs_on_device, state)
        call = self._take_call()
        try:
            self._give(call, inputs, state)
            return call.run(self._handle, options, outputs_on_device)
        finally:
            call.end()
            self._calls.append(call)

    def submit(self, inputs, timeout=None, seed=0, cancel=None, deadline=None, priority=0, outputs_on_device=False, skip=(), state=None):
        """Has the library's own threads run the model, and returns at once: a concurrent.futures.Future of what run() gives.

        Arguments as of run(); the timeout counts from now on. Arrays must stay as they are until the future is done. Requests wait in
        the order of their priorities, then of their deadlines. The future's cancel() stops the run too, unless it has a Cancel of its own.
        """
        token = Cancel() if cancel is None else None
        options = self._options(timeout, seed, token or cancel, deadline, priority, outputs_on_device, skip, state)
        if not self._only_tensors:
            slots, error = (_raw.evn_value * len(self.inputs))(), new_error()
            try:
                self._make_values(slots, inputs, error, state)
                return _requests.submit_values(self._handle, slots, self.outputs, options, token, None, outputs_on_device)
            finally:
                for slot in slots:
                    if slot:
                        self._library.evn_value_release(slot)
        call = self._take_call()
        try:
            self._give(call, inputs, state)
            slots, memory = call.submission()
            return _requests.submit_tensors(self._handle, slots, self.outputs, options, token, (inputs, memory),
                                            outputs_on_device)
        finally:
            call.end()
            self._calls.append(call)

    async def run_async(self, inputs, timeout=None, seed=0, cancel=None, deadline=None, priority=0, outputs_on_device=False, skip=(), state=None):
        """submit() for asyncio: `await session.run_async(inputs)` gives what run() gives. A task that is cancelled stops the run."""
        return await asyncio.wrap_future(self.submit(inputs, timeout, seed, cancel, deadline, priority, outputs_on_device, skip, state))

    def _take_call(self):
        try:
            return self._calls.pop()
        except IndexError:  # the first run, or as many at a time as never before
            return _call.Call(self.inputs, self.outputs)

    def state(self, pairs, dims=None, on_demand=False):
        """A State of this session, for one stream: run(..., state=) hands outputs on to the next run's inputs.

        pairs      (output, input) where the dims stay the same, or (output, input, capacity) of a cache that grows to so many positions
        dims       {input: dims} where the model leaves them open; 0 for the axis that grows
        on_demand  memory for positions is taken as they come, and not all at once now
        """
        return _state.State(self, pairs, dims or {}, on_demand)

    def _give(self, call, inputs, state=None):
        if state is not None:
            for name in state.inputs:
                call.leave_out(self._index[name])
        for name, value in inputs.items():
            index = self._index.get(name)
            if index is None:
                index = self._find_input(name, call.error)
            if not isinstance(value, (numpy.ndarray, numpy.generic)) and hasattr(value, "__dlpack__"):
                call.give_tensor(index, _tensor.import_dlpack(self._runtime.value, value, call.error))
            else:
                call.give(self._runtime.value, index, value)

    def _options(self, timeout, seed, cancel, deadline, priority, outputs_on_device, skip, state):
        if timeout is None and seed == 0 and cancel is None and deadline is None and priority == 0 and not outputs_on_device and not skip \
                and state is None:
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
        if state is not None:
            if state._handle is None:
                raise ValueError("the State is closed")
            options.state = state._handle
        if outputs_on_device:
            options.flags = _raw.EVN_RUN_OUTPUTS_ON_DEVICE
        if skip:
            options.skipped_outputs = self._skipped(skip)
        return options

    def _skipped(self, names):
        """A byte for each output."""
        if isinstance(names, str):
            raise TypeError("skip is a list of names of outputs")
        skipped, index, error = (ctypes.c_uint8 * len(self.outputs))(), ctypes.c_uint32(), new_error()
        for name in names:
            check(self._library.evn_session_find_output(self._handle, c_text(name), index, error), error)
            skipped[index.value] = 1
        return skipped

    def _make_values(self, slots, inputs, error, state=None):
        for name, value in inputs.items():
            index = self._index.get(name)
            if index is None:
                index = self._find_input(name, error)
            slots[index] = _values.make(self._runtime.value, value, _values.Type(self.inputs[index].type), error)
        for value, slot in zip(self.inputs, slots):
            if not slot and (state is None or value.name not in state.inputs):
                raise Error(Status.INVALID_ARGUMENT, f"input '{value.name}' is missing")

    def _run_values(self, inputs, options, error, on_device=False, state=None):
        slots = (_raw.evn_value * len(self.inputs))()
        results = (_raw.evn_value * len(self.outputs))()
        try:
            self._make_values(slots, inputs, error, state)
            check(self._library.evn_session_run_values(self._handle, slots, len(slots), results, len(results), options, error), error)
            return {value.name: _values.read(result, on_device) for value, result in zip(self.outputs, results) if result}
        finally:
            for slot in (*slots, *results):
                if slot:
                    self._library.evn_value_release(slot)

    def metadata(self, key):
        """The value of the model's metadata entry `key`; KeyError when there is none."""
        if self.model is not None:
            return self.model.metadata(key)
        if self._metadata is None:
            self._metadata = json.loads(self.explain("json"))["metadata"]
        return self._metadata[key]

    def explain(self, format="text"):
        """For each node its device, kernel and the reason, the copies between devices, the memory: "text" or "json".

        "dot" and "svg" draw the graph, coloured by device, in Graphviz's language or as a picture.
        """
        return read_text(self._library.evn_session_explain, self._handle, _format(format, _PICTURES))

    def statistics(self):
        """What runs and requests have come to so far, as a dict; evn_session_get_statistics of the C API documents its keys."""
        return json.loads(read_text(self._library.evn_session_get_statistics, self._handle, _format("json")))

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


class Runtime(Object):
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

    def statistics(self, format="dict"):
        """The statistics of all sessions and the memory of the devices.

        format  "dict", "text", "json", or "prometheus": what a Prometheus server reads; serve it as "text/plain; version=0.0.4"
        """
        as_dict = format == "dict"
        text = read_text(self._library.evn_runtime_get_statistics, self._handle, _format("json" if as_dict else format, _PROMETHEUS))
        return json.loads(text) if as_dict else text

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

    def session(self, model=None, device=None, cache=None, cache_write=True, cache_map=False, precision=None, keep_fp32=(),
                numerics=None, disabled_passes=(), concurrency=None, batching=None, idle_arena_bytes=None, *, name=None):
        """A session of a model: a file's path, the bytes of one, or a Model; or one that the configuration names.

            runtime.session("ocr_det")       # a name of `models:` in the configuration; else the path of a file
            runtime.session(name="ocr_det")  # a name of `models:`, and nothing else

        A str that is a name there is taken for that; a pathlib.Path or "./ocr_det" never is. All who ask for a name share one session,
        which is loaded, made as the configuration says and warmed when it is first asked for; so no other argument goes with it.

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
        idle_arena_bytes  of intermediate values that it keeps for runs to come. None: as the configuration says, else 1 GiB
        name         beside a model: what statistics() call it; None: the model's file name. Alone: a name of the configuration
        """
        options = (device, cache, cache_write, cache_map, precision, keep_fp32, numerics, disabled_passes, concurrency, batching,
                   idle_arena_bytes)
        if model is None and name is None:
            raise TypeError("session() takes a model or a name")
        named = Session._deployed(self, name) if model is None else self._named(model) if name is None else None
        if named is not None:
            if options != (None, None, True, False, None, (), None, (), None, None, None):
                raise TypeError("a model that the configuration names is made as that says, without other arguments")
            return named
        model = model if isinstance(model, Model) else self.model(model)
        return Session(self, model, *options, name)

    def _named(self, model):
        """The session that the configuration has by this name; None: it is no name there."""
        if not isinstance(model, str) or not _NAME.fullmatch(model):
            return None
        try:
            return Session._deployed(self, model)
        except Error as error:
            if error.status != Status.INVALID_ARGUMENT:  # which the library gives for names alone
                raise
            return None


def passes():
    """What is done to models so that they run faster: a list of dicts of "name", "when" ("load" or "session") and "summary"."""
    return json.loads(read_text(library().evn_describe_passes, _format("json")))


def inspect(path_or_bytes, shapes=None, external_dir=None):
    """Runtime.inspect() with a runtime of its own."""
    with Runtime(threads=1, cache_dir="") as runtime:
        return runtime.inspect(path_or_bytes, shapes, external_dir)
