"""How many threads there are changes no bit of a result."""
import evener
import networks
import numpy
import pytest
from common import model_path
from zoo import array_for

THREADS = (1, 2, 3, 7, 16)


def outputs(model, feeds, threads):
    return [value.tobytes() for value in evener.Runtime(threads=threads).session(model).run(feeds).values()]


@pytest.mark.parametrize("name, shape", [("det", (1, 3, 160, 96)), ("rec", (2, 3, 48, 104)), ("mobilenet_v2", (1, 3, 224, 224)),
                                         ("resnet50", (1, 3, 224, 224))])
def test_trained_networks_give_the_same_bytes(name, shape):
    path = str(model_path(name))
    feeds = {evener.Runtime(threads=1).session(path).inputs[0].name: array_for(name, shape, 1)}
    first = outputs(path, feeds, 1)
    assert any(numpy.frombuffer(value, "float32").std() > 0 for value in first)
    for threads in THREADS[1:]:
        assert outputs(path, feeds, threads) == first, f"{threads} threads"


@pytest.mark.parametrize("name", ["bert_mini", "gpt_kv", "lstm_gru"])
def test_networks_of_text_and_sound_give_the_same_bytes(name):
    model = networks.filled_skeleton(name)
    feeds = networks.noise_inputs(model, networks.SKELETONS[name][0])
    first = outputs(model, feeds, 1)
    for threads in THREADS[1:]:
        assert outputs(model, feeds, threads) == first, f"{threads} threads"
