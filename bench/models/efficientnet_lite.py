"""EfficientNet-Lite0 (Tan and Le, "EfficientNet", 2019, without squeeze-and-excite) as an ONNX model, from the checkpoint that its
package ships for PyTorch. PyTorch itself is not needed: the checkpoint is a row of pickles with raw storages behind them.

Input "input" [N, 3, 224, 224]: RGB, (value - 127) / 128. Output "logits" [N, 1000]: ImageNet's classes. Batch normalization is
folded into the convolutions, as exporters do.
"""
import collections
import pickle

import numpy
import onnx
from onnx import helper

STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320))
STORAGES = {"FloatStorage": "<f4", "LongStorage": "<i8"}
EPSILON = 1e-3


class _Reader(pickle.Unpickler):
    """Reads plain values, and of PyTorch's only the descriptions of tensors."""

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, size, stride, *_: (storage, offset, size, stride)
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a checkpoint")

    def persistent_load(self, description):
        _, dtype, key, *_ = description
        return key, dtype


def read_checkpoint(path):
    """{name: array} of a checkpoint in the format that PyTorch wrote before version 1.6."""
    with open(path, "rb") as file:
        for _ in range(3):  # magic number, version, sizes of the machine
            _Reader(file).load()
        tensors = _Reader(file).load()
        dtypes = {key: dtype for (key, dtype), *_ in tensors.values()}
        storages = {}
        for key in _Reader(file).load():
            count = int.from_bytes(file.read(8), "little")
            dtype = numpy.dtype(dtypes[key])
            storages[key] = numpy.frombuffer(file.read(count * dtype.itemsize), dtype)
    return {name: numpy.lib.stride_tricks.as_strided(storages[key][offset:], size, [s * storages[key].itemsize for s in stride]).copy()
            for name, ((key, _), offset, size, stride) in tensors.items()}


class _Builder:
    def __init__(self, weights):
        self.weights, self.nodes, self.initializers = weights, [], []

    def add(self, op, inputs, output, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], output, **attributes))
        return output

    def constant(self, name, array):
        self.initializers.append(onnx.numpy_helper.from_array(numpy.ascontiguousarray(array), name))
        return name

    def conv(self, x, name, normalization, activate=True, **attributes):
        w = self.weights[f"{name}.weight"]
        gamma, beta, mean, variance = (self.weights[f"{normalization}.{part}"] for part in ("weight", "bias", "running_mean", "running_var"))
        scale = gamma / numpy.sqrt(variance + numpy.float32(EPSILON))
        inputs = [x, self.constant(f"{name}.weight", w * scale[:, None, None, None]), self.constant(f"{name}.bias", beta - mean * scale)]
        y = self.add("Conv", inputs, name, kernel_shape=w.shape[2:], auto_pad="SAME_UPPER", **attributes)
        return self.add("Clip", [y, "zero", "six"], f"{name}.relu6") if activate else y


def build(path):
    """The model of a checkpoint's path."""
    b = _Builder(read_checkpoint(path))
    b.constant("zero", numpy.float32(0))
    b.constant("six", numpy.float32(6))
    x, channels, block = b.conv("input", "_conv_stem", "_bn0", strides=[2, 2]), 32, 0
    for repeats, kernel, first_stride, expansion, filters in STAGES:
        for stride in [first_stride] + [1] * (repeats - 1):
            name, before, wide = f"_blocks.{block}", x, channels * expansion
            if expansion != 1:
                x = b.conv(x, f"{name}._expand_conv", f"{name}._bn0")
            x = b.conv(x, f"{name}._depthwise_conv", f"{name}._bn1", strides=[stride, stride], group=wide)
            x = b.conv(x, f"{name}._project_conv", f"{name}._bn2", activate=False)
            if stride == 1 and channels == filters:
                x = b.add("Add", [x, before], f"{name}.sum")
            channels, block = filters, block + 1
    x = b.conv(x, "_conv_head", "_bn1")
    x = b.add("Flatten", [b.add("GlobalAveragePool", [x], "pool")], "features")
    b.add("Gemm", [x, b.constant("_fc.weight", b.weights["_fc.weight"]), b.constant("_fc.bias", b.weights["_fc.bias"])], "logits", transB=1)
    graph = helper.make_graph(b.nodes, "efficientnet_lite0", [helper.make_tensor_value_info("input", 1, ["N", 3, 224, 224])],
                              [helper.make_tensor_value_info("logits", 1, ["N", 1000])], b.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
