"""libevener.a: what it lets a host see, and hosts that are linked with it."""
import re

import onnx
import pytest
from conftest import BUILD, REPOSITORY, plain, run
from onnx import TensorProto, helper

HERE = REPOSITORY / "tests" / "packages"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """The build, installed."""
    if not (BUILD / "libevener.a").exists():
        pytest.skip("built without the archive")
    folder = tmp_path_factory.mktemp("prefix")
    run(["cmake", "--install", BUILD, "--prefix", folder])
    return folder


@pytest.fixture(scope="module")
def archive(prefix):
    return next(prefix.glob("lib*/**/libevener.a"))


def flags(archive):
    return run(["pkg-config", "--static", "--cflags", "--libs", "evener"], env=plain(PKG_CONFIG_LIBDIR=archive.parent / "pkgconfig")).split()


def test_only_the_api_is_global(archive):
    lines = run(["nm", "--defined-only", "--extern-only", archive]).splitlines()
    names = {line.split()[-1] for line in lines if line and not line.endswith(":")}
    wanted = set(re.findall(r"\bevn_[a-z0-9_]+", (REPOSITORY / "src/api/library/evener.map").read_text()))
    assert names == wanted and "evn_get_api" in names


def test_nothing_of_a_cxx_runtime_is_asked_of_the_host(archive):
    """Undefined names are libc's, libm's, libgcc's and its unwinder's: a C program need not link libstdc++."""
    undefined = {line.split()[-1] for line in run(["nm", "--undefined-only", archive]).splitlines() if line.strip() and not line.endswith(":")}
    assert not [name for name in undefined if name.startswith(("_Z", "__cxa_")) and name not in ("__cxa_atexit", "__cxa_finalize", "__cxa_thread_atexit_impl")]


def test_it_has_neither_debug_information_nor_intermediate_code(archive):
    sections = run(["readelf", "-WS", archive])
    assert ".debug_info" not in sections and ".gnu.lto" not in sections


def test_a_static_pie_program_of_c_runs(archive, model, tmp_path):
    client = tmp_path / "client"
    run(["cc", "-std=c11", "-Wall", "-Werror", "-static-pie", REPOSITORY / "tests/install/client.c", "-o", client, *flags(archive)])
    assert "Shared library" not in run(["readelf", "-d", client])
    assert "ok" in run([client, model])


def test_a_cxx_host_keeps_its_operator_new_and_its_exceptions(archive, model, tmp_path):
    client = tmp_path / "client"
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", HERE / "counting_host.cc", "-o", client, *flags(archive)]
    run([word if word != "-levener" else "-l:libevener.a" for word in command])
    assert "libevener" not in run(["readelf", "-d", client])
    assert run([client, model]).splitlines() == ["new: 0 of the library's, 2 of the host's", "caught: boom", "3 3 3"]


def test_a_cxx_host_whose_operator_throws(archive, tmp_path):
    node = helper.make_node("Fold", ["x"], ["y"], name="fold_1", domain="example")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 12]) for name in ("x", "y")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("example", 1)]
    onnx.save(helper.make_model(helper.make_graph([node], "g", values[:1], values[1:]), opset_imports=opsets, ir_version=8), tmp_path / "fold.onnx")
    client = tmp_path / "client"
    command = ["c++", "-std=c++17", REPOSITORY / "tests/install/throwing_client.cc", "-o", client, *flags(archive)]
    run([word if word != "-levener" else "-l:libevener.a" for word in command])
    lines = run([client, tmp_path / "fold.onnx"]).splitlines()
    assert len(lines) == 3 and any(line.endswith(": boom") for line in lines)
