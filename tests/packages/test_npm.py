"""The npm packages: a program in Node needs them and nothing else."""
import json
import platform
import tarfile

import pytest
from conftest import REPOSITORY, VERSION, needs, plain, run


@pytest.fixture(scope="module")
def modules(packages, tmp_path_factory):
    """A folder node_modules with both, as npm unpacks them."""
    needs("node")
    if platform.machine() != "x86_64":
        pytest.skip("there is a platform package for x86_64 alone")
    folder = tmp_path_factory.mktemp("node") / "node_modules"
    for archive, name in ((f"evener-{VERSION}.tgz", "evener"), (f"evener-linux-x64-{VERSION}.tgz", "@evener/linux-x64")):
        with tarfile.open(packages / archive) as opened:
            for member in opened:
                assert member.name.startswith("package/")
                member.name = member.name.removeprefix("package/")
                opened.extract(member, folder / name)
    return folder


def test_the_packages_download_and_run_nothing_when_they_are_installed(modules):
    main, = [json.loads((modules / "evener" / "package.json").read_text())]
    native = json.loads((modules / "@evener" / "linux-x64" / "package.json").read_text())
    assert main["optionalDependencies"] == {native["name"]: VERSION} and native["os"] == ["linux"] and native["cpu"] == ["x64"]
    assert "scripts" not in main and "scripts" not in native


def test_the_libraries_of_the_platform_package_are_stripped_and_named_in_its_document(modules):
    folder = modules / "@evener" / "linux-x64"
    for name in ("evener.node", "libevener.so.0"):
        sections = run(["readelf", "-WS", folder / name])
        assert ".symtab" not in sections and ".debug_info" not in sections
    document = json.loads((folder / "evener.spdx.json").read_text())
    assert {"yaml-cpp", "libstdc++"} <= {package["name"] for package in document["packages"]}


def test_a_program_in_node_needs_the_packages_alone(modules, model):
    program = modules.parent / "classify.mjs"
    program.write_text((REPOSITORY / "bindings" / "node" / "examples" / "classify.mjs").read_text())
    assert run(["node", program, model], env=plain(), cwd=modules.parent).startswith("y: 1 x 3\nlargest: 0\n")
