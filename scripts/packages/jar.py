"""evener-VERSION.jar and its pom: the classes of bindings/java with the JNI glue and the library for the machine that the build is for. Made by javac and a
compiler of C alone: Maven, which tests them, would fetch its plugins."""
import os
import pathlib
import shutil

from . import common, sbom

ABOUT = "the jar for Java, with the library inside"
MANIFEST = "Manifest-Version: 1.0\nAutomatic-Module-Name: evener\nImplementation-Title: Evener\nImplementation-Version: {version}\n\n"
PLATFORMS = {"x86_64": "linux-x86_64", "aarch64": "linux-aarch64"}  # as NativeFiles.java names them


def missing():
    return common.without("javac", "cc")


def compiler(triplet):
    """A compiler of C for the machine that the build is for."""
    for name in (f"{triplet}-gcc", "cc"):
        if shutil.which(name) and common.run([name, "-dumpmachine"]).strip() == triplet:
            return name
    raise common.Failure(f"there is no compiler of C for {triplet}, which the glue of the jar needs: neither {triplet}-gcc nor cc")


def make(packaging):
    packaging = packaging.portable
    of_c, _, of_linker = packaging.compile_flags
    platform = PLATFORMS.get(packaging.triplet.split("-")[0])
    if platform is None:
        raise common.Failure(f"the jar has no folder for {packaging.triplet}: {', '.join(PLATFORMS)}")
    root, folder = common.SOURCE / "bindings" / "java", packaging.folder("jar")
    sources = [common.SOURCE / path for path in common.sources("bindings/java/src/main/java")]
    common.run(["javac", "--release", "17", "-encoding", "UTF-8", "-d", folder, *sources])
    home = pathlib.Path(shutil.which("javac")).resolve().parents[1]
    native = folder / "evener" / "native" / platform
    common.run(["sh", root / "src" / "main" / "native" / "build.sh", home, native.parent],
               env=dict(os.environ, CC=compiler(packaging.triplet), EVENER_PLATFORM=platform, CFLAGS=" ".join([f"-ffile-prefix-map={common.SOURCE}=.", *of_c, *of_linker])))
    common.run([packaging.tool("CMAKE_STRIP"), "--strip-unneeded", native / "libevener_java.so"])
    shutil.copyfile(packaging.libraries / "libevener.so", native / "libevener.so")
    meta = folder / "META-INF"
    (meta / "maven" / "dev.evener" / "evener").mkdir(parents=True)
    shutil.copyfile(root / "pom.xml", meta / "maven" / "dev.evener" / "evener" / "pom.xml")
    for text in ("LICENSE", "NOTICE"):
        shutil.copyfile(common.SOURCE / text, meta / text)
    (meta / "MANIFEST.MF").write_text(MANIFEST.format(version=packaging.version))
    (meta / "sbom").mkdir()
    (meta / "sbom" / "evener.spdx.json").write_text(sbom.document(packaging, "evener-jar", folder, sbom.linked(packaging)))
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    names.sort(key=lambda name: name != "META-INF/MANIFEST.MF")  # which readers of streams want first
    name = f"evener-{packaging.version}"
    shutil.copyfile(root / "pom.xml", packaging.out / f"{name}.pom")
    return [common.write_zip(packaging.out / f"{name}.jar", [(name, (folder / name).read_bytes(), 0o644) for name in names]), packaging.out / f"{name}.pom"]
