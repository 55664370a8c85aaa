"""evener-VERSION-py3-none-manylinux_*.whl: the Python module with the library and the module of OpenBLAS, for all Pythons of one kind of machine.
auditwheel gives it the tag that its libraries allow. libevener_image.so is not inside: it would bring ten libraries of the system with it, one of them
(libjbig, which libtiff wants) under the GPL. Operators that decode pictures are refused then, with its name."""
import base64
import csv
import hashlib
import io
import os
import shutil
import subprocess
import zipfile

from . import common, sbom

ABOUT = "the wheel for Python, with the library inside"


def missing():
    return ""


def plain_wheel(packaging):
    """What setup.py makes of the staged library, in a copy of what it reads."""
    copy = packaging.folder("wheel")
    for path in common.sources("bindings/python", "CMakeLists.txt", "LICENSE", "NOTICE", "config/schema.yaml"):
        target = copy / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(common.SOURCE / path, target)
    libraries = packaging.folder("wheel-libraries")
    for name in ("libevener.so", "libevener_openblas.so"):
        if (packaging.libraries / name).exists():
            shutil.copyfile(packaging.libraries / name, libraries / name)
    environment = dict(os.environ, EVENER_LIBRARY=str(libraries / "libevener.so"), SOURCE_DATE_EPOCH=str(max(common.epoch(), 315532800)))
    common.run([packaging.python, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index", "-w", copy / "plain",
                copy / "bindings" / "python"], env=environment)
    return next((copy / "plain").glob("*.whl"))


def finished(packaging, wheel):
    """Writes the wheel anew: with the list of what is inside (SPDX), sorted, with a RECORD of it, at the time of the commit."""
    folder = packaging.folder("wheel-files")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        programs = {entry.filename for entry in archive.infolist() if entry.external_attr >> 16 & 0o100}
    info = next(folder.glob("*.dist-info"))
    if any(folder.glob("*.libs")):
        raise common.Failure(f"auditwheel has put libraries of this system into the wheel, whose terms it does not bring: {sorted(path.name for path in folder.glob('*.libs/*'))}")
    (info / "RECORD").unlink()
    document = sbom.document(packaging, "evener-wheel", folder, sbom.linked(packaging))
    (info / "sboms").mkdir()
    (info / "sboms" / "evener.spdx.json").write_text(document)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    names.sort(key=lambda name: name.startswith(info.name))  # the description last, as the format recommends
    files, record = [], io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name in names:
        body = (folder / name).read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
        rows.writerow((name, f"sha256={digest}", len(body)))
        files.append((name, body, 0o755 if name in programs else 0o644))
    rows.writerow((f"{info.name}/RECORD", "", ""))
    files.append((f"{info.name}/RECORD", record.getvalue().encode(), 0o644))
    return common.write_zip(packaging.out / wheel.name, files)


def make(packaging):
    packaging = packaging.portable
    wheel = plain_wheel(packaging)
    out = packaging.folder("wheel-repaired")
    environment = dict(os.environ, SOURCE_DATE_EPOCH=str(max(common.epoch(), 315532800)), PATH=f"{packaging.python.parent}:{os.environ['PATH']}")
    done = subprocess.run([str(packaging.python), "-m", "auditwheel", "repair", "--only-plat", "-w", str(out), str(wheel)], capture_output=True, text=True, env=environment)
    made = list(out.glob("*.whl"))
    if done.returncode != 0 or len(made) != 1:
        raise common.Failure(f"auditwheel repair: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return [finished(packaging, made[0])]
