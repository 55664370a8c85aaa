"""The wheel, the crates, the Go module, the archive of the Lua modules: each in a clean folder, with the library that the Debian packages unpack."""
import os
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest
from conftest import REPOSITORY, VERSION, needs, plain, run


@pytest.fixture(scope="module")
def wheel(packages):
    return next(packages.glob("*.whl"))


def test_the_wheel_is_for_all_pythons_and_many_linuxes(wheel):
    assert wheel.name.startswith(f"evener-{VERSION}-py3-none-manylinux_2_")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {"evener/schema.yaml", "evener/LICENSE", "evener/NOTICE"} < set(names)
    assert "evener/libevener.so" in names and f"evener-{VERSION}.dist-info/sboms/evener.spdx.json" in names
    assert not any(".libs/" in name or "libevener_image" in name for name in names)


def test_the_wheels_libraries_are_stripped(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    for library in (tmp_path / "evener").glob("*.so"):
        sections = run(["readelf", "-WS", library])
        assert ".symtab" not in sections and ".debug_info" not in sections


def test_the_wheel_runs_in_a_clean_environment(wheel, model, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel], env=plain())
    installed = {line.split("==")[0] for line in run([python, "-m", "pip", "freeze", "--disable-pip-version-check"], env=plain()).splitlines()}
    assert {name.split(" @")[0] for name in installed} == {"evener", "numpy"}
    code = ("import sys, numpy, evener\n"
            "with evener.Runtime(threads=1) as runtime, runtime.session(sys.argv[1]) as session:\n"
            "    print(session.run({'x': numpy.ones((1, 3), 'float32')})['y'].tolist(), evener.library_path())\n")
    said = run([python, "-c", code, model], env=plain(), cwd=tmp_path)
    assert said.startswith("[[3.0, 3.0, 3.0]]") and str(tmp_path / "venv") in said


RUST = """[package]
name = "consumer"
version = "0.0.0"
edition = "2021"

[dependencies]
evener = {{ path = "{evener}" }}

[patch.crates-io]
evener-sys = {{ path = "{sys}" }}
"""


def test_a_project_of_rust_depends_on_the_crates(packages, libraries, model, tmp_path):
    needs("cargo")
    for crate in ("evener-sys", "evener"):
        with tarfile.open(packages / f"{crate}-{VERSION}.crate") as archive:
            archive.extractall(tmp_path)
        assert (tmp_path / f"{crate}-{VERSION}" / "LICENSE").exists()
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "Cargo.toml").write_text(RUST.format(evener=tmp_path / f"evener-{VERSION}", sys=tmp_path / f"evener-sys-{VERSION}"))
    (project / "src" / "main.rs").write_text((REPOSITORY / "bindings/rust/evener/examples/classify.rs").read_text())
    environment = plain(CARGO_TARGET_DIR=tmp_path / "target", EVENER_LIBRARY=libraries / "libevener.so")
    said = run(["cargo", "run", "--quiet", "--", model], cwd=project, env=environment)
    assert said.startswith("y: [1, 3]\n") and "MatMul" in said


GO = """package main

import (
	"context"
	"fmt"
	"os"

	evener "evener.dev/go"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	r := must(evener.NewRuntime(nil))
	m := must(r.Load(context.Background(), os.Args[1]))
	s := must(r.NewSession(context.Background(), m, nil))
	x := must(evener.NewTensor(r, []float32{1, 2, 3}, 1, 3))
	y := must(s.Run(context.Background(), x))
	fmt.Println(must(evener.Data[float32](y[0])))
}
"""


def test_a_program_in_go_gets_the_module_from_a_proxy(packages, libraries, model, tmp_path):
    needs("go")
    (tmp_path / "main.go").write_text(GO)
    (tmp_path / "go.mod").write_text(f"module consumer\n\ngo 1.19\n\nrequire evener.dev/go v{VERSION}\n")
    environment = plain(GOPROXY=f"file://{packages}/go-proxy", GOSUMDB="off", GOFLAGS="-mod=mod -modcacherw", GOMODCACHE=tmp_path / "modules", GOTOOLCHAIN="local",
                        CGO_ENABLED="1", GOCACHE=os.environ.get("GOCACHE", REPOSITORY / "build" / "go"), EVENER_LIBRARY=libraries / "libevener.so")
    run(["go", "build", "-o", tmp_path / "consumer", "."], cwd=tmp_path, env=environment)
    assert (tmp_path / "modules" / "evener.dev" / f"go@v{VERSION}" / "LICENSE").exists()
    assert run([tmp_path / "consumer", model], env=environment) == "[3 5 7]\n"


def test_a_script_in_lua_finds_the_modules(packages, libraries, model, tmp_path):
    needs("luajit")
    with tarfile.open(packages / f"evener-lua-{VERSION}.tar.gz") as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / f"evener-lua-{VERSION}"
    environment = plain(LUA_PATH=f"{folder}/?.lua", EVENER_LIBRARY=libraries / "libevener.so")
    assert run(["luajit", folder / "examples" / "classify.lua", model], env=environment, cwd=tmp_path).startswith("y: 1 x 3\nlargest: 0\n")


@pytest.mark.parametrize("arguments, said", [(["rar"], "there is no kind rar"), (["deb", "--build", "/nowhere"], "has no CMakeCache.txt")])
def test_what_cannot_be_made_is_an_error(arguments, said, tmp_path):
    done = subprocess.run([sys.executable, REPOSITORY / "scripts" / "package", "-o", tmp_path, *arguments], capture_output=True, text=True, env=plain())
    assert done.returncode != 0 and said in done.stderr and not any(tmp_path.iterdir())
