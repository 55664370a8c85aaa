"""Random placements of real models over the CPU and two OpenCL devices (cuts.py): results, bits of a second run, memory.

EVN_CUTS=n: so many placements; 40 otherwise, and 5,000 with EVN_TEST_FULL=1.
"""
import os
import pathlib
import random
import subprocess
import sys

import cuts
import evener
import numpy
import pytest

COUNT = int(os.environ.get("EVN_CUTS") or (5000 if os.environ.get("EVN_TEST_FULL") == "1" else 40))


def test_random_placements_give_what_the_cpu_gives():
    done = subprocess.run([sys.executable, pathlib.Path(cuts.__file__), "--count", str(COUNT)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode == cuts.NO_DEVICE and os.environ.get("EVN_REQUIRE_OPENCL") != "1":
        pytest.skip(lines[-1])
    # The last lines alone tell where the process died.
    assert done.returncode == 0, "\n".join([line for line in lines if "copies between devices" not in line] + lines[-3:])
    assert lines[-1].startswith(f"{COUNT} placements, ")


def test_placements_change_device_as_often_as_is_asked():
    counts = []
    for seed in range(200):
        devices = cuts.draw(random.Random(seed), range(300))
        assert devices == cuts.draw(random.Random(seed), range(300)) and set(devices) <= set(cuts.DEVICES)
        counts.append(sum(a != b for a, b in zip(devices, devices[1:])))
    assert min(counts) < 5 and 20 < max(counts) < 45 and 9 < sum(counts) / len(counts) < 17


def test_wrong_outputs_are_found():
    values = {"y": numpy.arange(6, dtype="float32"), "n": numpy.arange(3)}
    assert not cuts.faults_of({key: array.copy() for key, array in values.items()}, values)
    assert "output y differs" in cuts.faults_of({**values, "y": values["y"] + numpy.float32(0.02)}, values)[0]
    assert "output n" in cuts.faults_of({**values, "n": values["n"] + 1}, values)[0]
    assert "the outputs are" in cuts.faults_of({"y": values["y"]}, values)[0]


def test_memory_that_is_not_given_back_is_found():
    with evener.Runtime(threads=1, cache_dir="") as runtime:
        before = cuts.memory_of(runtime)
        session = runtime.session(cuts.content_of("cls"))
        assert "memory is not given back: cpu: weights 0 -> " in cuts.left_over(runtime, before, 1)
        session.model.close()
        session.close()
        assert not cuts.left_over(runtime, before)
