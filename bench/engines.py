"""The engines that compare.py compares, each as one class: how its library is loaded, a model converted and loaded, and run.

A converted model is kept in a cache folder under a name made of the model's bytes, its input shapes and the converter's version.
All but those for quantized models and for a lower precision compute in float32. Where an engine answers with other shapes (ncnn has no batch axis), its
numbers are compared in order.
"""
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
RTOL, ATOL = 1e-3, 1e-4
KEEP = "EVENER_COMPARE_KEEP_SUBNORMALS"  # in a worker's environment: engines keep floats below 2^-126 that otherwise make them 0
OPENVINO_PRECISION = "EVENER_COMPARE_OPENVINO_PRECISION"  # in a worker's environment: the INFERENCE_PRECISION_HINT of OpenVINO


def keeps_subnormals():
    return bool(os.environ.get(KEEP))


class Engine:
    """One engine inside its worker process."""

    name = None
    title = None
    packages = ()            # of PyPI, the library first
    tolerance = (RTOL, ATOL)
    cosine = None            # where set: outputs are fine from this cosine to the expected ones on, not within the tolerance
    keeps_shapes = True      # its outputs have the model's shapes and dtypes
    is_peer = True           # counts among the others that one may be compared with the best of
    environment = {}         # of its process, beside what all have
    reads_onnx = True        # itself, without a converter before
    subnormals = ("are not spoken of by any option", "are not spoken of by any option")  # as 0 where it can, and kept where it can

    @classmethod
    def missing(cls):
        """Why the engine cannot be used here, or ""."""
        absent = [package for package in cls.packages if cls.version(package) is None]
        return f"no package {', '.join(absent)}" if absent else ""

    @staticmethod
    def version(package):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None

    @classmethod
    def versions(cls):
        return ", ".join(f"{package} {cls.version(package)}" for package in cls.packages)

    def prepare(self, path, feeds, cache):
        """Loads the engine's library and converts the model. What it holds of memory afterwards is not counted, nor is the time."""

    def load(self, path, threads, feeds):
        """Loads the model; `feeds` tells shapes to engines that want them."""
        raise NotImplementedError

    def run(self, feeds):
        """Runs once, and returns the outputs in the model's order."""
        raise NotImplementedError

    def memory_bound(self):
        """What the peak of memory should stay below, in bytes, by the engine's own count; None where it has none."""
        return None


class OnnxRuntime(Engine):
    name = "ort"
    title = "ONNX Runtime"
    packages = ("onnxruntime",)
    subnormals = ("are 0 by `session.set_denormal_as_zero`", "are kept, its default")

    def prepare(self, path, feeds, cache):
        import onnxruntime
        self.module = onnxruntime

    def load(self, path, threads, feeds):
        options = self.module.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if not keeps_subnormals():
            options.add_session_config_entry("session.set_denormal_as_zero", "1")
        self.session = self.module.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(self, feeds):
        return self.session.run(None, feeds)


class Evener(Engine):
    name = "evener"
    title = "Evener"
    is_peer = False
    options = {}             # of a session
    subnormals = ("are 0, its default", "are kept by `numerics: strict`, which has no Winograd either")

    checkout = REPOSITORY

    @classmethod
    def module(cls):
        sys.path.insert(0, str(cls.checkout / "bindings" / "python"))
        import evener
        return evener

    @classmethod
    def missing(cls):
        try:
            cls.module().version()
        except (ImportError, OSError) as error:
            return str(error)
        return ""

    @classmethod
    def versions(cls):
        return cls.module().version()

    def prepare(self, path, feeds, cache):
        self.evener = self.module()
        self.evener.version()  # opens the library

    def load(self, path, threads, feeds):
        self.runtime = self.evener.Runtime(os.environ.get("EVENER_COMPARE_CONFIG") or None, threads=threads)
        strict = {"numerics": "strict"} if keeps_subnormals() else {}
        self.session = self.runtime.session(path, **self.options, **strict)

    def run(self, feeds):
        return list(self.session.run(feeds).values())

    def memory_bound(self):
        held = self.runtime.devices[0].memory().by_class
        return 1.05 * (held["packed"] + held["weights"]) + held["arenas"] + 4 * 2**20


class EvenerOpenCl(Evener):
    """On the first OpenCL device, all nodes that it takes. On a processor its driver has as many threads as the other engines, where the
    driver lets itself be told (PoCL does); the CPU device has none beside the caller's, so that not more of them than cores compete."""
    name = "evener_opencl"
    title = "Evener, OpenCL"

    @classmethod
    def device(cls):
        """What the library says of the device; None where there is none."""
        backends = json.loads(cls.module().Runtime().describe_devices("json"))["backends"]
        return next((device for backend in backends if backend["type"] == "opencl" for device in backend["devices"]), None)

    @classmethod
    def missing(cls):
        return super().missing() or ("" if cls.device() else "there is no OpenCL device")

    @classmethod
    def versions(cls):
        device = cls.device()
        return f"{super().versions()}, {device['platform'].split(',')[0]} {device['driver']}"

    def load(self, path, threads, feeds):
        os.environ["POCL_MAX_PTHREAD_COUNT"] = str(threads)  # before the driver is opened
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
            config.write("version: 1\ndevices: {cpu: {type: cpu, threads: 1}, opencl: {type: opencl}}\n"
                         "placement: {default: [opencl, cpu]}\n")
            config.flush()
            self.runtime = self.evener.Runtime(os.environ.get("EVENER_COMPARE_CONFIG") or config.name)
        strict = {"numerics": "strict"} if keeps_subnormals() else {}
        self.session = self.runtime.session(path, **self.options, **strict)

    def memory_bound(self):
        return None


class OpenVino(Engine):
    name = "openvino"
    title = "OpenVINO"
    packages = ("openvino",)
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    subnormals = ("are 0 by `CPU_DENORMALS_OPTIMIZATION`", "are kept by `CPU_DENORMALS_OPTIMIZATION`")

    def prepare(self, path, feeds, cache):
        import openvino
        self.module = openvino

    def load(self, path, threads, feeds):
        core = self.module.Core()
        model = core.read_model(path)
        model.reshape({name: list(value.shape) for name, value in feeds.items()})
        compiled = core.compile_model(model, "CPU", {
            "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False,
            "CPU_DENORMALS_OPTIMIZATION": not keeps_subnormals(), **self.settings, **self.kept_precision()})
        self.outputs = range(len(compiled.outputs))
        self.request = compiled.create_infer_request()
        for name, value in feeds.items():
            self.request.set_tensor(name, self.module.Tensor(value))

    @staticmethod
    def kept_precision():
        """OpenVINO chooses its default precision by CPUID, which the switch of oneDNN (isa.py) does not change."""
        return {"INFERENCE_PRECISION_HINT": os.environ[OPENVINO_PRECISION]} if os.environ.get(OPENVINO_PRECISION) else {}

    def run(self, feeds):
        self.request.infer()
        return [self.request.get_output_tensor(index).data for index in self.outputs]


def call(*command, folder=None):
    """Runs a converter; an error is its last line."""
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, errors="replace")
    if done.returncode:
        last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-1:] or ["no message"]
        raise RuntimeError(f"{pathlib.Path(command[0]).name} ended with {done.returncode}: {last[0][:160]}")


def converted(path, feeds, cache, tool, suffixes, convert):
    """The files of a converted model, without suffix. `convert(folder)` makes `model` + each suffix in a folder."""
    digest = hashlib.sha256(tool.encode())
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    for name, value in feeds.items():
        digest.update(f"{name} {value.dtype} {value.shape};".encode())
    cache = pathlib.Path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    stem = cache / f"{pathlib.Path(path).stem}.{digest.hexdigest()[:16]}"
    if not all(pathlib.Path(f"{stem}{suffix}").exists() for suffix in suffixes):
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            convert(pathlib.Path(folder))
            for suffix in suffixes:
                (pathlib.Path(folder) / f"model{suffix}").replace(f"{stem}{suffix}")
    return stem


class Mnn(Engine):
    name = "mnn"
    title = "MNN"
    reads_onnx = False
    packages = ("MNN",)
    tolerance = (1e-2, 2e-3)  # looser: yolo_like_640 is not within the others' tolerance
    keeps_shapes = False

    def prepare(self, path, feeds, cache):
        import onnx

        def convert(folder):
            call(pathlib.Path(sys.executable).parent / "mnnconvert", "-f", "ONNX", "--modelFile", path, "--MNNModel",
                 folder / "model.mnn", "--bizCode", "compare")

        self.stem = converted(path, feeds, cache, self.versions(), [".mnn"], convert)
        self.outputs = [value.name for value in onnx.load(path, load_external_data=False).graph.output]
        import MNN.expr
        import MNN.nn
        self.nn, self.expr = MNN.nn, MNN.expr

    def load(self, path, threads, feeds):
        runtime = self.nn.create_runtime_manager(({"backend": "CPU", "numThread": threads, "precision": "high"},))
        self.net = self.nn.load_module_from_file(f"{self.stem}.mnn", list(feeds), self.outputs, runtime_manager=runtime)
        self.inputs = [self.variable(value) for value in feeds.values()]

    def variable(self, value):
        """MNN has no int64."""
        whole = value.dtype.kind == "i"
        return self.expr.const(value.astype("int32") if whole else value, list(value.shape), self.expr.NCHW,
                               self.expr.int if whole else self.expr.float)

    def run(self, feeds):
        return [output.read() for output in self.net.forward(self.inputs)]


class Ncnn(Engine):
    name = "ncnn"
    title = "ncnn"
    reads_onnx = False
    packages = ("ncnn", "pnnx")
    keeps_shapes = False
    subnormals = ("are 0, its default", "are 0, its default, which its Python module cannot change")

    def prepare(self, path, feeds, cache):
        kinds = {"float32": "f32", "int64": "i64", "int32": "i32"}
        shapes = ",".join(f"[{','.join(map(str, value.shape))}]{kinds[value.dtype.name]}" for value in feeds.values())

        def convert(folder):
            shutil.copy(path, folder / "model.onnx")
            # The program itself: the package's Python side wants all of PyTorch.
            program = pathlib.Path(importlib.util.find_spec("pnnx").submodule_search_locations[0]) / "pnnx"
            call(program, "model.onnx", f"inputshape={shapes}", "fp16=0", folder=folder)

        self.stem = converted(path, feeds, cache, self.versions(), [".ncnn.param", ".ncnn.bin"], convert)
        import ncnn
        self.module = ncnn

    def load(self, path, threads, feeds):
        self.net = self.module.Net()
        options = self.net.opt
        options.num_threads = threads
        options.use_fp16_packed = options.use_fp16_storage = options.use_fp16_arithmetic = options.use_bf16_storage = False
        if self.net.load_param(f"{self.stem}.ncnn.param") or self.net.load_model(f"{self.stem}.ncnn.bin"):
            raise RuntimeError("ncnn cannot load what pnnx made")
        self.inputs = [self.module.Mat(value[0] if value.ndim > 1 else value).clone() for value in feeds.values()]
        # in0, in1, ... and out0, out1, ... are in the model's order; the lists are not.
        self.input_names = sorted(self.net.input_names(), key=lambda name: int(name[2:]))
        self.output_names = sorted(self.net.output_names(), key=lambda name: int(name[3:]))

    def run(self, feeds):
        import numpy
        extractor = self.net.create_extractor()
        for name, value in zip(self.input_names, self.inputs):
            extractor.input(name, value)
        return [numpy.array(extractor.extract(name)[1]) for name in self.output_names]


# For quantized models. Cosines are to ONNX Runtime's output: quantized networks of several engines are not equal, and noise for weights
# makes small differences grow.
QUANTIZED_COSINE = 0.99
ROUGH_COSINE = 0.9  # of a peer, which may round more than the model says


class QuantizedOnnxRuntime(OnnxRuntime):
    name = "ort_int8"
    cosine = QUANTIZED_COSINE


class QuantizedEvener(Evener):
    name = "evener_int8"
    cosine = QUANTIZED_COSINE


class FloatOfQuantizedEvener(Evener):
    """The network that a quantized one was made of."""
    name = "evener_fp32"
    title = "Evener, float32"
    cosine = -1  # another network, where weights are noise

    def load(self, path, threads, feeds):
        if "EVENER_COMPARE_FLOAT" not in os.environ:
            raise RuntimeError("no float network of it")
        super().load(os.environ["EVENER_COMPARE_FLOAT"], threads, feeds)


class QuantizedOpenVino(OpenVino):
    """In its default precision, which is bfloat16 for what is not quantized where the processor has it."""
    name = "openvino_int8"
    title = "OpenVINO, default precision"
    settings = {}
    cosine = ROUGH_COSINE


# For models in a lower precision. Cosines are to ONNX Runtime's output in float32.
LOW_COSINE = 0.999


class Bfloat16Evener(Evener):
    name = "evener_bf16"
    title = "Evener, bf16"
    cosine = LOW_COSINE
    options = {"precision": "bf16"}


class DefaultOpenVino(OpenVino):
    """In its default precision, which is bfloat16 where the processor has matrix tiles for it."""
    name = "openvino_default"
    title = "OpenVINO, default precision"
    settings = {}
    cosine = LOW_COSINE


ISAS = ("avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_amx")


def kept_to(engine, isa):
    """An engine of ours that is kept to an instruction set."""
    return type(f"{engine.__name__}_{isa}", (engine,), {
        "name": f"{engine.name}:{isa}", "title": f"{engine.title}, {isa}", "environment": {"EVN_CPU_ISA": isa}})


BEFORE = "EVENER_BEFORE"  # names a checkout of an earlier commit, built with the preset release


def before(engine):
    """An engine of ours as it was in that checkout."""
    checkout = pathlib.Path(os.environ.get(BEFORE, "."))
    library = checkout / "build" / "release" / "libevener.so"

    def missing(cls):
        return "" if BEFORE in os.environ and library.exists() else f"{BEFORE} names no built checkout"

    return type(f"{engine.__name__}Before", (engine,), {
        "name": f"{engine.name}:before", "title": f"{engine.title}, before", "is_peer": True, "checkout": checkout,
        "environment": {"EVENER_LIBRARY": str(library.resolve())},
        "missing": classmethod(missing), "versions": classmethod(lambda cls: "an earlier commit")})


INT8_ENGINES = (QuantizedOnnxRuntime, QuantizedEvener, QuantizedOpenVino, FloatOfQuantizedEvener)
KEPT_ENGINES = tuple(kept_to(engine, isa) for isa in ISAS for engine in (QuantizedEvener, FloatOfQuantizedEvener))

DEFAULT_ENGINES = (OnnxRuntime, Evener, OpenVino, Mnn, Ncnn)
BFLOAT16_ENGINES = (OnnxRuntime, Bfloat16Evener, DefaultOpenVino)
OPENCL_ENGINES = (EvenerOpenCl,)
BEFORE_ENGINES = tuple(before(engine) for engine in (Evener, QuantizedEvener, Bfloat16Evener, EvenerOpenCl))
ENGINES = {engine.name: engine for engine in (*DEFAULT_ENGINES, *OPENCL_ENGINES, *INT8_ENGINES, *KEPT_ENGINES, *BFLOAT16_ENGINES, *BEFORE_ENGINES)}
