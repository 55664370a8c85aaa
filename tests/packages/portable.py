"""Packages of the preset portable: nothing in them needs a later glibc than 2.31, or another library than the C library's. Run by `scripts/test
--full=portable`."""
import re
import tarfile
import zipfile

import pytest
from conftest import make_packages, needs, run

FLOOR = (2, 31)
OF_THE_C_LIBRARY = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}


@pytest.mark.parametrize("kind, tool", [("wheel", "python3"), ("jar", "javac"), ("npm", "node")])
def test_packages_need_glibc_231_and_nothing_else(kind, tool, tmp_path):
    needs(tool)
    made = make_packages(tmp_path / "packages", kinds=[kind])
    for path in made:
        if path.suffix in (".whl", ".jar"):
            zipfile.ZipFile(path).extractall(tmp_path / "files" / path.name)
        elif path.suffix == ".tgz":
            tarfile.open(path).extractall(tmp_path / "files" / path.name, filter="data")
    libraries = [path for path in (tmp_path / "files").rglob("*") if path.suffix in (".so", ".node")]
    assert libraries
    for library in libraries:
        needed = set(re.findall(r"NEEDED.*\[(.*?)\]", run(["readelf", "-d", library])))
        assert {name for name in needed if not name.startswith("ld-linux")} <= OF_THE_C_LIBRARY, (library.name, needed)
        versions = {tuple(map(int, version.split("."))) for version in re.findall(r"\bGLIBC_([\d.]+)", run(["readelf", "-VW", library]))}
        assert max(versions) <= FLOOR, (library.name, max(versions))
    if kind == "wheel":
        assert "-manylinux_2_31_" in made[0].name
