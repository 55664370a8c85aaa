"""An extension of an instruction set is one row of isas.cmake and its loops: the dry run of docs/adding-an-instruction-set.md."""

import pathlib
import platform
import re
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from source_copy import ROOT, copy_sources  # noqa: E402

TABLE = "src/backends/cpu/isas.cmake"
ROW = """
evn_isa(avx512_vbmi EXTENSION ARCH x86_64 BASE avx512_vnni FLAGS -mavx512vbmi NEEDS avx512vbmi)
"""


def names():
    return re.findall(r"^evn_isa\((\w+)", (ROOT / TABLE).read_text(), re.M)


def test_the_readme_names_all_instruction_sets():
    assert len(names()) >= 8
    text = (ROOT / "README.md").read_text()
    assert not [name for name in names() if f"`{name}`" not in text]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the extension of the dry run is one of x86-64")
def test_a_row_and_its_loops_are_all_that_an_extension_takes(tmp_path):
    copy_sources(tmp_path)
    table = tmp_path / TABLE
    table.write_text(table.read_text() + ROW)
    loops = tmp_path / "src/backends/cpu/qconv"
    shutil.copy(loops / "qdepthwise_loops_avx512_vnni.cc", loops / "qdepthwise_loops_avx512_vbmi.cc")  # they stand for loops that use it
    build = tmp_path / "build"
    done = subprocess.run(["cmake", "-S", tmp_path, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DEVN_TESTS=OFF"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    objects = [
        "CMakeFiles/evn_simd_avx512_vbmi_o3.dir/src/backends/cpu/qconv/qdepthwise_loops_avx512_vbmi.cc.o",
        "CMakeFiles/evn_cpu.dir/generated/simd_tables.cc.o",
        "CMakeFiles/evn_cpu.dir/src/backends/cpu/isa.cc.o",
    ]
    done = subprocess.run(["cmake", "--build", build, "--target", *objects], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    symbols = [subprocess.run(["nm", "-C", build / file], capture_output=True, text=True, check=True).stdout for file in objects]
    assert re.search(r"[DR] evn::avx512_vbmi::loops_qdepthwise", symbols[0])
    assert "U evn::avx512_vbmi::loops_qdepthwise" in symbols[1]
    assert b"avx512_vbmi\0" in (build / objects[2]).read_bytes()
