"""Networks with noise for weights against ONNX Runtime: the float skeletons, and the light networks of the onnx package.

They are made in memory, one at a time. A light network as it is answers the same number everywhere, so most is told by filling it.
"""
import evener
import networks
import numpy
import onnx
import pytest
from common import assert_close, onnx_runtime
from compare import difference
from zoo import fetch_models

SEEDS = (1, 2)
LIGHT_TOLERANCE = {"rtol": 1e-3, "atol": 1e-6}


def assert_tells(wanted, shape):
    """ONNX Runtime's outputs are finite, not constant, and those of two inputs are further apart than the tolerance."""
    for seed in SEEDS:
        assert all(numpy.isfinite(output).all() and output.min() != output.max() for output in wanted[shape, seed])
    for first, second in zip(*(wanted[shape, seed] for seed in SEEDS)):
        assert difference(first, second), "the output does not depend on the input"


def assert_matches_onnx_runtime(content, shapes):
    feeds = {(at, seed): networks.noise_inputs(content, given, seed) for at, given in enumerate(shapes) for seed in SEEDS}
    oracle = onnx_runtime(content)
    wanted = {key: oracle.run(None, inputs) for key, inputs in feeds.items()}
    del oracle
    for at in range(len(shapes)):
        assert_tells(wanted, at)
    for threads in (1, 2):
        session = evener.Runtime(threads=threads).session(content)
        for key, inputs in feeds.items():
            assert_close(list(session.run(inputs).values()), wanted[key])
        session.close()


@pytest.mark.parametrize("name", networks.SKELETONS)
def test_a_filled_skeleton_matches_onnx_runtime(name):
    assert_matches_onnx_runtime(networks.filled_skeleton(name), networks.SKELETONS[name])


@pytest.mark.parametrize("name", networks.LIGHT_NAMES)
def test_a_filled_light_network_matches_onnx_runtime(name):
    assert_matches_onnx_runtime(networks.filled_light(name), [{}])


@pytest.mark.parametrize("name", networks.LIGHT_NAMES)
def test_a_light_network_as_it_is_gives_the_output_that_it_ships(name):
    """Its weights are made by nodes, of one number each."""
    path = networks.light_path(name)
    shipped = onnx.numpy_helper.to_array(onnx.load_tensor(str(path).replace(".onnx", "_output_0.pb")))
    feeds = networks.noise_inputs(path, {})
    actual, = evener.Runtime(threads=2).session(path).run(feeds).values()
    wanted, = onnx_runtime(path).run(None, feeds)
    assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype) == (shipped.shape, shipped.dtype)
    numpy.testing.assert_allclose(actual, wanted, **LIGHT_TOLERANCE)
    numpy.testing.assert_allclose(actual, shipped, **LIGHT_TOLERANCE)


def test_every_network_is_tried():
    assert set(networks.SKELETONS) == set(fetch_models.NETWORKS["skeletons"]) == networks.float_members()
    assert {f"light_{name}" for name in networks.LIGHT_NAMES} == {path.stem for path in networks.LIGHT.glob("*.onnx")}
