"""ImageDecoder with Pillow as the judge: every format, kind of pixel and odd size; damaged files; limits; threads."""
import concurrent.futures
import io
import os
import pathlib
import struct
import warnings

import evener
import numpy
import onnx
import pictures
import pytest
from onnx import TensorProto, helper
from PIL import Image

MODULE = pathlib.Path(os.environ["EVENER_LIBRARY"]).parent / "libevener_image.so"
pytestmark = pytest.mark.skipif(not MODULE.exists(), reason="built without libevener_image.so")
FORMATS = ("RGB", "BGR", "Grayscale")


def model(pixel_format=None, node="decode_1"):
    attributes = {} if pixel_format is None else {"pixel_format": pixel_format}
    graph = helper.make_graph(
        [helper.make_node("ImageDecoder", ["file"], ["pixels"], name=node, **attributes)], "g",
        [helper.make_tensor_value_info("file", TensorProto.UINT8, ["n"])], [helper.make_tensor_value_info("pixels", TensorProto.UINT8, [None] * 3)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


@pytest.fixture(scope="module")
def sessions():
    with evener.Runtime(threads=1) as runtime:
        yield {pixel_format: runtime.session(model(pixel_format)) for pixel_format in FORMATS}


def decode(session, data):
    return session.run({"file": numpy.frombuffer(data, "uint8")})["pixels"]


def by_pillow(data):
    """What Pillow makes of it, in RGB. Of 16 bits, which it does not convert to 8 by one rule, the upper 8."""
    picture = Image.open(io.BytesIO(data))
    if picture.mode.startswith("I;16"):
        picture = Image.fromarray((numpy.asarray(picture) >> 8).astype("uint8"))
    return picture.convert("RGB")


def check(sessions, name, data, pixels=None):
    # Several versions of libjpeg, libwebp and OpenJPEG agree but for what is rounded where numbers are not whole.
    tolerance = 1 if "irreversible" in name or ("WEBP" in name and "lossless" not in name) else 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        picture = by_pillow(data) if pixels is None else Image.fromarray(pixels)
    wanted = numpy.asarray(picture)
    expectations = {"RGB": wanted, "BGR": wanted[:, :, ::-1], "Grayscale": numpy.asarray(picture.convert("L"))[:, :, None]}
    for pixel_format, session in sessions.items():
        expected = expectations[pixel_format]
        actual = decode(session, data)
        assert actual.shape == expected.shape, f"{name} {pixel_format}"
        off = numpy.abs(actual.astype(int) - expected.astype(int)).max()
        assert off <= tolerance, f"{name} {pixel_format}: {off} off"


@pytest.mark.parametrize("form", pictures.BY_PILLOW)
def test_what_pillow_writes(sessions, form):
    count = 0
    for name, data in pictures.by_pillow(form):
        check(sessions, name, data)
        count += 1
    assert count >= 9


@pytest.mark.parametrize("maker", [pictures.pngs, pictures.bmps, pictures.pnms, pictures.tiffs])
def test_what_pillow_does_not_write(sessions, maker):
    count = 0
    for case in maker():
        check(sessions, *case)
        count += 1
    assert count >= 30


def test_the_first_frame_of_an_animation(sessions):
    check(sessions, "WEBP animation lossless", pictures.animation())


def test_exif_turns_nothing(sessions):
    exif = Image.Exif()
    exif[274] = 6
    data = pictures.saved(pictures.noise("RGB", (9, 4)), "JPEG", exif=exif)
    assert decode(sessions["RGB"], data).shape == (4, 9, 3)


def test_the_default_is_rgb(sessions):
    data = pictures.saved(pictures.noise("RGB", (9, 4)), "PNG")
    with evener.Runtime(threads=1) as runtime, runtime.session(model()) as session:
        numpy.testing.assert_array_equal(decode(session, data), decode(sessions["RGB"], data))


# ------------------------------------------------------------------------------------------------------------ failures

def refused(session, data, *parts):
    with pytest.raises(evener.Error) as caught:
        decode(session, data)
    assert caught.value.node == "decode_1"
    for part in parts:
        assert part in caught.value.message, caught.value.message
    return caught.value.status


@pytest.mark.parametrize(("data", "part"), [(b"", "no bytes"), (b"\0" * 100, "no BMP"), (b"GIF89a" + bytes(50), "no BMP"), (b"\xff\xd8\xff", "JPEG"),
                                            (b"\x89PNG\r\n\x1a\n", "PNG: the file is truncated"), (b"RIFF\4\0\0\0WEBP", "WebP"), (b"II*\0", "TIFF"),
                                            (b"\xff\x4f\xff\x51", "JPEG 2000"), (b"BM", "BMP: the file is truncated"), (b"P6", "PNM: the file is truncated")])
def test_what_is_no_picture(sessions, data, part):
    assert refused(sessions["RGB"], data, part) == evener.Status.INVALID_ARGUMENT


@pytest.mark.parametrize("form", pictures.BY_PILLOW)
def test_half_a_file(sessions, form):
    mode, options = pictures.BY_PILLOW[form][1]
    data = pictures.saved(pictures.noise(mode, (40, 30)), form, **options)
    assert refused(sessions["RGB"], data[: len(data) // 2]) == evener.Status.INVALID_ARGUMENT


@pytest.mark.parametrize("pixel_format", ["", "RGBA", "rgb", "Gray"])
def test_another_pixel_format_is_refused_while_loading(pixel_format):
    with evener.Runtime(threads=1) as runtime, pytest.raises(evener.Error, match="pixel_format") as caught:
        runtime.session(model(pixel_format))
    assert caught.value.status == evener.Status.INVALID_MODEL and caught.value.node == "decode_1"


@pytest.mark.parametrize(("dtype", "dims"), [(TensorProto.INT8, ["n"]), (TensorProto.UINT8, ["n", 1]), (TensorProto.STRING, [1])])
def test_other_inputs_are_refused_while_loading(dtype, dims):
    graph = helper.make_graph([helper.make_node("ImageDecoder", ["file"], ["pixels"], name="decode_1")], "g", [helper.make_tensor_value_info("file", dtype, dims)],
                              [helper.make_tensor_value_info("pixels", TensorProto.UINT8, [None] * 3)])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
    with evener.Runtime(threads=1) as runtime, pytest.raises(evener.Error) as caught:
        runtime.session(data)
    assert caught.value.status in (evener.Status.INVALID_MODEL, evener.Status.UNSUPPORTED) and caught.value.node == "decode_1"


def claiming(form, width, height):
    """A short file of a format that says that it is as large as that."""
    if form == "PNG":
        header = pictures.png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        return b"\x89PNG\r\n\x1a\n" + header + pictures.png_chunk(b"IDAT", b"x\x9c" + bytes(30)) + pictures.png_chunk(b"IEND", b"")
    if form == "JPEG":
        data = bytearray(pictures.saved(pictures.noise("RGB", (8, 8)), "JPEG", progressive=True))
        at = data.index(b"\xff\xc2") + 5
        data[at : at + 4] = struct.pack(">HH", min(height, 65500), min(width, 65500))
        return bytes(data)
    if form == "JPEG2000":
        data = bytearray(pictures.saved(pictures.noise("RGB", (8, 8)), "JPEG2000", no_jp2=True, num_resolutions=1))
        data[8:16] = struct.pack(">II", width, height)
        data[24:32] = struct.pack(">II", width, height)
        return bytes(data)
    if form == "TIFF":
        tags = {258: (3, [8] * 3), 259: (3, [5]), 262: (3, [2]), 277: (3, [3]), 278: (4, [height])}
        return pictures.tiff(width, height, tags, [bytes(40)])
    if form == "BMP RLE":
        return pictures.bmp(width, height, 8, b"\0\1" + bytes(9000), 1, bytes(1024))
    return b"P6 %d %d 255\n" % (width, height) + bytes(40)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "JPEG2000", "TIFF", "BMP RLE", "PPM"])
def test_a_small_file_that_claims_to_be_huge(sessions, form):
    status = refused(sessions["RGB"], claiming(form, 60000, 60000))
    assert status in (evener.Status.LIMIT, evener.Status.OUT_OF_MEMORY, evener.Status.INVALID_ARGUMENT)


@pytest.mark.parametrize("form", ["JPEG", "JPEG2000", "TIFF", "BMP RLE"])
def test_the_cap_on_memory_holds(form):
    """Of what is within the limit of one tensor, but not under the cap of the device."""
    with evener.Runtime(threads=1, memory_limit=16 << 20) as runtime, runtime.session(model("RGB")) as session:
        assert refused(session, claiming(form, 3000, 3000)) == evener.Status.OUT_OF_MEMORY
        check({"RGB": session}, "afterwards", pictures.saved(pictures.noise("RGB", (9, 4)), "PNG"))


def test_the_limit_of_a_tensor_holds():
    config = "version: 1\nlimits:\n  tensor_bytes: 1MiB\n"
    with evener.Runtime(threads=1, config_text=config) as runtime, runtime.session(model("RGB")) as session:
        assert refused(session, pictures.saved(Image.new("RGB", (1000, 1000)), "PNG"), "tensor_bytes") == evener.Status.LIMIT


@pytest.mark.parametrize("bytes_of_precincts", [b"\0", b"\x11"])
def test_jpeg_2000_of_many_precincts_is_refused(sessions, bytes_of_precincts):
    """Each takes OpenJPEG hundreds of bytes, and a header of ten bytes can ask for one for each pixel."""
    data = bytearray(claiming("JPEG2000", 4000, 4000))
    at = data.index(b"\xff\x52")
    length, style = struct.unpack(">H", data[at + 2 : at + 4])[0], data[at + 4]
    assert style & 1 == 0
    data[at + 4] |= 1
    data[at + 2 : at + 4] = struct.pack(">H", length + 1)
    data[at + 2 + length : at + 2 + length] = bytes_of_precincts
    assert refused(sessions["RGB"], bytes(data), "JPEG 2000") == evener.Status.LIMIT


# ---------------------------------------------------------------------------------------------------------- damaged files

DAMAGED = 20000 if os.environ.get("EVN_TEST_FULL") == "1" else 400  # of each format
# A cap keeps pictures small whose damage is in their size.
STATUSES = {evener.Status.INVALID_ARGUMENT, evener.Status.UNSUPPORTED, evener.Status.LIMIT, evener.Status.OUT_OF_MEMORY}


@pytest.mark.parametrize("form", pictures.BY_PILLOW)
def test_damaged_files_give_pixels_or_an_error(form, capfd):
    rng = numpy.random.default_rng(len(form))
    good = [data for name, data in pictures.small_ones() if name == form]
    assert len(good) >= 3
    decoded = 0
    with evener.Runtime(threads=1, memory_limit=64 << 20) as runtime, runtime.session(model("Grayscale")) as session:
        for number in range(DAMAGED):
            data = pictures.damaged(good[number % len(good)], rng)
            try:
                shape = decode(session, data).shape
                assert len(shape) == 3 and shape[2] == 1
                decoded += 1
            except evener.Error as error:
                assert error.status in STATUSES, f"number {number}: {error}"
                assert error.node == "decode_1" or error.device == "cpu", f"number {number}: {error}"  # no room for a copy of the result
        for data in good:
            decode(session, data)
    assert 0 < decoded < DAMAGED
    assert tuple(capfd.readouterr()) == ("", "")


def test_threads_decode_at_a_time():
    files = [pictures.saved(pictures.noise("RGB", (60, 40), seed), form) for seed in range(3) for form in pictures.BY_PILLOW]
    broken = [data[: len(data) // 2] for data in files]
    with evener.Runtime(threads=1) as runtime, concurrent.futures.ThreadPoolExecutor(4) as pool, runtime.session(model("RGB")) as session:
        wanted = [decode(session, data) for data in files]

        def some(_):
            for data, half, pixels in zip(files, broken, wanted):
                numpy.testing.assert_array_equal(decode(session, data), pixels)
                with pytest.raises(evener.Error, match="cannot decode"):
                    decode(session, half)

        list(pool.map(some, range(8)))


def test_what_follows_is_planned_for_the_pictures_size():
    """ImageDecoder, then a Cast and a mean over all pixels."""
    nodes = [helper.make_node("ImageDecoder", ["file"], ["pixels"], pixel_format="BGR"), helper.make_node("Cast", ["pixels"], ["floats"], to=TensorProto.FLOAT),
             helper.make_node("ReduceMean", ["floats", "axes"], ["mean"], keepdims=0)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("file", TensorProto.UINT8, ["n"])],
                              [helper.make_tensor_value_info("mean", TensorProto.FLOAT, [3])], [onnx.numpy_helper.from_array(numpy.array([0, 1]), "axes")])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
    with evener.Runtime(threads=1) as runtime, runtime.session(data) as session:
        for size in ((5, 9), (40, 3), (5, 9)):
            picture = pictures.noise("RGB", size)
            file = numpy.frombuffer(pictures.saved(picture, "PNG"), "uint8")
            numpy.testing.assert_allclose(session.run({"file": file})["mean"], numpy.asarray(picture)[:, :, ::-1].mean((0, 1)), rtol=1e-5)
