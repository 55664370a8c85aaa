"""The installed package: a wheel that carries the library, in a fresh environment. Builds the library; a long form."""
import os
import pathlib
import subprocess
import sys
import venv

import pytest
import tiny

PACKAGE = pathlib.Path(__file__).resolve().parents[1]

if not os.environ.get("EVN_TEST_FULL"):
    pytest.skip("a long form: set EVN_TEST_FULL=1", allow_module_level=True)
if os.environ.get("EVN_SANITIZER_PRELOAD"):
    pytest.skip("the wheel's library is built without the sanitizers: the release tests it", allow_module_level=True)


def test_the_installed_package_brings_its_library(tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    plain = {key: value for key, value in os.environ.items() if key not in ("EVENER_LIBRARY", "PYTHONPATH")}
    subprocess.run([python, "-m", "pip", "install", "-q", str(PACKAGE)], env=plain, check=True, stdout=sys.stderr)
    (tmp_path / "model.onnx").write_bytes(tiny.scale(3.0))
    code = ("import evener, numpy; runtime = evener.Runtime(threads=1); print([device.kind for device in runtime.devices][0]);"
            "y = runtime.session('model.onnx').run({'x': numpy.ones(2, 'float32')})['y'];"
            "print(y.tolist()); print(evener.library_path())")
    done = subprocess.run([python, "-c", code], env=plain, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    device, result, path = done.stdout.splitlines()
    assert (device, result) == ("cpu", "[3.0, 3.0]") and path.startswith(str(tmp_path / "venv"))
    assert "yaml-cpp" in (pathlib.Path(path).parent / "NOTICE").read_text()
