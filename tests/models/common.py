"""What the tests of whole models share: the models, ONNX Runtime as the oracle, the tolerance, configurations."""
import functools
import json
import os
import pathlib

import evener
import numpy
import onnxruntime
import pytest
from PIL import Image

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MODELS = pathlib.Path(os.environ.get("EVENER_MODELS") or REPOSITORY / "build" / "models")
RTOL, ATOL = 1e-3, 1e-4

FILES = {
    "det": "ch_PP-OCRv4_det_infer.onnx",
    "cls": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "rec": "ch_PP-OCRv4_rec_infer.onnx",
    "mobilenet_v2": "mobilenet_v2.onnx",
    "resnet50": "resnet50.onnx",
}
SHAPES = {  # the first is used where one is enough
    "det": [(1, 3, 64, 64), (1, 3, 160, 96), (2, 3, 64, 96)],
    "cls": [(1, 3, 48, 192), (3, 3, 48, 96)],
    "rec": [(1, 3, 48, 320), (1, 3, 48, 48), (2, 3, 48, 104)],
    "mobilenet_v2": [(1, 3, 224, 224)],
    "resnet50": [(1, 3, 224, 224)],
}
CASES = [(name, shape) for name, shapes in SHAPES.items() for shape in shapes]
SEEDS = (1, 2)


def model_path(name):
    path = MODELS / FILES[name]
    if not path.exists():
        pytest.fail(f"{path} is missing: scripts/fetch_models.py fetches it")
    return path


@functools.lru_cache(maxsize=None)
def oracle(name):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(model_path(name)), options, providers=["CPUExecutionProvider"])


@functools.lru_cache(maxsize=None)
def page():
    """The photographed page at twice its size, from -1 to 1."""
    path = MODELS / "page.png"
    if not path.exists():
        pytest.fail(f"{path} is missing: scripts/fetch_models.py fetches it")
    image = Image.open(path).convert("L")
    return numpy.asarray(image.resize([2 * side for side in image.size], Image.Resampling.BICUBIC), "float32") / 127.5 - 1


@functools.lru_cache(maxsize=None)
def array_for(name, shape, seed):
    """A seeded input: noise, and for the networks that read, pieces of the page with a little noise, since on noise alone their
    outputs are all but zero."""
    generator = numpy.random.default_rng(seed)
    array = generator.standard_normal(shape).astype("float32")
    if name in ("det", "cls", "rec"):
        array *= 0.05
        height, width = shape[2:]
        for image in array:
            top, left = generator.integers(80, 260 - height + 1), generator.integers(0, page().shape[1] - width + 1)
            image += page()[top:top + height, left:left + width]
    array.flags.writeable = False
    return array


@functools.lru_cache(maxsize=None)
def expected(name, shape, seed):
    session = oracle(name)
    return session.run(None, {session.get_inputs()[0].name: array_for(name, shape, seed)})


def run(session, array):
    """The outputs of a session with one input."""
    return list(session.run({session.inputs[0].name: array}).values())


def assert_close(actual, wanted, rtol=RTOL):
    """|a - b| <= rtol * |b| + ATOL * max|b|, the same NaN, and a `wanted` that is not all one value (or has one only)."""
    assert len(actual) == len(wanted)
    for a, b in zip(actual, wanted):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert b.size == 1 or b.min() != b.max(), "a constant proves nothing"
        numpy.testing.assert_array_equal(numpy.isnan(a), numpy.isnan(b))
        a, b = numpy.nan_to_num(a.astype("float64")), numpy.nan_to_num(b.astype("float64"))
        over = numpy.abs(a - b) - (rtol * numpy.abs(b) + ATOL * numpy.abs(b).max())
        assert over.max() <= 0, f"differs by {numpy.abs(a - b).max():.3g} where {numpy.abs(b).max():.3g} is the largest"


def assert_matches_oracle(session, name, shapes=None, seeds=SEEDS):
    for shape in shapes or SHAPES[name]:
        for seed in seeds:
            assert_close(run(session, array_for(name, shape, seed)), expected(name, shape, seed))


def explained(session):
    return json.loads(session.explain("json"))


def placed_nodes(session):
    """The nodes that devices run, as explain gives them: without those that only compute shapes while a run is planned."""
    return [node for node in explained(session)["nodes"] if node["kernel"] != "planned"]


def devices_of(session):
    return {node["device"] for node in placed_nodes(session)}


def config(rules=(), default="cpu"):
    """A configuration with the CPU as `cpu` and the first OpenCL device as `gpu`; `rules` are lines of YAML."""
    lines = ["version: 1", "devices:", "  cpu: {type: cpu, threads: 2}", "  gpu: {type: opencl, match: {index: 0}}"]
    lines += ["placement:", f"  default: {default}"]
    lines += ["  rules:"] + [f"    - {rule}" for rule in rules] if rules else []
    return "\n".join(lines) + "\n"


def opencl_runtime(text):
    """A runtime of a configuration with an OpenCL device. Without one the test is skipped, or with EVN_REQUIRE_OPENCL=1 fails."""
    try:
        return evener.Runtime(config_text=text)
    except evener.Error as error:
        if error.status == evener.Status.DEVICE_UNAVAILABLE and os.environ.get("EVN_REQUIRE_OPENCL") != "1":
            pytest.skip(f"no OpenCL device: {error.message}")
        raise
