"""The runtime: devices, memory pools and threads."""
import ctypes
import json
import re

from . import _log, _operator, _raw
from ._library import Error, Status, c_int64s, c_path, c_text, check, library, new_error, read_text, set_source, sized
from ._device import Device
from ._model import Model, _format
from ._object import Object
from ._session import Session

_PROMETHEUS = {"prometheus": _raw.EVN_FORMAT_PROMETHEUS}
_NAME = re.compile("[A-Za-z][A-Za-z0-9_.-]{0,62}")  # of a model in a configuration


def _set_config(options, config, config_text):
    if config is not None:
        options.config_path = c_path(config)
    if config_text is not None:
        if not isinstance(config_text, str):
            raise TypeError(f"config_text must be a str, not {type(config_text).__name__}")
        text = config_text.encode()
        options.config_text, options.config_size = text, len(text)


class Runtime(Object):
    """Devices, memory pools and threads. Many may live in one process.

    config        path of a YAML file (config/schema.yaml documents the keys)
    threads       threads of the CPU device, the caller's included; None: from the configuration, else all the process may use
    config_text   the YAML itself instead of a path
    cache_dir     folder for compiled OpenCL programs; "" for none
    memory_limit  cap of the CPU device in bytes
    probe_program path of the evener command, which is run to try drivers before they are loaded into this process; one that crashes or
                  hangs there is not used. None: as the configuration's `probe` says
    probe_timeout seconds that this may take for each set of drivers; None: as the configuration says, else 5
    log           a function that gets a LogRecord for each thing that happens, on the thread on which it happens; it must not call the
                  package. None: no log
    log_level     the last level that is delivered: "error", "warning", "info" or "debug"
    """

    _release = "evn_runtime_release"

    def __init__(self, config=None, threads=None, *, config_text=None, cache_dir=None, memory_limit=None, log=None, log_level="warning",
                 probe_program=None, probe_timeout=None):
        lib, handle, error = library(), _raw.evn_runtime(), new_error()
        options = sized(_raw.evn_runtime_options)
        options.thread_count = 0 if threads is None else threads
        options.cpu_memory_limit_bytes = 0 if memory_limit is None else memory_limit
        _set_config(options, config, config_text)
        if probe_program is not None:
            options.probe_program = c_path(probe_program)
        if probe_timeout is not None:
            options.probe_timeout_ns = int(probe_timeout * 1e9) or 1  # C has 0 for the configuration's
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

    def attach_opencl(self, name, context, device, queue=None, memory_limit=0):
        """Makes a Device of a cl_context, a cl_device_id and perhaps a cl_command_queue, given as integers, which it retains."""
        handle, error, options = _raw.evn_device(), new_error(), sized(_raw.evn_opencl_attach_options)
        options.name, options.context, options.device, options.queue = c_text(name), context, device, queue
        options.memory_limit_bytes = memory_limit
        check(self._library.evn_opencl_attach(self._handle, options, handle, error), error)
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

    def model(self, path_or_bytes, external_dir=None, allowed_roots=(), map_files=False):
        """Loads an ONNX model from a file or from its bytes.

        external_dir   folder of external data for a model from bytes
        allowed_roots  folders beneath which files of external data may lie that are reached through links (caches that link files);
                       one that does not exist allows nothing
        map_files      True: large tensors are used where they lie in mapped files; for files that nobody truncates
        """
        return Model(self, path_or_bytes, external_dir, allowed_roots, map_files)

    def inspect(self, path_or_bytes, shapes=None, external_dir=None):
        """What a model needs, as a dict, also when it cannot be loaded; evn_model_inspect of the C API documents its keys.

        shapes  {input: dims} of inputs whose dims the model leaves open, for the estimate of multiply-adds and memory
        """
        options = sized(_raw.evn_inspect_options)
        path = set_source(options, path_or_bytes, external_dir)
        given = (_raw.evn_input_shape * len(shapes or {}))()
        for row, (name, dims) in zip(given, (shapes or {}).items()):
            row.name, row.rank = c_text(name), len(dims)
            row.dims = c_int64s(dims)
        options.shapes, options.shape_count = given, len(given)
        capacity = 1 << 16  # asking for the size would inspect it twice
        while True:
            buffer, size, error = ctypes.create_string_buffer(capacity), ctypes.c_size_t(), new_error()
            status = self._library.evn_model_inspect(self._handle, path, options, _raw.EVN_FORMAT_JSON, buffer, capacity, size, error)
            if status != Status.BUFFER_TOO_SMALL:
                check(status, error)
                return json.loads(buffer.value.decode("utf-8", "replace"))
            capacity = error.bytes_requested

    def reconfigure(self, config=None, *, config_text=None):
        """Gives the runtime another configuration, a YAML file or its text, and every session of it the placement that this says.

        Sessions, models and states stay valid; runs that have begun end on the old placement. Where anything cannot be made as the
        configuration says, Error is raised and nothing has changed. evn_runtime_reconfigure of the C API documents what may change.
        """
        options, error = sized(_raw.evn_reconfigure_options), new_error()
        _set_config(options, config, config_text)
        check(self._library.evn_runtime_reconfigure(self._handle, options, error), error)

    def calibrate(self, model=None):
        """Measures what the steps of a model, or of a suite of operators, take on each device; a dict, whose keys
        evn_runtime_calibrate of the C API documents. What it finds is used by placements of `default: auto` and by explain."""
        capacity = 1 << 16  # asking for the size would measure it twice
        while True:
            buffer, size, error = ctypes.create_string_buffer(capacity), ctypes.c_size_t(), new_error()
            handle = model._handle if model is not None else None
            status = self._library.evn_runtime_calibrate(self._handle, handle, None, _raw.EVN_FORMAT_JSON, buffer, capacity, size, error)
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

        Both are called on any thread, also several at a time. What they raise becomes an Error that names the node. When the interpreter
        ends, calls that take longer than some seconds get a KeyboardInterrupt, and later calls fail.
        """
        _operator.register(self._library, self._handle, domain, name, infer, run, inputs, outputs, since_version, value_inputs)

    def session(self, model=None, device=None, cache=None, cache_write=True, cache_map=False, precision=None, keep_fp32=(),
                numerics=None, disabled_passes=(), concurrency=None, batching=None, idle_arena_bytes=None, *, products=None, memory=None,
                share_arenas=None, name=None, overridable=(), arena_limit=0, external_dir=None, allowed_roots=(), map_files=False):
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
        products     "own", "openblas", "clblast", "auto" or "measured": the library that multiplies matrices; "measured" is what was faster
                     for the shapes when a plan was made. None: as the configuration says, else "auto"
        memory       "fast" or "small": small has no Winograd and orders the steps of runs so that the fewest bytes live at a time.
                     None: as the configuration says, else fast
        share_arenas whether memory of intermediate values is shared with other sessions of the runtime that have this, which helps where they
                     run one after the other. None: as the configuration says, else not
        overridable  names of inputs with a default (Session.defaults) that runs are going to give: they are open from the start. Others are
                     constants until a run gives one, for which the model is compiled once more then
        arena_limit  bytes of the intermediate values of a run: what does not fit is computed again, and the bits stay. 0: no limit
        name         beside a model: what statistics() call it; None: the model's file name. Alone: a name of the configuration
        external_dir, allowed_roots, map_files  as model() takes them, for a path or bytes
        """
        options = (device, cache, cache_write, cache_map, precision, keep_fp32, numerics, disabled_passes, concurrency, batching,
                   idle_arena_bytes, products, memory, share_arenas, overridable, arena_limit)
        if model is None and name is None:
            raise TypeError("session() takes a model or a name")
        named = Session._deployed(self, name) if model is None else self._named(model) if name is None else None
        loads = external_dir is not None or map_files or bool(allowed_roots)
        if named is not None:
            if loads or options != (None, None, True, False, None, (), None, (), None, None, None, None, None, None, (), 0):
                raise TypeError("a model that the configuration names is made as that says, without other arguments")
            return named
        if not isinstance(model, Model):
            model = self.model(model, external_dir, allowed_roots, map_files)
        elif loads:
            raise TypeError("external_dir, allowed_roots and map_files are for a path or bytes: this model is loaded")
        return Session(self, model, *options[:-2], name, overridable, arena_limit)

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
