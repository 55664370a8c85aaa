"""Whole models against ONNX Runtime: on the CPU, on OpenCL, and cut between both."""
import os
import random
import subprocess
import sys

import evener
import numpy
import pytest
from common import (CASES, SEEDS, assert_close, assert_matches_oracle, config, devices_of, expected, explained, model_path,
                    opencl_runtime, oracle, output_roots_nodes, run)
from zoo import FILES, REPOSITORY, SHAPES, array_for


@pytest.fixture(scope="module")
def one_thread():
    return evener.Runtime(threads=1)


@pytest.fixture(scope="module")
def two_threads():
    return evener.Runtime(threads=2)


@pytest.fixture(scope="module")
def sessions(one_thread, two_threads):
    made = {}

    def session(name, threads=1):
        if (name, threads) not in made:
            made[name, threads] = (one_thread if threads == 1 else two_threads).session(model_path(name))
        return made[name, threads]

    return session


@pytest.mark.parametrize("name, shape", CASES)
def test_the_cpu_matches_onnx_runtime(sessions, name, shape):
    assert_matches_oracle(sessions(name), name, [shape])
    assert_matches_oracle(sessions(name, 2), name, [shape])


@pytest.mark.parametrize("name, shape", CASES)
def test_results_do_not_depend_on_the_number_of_threads(sessions, name, shape):
    for seed in SEEDS:
        for one, two in zip(run(sessions(name), array_for(name, shape, seed)), run(sessions(name, 2), array_for(name, shape, seed))):
            assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("name", ["det", "cls", "rec"])
def test_results_do_not_depend_on_batch_neighbours(sessions, name):
    shape = SHAPES[name][0]
    first, second = array_for(name, shape, 1), array_for(name, shape, 2)
    both = run(sessions(name), numpy.concatenate([first, second]))[0]
    assert both[0].tobytes() == run(sessions(name), first)[0][0].tobytes()
    assert both[1].tobytes() == run(sessions(name), second)[0][0].tobytes()


@pytest.mark.parametrize("name", FILES)
def test_runs_repeat_bit_for_bit(sessions, name):
    array = array_for(name, SHAPES[name][0], 3)
    first = run(sessions(name, 2), array)[0].tobytes()
    assert all(run(sessions(name, 2), array)[0].tobytes() == first for _ in range(3))


@pytest.mark.parametrize("name", FILES)
def test_inputs_and_outputs_are_those_of_the_file(sessions, name):
    session, reference = sessions(name), oracle(name)
    assert [value.name for value in session.inputs] == [value.name for value in reference.get_inputs()]
    assert [value.name for value in session.outputs] == [value.name for value in reference.get_outputs()]


def test_widths_of_lines_are_planned_as_they_come(sessions):
    for width in range(48, 321, 34):
        assert_matches_oracle(sessions("rec"), "rec", [(1, 3, 48, width)], seeds=(width,))


def test_detection_runs_wholly_on_opencl():
    session = opencl_runtime(config(['{match: {model: "*_det_*"}, device: gpu, policy: require}'])).session(model_path("det"))
    assert_matches_oracle(session, "det")
    assert devices_of(session) == {"gpu"}


@pytest.mark.parametrize("name", [name for name in FILES if name != "det"])
def test_models_match_with_opencl_wherever_it_can(name):
    operators = ", ".join(sorted({node["op"] for node in output_roots_nodes(evener.Runtime(threads=1).session(model_path(name)))}))
    session = opencl_runtime(config([f"{{match: {{op: [{operators}]}}, device: gpu, policy: prefer}}"])).session(model_path(name))
    assert_matches_oracle(session, name, SHAPES[name][:2])
    assert "gpu" in devices_of(session)


@pytest.mark.parametrize("name", FILES)
def test_a_cut_by_operator_matches(name):
    session = opencl_runtime(config(["{match: {op: Conv}, device: gpu, policy: require}"])).session(model_path(name))
    assert_matches_oracle(session, name, SHAPES[name][:2])
    nodes = output_roots_nodes(session)
    assert {node["device"] for node in nodes if node["op"] == "Conv"} == {"gpu"}
    assert "cpu" in {node["device"] for node in nodes}
    copies = explained(session)["copies"]
    assert {(copy["from"], copy["to"]) for copy in copies} == {("cpu", "gpu"), ("gpu", "cpu")}
    assert all(copy["bytes"] > 0 for copy in copies)


def random_cut(name, seed):
    """Rules that ask for OpenCL for a random half of the nodes, by their names."""
    nodes = output_roots_nodes(evener.Runtime(threads=1).session(model_path(name)))
    chosen = random.Random(seed).sample(sorted(node["name"] for node in nodes), len(nodes) // 2)
    names = ", ".join('"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' for name in chosen)
    return f"{{match: {{name: [{names}]}}, device: gpu, policy: prefer}}"


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", ["det", "rec", "mobilenet_v2"])
def test_a_random_cut_matches(name, seed):
    session = opencl_runtime(config([random_cut(name, seed)])).session(model_path(name))
    assert_matches_oracle(session, name, SHAPES[name][:2], seeds=(seed, seed + 1))
    assert devices_of(session) == {"cpu", "gpu"}


TWO_DEVICES = """
version: 1
devices:
  cpu: {type: cpu, threads: 2}
  first: {type: opencl, match: {platform: "Portable Computing Language", index: 0}}
  second: {type: opencl, match: {platform: "Portable Computing Language", index: INDEX}}
placement:
  default: cpu
  rules:
    - {match: {op: Conv}, device: first, policy: require}
    - {match: {op: Add}, device: second, policy: require}
"""

SHARED = """
import sys
import evener
from common import assert_matches_oracle, devices_of, model_path
session = evener.Runtime(config_text=sys.argv[1]).session(model_path("det"))
assert_matches_oracle(session, "det")
print(sorted(devices_of(session)))
"""


def test_two_opencl_devices_and_the_cpu_share_detection():
    opencl_runtime(TWO_DEVICES.replace("INDEX", "0"))  # PoCL is there; the two devices are made in a process of their own
    paths = os.pathsep.join(str(REPOSITORY / folder) for folder in ("bindings/python", "tests/models", "bench", "bench/models"))
    done = subprocess.run([sys.executable, "-c", SHARED, TWO_DEVICES.replace("INDEX", "1")], capture_output=True, text=True, timeout=600,
                          env=dict(os.environ, POCL_DEVICES="pthread pthread", PYTHONPATH=paths))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['cpu', 'first', 'second']"


def test_a_session_may_name_its_device():
    runtime = opencl_runtime(config())
    array = array_for("det", (1, 3, 64, 64), 1)
    session = runtime.session(model_path("det"), device="gpu")
    assert devices_of(session) == {"gpu"}
    assert_close(run(session, array), expected("det", (1, 3, 64, 64), 1))
