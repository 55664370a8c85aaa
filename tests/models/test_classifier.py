"""A trained classifier of pictures, in floats and in whole numbers as ONNX Runtime's quantizer makes them, against ONNX Runtime."""
import evener
import numpy
import onnx
import pytest
from common import assert_close, config, devices_of, onnx_runtime, opencl_runtime
from onnxruntime import quantization
from zoo import CLASSIFIER, photo

ESPRESSO, EGYPTIAN_CAT = 967, 285
PICTURES = {"coffee.png": ESPRESSO, "chelsea.png": EGYPTIAN_CAT}
COSINE = 0.999


def probabilities(logits):
    e = numpy.exp(logits[0] - logits.max())
    return e / e.sum()


def cosine(a, b):
    a, b = a.ravel().astype("float64"), b.ravel().astype("float64")
    return a @ b / (numpy.linalg.norm(a) * numpy.linalg.norm(b))


@pytest.fixture(scope="module")
def oracle():
    return onnx_runtime(CLASSIFIER.content())


@pytest.mark.parametrize("device", ("cpu", "gpu"))
def test_pictures_have_their_labels(oracle, device):
    runtime = evener.Runtime(threads=2) if device == "cpu" else opencl_runtime(config(default="gpu"))
    session = runtime.session(CLASSIFIER.content())
    assert devices_of(session) == {device}
    for name, label in PICTURES.items():
        feeds = {"input": photo(name)}
        actual = list(session.run(feeds).values())
        assert_close(actual, oracle.run(None, feeds))
        assert actual[0].argmax() == label
    assert probabilities(session.run({"input": photo("coffee.png")})["logits"])[ESPRESSO] > 0.9


class Calibration(quantization.CalibrationDataReader):
    def __init__(self):
        self.feeds = iter([{"input": photo(name, seed)} for name in PICTURES for seed in (1, 2, 3)])

    def get_next(self):
        return next(self.feeds, None)


@pytest.mark.parametrize("layout, operators", [(quantization.QuantFormat.QDQ, {"QuantizeLinear", "DequantizeLinear", "Conv"}),
                                               (quantization.QuantFormat.QOperator, {"QLinearConv", "QLinearAdd", "QGemm", "QLinearGlobalAveragePool"})],
                         ids=("qdq", "qoperator"))
def test_whole_numbers_give_the_labels_of_onnx_runtime(tmp_path, layout, operators):
    source, path = tmp_path / "float.onnx", tmp_path / "int8.onnx"
    source.write_bytes(CLASSIFIER.content())
    quantization.quantize_static(source, path, Calibration(), quant_format=layout, activation_type=quantization.QuantType.QUInt8,
                                 weight_type=quantization.QuantType.QInt8, per_channel=True)
    assert {node.op_type for node in onnx.load(path).graph.node} >= operators
    session, reference = evener.Runtime(threads=2).session(path), onnx_runtime(path)
    for name, label in PICTURES.items():
        feeds = {"input": photo(name)}
        (actual,), (wanted,) = session.run(feeds).values(), reference.run(None, feeds)
        assert cosine(actual, wanted) >= COSINE
        assert actual.argmax() == wanted.argmax()
        assert label in actual[0].argsort()[-3:]
