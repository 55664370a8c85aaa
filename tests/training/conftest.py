import os

import evener
import pytest


@pytest.fixture(scope="module")
def opencl():
    with evener.Runtime(threads=2) as made:
        try:
            made.device("opencl")
        except evener.Error:
            assert not os.environ.get("EVN_REQUIRE_OPENCL")
            pytest.skip("this machine has no OpenCL device")
        yield made
