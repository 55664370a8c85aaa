"""evener.Quantizer: batches, cancelling, errors, and the model that it makes."""
import gc
import weakref

import evener
import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture
def network():
    rng = numpy.random.default_rng(1)
    weight = numpy_helper.from_array(rng.standard_normal((8, 3, 3, 3)).astype("float32"), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"], name="relu")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model.SerializeToString()


def batch(seed):
    return {"x": numpy.random.default_rng(seed).standard_normal((2, 3, 8, 8)).astype("float32")}


def test_a_model_that_was_quantized_runs_and_is_near(runtime, network, tmp_path):
    quantizer = evener.Quantizer(runtime, network)
    for seed in range(4):
        quantizer.add_batch(batch(seed))
    model = quantizer.finish()
    expected, got = runtime.session(network).run(batch(9))["y"], runtime.session(model).run(batch(9))["y"]
    assert (expected * got).sum() / numpy.sqrt((expected ** 2).sum() * (got ** 2).sum()) > 0.999
    quantizer.save(tmp_path / "q.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "q.onnx"), full_check=True)
    report = quantizer.verify(batch(10)).report("dict")
    assert report["quantized_nodes"] >= 1 and report["outputs"][0]["cosine"] > 0.999 and report["batches"] == 4
    assert "cosine" in quantizer.report()


def test_zero_is_a_value(runtime, network):
    """A budget of 0 lets everything pass, where None is the default; what cannot be 0 is refused."""
    for options in (dict(bits=0, mode="weights"), dict(block=0, mode="weights"), dict(method="percentile", percentile=0)):
        with pytest.raises(ValueError, match="is 0: a number above it is wanted"):
            evener.Quantizer(runtime, network, **options)
    budgets = []
    for given in (None, 0):
        quantizer = evener.Quantizer(runtime, network).add_batch(batch(1))
        quantizer.guard(batch(2), speed=False, min_cosine=given, min_layer_sqnr_db=given)
        report = quantizer.report("dict")["guard"]
        budgets.append((round(report["min_cosine"], 6), round(report["min_layer_sqnr_db"], 6)))
    assert budgets == [(0.99, 10), (0, 0)]


def test_the_guard_says_what_it_saw(runtime, network):
    quantizer = evener.Quantizer(runtime, network).add_batch(batch(1))
    assert quantizer.report("dict")["guard"] is None
    quantizer.guard(batch(2), speed=False, min_cosine=0.5, min_layer_sqnr_db=20)
    report = quantizer.report("dict")
    assert report["guard"] == {"batches": 1, "error": True, "speed": False, "min_cosine": 0.5, "min_layer_sqnr_db": 20, "taken_back": 0}
    conv = next(n for n in report["nodes"] if n["name"] == "conv")
    assert conv["quantized"] and conv["cosine"] > 0.999 and conv["sqnr_db"] > 20 and conv["float_ns"] is None
    with pytest.raises(ValueError, match="neither"):
        quantizer.guard(batch(2), error=False, speed=False)
    quantizer.finish()
    with pytest.raises(evener.Error) as caught:
        quantizer.guard(batch(2))
    assert caught.value.status == evener.Status.WRONG_STATE


@pytest.mark.parametrize("options", [{"mode": "weights"}, {"mode": "weights", "bits": 4, "block": 16}, {"mode": "weights", "contrib": True},
                                     {"mode": "float16"}, {"mode": "bfloat16"}])
def test_modes_without_calibration(runtime, tmp_path, options):
    weight = numpy_helper.from_array((numpy.random.default_rng(1).standard_normal((64, 8)) / 8).astype("float32"), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    quantizer = evener.Quantizer(runtime, model, **options)
    quantizer.verify({"x": numpy.random.default_rng(2).standard_normal((5, 64)).astype("float32")})
    report = quantizer.report("dict")
    assert report["mode"] == options["mode"] and report["quantized_nodes"] == 1
    assert report["outputs"][0]["cosine"] > (0.99 if options.get("bits") == 4 else 0.9999)
    quantizer.save(tmp_path / "q.onnx")
    with pytest.raises(evener.Error) as caught:
        quantizer.add_batch({"x": numpy.zeros((1, 64), "float32")})
    assert caught.value.status == evener.Status.WRONG_STATE
    with pytest.raises(ValueError, match="mode"):
        evener.Quantizer(runtime, model, mode="int8")


def test_the_same_batches_make_the_same_file(runtime, network, tmp_path):
    for name in ("a", "b"):
        quantizer = evener.Quantizer(runtime, network, method="entropy")
        quantizer.add_batch(batch(1)).add_batch(batch(2)).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_without_a_batch_there_is_no_model(runtime, network):
    quantizer = evener.Quantizer(runtime, network)
    with pytest.raises(evener.Error) as caught:
        quantizer.finish()
    assert caught.value.status == evener.Status.WRONG_STATE
    quantizer.add_batch(batch(1)).finish()
    with pytest.raises(evener.Error) as caught:
        quantizer.add_batch(batch(2))
    assert caught.value.status == evener.Status.WRONG_STATE


def test_a_batch_that_fails_has_no_effect(runtime, network, tmp_path):
    for name, spoil in (("plain", False), ("spoilt", True)):
        quantizer = evener.Quantizer(runtime, network)
        quantizer.add_batch(batch(1))
        if spoil:
            bad = batch(2)
            bad["x"][0, 0, 0, 0] = numpy.nan
            with pytest.raises(evener.Error, match="NaN or infinite"):
                quantizer.add_batch(bad)
            with pytest.raises(evener.Error):
                quantizer.add_batch({"x": numpy.zeros((1, 4, 8, 8), "float32")})
            with pytest.raises(evener.Error):
                quantizer.add_batch({})
        quantizer.save(tmp_path / name)
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "spoilt").read_bytes()


def test_progress_is_told_and_cancels(runtime, network):
    told = []
    quantizer = evener.Quantizer(runtime, network, progress=lambda *figures: told.append(figures))
    quantizer.add_batch(batch(1)).finish()
    assert [what for what, _, _ in told] == ["calibrate", "quantize"]

    def stop(*_):
        raise KeyboardInterrupt
    quantizer = evener.Quantizer(runtime, network, progress=stop)
    with pytest.raises(evener.Error) as caught:
        quantizer.add_batch(batch(1))
    assert caught.value.status == evener.Status.CANCELLED


def test_progress_is_let_go_with_the_quantizer(runtime, network):
    class Kept:
        def __call__(self, *_):
            pass

    kept = Kept()
    gone = weakref.ref(kept)
    quantizer = evener.Quantizer(runtime, network, progress=kept)
    with pytest.raises(evener.Error):
        evener.Quantizer(runtime, network, progress=kept, percentile=10.0)
    del kept
    gc.collect()
    assert gone() is not None
    quantizer.add_batch(batch(1))
    quantizer.close()
    gc.collect()
    assert gone() is None


def test_wrong_options_are_refused(runtime, network):
    for wrong in ({"method": "best"}, {"activation": "int16"}):
        with pytest.raises(ValueError):
            evener.Quantizer(runtime, network, **wrong)
    for wrong in ({"percentile": 10.0}, {"percentile": float("nan")}):
        with pytest.raises(evener.Error):
            evener.Quantizer(runtime, network, **wrong)
    with pytest.raises(evener.Error):
        evener.Quantizer(runtime, b"no model")


def test_sessions_are_compared(runtime, network):
    quantizer = evener.Quantizer(runtime, network).add_batch(batch(1))
    in_float, in_bytes = runtime.session(network), runtime.session(quantizer.finish())
    found = in_float.compare(in_bytes, batch(2))
    assert found["outputs"][0]["name"] == "y" and 0.999 < found["outputs"][0]["cosine"] < 1 and found["got_ns"] > 0
    with evener.Runtime(threads=1) as other, pytest.raises(evener.Error, match="another runtime"):
        in_float.compare(other.session(network), batch(2))
    with pytest.raises(evener.Error):
        in_float.compare(in_bytes, {})
