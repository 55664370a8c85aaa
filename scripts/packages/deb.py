"""Debian packages, by dpkg-deb from a staged install: libevener0, libevener-dev, evener, python3-evener, and the debug information of the two with
binaries. The architecture is the build's."""
import gzip
import hashlib
import os
import pathlib
import re
import shutil

from . import common, deb_texts, sbom

ABOUT = "Debian packages: the library, what developers need, the command, the Python module, debug information"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "i686": "i386", "riscv64": "riscv64", "powerpc64le": "ppc64el", "s390x": "s390x"}


def missing():
    return common.without("dpkg-deb", "dpkg-shlibdeps")


class Deb:
    """A package in the making: a folder with its files, and the fields of its control file."""

    def __init__(self, maker, name, section, description, architecture=None, **fields):
        self.maker, self.name, self.root = maker, name, maker.packaging.folder(f"deb-{name}")
        self.architecture = architecture or maker.architecture
        self.fields = {"Package": name, "Version": maker.version, "Architecture": self.architecture, "Maintainer": deb_texts.MAINTAINER, "Section": section,
                       "Priority": "optional", **{key.replace("_", "-"): value for key, value in fields.items()}, "Description": description.rstrip()}
        self.control = {}  # the other files of DEBIAN

    def take(self, path, target):
        """Copies a file or a folder to a path below the package's root, links as links."""
        target = self.root / target
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, target, symlinks=True)
        else:
            shutil.copy2(path, target, follow_symlinks=False)

    def write(self, target, body):
        target = self.root / target
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(body if isinstance(body, bytes) else body.encode())

    def binaries(self):
        return [path for path in sorted(self.root.rglob("*")) if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"]

    def finish(self):
        """Gives the path of the .deb."""
        doc = f"usr/share/doc/{self.name}"
        if "dbgsym" not in self.name:
            self.write(f"{doc}/copyright", deb_texts.copyright(self.maker.packaging))
            self.write(f"{doc}/changelog.Debian.gz", gzip.compress(deb_texts.changelog(self.maker.version), 9, mtime=0))
            self.write(f"{doc}/{self.name}.spdx.json", sbom.document(self.maker.packaging, self.name, self.root, self.maker.components, self.maker.version))
        files = sorted(path for path in self.root.rglob("*") if not path.is_dir() or path.is_symlink())
        size = sum((path.lstat().st_size + 1023) // 1024 for path in files) + sum(1 for path in self.root.rglob("*") if path.is_dir() and not path.is_symlink())
        self.fields["Installed-Size"] = str(size)
        order = ["Package", "Source", "Version", "Architecture", "Maintainer", "Installed-Size"]
        names = order + [name for name in self.fields if name not in order and name != "Description"] + ["Description"]
        self.write("DEBIAN/control", "".join(f"{name}: {self.fields[name]}\n" for name in names if self.fields.get(name)))
        sums = (f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(self.root)}\n" for path in files if not path.is_symlink())
        self.write("DEBIAN/md5sums", "".join(sums))
        for name, text in self.control.items():
            self.write(f"DEBIAN/{name}", text)
        for path in sorted(self.root.rglob("*"), reverse=True):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or "bin" in path.parts or path.name in ("postinst", "prerm") else 0o644)
            os.utime(path, (common.epoch(), common.epoch()), follow_symlinks=False)
        self.root.chmod(0o755)
        os.utime(self.root, (common.epoch(), common.epoch()))
        target = self.maker.packaging.out / f"{self.name}_{self.maker.version}_{self.architecture}.deb"
        common.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", self.root, target],
                   env=dict(os.environ, SOURCE_DATE_EPOCH=str(common.epoch()), XZ_OPT="", XZ_DEFAULTS=""))
        return target


class Maker:
    def __init__(self, packaging):
        self.packaging = packaging
        self.version = f"{packaging.version}-1"
        self.major = packaging.version.split(".")[0]
        processor = packaging.triplet.split("-")[0]
        if processor not in ARCHITECTURES:
            raise common.Failure(f"{packaging.build} is for {packaging.triplet}, of which Debian's name is not known: {', '.join(ARCHITECTURES)} are")
        self.architecture = ARCHITECTURES[processor]
        self.multiarch = packaging.triplet.replace("-unknown", "").replace("-pc", "")
        self.lib = f"usr/lib/{self.multiarch}"
        self.components = sbom.linked(packaging)
        if not (packaging.libraries / f"libevener.so.{packaging.version}").exists():
            raise common.Failure(f"{packaging.build} has installed no libevener.so.{packaging.version}")

    def dependencies(self, deb, *options, library=None):
        """What dpkg-shlibdeps finds that the binaries of a package need: fields and their values."""
        folder = self.packaging.folder(f"shlibdeps-{deb.name}")
        (folder / "debian").mkdir()
        (folder / "debian" / "control").write_text(f"Source: evener\n\nPackage: {deb.name}\nArchitecture: any\n")
        command = ["dpkg-shlibdeps", "-O", f"-l/usr/{self.multiarch}/lib", *options]
        known = ""
        if library:
            known = f"libevener {self.major} libevener{self.major} (= {self.version})\n"
            command.append(f"-l{library}")
        sysroot = pathlib.Path(self.packaging.cache.get("EVN_ARM64_SYSROOT") or "/nowhere")
        if sysroot.exists():  # of a cross-build: dpkg knows nothing of these libraries, scripts/arm64_sysroot has noted their packages
            command.append(f"-l{sysroot}/{self.lib}")
            known += (sysroot / "shlibs").read_text()
        if known:
            (folder / "debian" / "shlibs.local").write_text(known)
        found = common.run(command, cwd=folder, env=dict(os.environ, DEB_HOST_ARCH=self.architecture))
        return dict(re.findall(r"^shlibs:(\w+)=(.*)$", found, re.M))

    def library(self):
        name = f"libevener{self.major}"
        deb = Deb(self, name, "libs", deb_texts.LIBRARY, Source="evener", Multi_Arch="same")
        for path in sorted(self.packaging.libraries.glob("libevener*.so*")):
            if path.name != "libevener.so":
                deb.take(path, f"{self.lib}/{path.name}")
        # A module's own libraries are wanted where the module is used: without them a model that needs it is refused, and all else runs.
        # The engines of collectives are suggested alone: training in several processes is rare where inference is embedded.
        wishes = {"_image": "Recommends", "_mpi": "Suggests", "_gloo": "Suggests"}
        wish = {path: next((kind for part, kind in wishes.items() if part in path.name), "Depends") for path in deb.binaries()}
        options = [option for kind in ("Depends", "Recommends", "Suggests") for option in (f"-d{kind}", *(f"-e{path}" for path in wish if wish[path] == kind))]
        deb.fields.update(self.dependencies(deb, *options))
        deb.fields["Suggests"] = ", ".join(filter(None, ["ocl-icd-libopencl1 | libopencl1, libclblast1", deb.fields.get("Suggests")]))
        deb.control = {"triggers": "activate-noawait ldconfig\n", "shlibs": f"libevener {self.major} {name} (>= {self.packaging.version})\n"}
        deb.write(f"usr/share/lintian/overrides/{name}", deb_texts.overrides(name))
        return deb

    def development(self):
        deb = Deb(self, "libevener-dev", "libdevel", deb_texts.DEVELOPMENT, Source="evener", Multi_Arch="same", Depends=f"libevener{self.major} (= {self.version})")
        libraries, include = self.packaging.libraries, self.packaging.stage / "usr" / self.packaging.cache.get("CMAKE_INSTALL_INCLUDEDIR", "include")
        deb.take(include / "evener", "usr/include/evener")
        deb.take(common.SOURCE / "config" / "schema.yaml", "usr/share/evener/schema.yaml")
        deb.take(libraries / "libevener.so", f"{self.lib}/libevener.so")
        if (libraries / "libevener.a").exists():
            deb.take(libraries / "libevener.a", f"{self.lib}/libevener.a")
        files = self.packaging.folder("package-files")
        modules = " ".join(path.name for path in sorted(libraries.glob("libevener_*.so")))
        common.run(["cmake", f"-DOUT={files}", f"-DLIBDIR={self.lib.removeprefix('usr/')}", f"-DVERSION={self.packaging.version}", f"-DSOVERSION={self.major}",
                    f"-DMODULES={modules}", "-P", common.SOURCE / "cmake" / "package_files.cmake"])
        deb.take(files / "evener.pc", f"{self.lib}/pkgconfig/evener.pc")
        deb.take(files / "evener-config.cmake", f"{self.lib}/cmake/evener/evener-config.cmake")
        deb.take(libraries / "cmake" / "evener" / "evener-config-version.cmake", f"{self.lib}/cmake/evener/evener-config-version.cmake")
        return deb

    def command(self, library):
        deb = Deb(self, "evener", "science", deb_texts.COMMAND)
        deb.take(self.packaging.stage / "usr" / "bin" / "evener", "usr/bin/evener")
        script = self.packaging.folder("rpath") / "remove.cmake"
        script.write_text(f'file(RPATH_REMOVE FILE "{deb.root}/usr/bin/evener")\n')  # the library lies where the loader looks
        common.run(["cmake", "-P", script])
        deb.fields.update(self.dependencies(deb, *(f"-e{path}" for path in deb.binaries()), library=library.root / self.lib))
        deb.write("usr/share/man/man1/evener.1.gz", gzip.compress(deb_texts.manual(self.packaging), 9, mtime=0))
        return deb

    def python(self):
        deb = Deb(self, "python3-evener", "python", deb_texts.PYTHON, architecture="all", Source="evener",
                  Depends=f"libevener{self.major} (>= {self.packaging.version}), python3 (>= 3.9), python3-numpy")
        folder = "usr/lib/python3/dist-packages"
        for path in common.sources("bindings/python/evener"):
            deb.take(common.SOURCE / path, f"{folder}/evener/{path.name}")
        deb.write(f"{folder}/evener-{self.packaging.version}.dist-info/METADATA", deb_texts.metadata(self.packaging))
        # Byte code is made when the package is installed, as Debian's other modules have it made.
        deb.control = {"postinst": deb_texts.COMPILE, "prerm": deb_texts.CLEAN}
        return deb

    def debug(self, of):
        """The debug information of a package's binaries, found by their build-ids."""
        deb = Deb(self, f"{of.name}-dbgsym", "debug", f"debug symbols for {of.name}", Source="evener", Auto_Built_Package="debug-symbols",
                  Depends=f"{of.name} (= {self.version})")
        ids = []
        for path in of.binaries():
            notes = common.run([self.packaging.tool("CMAKE_READELF"), "--notes", path])
            found = re.search(r"Build ID: ([0-9a-f]{2})([0-9a-f]+)", notes)
            if not found:
                raise common.Failure(f"{path.name} has no build-id")
            ids.append(found[1] + found[2])
            name = f"usr/lib/debug/.build-id/{found[1]}/{found[2]}.debug"
            deb.take(self.packaging.debug_stage / name, name)
        deb.fields["Build-Ids"] = " ".join(sorted(ids))
        if of.fields.get("Multi-Arch"):
            deb.fields["Multi-Arch"] = of.fields["Multi-Arch"]
        os.makedirs(deb.root / "usr/share/doc", exist_ok=True)
        (deb.root / "usr/share/doc" / deb.name).symlink_to(of.name)
        return deb


def make(packaging):
    maker = Maker(packaging)
    library = maker.library()
    command = maker.command(library)
    debs = [library, maker.development(), command, maker.python(), maker.debug(library), maker.debug(command)]
    return [deb.finish() for deb in debs]
