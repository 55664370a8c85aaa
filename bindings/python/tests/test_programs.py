"""Programs of an OpenCL device that are stored in a folder, for devices that have no compiler."""
import os

import evener
import numpy
import pytest
from onnx import TensorProto, helper

CONFIG = "version: 1\ndevices: {{cpu: {{type: cpu}}, gpu: {{type: opencl, programs: {folder}}}}}\nplacement: {{default: gpu}}\n"


def model():
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 6]) for name in "xyz"]
    nodes = [helper.make_node("Softmax", ["x"], ["y"]), helper.make_node("Sin", ["y"], ["z"])]
    graph = helper.make_graph(nodes, "g", values[:1], values[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def events_of_run(folder):
    """The result of a run with a folder of programs, and what was logged of programs."""
    events = []
    text = CONFIG.format(folder=folder)
    with evener.Runtime(config_text=text, cache_dir="", log=lambda record: events.append(record.event), log_level="debug") as runtime:
        session = runtime.session(model())
        x = numpy.arange(24, dtype="float32").reshape(4, 6) / 7
        (z,) = session.run({"x": x}).values()
    e = numpy.exp(x - x.max(axis=1, keepdims=True))
    numpy.testing.assert_allclose(z, numpy.sin(e / e.sum(axis=1, keepdims=True)), rtol=1e-5, atol=1e-6)
    return {event for event in events if event.startswith("program.")}


def test_stored_programs_are_not_compiled(tmp_path):
    with evener.Runtime(cache_dir="") as runtime:
        try:
            device = runtime.device("opencl:0")
        except evener.Error as error:
            if os.environ.get("EVN_REQUIRE_OPENCL") == "1":
                raise
            pytest.skip(str(error))
        stored, refused = device.store_opencl_programs(tmp_path / "programs")
        assert stored > 90 and refused == 0
        assert device.store_opencl_programs(tmp_path / "texts", sources=True) == (stored, 0)
    assert len(list((tmp_path / "programs").iterdir())) == stored
    assert events_of_run(tmp_path / "programs") == {"program.restored"}
    assert (tmp_path / "texts" / "rows-softmax_rows.cl").read_text().startswith("// il-")
    assert events_of_run(tmp_path / "none") == {"program.compiling", "program.compiled"}


def test_only_opencl_devices_have_programs(tmp_path):
    with evener.Runtime(cache_dir="") as runtime:
        with pytest.raises(evener.Error) as caught:
            runtime.devices[0].store_opencl_programs(tmp_path)
    assert caught.value.status == evener.Status.INVALID_ARGUMENT and not list(tmp_path.iterdir())
