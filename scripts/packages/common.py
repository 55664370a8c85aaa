"""What all kinds of packages share: the build they are made of, its version, time and architecture, staged installs, archives without chance in them."""
import functools
import gzip
import importlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SUMMARY = "Embeddable inference of ONNX models over CPU and OpenCL devices"


class Failure(Exception):
    """Why no package was made, for people."""


def kinds():
    """The modules beside this one that make packages, by name. Each has ABOUT (one line), missing() (which tool is not here, or nothing) and
    make(packaging), which gives the paths of what it made."""
    found = {}
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        module = importlib.import_module(f"packages.{path.stem}")
        if hasattr(module, "make"):
            found[path.stem] = module
    return found


def without(*commands):
    """Those of these commands that are not here, as text; nothing if all are."""
    return ", ".join(command for command in commands if shutil.which(command) is None)


def run(command, **options):
    """Runs a command and gives its output; what it said is in the failure."""
    command = [str(word) for word in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


def version():
    """The one version number, which CMakeLists.txt has."""
    return re.search(r"project\(evener VERSION ([\d.]+)", (SOURCE / "CMakeLists.txt").read_text())[1]


def in_git():
    return (SOURCE / ".git").exists() and shutil.which("git") is not None


@functools.lru_cache(None)
def epoch():
    """The seconds that stand for all times in packages: SOURCE_DATE_EPOCH, else the commit's, else those of the source archive's files."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        if not given.isdecimal():
            raise Failure(f"SOURCE_DATE_EPOCH is {given!r}, not a number of seconds")
        return int(given)
    if in_git():
        return int(run(["git", "-C", SOURCE, "log", "-1", "--format=%ct"]))
    return int((SOURCE / "CMakeLists.txt").stat().st_mtime)


def timestamp():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch()))


def sources(*folders):
    """The files of folders of the source tree, and files themselves, sorted, as paths below SOURCE: those that git knows, or all of a source archive."""
    if in_git():
        names = run(["git", "-C", SOURCE, "ls-files", "-z", "--", *folders]).split("\0")
        paths = [pathlib.PurePosixPath(name) for name in names if name and (SOURCE / name).is_file()]
    else:
        paths = [pathlib.PurePosixPath(path.relative_to(SOURCE)) for folder in folders for path in (SOURCE / folder, *(SOURCE / folder).rglob("*"))
                 if path.is_file() and "__pycache__" not in path.parts]
    return sorted(paths)


def mode_of(path):
    return 0o755 if path.stat().st_mode & 0o100 else 0o644


def write_tar_gz(target, files):
    """Writes (name, path) pairs as a tar archive, sorted, of nobody, at the time of the commit."""
    target.parent.mkdir(parents=True, exist_ok=True)
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, path in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = path.stat().st_size, mode_of(path), epoch()
            with open(path, "rb") as file:
                archive.addfile(entry, file)
    with open(target, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(body.getvalue())
    return target


def write_zip(target, files):
    """Writes (name, bytes, mode) as a zip archive, in this order, at the time of the commit (not before 1980, which zip cannot say)."""
    target.parent.mkdir(parents=True, exist_ok=True)
    at = time.gmtime(max(epoch(), 315532800))[:6]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, body, mode in files:
            entry = zipfile.ZipInfo(name, at)
            entry.external_attr, entry.create_system, entry.compress_type = (0o100000 | mode) << 16, 3, zipfile.ZIP_DEFLATED
            archive.writestr(entry, body)
    return target


def build_preset(preset, folder):
    """Builds the library with a preset of CMakePresets.json."""
    print(f"building {folder}", file=sys.stderr)
    # Nothing of another folder out of ccache: an object file may name the folder in which it was compiled.
    environment = {key: value for key, value in os.environ.items() if key not in ("CCACHE_BASEDIR", "CCACHE_NOHASHDIR")}
    run(["cmake", "--preset", preset, "-B", folder, "-DEVN_TESTS=OFF"], cwd=SOURCE, env=environment)
    run(["cmake", "--build", folder], env=environment)
    return folder


class Packaging:
    """One call of scripts/package: where packages go, and the build that they are made of, which is built when a kind first asks for it."""

    def __init__(self, out, build):
        self.out = pathlib.Path(out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.version = version()
        self._given = pathlib.Path(build).resolve() if build else None
        self._work = tempfile.TemporaryDirectory(prefix="evener-package-")
        self._others = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for packaging in (*self._others, self):
            packaging._work.cleanup()

    def folder(self, name):
        """A new folder that lives as long as the call."""
        path = pathlib.Path(self._work.name) / name
        path.mkdir(parents=True)
        return path

    @functools.cached_property
    def build(self):
        if self._given:
            if not (self._given / "CMakeCache.txt").exists():
                raise Failure(f"{self._given} has no CMakeCache.txt: --build names a folder that CMake has configured and built")
            return self._given
        return build_preset("release", SOURCE / "build" / "package")

    @functools.cached_property
    def portable(self):
        """The same for kinds that other systems install: of the given build, else of one that needs no later glibc than 2.31 (cmake/portable.cmake)."""
        if self._given:
            return self
        lacks = without("apt-get", "dpkg-deb")
        if lacks:
            print(f"what is made for other systems needs this one's C library or a later one: without {lacks} there is no sysroot", file=sys.stderr)
            return self
        run([SOURCE / "scripts" / "portable_sysroot"])
        packaging = Packaging(self.out, build_preset("portable", SOURCE / "build" / "package-portable"))
        self._others.append(packaging)
        return packaging

    @functools.cached_property
    def compile_flags(self):
        """Options with which C and C++ beside the library are compiled and linked: those of a toolchain file that names a sysroot."""
        sysroot = self.cache.get("EVN_PORTABLE_SYSROOT")
        if not sysroot:
            return [], [], []
        return [f"--sysroot={sysroot}"], self.cache["CMAKE_CXX_FLAGS"].split(), self.cache["CMAKE_SHARED_LINKER_FLAGS"].split()

    @functools.cached_property
    def cache(self):
        """The build's CMake cache: names and values."""
        text = (self.build / "CMakeCache.txt").read_text()
        return dict(re.findall(r"^([A-Za-z_][\w.-]*):[A-Z]+=(.*)$", text, re.M))

    def tool(self, name):
        """A program of the build's tool chain (CMAKE_STRIP and its like): that of the architecture that it builds for."""
        path = self.cache.get(name, "")
        if not path:  # a toolchain file has set it: then it is not in the cache, but where CMake notes what it found out of the compiler
            for noted in sorted(self.build.glob("CMakeFiles/*/CMakeC*Compiler.cmake")):
                found = re.search(rf'^set\({name} "(.+)"\)$', noted.read_text(), re.M)
                path = found[1] if found else path
        if not os.access(path, os.X_OK):
            raise Failure(f"{self.build} has been configured with the {name} {path!r}, which is no program")
        return path

    @functools.cached_property
    def triplet(self):
        """GNU's name of what the build is for: x86_64-linux-gnu."""
        return run([self.tool("CMAKE_CXX_COMPILER"), "-dumpmachine"]).strip()

    @functools.cached_property
    def stage(self):
        """A folder with the build installed below usr, stripped."""
        return self._install("stage")

    @functools.cached_property
    def debug_stage(self):
        """A folder with the debug information, below usr/lib/debug."""
        return self._install("debug", "--component", "debug")

    def _install(self, name, *options):
        folder = self.folder(name)
        run(["cmake", "--install", self.build, "--prefix", "/usr", *options], env=dict(os.environ, DESTDIR=str(folder)))
        return folder

    @functools.cached_property
    def libraries(self):
        """The folder of the staged libraries."""
        return self.stage / "usr" / self.cache.get("CMAKE_INSTALL_LIBDIR", "lib")

    @functools.cached_property
    def python(self):
        """A Python with the packages of scripts/requirements-packages.txt, in build/package-venv."""
        wanted = SOURCE / "scripts" / "requirements-packages.txt"
        folder = SOURCE / "build" / "package-venv"
        stamp = folder / "requirements.txt"
        if not stamp.exists() or stamp.read_bytes() != wanted.read_bytes():
            print(f"making the virtual environment {folder}", file=sys.stderr)
            run([sys.executable, "-m", "venv", "--clear", folder])
            run([folder / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", wanted])
            shutil.copyfile(wanted, stamp)
        return folder / "bin" / "python"
