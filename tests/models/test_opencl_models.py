"""Networks that run wholly on an OpenCL device, against ONNX Runtime."""
import networks
import pytest
import test_more_models as more
from common import assert_close, assert_matches_oracle, config, devices_of, model_path, onnx_runtime, opencl_runtime
from zoo import FEEDS, SHAPES


@pytest.fixture(scope="module")
def runtime():
    return opencl_runtime(config(default="gpu"))


@pytest.mark.parametrize("name", ["cls", "rec", "mobilenet_v2", "resnet50"])
def test_networks_run_wholly_on_opencl(runtime, name):
    session = runtime.session(model_path(name))
    assert devices_of(session) == {"gpu"}
    assert_matches_oracle(session, name, SHAPES[name][:2])


@pytest.mark.parametrize("name", FEEDS)
def test_more_networks_run_wholly_on_opencl(runtime, name):
    session = runtime.session(more.path_of(name))
    assert devices_of(session) == {"gpu"}
    for seed in more.SEEDS:
        assert_close(list(session.run(FEEDS[name](seed)).values()), more.oracle(name).run(None, FEEDS[name](seed)))


@pytest.mark.parametrize("name", ["lstm_gru", "bert_mini", "gpt_kv"])
def test_networks_that_count_run_wholly_on_opencl(runtime, name):
    """They compute with integers: tokens, positions, masks."""
    content = networks.filled_skeleton(name)
    session, reference = runtime.session(content), onnx_runtime(content)
    assert devices_of(session) == {"gpu"}
    for shapes in networks.SKELETONS[name]:
        feeds = networks.noise_inputs(content, shapes)
        assert_close(list(session.run(feeds).values()), reference.run(None, feeds))


@pytest.mark.parametrize("name", ["densenet121", "inception_v2", "resnet50", "shufflenet", "squeezenet"])
def test_light_networks_run_wholly_on_opencl(runtime, name):
    """As they are, their weights are filled by nodes; the numbers are compared with noise for weights."""
    assert devices_of(runtime.session(networks.light_path(name))) == {"gpu"}
    content = networks.filled_light(name)
    session = runtime.session(content)
    assert devices_of(session) == {"gpu"}
    feeds = networks.noise_inputs(content, {})
    assert_close(list(session.run(feeds).values()), onnx_runtime(content).run(None, feeds))
