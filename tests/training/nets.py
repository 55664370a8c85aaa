"""Small networks of the kinds that are trained, as ONNX models with weights by seed."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    def __init__(self, seed):
        self.random, self.nodes, self.weights, self.count = np.random.default_rng(seed), [], {}, 0

    def weight(self, name, *shape, scale=None, offset=0.0):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        scale = (2 / fan) ** 0.5 if scale is None else scale
        self.weights[name] = (self.random.standard_normal(shape) * scale + offset).astype(np.float32)
        return name

    def op(self, kind, *inputs, outputs=1, **attributes):
        self.count += 1
        name = f"{kind.lower()}{self.count}"
        made = [name] if outputs == 1 else [f"{name}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), made, name=name, **attributes))
        return made[0] if outputs == 1 else made

    def conv(self, x, name, shape, bias=True, **attributes):
        inputs = [x, self.weight(name + ".w", *shape)] + ([self.weight(name + ".b", shape[0], scale=0.1)] if bias else [])
        return self.op("Conv", *inputs, kernel_shape=list(shape[2:]), **attributes)

    def linear(self, x, name, inputs, outputs):
        return self.op("Gemm", x, self.weight(name + ".w", outputs, inputs), self.weight(name + ".b", outputs, scale=0.1), transB=1)

    def norm(self, x, name, channels):
        self.weight(name + ".mean", channels, scale=0.1)
        self.weight(name + ".var", channels, scale=0.05, offset=1)
        return self.op("BatchNormalization", x, self.weight(name + ".scale", channels, scale=0.1, offset=1), self.weight(name + ".bias", channels, scale=0.1),
                       name + ".mean", name + ".var")

    def recurrent(self, kind, x, name, inputs, hidden, outputs, **attributes):
        """A layer of LSTM, GRU or RNN. Returns `outputs` of its outputs."""
        directions, rows = 2 if attributes.get("direction") == "bidirectional" else 1, {"LSTM": 4, "GRU": 3, "RNN": 1}[kind] * hidden
        scale = hidden ** -0.5
        return self.op(kind, x, self.weight(name + ".w", directions, rows, inputs, scale=scale), self.weight(name + ".r", directions, rows, hidden, scale=scale),
                       self.weight(name + ".b", directions, 2 * rows, scale=0.1), outputs=outputs, hidden_size=hidden, **attributes)

    def ints(self, name, values):
        self.weights[name] = np.array(values, np.int64)
        return name

    def model(self, y, inputs, classes):
        graph = helper.make_graph(self.nodes, "g", [helper.make_tensor_value_info(name, kind, ["N", *dims]) for name, kind, dims in inputs],
                                  [helper.make_tensor_value_info(y, TensorProto.FLOAT, ["N", *classes])],
                                  [numpy_helper.from_array(value, name) for name, value in self.weights.items()])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


IMAGE = [("x", TensorProto.FLOAT, [1, 28, 28])]
COLOR = [("x", TensorProto.FLOAT, [3, 16, 16])]


def mlp():
    b = Builder(1)
    x = b.op("Relu", b.linear("x", "fc1", 20, 32))
    x = b.op("Tanh", b.linear(x, "fc2", 32, 16))
    return b.model(b.linear(x, "fc3", 16, 5), [("x", TensorProto.FLOAT, [20])], [5]), [5]


def adapted():
    """Products by sums of parameters, as of LoRA: gradients of which others are made."""
    b = Builder(8)
    for name, rows, columns in (("fc1", 20, 32), ("fc2", 32, 5)):
        low_rank = b.op("MatMul", b.weight(name + ".a", rows, 3), b.weight(name + ".b", 3, columns))
        weight = b.op("Add", b.op("Add", b.weight(name + ".w", rows, columns), b.weight(name + ".u", rows, columns)), low_rank)
        x = b.op("MatMul", "x" if name == "fc1" else b.op("Relu", x), weight)
    return b.model(x, [("x", TensorProto.FLOAT, [20])], [5]), [5]


def simple_cnn():
    b = Builder(2)
    x = b.op("MaxPool", b.op("Relu", b.conv("x", "conv1", (32, 1, 3, 3), pads=[1] * 4)), kernel_shape=[2, 2], strides=[2, 2])
    x = b.op("MaxPool", b.op("Relu", b.conv(x, "conv2", (64, 32, 3, 3), pads=[1] * 4)), kernel_shape=[2, 2], strides=[2, 2])
    x = b.op("Relu", b.linear(b.op("Flatten", x), "fc1", 3136, 128))
    return b.model(b.linear(x, "fc2", 128, 10), IMAGE, [10]), [10]


def residual():
    """ResNet's blocks: strides, a shortcut by a 1 x 1 convolution, normalizations by the batch."""
    b = Builder(3)
    x = b.op("Relu", b.norm(b.conv("x", "stem", (8, 3, 5, 5), bias=False, pads=[2] * 4, strides=[2, 2]), "n0", 8))
    y = b.op("Relu", b.norm(b.conv(x, "a", (8, 8, 3, 3), bias=False, pads=[1] * 4), "n1", 8))
    y = b.norm(b.conv(y, "b", (8, 8, 3, 3), bias=False, pads=[1] * 4), "n2", 8)
    x = b.op("Relu", b.op("Add", x, y))
    y = b.op("Relu", b.norm(b.conv(x, "c", (12, 8, 3, 3), bias=False, pads=[1] * 4, strides=[2, 2]), "n3", 12))
    x = b.op("Relu", b.op("Add", b.norm(b.conv(x, "d", (12, 8, 1, 1), bias=False, strides=[2, 2]), "n4", 12), y))
    return b.model(b.linear(b.op("Flatten", b.op("GlobalAveragePool", x)), "fc", 12, 6), COLOR, [6]), [6]


def inverted():
    """MobileNet's blocks: depthwise convolutions of both strides, HardSwish, a gate of squeeze and excitation."""
    b = Builder(4)
    x = b.op("HardSwish", b.norm(b.conv("x", "stem", (8, 3, 3, 3), bias=False, pads=[1] * 4, strides=[2, 2]), "n0", 8))
    y = b.op("HardSwish", b.conv(x, "expand", (24, 8, 1, 1)))
    y = b.op("HardSwish", b.conv(y, "depthwise", (24, 1, 3, 3), pads=[1] * 4, group=24))
    gate = b.op("Sigmoid", b.conv(b.op("GlobalAveragePool", y), "gate", (24, 24, 1, 1)))
    x = b.op("Add", x, b.conv(b.op("Mul", y, gate), "project", (8, 24, 1, 1)))
    x = b.op("Clip", b.conv(x, "down", (8, 1, 3, 3), pads=[1] * 4, group=8, strides=[2, 2]), b.op("Constant", value_float=0.0), b.op("Constant", value_float=6.0))
    return b.model(b.linear(b.op("Flatten", b.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])), "fc", 32, 6), COLOR, [6]), [6]


def unet():
    b = Builder(5)
    x = b.op("Relu", b.conv("x", "down0", (6, 3, 3, 3), pads=[1] * 4))
    y = b.op("Relu", b.conv(b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), "down1", (10, 6, 3, 3), pads=[1] * 4))
    y = b.op("ConvTranspose", y, b.weight("up.w", 10, 6, 2, 2), b.weight("up.b", 6, scale=0.1), kernel_shape=[2, 2], strides=[2, 2])
    y = b.op("LeakyRelu", b.conv(b.op("Concat", x, y, axis=1), "mix", (6, 12, 3, 3), pads=[1] * 4), alpha=0.1)
    return b.model(b.conv(y, "head", (4, 6, 1, 1)), COLOR, [4, 16, 16]), [4, 16, 16]


def attention():
    """A block of BERT over embeddings: LayerNormalization, products of four axes, Softmax, Gelu as exporters write it."""
    b = Builder(6)
    x = b.op("Gather", b.weight("table", 11, 16, scale=0.5), "ids")
    def heads(name):
        y = b.op("Add", b.op("MatMul", x, b.weight(name + ".w", 16, 16)), b.weight(name + ".b", 16, scale=0.1))
        return b.op("Transpose", b.op("Reshape", y, b.ints(name + ".split", [0, 0, 4, 4])), perm=[0, 2, 1, 3])
    q, k, v = heads("q"), heads("k"), heads("v")
    scores = b.op("Softmax", b.op("Mul", b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2])), b.op("Constant", value_float=0.5)), axis=-1)
    y = b.op("Reshape", b.op("Transpose", b.op("MatMul", scores, v), perm=[0, 2, 1, 3]), b.ints("join", [0, 0, 16]))
    x = b.op("LayerNormalization", b.op("Add", x, b.op("MatMul", y, b.weight("out.w", 16, 16))), b.weight("ln1.w", 16, scale=0.1, offset=1), b.weight("ln1.b", 16, scale=0.1))
    y = b.op("MatMul", x, b.weight("up.w", 16, 32))
    half = b.op("Mul", y, b.op("Add", b.op("Erf", b.op("Div", y, b.op("Constant", value_float=2 ** 0.5))), b.op("Constant", value_float=1.0)))
    y = b.op("MatMul", b.op("Mul", half, b.op("Constant", value_float=0.5)), b.weight("down.w", 32, 16))
    x = b.op("LayerNormalization", b.op("Add", x, y), b.weight("ln2.w", 16, scale=0.1, offset=1), b.weight("ln2.b", 16, scale=0.1))
    x = b.op("ReduceMean", x, axes=[1], keepdims=0)
    return b.model(b.linear(x, "head", 16, 4), [("ids", TensorProto.INT64, [7])], [4]), [4]


def recurrent():
    """An LSTM of two directions, and a GRU as PyTorch has it (its reset behind the product), over 12 steps."""
    b = Builder(7)
    y = b.recurrent("LSTM", b.op("Transpose", "x", perm=[1, 0, 2]), "lstm", 6, 10, 3, direction="bidirectional")
    x = b.op("Reshape", b.op("Transpose", y[0], perm=[0, 2, 1, 3]), b.ints("join", [0, 0, 20]))
    last = b.recurrent("GRU", x, "gru", 20, 9, 2, linear_before_reset=1)[1]
    both = b.op("Concat", b.op("Squeeze", last, b.ints("axis", [0])), b.op("ReduceMean", y[2], axes=[0], keepdims=0), axis=1)
    return b.model(b.linear(both, "head", 19, 5), [("x", TensorProto.FLOAT, [12, 6])], [5]), [5]


NETS = {net.__name__: net for net in (mlp, simple_cnn, residual, inverted, unet, attention, recurrent)}
BATCH = 4


def batches(name, count=1):
    """`count` batches of inputs and labels, of classes."""
    model, classes = NETS[name]()
    random = np.random.default_rng(100)
    for _ in range(count):
        inputs = {}
        for value in model.graph.input:
            dims = [BATCH, *(dim.dim_value for dim in value.type.tensor_type.shape.dim[1:])]
            is_ids = value.type.tensor_type.elem_type == TensorProto.INT64
            inputs[value.name] = random.integers(0, 11, dims) if is_ids else random.standard_normal(dims).astype(np.float32)
        yield inputs, random.integers(0, classes[0], [BATCH, *classes[1:]])


def planted(steps, count):
    """`count` batches of mlp, of which those of some steps have an input that is infinite."""
    for step, (inputs, labels) in enumerate(batches("mlp", count)):
        if step in steps:
            inputs["x"][0, 0] = np.inf
        yield inputs, labels


def sample(array):
    """Some elements of it, the same for the same shape."""
    flat = np.asarray(array, np.float64).ravel()
    return flat[np.random.default_rng(flat.size).choice(flat.size, min(flat.size, 40), replace=False)]
