"""A backend is one folder: put into src/backends, the mock backend of tests/ is built in, without an edit anywhere else."""

import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from source_copy import ROOT, copy_sources  # noqa: E402



def add_mock(to):
    folder = to / "src/backends/mock"
    shutil.copytree(ROOT / "tests/backends/mock", folder)
    for file in folder.iterdir():
        file.write_text(file.read_text().replace("tests/backends/mock", "backends/mock"))
    (folder / "README.md").write_text((ROOT / "src/backends/cpu/README.md").read_text())


def test_the_build_finds_a_backend_by_its_folder(tmp_path):
    copy_sources(tmp_path)
    add_mock(tmp_path)
    build = tmp_path / "build"
    configure = ["cmake", "-S", tmp_path, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DEVN_TESTS=OFF"]
    done = subprocess.run(configure, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    table = (build / "generated/builtin_backends.cc").read_text()
    assert "{&cpu_backend, &mock_backend, &opencl_backend, }" in table
    compiled = "CMakeFiles/evn_mock.dir/src/backends/mock/device.cc.o"
    done = subprocess.run(["cmake", "--build", build, "--target", compiled, "check_layers"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    symbols = subprocess.run(["nm", "-C", build / compiled], capture_output=True, text=True, check=True).stdout
    assert " evn::mock_backend" in symbols


def test_src_outside_the_folders_of_backends_names_none():
    """The CPU alone has a name that the rest knows: it is the device that is always there. core/products.h has the words by which hosts ask for
    a library of products, whatever backend uses it. The functions of evener/opencl.h have their names from what the host shares: api/opencl_api.cc and the tables of
    functions and structs have them."""
    named = []
    for file in sorted((ROOT / "src").glob("**/*")):
        inside = file.relative_to(ROOT / "src")
        if file.suffix not in (".h", ".cc") or inside.parts[0] in ("backends", "cli", "modules") or inside.as_posix() in ("core/products.h", "api/opencl_api.cc"):
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            code = re.sub(r"evn_opencl_\w+|EVN_OPENCL_\w+|evener/opencl\.h|^    \.opencl_\w+ = ", "", line.split("//")[0])
            if "opencl" in code.lower() or "clblast" in code.lower():
                named.append(f"src/{inside}:{number}: {line.strip()}")
    for file in ("library.cmake", "tests.cmake"):
        if "opencl" in (ROOT / "cmake" / file).read_text().lower():
            named.append(f"cmake/{file}")
    assert not named, "\n".join(named)
