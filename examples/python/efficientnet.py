"""EfficientNet-Lite0 (Tan and Le, 2019) as an ONNX model that can be trained: with its normalizations, from the checkpoint that PyTorch has written."""
import collections
import pickle

import numpy as np
from onnx import TensorProto, helper, numpy_helper

# blocks, kernel, stride, how much wider inside, output channels
STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320))
BLOCKS = sum(count for count, *_ in STAGES)


class _Reader(pickle.Unpickler):
    """Reads tensors, and makes nothing else."""

    def find_class(self, module, name):
        known = {("collections", "OrderedDict"): collections.OrderedDict, ("torch._utils", "_rebuild_tensor_v2"): lambda *parts: parts[:4],
                 ("torch", "FloatStorage"): np.float32, ("torch", "LongStorage"): np.int64}
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a checkpoint")
        return known[module, name]

    def persistent_load(self, name):
        return name


def checkpoint(path):
    """{name: array} of a file that torch.save has written before PyTorch 1.6: pickles, then the numbers of each storage."""
    with open(path, "rb") as file:
        for _ in range(3):
            _Reader(file).load()
        tensors = _Reader(file).load()
        kinds = {storage[2]: storage[1] for storage, *_ in tensors.values()}
        storages = {}
        for key in _Reader(file).load():
            count = int.from_bytes(file.read(8), "little")
            storages[key] = np.frombuffer(file.read(count * np.dtype(kinds[key]).itemsize), kinds[key])
    found = {}
    for name, (storage, offset, shape, strides) in tensors.items():
        numbers = storages[storage[2]][offset:]
        found[name] = np.lib.stride_tricks.as_strided(numbers, shape, [stride * numbers.itemsize for stride in strides]).copy()
    return found


class _Network:
    def __init__(self, weights):
        self.weights, self.nodes, self.kept = weights, [], {}

    def op(self, kind, inputs, name, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def weight(self, name, value=None):
        self.kept[name] = self.weights[name] if value is None else value
        return name

    def conv(self, x, name, norm, kernel, stride=1, group=1, active=True):
        x = self.op("Conv", [x, self.weight(name + ".weight")], name, kernel_shape=[kernel] * 2, strides=[stride] * 2, group=group, auto_pad="SAME_UPPER")
        parts = [self.weight(f"{norm}.{part}") for part in ("weight", "bias", "running_mean", "running_var")]
        x = self.op("BatchNormalization", [x, *parts], norm, epsilon=1e-3, momentum=0.99)
        return self.op("Clip", [x, "zero", "six"], norm + ".relu6") if active else x


def network(weights, classes=None, seed=0):
    """The model {"image" [N, 3, H, W]: "logits" [N, classes]}; with a number of classes it has a new classifier, of small random numbers."""
    n = _Network(weights)
    n.kept.update(zero=np.float32(0), six=np.float32(6))
    x, block, channels = n.conv("image", "_conv_stem", "_bn0", 3, 2), 0, 32
    for count, kernel, stride, wide, out in STAGES:
        for at in range(count):
            name, y, inside = f"_blocks.{block}.", x, channels * wide
            if wide > 1:
                y = n.conv(y, name + "_expand_conv", name + "_bn0", 1)
            y = n.conv(y, name + "_depthwise_conv", name + "_bn1", kernel, stride if at == 0 else 1, inside)
            y = n.conv(y, name + "_project_conv", name + "_bn2", 1, active=False)
            x = n.op("Add", [x, y], name + "add") if at > 0 else y
            channels, block = out, block + 1
    x = n.op("Flatten", [n.op("GlobalAveragePool", [n.conv(x, "_conv_head", "_bn1", 1)], "pool")], "features")
    if classes is not None:
        random = np.random.default_rng(seed)
        n.weights = dict(weights, **{"_fc.weight": (random.standard_normal((classes, 1280)) * 0.01).astype(np.float32), "_fc.bias": np.zeros(classes, np.float32)})
    n.op("Gemm", [x, n.weight("_fc.weight"), n.weight("_fc.bias")], "logits", transB=1)
    graph = helper.make_graph(n.nodes, "efficientnet_lite0", [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, "H", "W"])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", len(n.kept["_fc.bias"])])],
                              [numpy_helper.from_array(np.asarray(value), name) for name, value in n.kept.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
