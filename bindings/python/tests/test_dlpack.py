"""DLPack: memory shared with numpy, with a producer of our own, and with PyTorch where it is installed."""
import gc
import os
import pathlib
import subprocess
import sys
import weakref

import evener
import numpy
import pytest
import tiny


class Wrapped:
    """Has __dlpack__ and nothing else. `legacy`: as libraries were before DLPack 1.0."""

    def __init__(self, array, legacy=False):
        self.array = array
        self.legacy = legacy

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        if self.legacy and options:
            raise TypeError("unexpected keyword")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                                   "uint64", "bool", "complex64", "complex128"])
@pytest.mark.parametrize("legacy", [False, True])
def test_numpy_memory_goes_in_and_out_unchanged(dtype, legacy):
    array = (numpy.arange(6) % 2).astype(dtype).reshape(2, 3)
    tensor = evener.from_dlpack(Wrapped(array, legacy))
    assert tensor.shape == (2, 3) and tensor.dtype == array.dtype and tensor.device == "cpu" and not tensor.read_only
    back = numpy.from_dlpack(tensor)
    assert back.ctypes.data == array.ctypes.data and back.dtype == array.dtype
    array[1, 2] = 0
    assert back[1, 2] == 0 and (back == array).all() and back.any()


def test_tensor_and_array_keep_the_memory_alive_by_themselves():
    array = numpy.arange(1000, dtype="float32")
    alive = weakref.ref(array)
    tensor = evener.from_dlpack(array)
    del array
    gc.collect()
    assert alive() is not None
    view = numpy.from_dlpack(tensor)
    del tensor
    gc.collect()
    assert view[999] == 999 and alive() is not None
    del view
    gc.collect()
    assert alive() is None


def test_a_capsule_that_nobody_consumes_gives_the_memory_back():
    for version in (None, (1, 0)):
        array = numpy.arange(4, dtype="float32")
        alive = weakref.ref(array)
        tensor = evener.from_dlpack(array)
        capsule = tensor.__dlpack__(max_version=version)
        del array, tensor
        gc.collect()
        assert alive() is not None
        del capsule
        gc.collect()
        assert alive() is None


def test_read_only_arrays_stay_read_only():
    array = numpy.arange(4, dtype="float32")
    array.flags.writeable = False
    tensor = evener.from_dlpack(array)
    assert tensor.read_only
    assert not numpy.from_dlpack(tensor).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__()


def test_memory_that_is_not_dense_is_refused_and_stays_with_its_owner():
    array = numpy.arange(12, dtype="float32").reshape(3, 4)
    alive = weakref.ref(array)
    for view in (array.T, array[:, ::2], array[::-1]):
        with pytest.raises(evener.Error, match="contiguous") as failure:
            evener.from_dlpack(view)
        assert failure.value.status == evener.Status.UNSUPPORTED
    del array, view, failure
    gc.collect()
    assert alive() is None


def test_session_runs_on_tensors_and_on_anything_with_dlpack(runtime):
    session = runtime.session(tiny.add())
    a = numpy.arange(6, dtype="float32").reshape(2, 3)
    b = numpy.full((2, 3), 10, "float32")
    for left in (a, evener.from_dlpack(a), evener.from_dlpack(a, runtime), Wrapped(a), Wrapped(a, legacy=True)):
        result = session.run({"a": left, "b": Wrapped(b)})["y"]
        assert (result == a + b).all()


def test_wrong_dtypes_and_strides_of_inputs_are_errors(runtime):
    session = runtime.session(tiny.add())
    good = numpy.zeros((3, 3), "float32")
    with pytest.raises(evener.Error, match="float64"):
        session.run({"a": Wrapped(good.astype("float64")), "b": good})
    with pytest.raises(evener.Error, match="strides"):
        session.run({"a": Wrapped(numpy.arange(9, dtype="float32").reshape(3, 3).T), "b": good})
    assert (session.run({"a": Wrapped(good), "b": good})["y"] == 0).all()


def test_requests_that_cannot_be_met_are_buffer_errors():
    tensor = evener.from_dlpack(numpy.zeros(3, "float32"))
    assert tensor.__dlpack_device__() == (1, 0)
    for options in ({"dl_device": (2, 0)}, {"copy": True}, {"stream": 1}):
        with pytest.raises(BufferError):
            tensor.__dlpack__(**options)
    assert tensor.numpy().shape == (3,)


def test_a_used_capsule_is_refused():
    class Same:
        def __init__(self, array):
            self.capsule = array.__dlpack__(max_version=(1, 0))

        def __dlpack__(self, **_):
            return self.capsule

    same = Same(numpy.zeros(3, "float32"))
    first = evener.from_dlpack(same)
    with pytest.raises(TypeError, match="unused"):
        evener.from_dlpack(same)
    assert first.numpy().sum() == 0


def test_leaving_with_everything_alive_ends_well(tmp_path):
    script = ("import evener, numpy\n"
              "a = numpy.arange(4, dtype='float32')\n"
              "t = evener.from_dlpack(a)\n"
              "view, capsule, old = numpy.from_dlpack(t), t.__dlpack__(max_version=(1, 0)), t.__dlpack__()\n"
              "print(view.sum())\n")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=_environment())
    assert (done.returncode, done.stdout, done.stderr) == (0, "6.0\n", "")


def _environment():
    return {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[1])}


def test_pytorch_shares_memory_both_ways(runtime):
    torch = pytest.importorskip("torch")
    there = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    tensor = evener.from_dlpack(there)
    assert tensor.numpy().ctypes.data == there.data_ptr()
    assert torch.from_dlpack(tensor).data_ptr() == there.data_ptr()
    session = runtime.session(tiny.add())
    assert (session.run({"a": there, "b": there})["y"] == (there + there).numpy()).all()
