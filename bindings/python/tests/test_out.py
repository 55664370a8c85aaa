"""Outputs that are written into the caller's arrays."""
import gc

import evener
import numpy
import pytest
import tiny
from helpers import floats

X = floats(1, -2, 3, -4)


@pytest.fixture
def session(runtime):
    """z = -x, y = |x|"""
    return runtime.session(tiny.two_outputs())


def test_outputs_are_written_where_they_are_wanted(session):
    z, y = numpy.zeros(4, "float32"), numpy.zeros(4, "float32")
    done = session.run({"x": X}, out={"y": y, "z": z})
    assert done["y"] is y and done["z"] is z and list(done) == ["z", "y"]
    assert z.tolist() == [-1, 2, -3, 4] and y.tolist() == [1, 2, 3, 4]
    for factor in range(2, 6):  # the same memory again
        session.run({"x": factor * X}, out={"y": y, "z": z})
        assert y.tolist() == [factor, 2 * factor, 3 * factor, 4 * factor]


def test_some_are_given_and_others_made(session):
    y = numpy.zeros(4, "float32")
    done = session.run({"x": X}, out={"y": y})
    assert done["y"] is y and done["z"].tolist() == [-1, 2, -3, 4] and list(done) == ["z", "y"]
    made = session.run({"x": 2 * X})
    assert made["y"].tolist() == [2, 4, 6, 8] and y.tolist() == [1, 2, 3, 4], "a later run writes to what it is given alone"
    done = session.run({"x": X}, out={"y": y}, skip=["z"])
    assert list(done) == ["y"] and done["y"] is y
    assert session.run({"x": X}, out={})["z"].tolist() == [-1, 2, -3, 4]


def test_arrays_may_change_and_go(session):
    for _ in range(20):
        y = numpy.zeros(4, "float32")
        assert session.run({"x": X}, out={"y": y})["y"].tolist() == [1, 2, 3, 4]
        del y
        gc.collect()


@pytest.mark.parametrize("array, error", [
    (numpy.zeros(4, "float64"), ValueError), (numpy.zeros((4, 2), "float32")[:, 0], ValueError), ([0, 0, 0, 0], TypeError), (None, TypeError),
    (numpy.frombuffer(bytes(16), "float32"), ValueError), (numpy.zeros(5, "float32"), evener.Error), (numpy.zeros((2, 2), "float32"), evener.Error)])
def test_what_does_not_fit_is_an_error(session, array, error):
    z = numpy.zeros(4, "float32")
    with pytest.raises(error):
        session.run({"x": X}, out={"z": z, "y": array})
    done = session.run({"x": X})
    assert done["y"].tolist() == [1, 2, 3, 4] and done["z"] is not z


def test_names_and_overlaps_are_checked(session):
    y = numpy.zeros(4, "float32")
    with pytest.raises(evener.Error, match='"w"'):
        session.run({"x": X}, out={"w": y})
    with pytest.raises(evener.Error):
        session.run({"x": X}, out={"y": y, "z": y})
    x = X.copy()
    with pytest.raises(evener.Error):
        session.run({"x": x}, out={"y": x})
    with pytest.raises(evener.Error):
        session.run({"x": X}, out={"y": y}, skip=["y"])


def test_models_of_more_than_tensors_have_no_arrays_to_write(runtime):
    with pytest.raises(TypeError):
        runtime.session(tiny.sequence()).run({"x": X}, out={"s": X})
