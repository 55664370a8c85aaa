"""Models that the configuration names, and context managers."""
import pathlib

import evener
import numpy
import pytest
import tiny
from helpers import floats, in_threads


@pytest.fixture
def deployed(tmp_path):
    (tmp_path / "scale.onnx").write_bytes(tiny.scale(3.0, {"unit": "metre"}))
    (tmp_path / "c.yaml").write_text("models:\n  triple: {path: scale.onnx, warm: [{x: [4]}]}\n  gone: {path: gone.onnx}\n")
    with evener.Runtime(tmp_path / "c.yaml", 1, cache_dir="") as runtime:
        yield runtime


def test_a_name_of_the_configuration_gives_the_session_that_all_share(deployed):
    session = deployed.session("triple")
    assert session.run({"x": floats(1, 2)})["y"].tolist() == [3, 6]
    assert [value.name for value in session.inputs] == ["x"]
    assert session.model is None
    weights = deployed.devices[0].memory().by_class["weights"]
    sessions = [None] * 8

    def ask(i):
        sessions[i] = deployed.session(name="triple")

    in_threads(ask, 8)
    assert all(other.run({"x": floats(2)})["y"] == 6 for other in sessions)
    assert deployed.devices[0].memory().by_class["weights"] == weights
    assert session.submit({"x": floats(5)}).result(60)["y"] == 15


def test_metadata_of_a_named_model(deployed):
    session = deployed.session("triple")
    assert session.metadata("unit") == "metre"
    with pytest.raises(KeyError):
        session.metadata("colour")


def test_what_is_no_name_is_a_path(deployed, tmp_path, monkeypatch):
    assert deployed.session(str(tmp_path / "scale.onnx")).run({"x": floats(1)})["y"] == 3
    monkeypatch.chdir(tmp_path)
    assert deployed.session("scale.onnx").model is not None
    (tmp_path / "triple").write_bytes(tiny.scale(7.0))  # a file of that name is reached by a path
    assert deployed.session("triple").run({"x": floats(1)})["y"] == 3
    assert deployed.session(pathlib.Path("triple")).run({"x": floats(1)})["y"] == 7
    assert deployed.session("./triple").run({"x": floats(1)})["y"] == 7
    with pytest.raises(evener.Error) as error:
        deployed.session("nobody.onnx")
    assert error.value.status == evener.Status.IO


def test_errors_of_names(deployed):
    with pytest.raises(evener.Error, match="there are: triple, gone") as error:
        deployed.session(name="tripple")
    assert error.value.status == evener.Status.INVALID_ARGUMENT
    with pytest.raises(evener.Error, match='c.yaml:3: model "gone": cannot open'):
        deployed.session("gone")
    with pytest.raises(TypeError):
        deployed.session("triple", precision="fp16")
    with pytest.raises(TypeError):
        deployed.session()


def test_a_named_session_outlives_its_runtime(tmp_path):
    (tmp_path / "scale.onnx").write_bytes(tiny.scale())
    (tmp_path / "c.yaml").write_text("models: {double: {path: scale.onnx}}")
    runtime = evener.Runtime(tmp_path / "c.yaml", 1, cache_dir="")
    session = runtime.session("double")
    runtime.close()
    del runtime
    assert session.run({"x": floats(4)})["y"] == 8


def test_every_object_is_a_context_manager(runtime):
    with evener.Runtime(threads=1, cache_dir="") as other, other.devices[0] as device, other.model(tiny.scale()) as model:
        assert device.kind == "cpu"
        with other.session(model) as session, evener.Cancel():
            session.run({"x": floats(1)})
            with evener.stream(session, [floats(1)]) as results:
                next(results)
        with pytest.raises(evener.Error):
            session.run({"x": floats(1)})
    array = floats(1, 2, 3)
    with evener.from_dlpack(array, runtime) as tensor:
        numpy.testing.assert_array_equal(tensor.numpy(), array)
    tensor.close()
    with pytest.raises(evener.Error):
        tensor.numpy()
