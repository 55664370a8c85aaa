"""A model placed on devices: runs, requests, tokens that cancel them, and traces."""
import asyncio
import ctypes
import dataclasses
import json

import numpy

from . import _arrays, _call, _raw, _requests, _state, _tensor, _values
from ._library import Error, Status, c_int64s, c_path, c_text, c_texts, check, fitting, library, new_error, read_text, refuse_zeros, sized, text_of
from ._device import Device
from ._model import _format, _values_of
from ._object import Object

_PICTURES = {"dot": _raw.EVN_FORMAT_DOT, "svg": _raw.EVN_FORMAT_SVG}


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


_PRODUCTS = ("own", "openblas", "clblast", "auto", "measured")


def _products(name):
    if name not in _PRODUCTS:
        raise ValueError(f'products must be one of {", ".join(_PRODUCTS)}, not {name!r}')
    return _raw.EVN_PRODUCTS_OWN + _PRODUCTS.index(name)


_MEMORY_PLANS = ("fast", "small")


def _memory_plan(name):
    if name not in _MEMORY_PLANS:
        raise ValueError(f'memory must be one of {", ".join(_MEMORY_PLANS)}, not {name!r}')
    return _raw.EVN_MEMORY_PLAN_FAST + _MEMORY_PLANS.index(name)


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
    options.buckets = c_int64s(buckets)
    options.bucket_count = len(buckets)
    return options


class Session(Object):
    """A model placed on the devices of a runtime. Any number of threads may run it at a time.

    inputs, outputs  tuples of Value in the model's order
    defaults         inputs that need not be given, since they have a default: a tuple of Value
    model            the Model; None where the configuration names it
    """

    _release = "evn_session_release"

    def __init__(self, runtime, model, device=None, cache=None, cache_write=True, cache_map=False, precision=None, keep_fp32=(),
                 numerics=None, disabled_passes=(), concurrency=None, batching=None, idle_arena_bytes=None, products=None,
                 memory=None, share_arenas=None, name=None, overridable=(), arena_limit=0):
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
        if products is not None:
            options.products = _products(products)
        if memory is not None:
            options.memory = _memory_plan(memory)
        if share_arenas is not None:
            options.arenas = _raw.EVN_ARENAS_SHARED if share_arenas else _raw.EVN_ARENAS_OWN
        options.keep_fp32, options.keep_fp32_count = c_texts(keep_fp32)
        options.disabled_passes, options.disabled_pass_count = c_texts(disabled_passes)
        options.overridable, options.overridable_count = c_texts(overridable)
        refuse_zeros(concurrency=concurrency)
        if concurrency is not None:
            options.concurrency = concurrency
        if idle_arena_bytes is not None:
            options.idle_arena_bytes = idle_arena_bytes or 1  # C has 0 for the configuration's
        options.arena_limit = arena_limit
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
        self.defaults = _values_of(handle, lib.evn_session_default_count, lib.evn_session_get_input_info, lib.evn_session_input_name, len(self.inputs))
        self._all_inputs = self.inputs + self.defaults
        self._only_tensors = all(value.is_tensor for value in self.inputs + self.outputs)
        self._index = {value.name: index for index, value in enumerate(self._all_inputs)}
        self._output_index = {value.name: index for index, value in enumerate(self.outputs)}
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

    def run(self, inputs, timeout=None, seed=0, cancel=None, deadline=None, priority=0, outputs_on_device=False, skip=(), state=None, out=None):
        """Runs the model once.

        inputs   {name: array}; every input of the model, but for those with a default (Session.defaults), which may be left out.
                 Arrays are read in place where they are C-contiguous, and must not be written until the call ends. A Tensor, or
                 another object that has __dlpack__, is always read in place
        timeout  seconds, or None
        seed     another one makes operators that draw random numbers draw others
        cancel   a Cancel, or None: the run ends with Status.CANCELLED once that is asked for
        deadline of time.monotonic(), or None: the run ends with Status.TIMEOUT then, or after the timeout if that is earlier
        priority -7 to 7: while a run computes, those of lower priorities wait
        outputs_on_device  True: outputs stay on the devices where they are made, and are Tensors, which later runs take as inputs
        state    a State of this session, or None: it gives and takes the inputs and outputs of its pairs, which are left out
        skip     names of outputs that are not wanted: what only they need is not computed
        out      {name: array} of outputs, or of some, which are written there: C-contiguous arrays of the output's dtype and shape that share no
                 memory with each other or with inputs. After an error what is in them is undefined
        Returns {name: array} in the model's order; the arrays are the library's own memory, theirs as long as they live.
        Strings are arrays of objects. Sequences are lists, optionals None or what they hold, maps dicts; all these are copied.
        """
        options = self._options(timeout, seed, cancel, deadline, priority, outputs_on_device, skip, state)
        if not self._only_tensors:
            if out is not None:
                raise TypeError("out: the model takes or gives more than tensors")
            return self._run_values(inputs, options, new_error(), outputs_on_device, state)
        call = self._take_call()
        try:
            self._give(call, inputs, state)
            if out is not None:
                self._give_outputs(call, out)
            return call.run(self._handle, options, self._runtime, outputs_on_device)
        finally:
            call.end()
            self._calls.append(call)

    def submit(self, inputs, timeout=None, seed=0, cancel=None, deadline=None, priority=0, outputs_on_device=False, skip=(), state=None):
        """Has the library's own threads run the model, and returns at once: a concurrent.futures.Future of what run() gives.

        Arguments as of run(); the timeout counts from now on. Arrays must stay as they are until the future is done. Requests wait in
        the order of their priorities, then of their deadlines. The future's cancel() stops the run too, unless it has a Cancel of its own.
        The end of the interpreter cancels all requests.
        """
        token = Cancel() if cancel is None else cancel
        options = self._options(timeout, seed, token, deadline, priority, outputs_on_device, skip, state)
        if not self._only_tensors:
            slots, error = (_raw.evn_value * len(self._all_inputs))(), new_error()
            try:
                self._make_values(slots, inputs, error, state)
                return _requests.submit_values(self._handle, slots, self.outputs, options, token, cancel is None, outputs_on_device)
            finally:
                for slot in slots:
                    if slot:
                        self._library.evn_value_release(slot)
        call = self._take_call()
        try:
            self._give(call, inputs, state)
            slots, arrays = call.submission()
            return _requests.submit_tensors(self._handle, slots, self.outputs, options, token, cancel is None, arrays, self._runtime,
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
            return _call.Call(self._all_inputs, self.outputs, len(self.inputs))

    def state(self, pairs, dims=None, on_demand=False, caches=None):
        """A State of this session, for one stream: run(..., state=) hands outputs on to the next run's inputs.

        pairs      (output, input) where the dims stay the same, or (output, input, capacity) of a cache that grows to so many positions
        dims       {input: dims} where the model leaves them open and the graph does not tell those of the output; 0 for the axis that grows
        on_demand  memory for positions is taken as they come, and not all at once now
        caches     "float16" or "int8": caches of floating-point numbers that are appended to store so many bits (EVN_STATE_FLOAT16, EVN_STATE_INT8)
        """
        return _state.State(self, pairs, dims or {}, on_demand, caches)

    def _give(self, call, inputs, state=None):
        if state is not None:
            for name in state.inputs:
                call.leave_out(self._index[name])
        for name, value in inputs.items():
            index = self._index.get(name)
            if index is None:
                index = self._find_input(name, call.error)
            if isinstance(value, numpy.ndarray) or isinstance(value, numpy.generic) or not hasattr(value, "__dlpack__"):
                call.give(self._runtime.value, index, value)
            else:
                call.give_tensor(index, _tensor.import_dlpack(self._runtime.value, value, call.error))

    def _give_outputs(self, call, out):
        index = self._output_index
        for name, array in out.items():
            if name not in index:
                check(self._library.evn_session_find_output(self._handle, c_text(name), ctypes.c_uint32(), call.error), call.error)
            call.give_output(self._runtime.value, index[name], array)

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
            slots[index] = _values.make(self._runtime.value, value, _values.Type(self._all_inputs[index].type), error)
        for value, slot in zip(self.inputs, slots):
            if not slot and (state is None or value.name not in state.inputs):
                raise Error(Status.INVALID_ARGUMENT, f"input '{value.name}' is missing")

    def _run_values(self, inputs, options, error, on_device=False, state=None):
        slots = (_raw.evn_value * len(self._all_inputs))()
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
        error, tensors = new_error(), (_raw.evn_tensor * len(self._all_inputs))()
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
        self._events = fitting("events", events, 32)

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
