"""Ten models under limits of memory from 100 down to 30 % of what they take: right results, or EVN_ERROR_OUT_OF_MEMORY with the bytes;
never more resident memory than the limit and 8 MiB. Each in a process of its own (bench/memory.py)."""
import pathlib
import sys

import evener
import numpy
import pytest
from common import assert_matches_oracle, devices_of, explained, model_path, opencl_runtime
from zoo import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "bench"))
import memory  # noqa: E402

# How low a model can go at least, in percent of its peak, on any CPU: what the memory ladder is for. Others give clean errors earlier.
FITS_FROM = {"mobilenet_v2": 70, "resnet50": 50, "paraphrase_minilm_l3": 90}


@pytest.fixture(params=memory.DEFAULT, scope="module")
def measured(request):
    if not memory.path_of(request.param).exists():
        pytest.skip(f"{request.param} is not in {pathlib.Path(memory.path_of(request.param)).parent}: scripts/fetch_models.py fetches it")
    return memory.measure(request.param, 2, memory.LIMITS, None)


def test_results_are_right_or_there_is_a_clean_error(measured):
    for row in measured["rows"]:
        assert not row["wrong"], (measured["model"], row["percent"], row["wrong"])


def test_nothing_of_a_run_is_left(measured):
    for row in measured["rows"]:
        assert row["left_arenas"] == 0 and row["left_tensors"] == 0, (measured["model"], row["percent"])


def test_a_model_fits_from_where_the_ladder_takes_it(measured):
    fits = {row["percent"]: row["fits"] for row in measured["rows"]}
    least = FITS_FROM.get(measured["model"], 101)
    assert all(fits[percent] for percent in memory.LIMITS if percent >= least), fits


# An OpenCL device that has no memory for the model's weights.
def full_gpu(rule):
    return opencl_runtime("devices:\n  cpu: {type: cpu, threads: 2}\n  gpu: {type: opencl, match: {index: 0}, memory_limit: 2MiB}\n"
                          f"placement:\n  default: cpu\n  rules:\n    - {rule}\n")


@pytest.mark.parametrize("rule", ["{match: {op: Conv}, device: gpu, policy: prefer}", "{match: {op: Conv}, device: [gpu, cpu]}"])
def test_what_an_opencl_device_cannot_hold_goes_to_the_next_device(rule):
    session = full_gpu(rule).session(model_path("mobilenet_v2"))
    assert_matches_oracle(session, "mobilenet_v2")
    assert devices_of(session) == {"cpu"}
    assert "device gpu was full" in explained(session)["memory_plan"]["spared"]


def test_a_rule_that_requires_an_opencl_device_gives_its_error():
    with pytest.raises(evener.Error) as refused:
        full_gpu("{match: {op: Conv}, device: gpu}").session(model_path("mobilenet_v2"))
    assert refused.value.status == evener.Status.OUT_OF_MEMORY and refused.value.device == "gpu" and refused.value.node
    assert refused.value.bytes_requested > refused.value.bytes_available


@pytest.mark.parametrize("name", memory.DEFAULT)
def test_small_sessions_are_right_and_take_no_more(name, tmp_path):
    if not memory.path_of(name).exists():
        pytest.skip(f"{name} is not there: scripts/fetch_models.py fetches it")
    with evener.Runtime(threads=2) as runtime:
        model = runtime.model(str(memory.path_of(name)))
        inputs = memory.inputs_of(name, {value.name: str(value.dtype) for value in runtime.session(model).inputs})
        arenas = []
        for plan in ("fast", "small"):
            session = runtime.session(model, memory=plan)
            numpy.savez(tmp_path / f"{plan}.npz", **{f"o{i}": array for i, array in enumerate(session.run(inputs).values())})
            arenas.append(session.memory_stats().peak_arena_bytes)
        assert memory.difference(tmp_path / "small.npz", tmp_path / "fast.npz") <= 1
        assert arenas[1] <= arenas[0]
