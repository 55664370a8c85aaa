"""Single operators of real models that devices share (split_nodes.py): the bits of one device, the results of the CPU."""
import os
import pathlib
import subprocess
import sys

import cuts
import pytest
import split_nodes


def test_shared_operators_give_what_one_device_gives():
    done = subprocess.run([sys.executable, pathlib.Path(split_nodes.__file__)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode == cuts.NO_DEVICE and os.environ.get("EVN_REQUIRE_OPENCL") != "1":
        pytest.skip(lines[-1])
    assert done.returncode == 0, done.stdout
    assert len([line for line in lines if "nodes shared by" in line]) == 2 * len(split_nodes.NAMES)
