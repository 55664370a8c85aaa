"""Debian's packages: what is in them, and programs that are built with what they unpack."""
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from conftest import BUILD, FULL, REPOSITORY, VERSION, needs, plain, run

CLIENT = REPOSITORY / "tests" / "install" / "client.c"


def fields(deb):
    """The control file of a package."""
    return dict(re.findall(r"^(\S+): (.*)$", run(["dpkg-deb", "-f", deb]), re.M))


@pytest.fixture(scope="module")
def debs(packages, root):
    return {path.name.split("_")[0]: path for path in packages.glob("*.deb")}


def test_the_packages_say_what_they_need(debs):
    assert set(debs) == {"libevener0", "libevener-dev", "evener", "python3-evener", "libevener0-dbgsym", "evener-dbgsym"}
    library, development, command, module = (fields(debs[name]) for name in ("libevener0", "libevener-dev", "evener", "python3-evener"))
    assert re.match(r"libc6 \(>= 2\.\d+\)", library["Depends"]) and "libstdc++" not in library["Depends"]
    assert development["Depends"] == f"libevener0 (= {library['Version']})"
    assert f"libevener0 (= {library['Version']})" in command["Depends"]
    assert "python3-numpy" in module["Depends"] and module["Architecture"] == "all"
    assert all(int(fields(deb)["Installed-Size"]) > 0 for deb in debs.values())
    if (BUILD / "libevener_image.so").exists():  # what a module needs is not needed by those who do not use it
        assert "libtiff" in library["Recommends"] and "libtiff" not in library["Depends"]
    if (BUILD / "libevener_mpi.so").exists():
        assert "libopenmpi" in library["Suggests"] and "libopenmpi" not in library["Depends"] + library.get("Recommends", "")


def test_the_c_library_that_the_package_asks_for_has_all_symbols(debs, libraries):
    needed = run(["readelf", "--version-info", libraries / "libevener.so"])
    oldest = int(re.search(r"libc6 \(>= 2\.(\d+)\)", fields(debs["libevener0"])["Depends"])[1])
    assert max(map(int, re.findall(r"GLIBC_2\.(\d+)", needed))) <= oldest and "GLIBC_ABI_DT_RELR" not in needed


def test_the_control_files_hold(debs, tmp_path):
    for name, deb in debs.items():
        run(["dpkg-deb", "-R", deb, tmp_path / name])
        lines = (tmp_path / name / "DEBIAN" / "md5sums").read_text().splitlines()
        files = [path for path in (tmp_path / name).rglob("*") if path.is_file() and not path.is_symlink() and "DEBIAN" not in path.parts]
        assert len(lines) == len(files) > 0
        for line in lines:
            digest, path = line.split("  ")
            assert hashlib.md5((tmp_path / name / path).read_bytes()).hexdigest() == digest
        for line in run(["dpkg-deb", "-c", deb]).splitlines():
            mode, owner = line.split()[:2]
            path = line.split(" ./")[-1]
            assert owner == "root/root"
            program = path.startswith("usr/bin/") and not path.endswith("/")
            assert mode == ("lrwxrwxrwx" if "->" in line else "drwxr-xr-x" if mode[0] == "d" else "-rwxr-xr-x" if program else "-rw-r--r--"), line
    assert (tmp_path / "libevener0" / "DEBIAN" / "triggers").read_text() == "activate-noawait ldconfig\n"
    assert (tmp_path / "libevener0" / "DEBIAN" / "shlibs").read_text().startswith("libevener 0 libevener0 (>= ")
    assert "placement.rules.*.match.op" in (tmp_path / "libevener-dev" / "usr" / "share" / "evener" / "schema.yaml").read_text()
    for name in ("libevener0", "libevener-dev", "evener", "python3-evener"):
        text = (tmp_path / name / "usr" / "share" / "doc" / name / "copyright").read_text()
        assert "Apache-2.0" in text and "Jesse Beder" in text and "OpenBLAS Project" in text


@pytest.mark.skipif(not FULL, reason="a long form: set EVN_TEST_FULL=1")
def test_lintian_finds_no_error(debs):
    needs("lintian")
    said = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", *debs.values()], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr


def test_binaries_are_stripped_and_their_debug_information_is_found_by_build_id(root, libraries):
    for binary in (libraries / "libevener.so", root / "usr" / "bin" / "evener"):
        sections = run(["readelf", "-WS", binary])
        assert ".symtab" not in sections and ".debug_info" not in sections
        digits = re.search(r"Build ID: ([0-9a-f]+)", run(["readelf", "-n", binary]))[1]
        debug = root / "usr" / "lib" / "debug" / ".build-id" / digits[:2] / f"{digits[2:]}.debug"
        assert ".debug_info" in run(["readelf", "-WS", debug])
        assert digits in run(["readelf", "-n", debug])
    assert "RPATH" not in run(["readelf", "-d", root / "usr" / "bin" / "evener"]) and "RUNPATH" not in run(["readelf", "-d", root / "usr" / "bin" / "evener"])


def test_no_path_of_the_build_is_in_a_binary(root, libraries):
    for binary in [*libraries.glob("libevener*"), root / "usr" / "bin" / "evener", *root.glob("usr/lib/debug/.build-id/*/*.debug")]:
        if binary.is_file() and not binary.is_symlink():
            plain_text = binary.read_bytes()
            if binary.suffix == ".debug":
                copy = pathlib.Path(f"{root}/plain.debug")
                run(["objcopy", "--decompress-debug-sections", binary, copy])
                plain_text = copy.read_bytes()
                copy.unlink()
            assert str(REPOSITORY).encode() not in plain_text, binary
            assert str(BUILD).encode() not in plain_text, binary


def test_a_c_program_is_built_by_pkg_config(root, libraries, model, tmp_path):
    flags = run(["pkg-config", "--cflags", "--libs", "evener"], env=plain(PKG_CONFIG_LIBDIR=libraries / "pkgconfig")).split()
    run(["cc", "-std=c11", "-Werror", CLIENT, "-o", tmp_path / "client", *flags])
    assert "ok" in run([tmp_path / "client", model], env=plain(LD_LIBRARY_PATH=libraries))


@pytest.mark.parametrize("target", ["evener", "static"])
def test_a_cmake_project_finds_the_package(root, libraries, model, tmp_path, target):
    if target == "static" and not (libraries / "libevener.a").exists():
        pytest.skip("built without the archive")
    shutil.copy(CLIENT, tmp_path)
    text = (REPOSITORY / "tests" / "install" / "consumer.cmake.txt").read_text()
    (tmp_path / "CMakeLists.txt").write_text(text.replace("evener::evener", f"evener::{target}"))
    run(["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={root}/usr", f"-DCMAKE_LIBRARY_ARCHITECTURE={libraries.name}"], env=plain())
    run(["cmake", "--build", tmp_path / "build"])
    shared = "libevener" in run(["readelf", "-d", tmp_path / "build" / "client"])
    assert shared == (target == "evener")
    assert "ok" in run([tmp_path / "build" / "client", model], env=plain())


def test_the_command_runs(root, libraries, model):
    environment = plain(LD_LIBRARY_PATH=libraries)
    assert VERSION in run([root / "usr" / "bin" / "evener", "version"], env=environment)
    assert "y" in run([root / "usr" / "bin" / "evener", "run", model, "--shape", "x=2x3"], env=environment)


def test_the_manual_page_has_the_commands(root):
    page = run(["zcat", root / "usr" / "share" / "man" / "man1" / "evener.1.gz"])
    assert page.startswith(".TH EVENER 1") and all(rf"\fB{name}\fR" in page for name in ("devices", "run", "quantize", r"check\-config"))


def test_the_python_module_runs_a_model(root, libraries, model, tmp_path):
    code = ("import sys, numpy, evener\n"
            "with evener.Runtime(threads=1) as runtime, runtime.session(sys.argv[1]) as session:\n"
            "    print(session.run({'x': numpy.ones((1, 3), 'float32')})['y'].tolist(), evener.__file__, evener.library_path())\n")
    environment = plain(LD_LIBRARY_PATH=libraries, PYTHONPATH=root / "usr/lib/python3/dist-packages", PYTHONDONTWRITEBYTECODE=1)
    said = run([sys.executable, "-c", code, model], env=environment, cwd=tmp_path)
    assert said.startswith("[[3.0, 3.0, 3.0]]") and str(root) in said and "libevener.so.0" in said
