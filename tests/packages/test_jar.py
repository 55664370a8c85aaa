"""The jar, which a program in Java needs and nothing else."""
import json
import zipfile

import pytest
from conftest import REPOSITORY, needs, plain, run


@pytest.fixture(scope="module")
def jar(packages):
    needs("javac")
    found, = packages.glob("evener-*.jar")
    return found


def test_the_jar_has_what_maven_wants(jar, packages):
    with zipfile.ZipFile(jar) as archive:
        names = archive.namelist()
        pom = archive.read("META-INF/maven/dev.evener/evener/pom.xml")
    assert names[0] == "META-INF/MANIFEST.MF" and len(names) == len(set(names))
    assert {"META-INF/LICENSE", "META-INF/NOTICE", "evener/Runtime.class"} < set(names) and not any("Test" in name for name in names)
    assert pom == (packages / jar.name.replace(".jar", ".pom")).read_bytes()
    assert f"<version>{jar.stem.removeprefix('evener-')}</version>" in pom.decode()


def test_the_jars_libraries_are_stripped_and_its_document_names_what_is_linked_in(jar, tmp_path):
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(tmp_path)
    libraries = sorted(tmp_path.glob("evener/native/linux-*/*.so"))
    assert [library.name for library in libraries] == ["libevener.so", "libevener_java.so"]
    for library in libraries:
        sections = run(["readelf", "-WS", library])
        assert ".symtab" not in sections and ".debug_info" not in sections
    document = json.loads((tmp_path / "META-INF" / "sbom" / "evener.spdx.json").read_text())
    assert {"yaml-cpp", "libstdc++", "libgcc"} < {package["name"] for package in document["packages"]}
    assert any(file["fileName"].endswith("/libevener_java.so") for file in document["files"])


def test_a_program_in_java_needs_the_jar_alone(jar, model, tmp_path):
    example = REPOSITORY / "bindings" / "java" / "examples" / "Classify.java"
    said = run(["java", f"-Djava.io.tmpdir={tmp_path}", "-cp", jar, example, model], env=plain(), cwd=tmp_path)
    assert said.startswith("y: FLOAT32[1, 3] on cpu\n") and "MatMul" in said
    assert not any(tmp_path.iterdir())
