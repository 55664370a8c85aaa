"""Networks with noise for weights, made in memory, and noise to run them on.

The float skeletons of skeletons.tgz, with the shapes of inputs that are tried, and the nine "light" networks of the onnx package.
Models whose weights were trained are zoo.py's.
"""
import pathlib
import tarfile

import numpy
import onnx
import skeleton

ARCHIVE = pathlib.Path(__file__).resolve().parent / "skeletons.tgz"
LIGHT = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
LIGHT_NAMES = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
               "zfnet512")
SEED = 20
LARGEST_INTEGER = 100


def text_shapes(batch, length):
    return dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (batch, length))


def cache_shapes(batch, new, past):
    """One step of a decoder: `new` tokens after `past` ones."""
    caches = {f"past_{kind}{layer}": (batch, 6, past, 64) for layer in range(6) for kind in "kv"}
    return dict(caches, ids=(batch, new), pos=(batch, new))


SKELETONS = {  # name -> shapes of inputs, those that the file leaves open; the first is for measurements
    "simple_cnn": [{"input": (1, 1, 28, 28)}, {"input": (3, 1, 28, 28)}],
    "mobilenet_v2": [{}],
    "mobilenet_v3_small": [{}],
    "squeezenet1_1": [{}],
    "shufflenet_v2_x1_0": [{}],
    "efficientnet_b0": [{}],
    "densenet121": [{}],
    "resnet18": [{}],
    "resnet50": [{}],
    "yolo_like_640": [{}],
    "lstm_gru": [{"x": (1, 200, 80)}, {"x": (1, 37, 80)}],
    "bert_mini": [text_shapes(1, 128), text_shapes(2, 37)],
    "gpt_kv": [cache_shapes(1, 1, 64), cache_shapes(2, 3, 20)],
    "vit_b_16": [{}],
    "bert_base": [text_shapes(1, 128), text_shapes(2, 37)],
}


def float_members():
    """The names in the archive of the networks that are not quantized, as the files tell."""
    with tarfile.open(ARCHIVE) as archive:
        models = {pathlib.Path(name).stem: onnx.load_model_from_string(archive.extractfile(name).read())
                  for name in archive.getnames() if name.endswith(".onnx")}
    return {name for name, model in models.items() if not any("Quantize" in node.op_type for node in model.graph.node)}


def filled_skeleton(name):
    with tarfile.open(ARCHIVE) as archive:
        model = onnx.load_model_from_string(archive.extractfile(f"skel/{name}.onnx").read())
    skeleton.fill(model)
    return model.SerializeToString()


def light_path(name):
    return LIGHT / f"light_{name}.onnx"


def filled_light(name):
    """A light network with noise for weights. As it is each of its weights is one number throughout, and so is what it answers."""
    model = loaded(light_path(name))
    skeleton.fill_computed(model)
    return model.SerializeToString()


def loaded(content):
    """The model of a path or bytes, without data that lies in other files."""
    return onnx.load_model_from_string(content) if isinstance(content, bytes) else onnx.load(content, load_external_data=False)


def noise_inputs(content, shapes, seed=SEED):
    """Seeded inputs for a model (a path or bytes): normal noise, or small integers, but masks, kinds and positions as they would be
    in use. Dims that neither the file nor `shapes` gives are 1."""
    graph = loaded(content).graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value.type.tensor_type for value in graph.input if value.name not in constants}
    unknown = set(shapes) - set(inputs)
    if unknown:
        raise ValueError(f"there is no input {sorted(unknown)[0]}, only {', '.join(inputs)}")
    generator = numpy.random.default_rng(seed)
    feeds = {}
    for name, kind in inputs.items():
        dtype = numpy.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        shape = shapes.get(name) or [max(1, dim.dim_value) for dim in kind.shape.dim]
        if name == "attention_mask":
            values = numpy.ones(shape)
            values[1:, -(shape[-1] // 3):] = 0  # texts after the first are shorter
        elif name == "token_type_ids":
            values = numpy.zeros(shape)
        elif name == "pos":
            values = numpy.broadcast_to(shapes["past_k0"][2] + numpy.arange(shape[-1]), shape)
        else:
            values = generator.standard_normal(shape) if dtype.kind == "f" else generator.integers(0, LARGEST_INTEGER, shape)
        feeds[name] = values.astype(dtype)
    return feeds
