"""How many threads there are, and what else is in a batch, changes no bit of a result: all models of docs/models.md."""
import functools
import os

import evener
import networks
import numpy
import pytest
from zoo import MODELS, NOISE, NPM, TRAINED

THREADS = (1, 2, 3, 7, 16)
BATCHES = (2, 3, 8)
ALL = {model.name: model for model in TRAINED + NOISE}
# Inputs whose second axis is the batch, and those that have one value for all of it.
STATES, SHARED = ("state", "h", "c"), ("sr",)
OPEN_SKELETONS = ("simple_cnn", "bert_mini", "bert_base", "gpt_kv")
FIXED_BATCH = (  # by their files
    "blazeface_front", "blazeface_back", "silero_vad_openvino_16k", "silero_vad_16k_sequence", "layout_cdla", "akiki_vad",
    *(name for name in ALL if name.startswith("light_")), *(name for name in networks.SKELETONS if name not in OPEN_SKELETONS))
# With EVN_TEST_FULL=1 all of them. Those left out are the largest of their kind, or the same network again with other weights.
LEFT_OUT = ("light_vgg19", "light_bvlc_alexnet", "light_zfnet512", "light_densenet121", "light_inception_v1", "light_resnet50", "bert_base", "vit_b_16",
            "gutenye_det", "gutenye_rec", "gutenye_cls") if os.environ.get("EVN_TEST_FULL") != "1" else ()


def content(name):
    try:
        made = ALL[name].content()
    except FileNotFoundError:
        if f"{name}.onnx" in NPM and not os.environ.get("EVN_TEST_FULL") and not (MODELS / f"{name}.onnx").exists():
            pytest.skip(f"{name}.onnx comes from npm, which could not be asked")
        raise
    return made if isinstance(made, bytes) else str(made)


def result(session, feeds):
    return {name: numpy.asarray(value) for name, value in session.run(feeds).items()}


def assert_same(actual, wanted, what):
    """Of both all outputs, to the bit; NaN's bits count as well."""
    assert actual.keys() == wanted.keys()
    for name, array in wanted.items():
        other = actual[name]
        assert (other.shape, other.dtype) == (array.shape, array.dtype), f"{what}: output {name}"
        unlike = numpy.ascontiguousarray(other).view("uint8") != numpy.ascontiguousarray(array).view("uint8") if array.size else numpy.zeros(0, bool)
        assert not unlike.any(), f"{what}: output {name} differs in {int(unlike.sum())} of {unlike.size} bytes"


@pytest.mark.parametrize("name", [name for name in ALL if name not in LEFT_OUT])
def test_any_number_of_threads_gives_the_same_bits(name):
    model = content(name)
    feeds = ALL[name].feeds(model, 1)
    first = None
    for threads in THREADS:
        runtime = evener.Runtime(threads=threads)
        session = runtime.session(model)
        got = result(session, feeds)
        session.close()
        runtime.close()
        if first is None:
            first = got
            assert any(array.min() != array.max() for array in first.values() if array.size > 1)
        assert_same(got, first, f"{threads} threads")


@functools.lru_cache(maxsize=1)
def rows(name):
    """One input of one row each for BATCHES[-1] rows, no two alike."""
    count = BATCHES[-1]
    if name not in networks.SKELETONS:
        return [ALL[name].feeds(content(name), seed) for seed in range(1, count + 1)]
    shapes = {key: (count, *shape[1:]) for key, shape in networks.SKELETONS[name][0].items()}
    feeds = networks.noise_inputs(content(name), shapes, 1)
    return [{key: array[row:row + 1] for key, array in feeds.items()} for row in range(count)]


def together(feeds):
    """One input of several rows."""
    return {key: array if key in SHARED else numpy.concatenate([one[key] for one in feeds], int(key in STATES)) for key, array in feeds[0].items()}


def row_of(array, row, count, shape):
    """What belongs to a row in an output of `count` rows; `shape` is that of one row alone."""
    axes = [axis for axis, (whole, one) in enumerate(zip(array.shape, shape)) if whole != one]
    assert array.ndim == len(shape) and len(axes) == 1 and array.shape[axes[0]] == count * shape[axes[0]], (array.shape, shape)
    return array.take(range(row * shape[axes[0]], (row + 1) * shape[axes[0]]), axes[0])


@pytest.mark.parametrize("name", [name for name in ALL if name not in FIXED_BATCH + LEFT_OUT])
def test_what_else_is_in_a_batch_changes_no_bit(name):
    session = evener.Runtime(threads=2).session(content(name))
    alone = {row: result(session, rows(name)[row]) for row in sorted({0, *(count - 1 for count in BATCHES)})}
    assert any(alone[0][key].tobytes() != alone[1][key].tobytes() for key in alone[0]), "rows do not differ"
    for count in BATCHES:
        whole = result(session, together(rows(name)[:count]))
        for row in (0, count - 1):
            got = {key: row_of(array, row, count, alone[row][key].shape) for key, array in whole.items()}
            assert_same(got, alone[row], f"row {row} of {count}")


@pytest.mark.parametrize("name", [name for name in FIXED_BATCH if name not in LEFT_OUT])
def test_a_batch_that_is_left_out_is_fixed_by_the_file(name):
    graph = networks.loaded(content(name)).graph
    weights = {tensor.name for tensor in graph.initializer}
    dims = [value.type.tensor_type.shape.dim[int(value.name in STATES)] for value in graph.input if value.name not in {*weights, *SHARED}]
    assert any(dim.HasField("dim_value") and dim.dim_value == 1 for dim in dims)
