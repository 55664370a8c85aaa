"""What packages say of themselves (SPDX), that they come out alike each time, and the source archive."""
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import tarfile
import zipfile

import pytest
from conftest import BUILD, FULL, REPOSITORY, VERSION, make_packages, plain, run

PYTHON = REPOSITORY / "build" / "package-venv" / "bin" / "python"  # scripts/package makes it, with the validator of SPDX
VALIDATE = """
import sys
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
for path in sys.argv[1:]:
    document = parse_file(path)
    assert document.creation_info.spdx_version == "SPDX-2.3"
    found = validate_full_spdx_document(document)
    assert not found, (path, [message.validation_message for message in found])
    print(path)
"""


@pytest.fixture(scope="module")
def documents(root, packages, tmp_path_factory):
    """The documents of all binary packages, by the package's name."""
    folder = tmp_path_factory.mktemp("documents")
    found = {path.name.split(".")[0]: path for path in root.glob("usr/share/doc/*/*.spdx.json")}
    with zipfile.ZipFile(next(packages.glob("*.whl"))) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".spdx.json"))
        found["wheel"] = folder / "wheel.spdx.json"
        found["wheel"].write_bytes(archive.read(name))
    return found


def inside(document):
    """The names of the works that a document says are linked into the package's files."""
    document = json.loads(document.read_text())
    names = {package["SPDXID"]: package["name"] for package in document["packages"]}
    return {names[relation["relatedSpdxElement"]] for relation in document["relationships"] if relation["relationshipType"] == "STATIC_LINK"}


def test_the_documents_are_valid_spdx(documents):
    assert set(documents) == {"libevener0", "libevener-dev", "evener", "python3-evener", "wheel"}
    assert len(run([PYTHON, "-c", VALIDATE, *documents.values()], env=plain()).splitlines()) == len(documents)


def test_the_documents_name_what_is_linked_in(documents):
    blas = {"OpenBLAS"} if (BUILD / "libevener_openblas.so").exists() else set()
    assert inside(documents["libevener0"]) == inside(documents["wheel"]) == {"yaml-cpp", "libstdc++", "libgcc"} | blas
    assert inside(documents["libevener-dev"]) == ({"yaml-cpp", "libstdc++"} if (BUILD / "libevener.a").exists() else set())
    assert inside(documents["evener"]) == inside(documents["python3-evener"]) == set()


def test_the_build_links_no_archive_that_the_documents_do_not_know(documents):
    """From the build's own commands: what the library, its modules and the command are linked of."""
    known = {"libyaml-cpp.a": "yaml-cpp", "libopenblas.a": "OpenBLAS"}
    text = (BUILD / "build.ninja").read_text().replace("$\n", "")
    archives = set()
    for name in (f"libevener.so.{VERSION}", "libevener_openblas.so", "libevener_image.so", "libevener_mpi.so", "libevener_gloo.so", "evener"):
        found = re.search(rf"^build {re.escape(name)}(?: [^:\n]*)?: .*\n((?:  .*\n)*)", text, re.M)
        if found:
            libraries = re.search(r"LINK_LIBRARIES = (.*)", found[1])
            archives |= {pathlib.PurePosixPath(word).name for word in libraries[1].split() if word.startswith("/") and word.endswith(".a")}
    assert "libyaml-cpp.a" in archives and archives <= set(known)
    assert {known[name] for name in archives} <= inside(documents["libevener0"])


def test_the_documents_hash_the_files(documents, root):
    document = json.loads(documents["libevener0"].read_text())
    assert document["files"]
    for file in document["files"]:
        assert hashlib.sha256((root / file["fileName"]).read_bytes()).hexdigest() == {sum["algorithm"]: sum["checksumValue"] for sum in file["checksums"]}["SHA256"]


def contents(folder):
    """The bytes of all packages of a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same(one, other):
    one, other = contents(one), contents(other)
    assert one.keys() == other.keys() and len(one) >= 10
    assert [name for name in one if one[name] != other[name]] == []


def test_the_same_build_gives_the_same_bytes(packages, root, tmp_path):
    make_packages(tmp_path / "again")
    same(packages, tmp_path / "again")


def clone(folder, name):
    """A copy of the commit in a folder of another name."""
    run(["git", "clone", "-q", "--no-hardlinks", REPOSITORY, folder / name])
    (folder / name / "build").mkdir()
    if PYTHON.exists():
        (folder / name / "build" / "package-venv").symlink_to(PYTHON.parents[1])
    return folder / name


@pytest.mark.skipif(not FULL, reason="a long form: set EVN_TEST_FULL=1")
def test_two_folders_give_the_same_bytes(tmp_path):
    made = []
    for name in ("one", "another-folder-of-a-longer-name"):
        source = clone(tmp_path, name)
        environment = {key: value for key, value in plain().items() if key not in ("CCACHE_BASEDIR", "CCACHE_NOHASHDIR")}  # as scripts/package has it
        settings = [f"-D{key}={value}" for key, value in re.findall(r"^(EVN_(?:OPENBLAS|IMAGE|QUICK_BUILD)):\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)]
        run(["cmake", "--preset", "release", "-B", source / "build" / "it", "-DEVN_TESTS=OFF", *settings], cwd=source, env=environment)
        run(["cmake", "--build", source / "build" / "it"], env=environment)
        made.append(tmp_path / f"packages-{len(made)}")
        make_packages(made[-1], source / "build" / "it", source)
    same(*made)


@pytest.fixture(scope="module")
def unpacked(packages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    if not (packages / f"evener-{VERSION}.tar.gz").exists():
        pytest.skip("no checkout of git: there is no source archive")
    with tarfile.open(packages / f"evener-{VERSION}.tar.gz") as archive:
        assert {(entry.uid, entry.uname) for entry in archive} == {(0, "root")}
        archive.extractall(folder)
    return folder / f"evener-{VERSION}"


def test_the_source_archive_has_the_commit(unpacked):
    names = set(run(["git", "-C", REPOSITORY, "ls-tree", "-r", "--name-only", "HEAD"]).splitlines())
    assert {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()} == names


def test_packages_of_sources_come_out_of_the_archive_as_out_of_git(packages, unpacked, tmp_path):
    if run(["git", "-C", REPOSITORY, "status", "--porcelain", "-uno"]).strip():
        pytest.skip("the checkout has changes that are not committed")
    made = make_packages(tmp_path, BUILD, unpacked, ["lua", "go"])
    assert made and all(path.read_bytes() == (packages / path.relative_to(tmp_path)).read_bytes() for path in made)


def offline(command):
    """The command, in a network namespace of its own where the system lets us have one."""
    probe = ["unshare", "-rn", "true"]
    if shutil.which("unshare") and subprocess.run(probe, capture_output=True).returncode == 0:
        return ["unshare", "-rn", *command]
    return list(command)


def test_the_source_archive_builds_without_a_network(unpacked, tmp_path):
    """In the long form all of it, and the command runs; else its first folder."""
    run(offline(["cmake", "--preset", "release", "-B", tmp_path / "build", "-DEVN_TESTS=OFF"]), cwd=unpacked, env=plain())
    environment = plain(CCACHE_BASEDIR=unpacked, CCACHE_NOHASHDIR=1)
    run(offline(["cmake", "--build", tmp_path / "build", *([] if FULL else ["--target", "evn_base"])]), env=environment)
    if FULL:
        assert VERSION in run([tmp_path / "build" / "evener", "version"], env=plain())
    else:
        assert (tmp_path / "build" / "libevn_base.a").exists()
