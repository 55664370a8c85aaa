"""evener devices --probe: drivers that crash or hang are named, the other devices are listed, and the command says that it failed."""
import json
import os
import pathlib

import pytest
from command import COMMAND, DEVICE, USAGE, evener

BUILD = pathlib.Path(os.environ.get("EVENER_BUILD", ""))


@pytest.fixture
def drivers(tmp_path):
    """Installs drivers of the tests in a folder of their own; gives the environment in which they are the only ones."""
    def install(*names):
        for name in names:
            library = BUILD / f"libevn_icd_{name}.so"
            if not library.exists():
                pytest.skip("the drivers of the tests are not built")
            (tmp_path / f"{name}.icd").write_text(f"{library}\n")
        return {"OCL_ICD_VENDORS": str(tmp_path), "OCL_ICD_FILENAMES": "", "OPENCL_VENDOR_PATH": str(tmp_path)}
    return install


def test_a_driver_that_crashes_is_named_and_the_cpu_is_listed(drivers, tmp_path):
    out, err = evener("devices", "--probe", code=DEVICE, environment=drivers("crashes", "noise"))
    assert out.startswith("cpu")
    assert "opencl: the driver crashed (signal 11) while it was listed" in out
    assert f"{tmp_path}/crashes.icd" in out and "noise.icd" not in out
    assert "the driver crashed" in err


def test_a_driver_that_hangs_is_given_up(drivers):
    out, _ = evener("devices", "--probe", "--probe-timeout", "1", "--json", code=DEVICE, environment=drivers("spins"))
    backends = {backend["type"]: backend for backend in json.loads(out)["backends"]}
    assert backends["cpu"]["devices"] and not backends["opencl"]["devices"]
    assert "it was not done after 1.000 s" in backends["opencl"]["why"] and "spins.icd" in backends["opencl"]["why"]


def test_what_a_driver_writes_is_no_answer_and_no_failure(drivers):
    out, _ = evener("devices", "--probe", environment=drivers("noise"))
    assert "tried by" not in out and "opencl: " in out


def test_explain_says_why_an_optional_device_is_absent(drivers, conv, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text(f"probe: {{program: '{COMMAND}', timeout: 60s}}\ndevices: {{gpu: {{type: opencl, optional: true}}}}\n"
                      "placement: {default: [gpu, cpu]}\n")
    out, _ = evener("explain", conv, "--config", config, environment=drivers("crashes"))
    assert "the default device gpu is absent: the driver crashed (signal 11) while it was listed" in out


def test_without_bad_drivers_it_lists_what_there_is():
    assert evener("devices", "--probe") == evener("devices")


def test_its_options_are_checked():
    assert "needs --probe" in evener("devices", "--probe-timeout", "1", code=USAGE)[1]
    assert "--probe-timeout" in evener("devices", "--probe", "--probe-timeout", "0", code=USAGE)[1]


def test_the_answer_is_for_the_library_alone():
    assert "is for the library" in evener("--probe-drivers", code=USAGE)[1]
