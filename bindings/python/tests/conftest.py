"""Makes the package of this source tree importable; a runtime for the tests of a module."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))


@pytest.fixture(scope="module")
def runtime():
    import evener  # importable from here on

    with evener.Runtime(threads=1, cache_dir="") as opened:
        yield opened
