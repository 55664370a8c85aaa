"""What the tests of whole models share: the models, ONNX Runtime as the oracle, the tolerance, configurations."""
import functools
import json
import os

import evener
import onnxruntime
import pytest
from compare import difference
from engines import ATOL, RTOL
from zoo import FILES, SHAPES, array_for, fetched

CASES = [(name, shape) for name, shapes in SHAPES.items() for shape in shapes]
SEEDS = (1, 2)


def model_path(name):
    return fetched(FILES[name])


def onnx_runtime(model):
    """ONNX Runtime's session of a path or bytes."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@functools.lru_cache(maxsize=None)
def oracle(name):
    return onnx_runtime(model_path(name))


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
    for index, (a, b) in enumerate(zip(actual, wanted)):
        why = difference(a, b, (rtol, ATOL))
        assert not why, f"output {index} {why}"


def assert_matches_oracle(session, name, shapes=None, seeds=SEEDS):
    for shape in shapes or SHAPES[name]:
        for seed in seeds:
            assert_close(run(session, array_for(name, shape, seed)), expected(name, shape, seed))


def explained(session):
    return json.loads(session.explain("json"))


def output_roots_nodes(session):
    """The nodes that devices run, as explain gives them: without those that only compute shapes while a run is planned."""
    return [node for node in explained(session)["nodes"] if node["kernel"] != "planned"]


def devices_of(session):
    return {node["device"] for node in output_roots_nodes(session)}


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
