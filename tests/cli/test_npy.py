"""evener run: .npy and .npz files are read and written as numpy does, and hostile ones are refused with a reason."""
import os
import struct
import zipfile

import ml_dtypes
import numpy as np
import onnx
import pytest
from command import COMMAND, FAILURE, USAGE, assert_close, evener, reference, save, value
from onnx import TensorProto, helper

if not COMMAND:
    pytest.skip("EVENER_COMMAND is not set", allow_module_level=True)

DTYPES = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8,
          np.int32: TensorProto.INT32, np.int64: TensorProto.INT64, np.bool_: TensorProto.BOOL, np.float16: TensorProto.FLOAT16,
          np.complex64: TensorProto.COMPLEX64, np.complex128: TensorProto.COMPLEX128}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
def test_npy_of_each_type_survives_reading_and_writing(dtype, tmp_path):
    model = save(tmp_path / "t.onnx", [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])],
                 [value("x", [3, 5], DTYPES[dtype])], [value("y", [5, 3], DTYPES[dtype])])
    x = (np.arange(15).reshape(3, 5) % 7 - (0 if dtype in (np.uint8, np.bool_) else 3)).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    evener("run", model, "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path)
    y = np.load(tmp_path / "y.npy")
    assert y.dtype == x.dtype and np.array_equal(y, x.T)


# ONNX's number of a type that NumPy lacks, as ml_dtypes has it, the type that is read and written in its place, values, one out of range.
NARROW = [(16, "bfloat16", "float32", [0, -1.5, 2.0 ** 100, np.inf], 3.4e38), (17, "float8_e4m3fn", "float32", [0, -448, 0.001953125, np.nan], 449),
          (18, "float8_e4m3fnuz", "float32", [0, -240, 1.125, np.nan], 241), (19, "float8_e5m2", "float32", [-57344, 1.25, -np.inf, np.nan], 60000),
          (20, "float8_e5m2fnuz", "float32", [0, -57344, 1.25, np.nan], np.inf), (21, "uint4", "uint8", [0, 15, 3, 9], 16),
          (22, "int4", "int8", [-8, 7, 0, -1], -9), (23, "float4_e2m1fn", "float32", [-6, 0.5, 3, -1.5], np.nan),
          (24, "float8_e8m0fnu", "float32", [1, 0.25, 2.0 ** 127, np.nan], 0), (25, "uint2", "uint8", [0, 3, 1, 2], 4), (26, "int2", "int8", [-2, 1, 0, -1], 2)]


@pytest.mark.parametrize("code, name, wide, values, out_of_range", NARROW, ids=[row[1] for row in NARROW])
def test_types_that_numpy_lacks_are_read_and_written_as_wider_ones(code, name, wide, values, out_of_range, tmp_path):
    graph = helper.make_graph([helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])], "g", [value("x", ["m", "n"], code)],
                              [value("y", ["n", "m"], code)])
    model = tmp_path / "t.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13), model)
    x = np.array([values, values[::-1], values], wide)[:, :3]
    for number, given in enumerate((x, x.astype(getattr(ml_dtypes, name)))):
        np.save(tmp_path / "x.npy", given)
        np.savez(tmp_path / "x.npz", x=given)
        for words in (f"x={tmp_path / 'x.npy'}", tmp_path / "x.npz"):
            out, _ = evener("run", model, "--input", words, "--output", tmp_path / f"{number}.npz")
            assert ", mean " in out
            y = np.load(tmp_path / f"{number}.npz")["y"]
            assert y.dtype == wide and np.array_equal(y, x.T, equal_nan=wide == "float32")
    np.save(tmp_path / "x.npy", np.array([[x[0, 0], out_of_range]], wide))
    _, err = evener("run", model, "--input", f"x={tmp_path / 'x.npy'}", code=FAILURE)
    assert "element 1 (" in err and "out of the range of input x" in err


def test_numbers_are_rounded_to_the_nearest_of_a_type_that_numpy_lacks(tmp_path):
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value("x", ["n"], 17)], [value("y", ["n"], 17)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "t.onnx")
    x = np.float32([1.0625, 1.1875, 1.07, -0.0009765625, -0.0, 447.9])
    np.save(tmp_path / "x.npy", x)
    evener("run", tmp_path / "t.onnx", "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path)
    y = np.load(tmp_path / "y.npy")
    expected = x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert np.array_equal(y, expected) and np.array_equal(np.signbit(y), np.signbit(expected))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_versions_are_read(version, conv, tmp_path):
    x = np.random.default_rng(3).standard_normal((1, 3, 8, 8)).astype(np.float32)
    with open(tmp_path / "x.npy", "wb") as file:
        np.lib.format.write_array(file, x, version)
    evener("run", conv, "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path)
    assert_close(np.load(tmp_path / "y.npy"), reference(conv, {"x": x})[0])


def npy(header, data=b"\0" * 4, version=1, length=None):
    header = header.encode()
    size = len(header) if length is None else length
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", size) + header + data


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"


@pytest.mark.parametrize("data, message", [
    (b"", "too early"), (b"\x93NUMPY", "too early"), (b"PK\x03\x04" + b"\0" * 40, "not a .npy"),
    (npy(GOOD, version=9), "version"), (npy(GOOD, version=2, length=0xffffffff), "64 KiB"), (npy(GOOD, length=60000), "too early"),
    (npy(GOOD.replace("<f4", "|O")), "astype(str)"), (npy(GOOD.replace("<f4", "=f4")), "element type"),
    (npy(GOOD.replace("<f4", ">V4")), "element type"), (npy(GOOD.replace("<f4", "|U1")), "element type"),
    (npy(GOOD.replace("<f4", "<U9999999999999999999999")), "element type"), (npy(GOOD.replace("<f4", "<U2")), "size"),
    (npy(GOOD.replace("<f4", "<U0").replace("(1,)", "(4294967296,)"), data=b""), "size"),
    (npy(GOOD.replace("<f4", "<U1"), data=b"\0\0\x11\0"), "Unicode"), (npy(GOOD.replace("<f4", ">U1"), data=b"\0\0\xd8\0"), "Unicode"),
    (npy(GOOD.replace("False", "True").replace("(1,)", "(4294967296, 4294967296)")), "size"), (npy(GOOD.replace("(1,)", "(2,)")), "size"),
    (npy(GOOD.replace("(1,)", "(4294967296, 4294967296)")), "size"), (npy(GOOD.replace("(1,)", "(-1,)")), "damaged"),
    (npy(GOOD.replace("(1,)", "(1,1,1,1,1,1,1,1,1)")), "damaged"), (npy(GOOD.replace("(1,)", "(1")), "damaged"),
    (npy(GOOD[:-1]), "damaged"), (npy("{}"), "damaged"), (npy(GOOD.replace("descr", "descrx")), "damaged"),
    (npy(GOOD, data=b"\0" * 5), "size"), (npy(GOOD.replace("'<f4'", "[('a', '<f4')]")), "structures"),
    (npy(GOOD.replace("'<f4'", "[('a]', '<f4', (2,)), ('b', [('c', '<i4')])]")), "structures"),
    (npy(GOOD.replace("'<f4'", "[('a', '<f4'")), "damaged"), (npy(GOOD.replace("<f4", "<V2"), data=b"\0\0"), "float32"),
    (npy(GOOD.replace("'shape'", "'shape': (1,), 'shape'")), "damaged"), (npy("(" * 1000), "damaged"),
])
def test_hostile_npy_files_are_refused_with_a_reason(data, message, add, tmp_path):
    (tmp_path / "x.npy").write_bytes(data)
    _, err = evener("run", add, "--input", f"a={tmp_path / 'x.npy'}", code=FAILURE)
    assert message in err and "x.npy" in err


def test_npy_that_is_no_file_is_refused_at_once(add, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "absent", "."):
        evener("run", add, "--input", f"a={tmp_path / name}", code=FAILURE)


# ------------------------------------------------------------------------------------------------------------- npz --


def test_npz_gives_all_inputs_and_takes_all_outputs(add, tmp_path):
    rng = np.random.default_rng(4)
    feeds = {name: rng.standard_normal((5, 3)).astype(np.float32) for name in "ab"}
    np.savez(tmp_path / "in.npz", **feeds)
    out, _ = evener("run", add, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    assert f"input b: float32 [5,3], from {tmp_path / 'in.npz'}" in out
    with np.load(tmp_path / "out.npz") as archive:
        assert archive.files == ["out/sum:0", "out_sum_0"]
        for name, expected in zip(archive.files, reference(add, feeds)):
            assert_close(archive[name], expected)


def test_npz_may_hold_some_of_the_inputs(add, tmp_path):
    np.savez(tmp_path / "in.npz", a=np.ones((2, 3), np.float32))
    np.save(tmp_path / "b.npy", np.full((2, 3), 2, np.float32))
    evener("run", add, "--input", tmp_path / "in.npz", "--input", f"b={tmp_path / 'b.npy'}", "--output-dir", tmp_path)
    assert (np.load(tmp_path / "out_sum_0.npy") == 3).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
def test_npz_of_each_type_survives_reading_and_writing(dtype, tmp_path):
    model = save(tmp_path / "t.onnx", [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])],
                 [value("x", [3, 5], DTYPES[dtype])], [value("y", [5, 3], DTYPES[dtype])])
    x = (np.arange(15).reshape(3, 5) % 2).astype(dtype)
    np.savez(tmp_path / "in.npz", x=x)
    evener("run", model, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as archive:
        assert archive["y"].dtype == x.dtype and np.array_equal(archive["y"], x.T)


def test_npz_is_a_whole_zip_archive(conv, tmp_path):
    evener("run", conv, "--output", tmp_path / "out.npz")
    with zipfile.ZipFile(tmp_path / "out.npz") as archive:
        assert archive.namelist() == ["y.npy"] and archive.testzip() is None


@pytest.fixture
def pair(tmp_path):
    """Two inputs of any shape and three axes, each with an output of its elements in another order."""
    def make(dtype):
        nodes = [helper.make_node("Transpose", [name], [f"y{name}"], perm=[2, 0, 1]) for name in "ab"]
        return save(tmp_path / "pair.onnx", nodes, [value(name, ["i", "j", "k"], dtype) for name in "ab"],
                    [value(f"y{name}", ["k", "i", "j"], dtype) for name in "ab"])
    return make


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("kind", ["npy", "npz", "compressed"])
def test_either_order_of_axes_and_bytes_is_read(kind, dtype, pair, tmp_path):
    rng = np.random.default_rng(8)
    a = rng.integers(0, 2 if dtype == np.bool_ else 100, (3, 4, 5)).astype(dtype)
    if np.issubdtype(dtype, np.complexfloating):
        a = (a + 1j * rng.integers(0, 100, a.shape)).astype(dtype)
    feeds = {"a": np.asfortranarray(a.astype(a.dtype.newbyteorder(">"))), "b": np.asfortranarray(a[::-1])[::-1]}
    words = []
    if kind == "npy":
        for name, array in feeds.items():
            np.save(tmp_path / f"{name}.npy", array)
            words += ["--input", f"{name}={tmp_path / name}.npy"]
        assert b"'fortran_order': True" in (tmp_path / "a.npy").read_bytes()
    else:
        (np.savez if kind == "npz" else np.savez_compressed)(tmp_path / "in.npz", **feeds)
        words = ["--input", tmp_path / "in.npz"]
    evener("run", pair(DTYPES[dtype]), *words, "--output", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as archive:
        for name in "ab":
            assert archive[f"y{name}"].dtype == a.dtype and np.array_equal(archive[f"y{name}"], a.transpose(2, 0, 1))


@pytest.mark.parametrize("size", [0, 1, 100, 65535, 65536, 300_000, 3_000_000])
@pytest.mark.parametrize("content", ["zeros", "noise", "text"])
@pytest.mark.parametrize("level", [0, 1, 9])
def test_what_is_compressed_is_read_whole(level, content, size, tmp_path):
    model = save(tmp_path / "t.onnx", [helper.make_node("Identity", ["x"], ["y"])], [value("x", ["n"], TensorProto.UINT8)],
                 [value("y", ["n"], TensorProto.UINT8)])
    rng = np.random.default_rng(size)
    x = {"zeros": np.zeros(size, np.uint8), "noise": rng.integers(0, 256, size).astype(np.uint8),
         "text": np.resize(np.frombuffer(b"the quick brown fox jumps over the lazy dog 0123456789", np.uint8), size)}[content]
    if content == "text" and size:
        x = np.where(rng.random(size) < .02, rng.integers(0, 256, size), x).astype(np.uint8)
    np.save(tmp_path / "x.npy", x)
    with zipfile.ZipFile(tmp_path / "in.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        archive.write(tmp_path / "x.npy", "x.npy")
    evener("run", model, "--input", tmp_path / "in.npz", "--output-dir", tmp_path)
    assert np.array_equal(np.load(tmp_path / "y.npy"), x)


@pytest.fixture
def words_model(tmp_path):
    """Strings of any shape to strings."""
    def values(name):
        return [helper.make_value_info(name, helper.make_tensor_type_proto(TensorProto.STRING, None))]

    graph = helper.make_graph([helper.make_node("Identity", ["s"], ["t"])], "g", values("s"), values("t"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "words.onnx")
    return tmp_path / "words.onnx"


@pytest.mark.parametrize("save_as", [np.savez, np.savez_compressed])
def test_strings_are_read_and_written(save_as, words_model, tmp_path):
    texts = np.array([["", "a", "Gr\u00fc\u00dfe"], ["\u65e5\u672c", "\U0001f600 end", "x" * 70]])
    for given in (texts, np.asfortranarray(texts), texts.astype(">U70")):
        save_as(tmp_path / "in.npz", s=given)
        out, _ = evener("run", words_model, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
        assert 'output t: string [2,3], "", "a"' in out
        with np.load(tmp_path / "out.npz") as archive:
            assert archive["t"].dtype == texts.dtype and np.array_equal(archive["t"], texts)
    save_as(tmp_path / "in.npz", s=np.array([b"plain", b"\xff\xfe", b""]))
    evener("run", words_model, "--input", tmp_path / "in.npz", "--output-dir", tmp_path)
    assert np.array_equal(np.load(tmp_path / "t.npy"), np.array([b"plain", b"\xff\xfe", b""]))
    np.save(tmp_path / "s.npy", np.array("alone"))
    evener("run", words_model, "--input", f"s={tmp_path / 's.npy'}", "--output-dir", tmp_path)
    assert np.load(tmp_path / "t.npy") == "alone"


def test_strings_that_would_take_gigabytes_beside_a_long_one_are_refused(tmp_path):
    texts = TensorProto(name="texts", data_type=TensorProto.STRING, dims=[600], string_data=[b"a"] * 599 + [b"x" * 2**20])  # make_tensor makes them as long
    output = helper.make_tensor_value_info("t", TensorProto.STRING, [600])
    graph = helper.make_graph([helper.make_node("Identity", ["texts"], ["t"])], "g", [], [output], [texts])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "long.onnx")
    (tmp_path / "out").mkdir()
    for words in (("--output-dir", tmp_path / "out"), ("--output", tmp_path / "out/t.npz")):
        _, err = evener("run", tmp_path / "long.onnx", *words, code=FAILURE)
        assert "600 strings take more than 2 GiB" in err
    assert not list((tmp_path / "out").iterdir())


def test_damaged_compressed_entries_are_refused(add, tmp_path):
    rng = np.random.default_rng(5)
    np.savez_compressed(tmp_path / "good.npz", a=rng.integers(0, 3, (20, 3)).astype(np.float32))
    good = (tmp_path / "good.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "good.npz") as archive:
        entry = archive.getinfo("a.npy")
    begin = entry.header_offset + 30 + len("a.npy") + struct.unpack_from("<H", good, entry.header_offset + 28)[0]
    bad = tmp_path / "in.npz"
    for at in range(begin, begin + entry.compress_size, 3):
        data = bytearray(good)
        data[at] ^= 0x55
        bad.write_bytes(data)
        _, err = evener("run", add, "--input", bad, "--shape", "b=20,3", code=FAILURE)
        assert "in.npz" in err
    directory = good.rindex(b"PK\x01\x02")
    for claimed in (entry.file_size - 1, entry.file_size + 1, entry.compress_size * 1031, 0xfffffff0):
        data = bytearray(good)
        struct.pack_into("<I", data, directory + 24, claimed)
        bad.write_bytes(data)
        _, err = evener("run", add, "--input", bad, "--shape", "b=20,3", code=FAILURE)
        assert "in.npz" in err


def test_other_compressions_are_refused_with_the_way_out(add, tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 3), np.float32))
    with zipfile.ZipFile(tmp_path / "in.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.write(tmp_path / "a.npy", "a.npy")
    _, err = evener("run", add, "--input", tmp_path / "in.npz", code=FAILURE)
    assert "savez_compressed" in err and "a.npy" in err


def test_npz_inputs_that_clash_or_are_unknown_are_usage_errors(add, tmp_path):
    np.savez(tmp_path / "in.npz", a=np.ones((2, 3), np.float32))
    np.savez(tmp_path / "strange.npz", c=np.ones((2, 3), np.float32))
    np.save(tmp_path / "a.npy", np.ones((2, 3), np.float32))
    for words in (["--input", f"a={tmp_path / 'a.npy'}"], ["--shape", "a=2,3"], ["--input", tmp_path / "in.npz"]):
        evener("run", add, "--input", tmp_path / "in.npz", "--shape", "b=2,3", *words, code=USAGE)
    evener("run", add, "--input", tmp_path / "strange.npz", "--shape", "a=2,3", "--shape", "b=2,3", code=USAGE)
    evener("run", add, "--output", tmp_path / "out.zip", code=USAGE)


def test_hostile_npz_files_are_refused(add, tmp_path):
    np.savez(tmp_path / "good.npz", a=np.ones((2, 3), np.float32))
    good = (tmp_path / "good.npz").read_bytes()
    bad = tmp_path / "in.npz"
    for size in range(0, len(good), 7):
        bad.write_bytes(good[:size])
        evener("run", add, "--input", bad, "--shape", "b=2,3", code=FAILURE)
    directory = good.rindex(b"PK\x01\x02")
    for at, field in ((20, "<I"), (24, "<I"), (28, "<H"), (30, "<H"), (42, "<I"), (10, "<H")):
        data = bytearray(good)
        struct.pack_into(field, data, directory + at, 0xfff0)
        bad.write_bytes(data)
        _, err = evener("run", add, "--input", bad, "--shape", "b=2,3", code=FAILURE)
        assert "in.npz" in err
