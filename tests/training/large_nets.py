"""Networks of the size that is trained in earnest, as ONNX models with weights by seed: (model, batch, classes) each."""
import nets
import numpy as np
from onnx import TensorProto


def mlp():
    b = nets.Builder(1)
    x = b.op("Relu", b.linear("x", "fc1", 784, 512))
    x = b.op("Relu", b.linear(x, "fc2", 512, 512))
    return b.model(b.linear(x, "fc3", 512, 10), [("x", TensorProto.FLOAT, [784])], [10]), 128, 10


def simple_cnn():
    return nets.simple_cnn()[0], 64, 10


def resnet18():
    b = nets.Builder(2)
    x = b.op("Relu", b.norm(b.conv("x", "stem", (64, 3, 7, 7), bias=False, pads=[3] * 4, strides=[2, 2]), "n", 64))
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, wide in enumerate((64, 128, 256, 512)):
        for block in range(2):
            name, stride = f"s{stage}b{block}", 2 if block == 0 and stage > 0 else 1
            y = b.op("Relu", b.norm(b.conv(x, name + "a", (wide, channels, 3, 3), bias=False, pads=[1] * 4, strides=[stride] * 2), name + "na", wide))
            y = b.norm(b.conv(y, name + "b", (wide, wide, 3, 3), bias=False, pads=[1] * 4), name + "nb", wide)
            if stride == 2:
                x = b.norm(b.conv(x, name + "c", (wide, channels, 1, 1), bias=False, strides=[2, 2]), name + "nc", wide)
            x, channels = b.op("Relu", b.op("Add", x, y)), wide
    return b.model(b.linear(b.op("Flatten", b.op("GlobalAveragePool", x)), "fc", 512, 100), [("x", TensorProto.FLOAT, [3, 224, 224])], [100]), 8, 100


def mobilenet_v2():
    b = nets.Builder(3)
    def clip(y):
        return b.op("Clip", y, b.op("Constant", value_float=0.0), b.op("Constant", value_float=6.0))
    x, channels = clip(b.norm(b.conv("x", "stem", (32, 3, 3, 3), bias=False, pads=[1] * 4, strides=[2, 2]), "n", 32)), 32
    for stage, (expand, wide, count, stride) in enumerate(((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))):
        for block in range(count):
            name, inner, y, step = f"s{stage}b{block}", channels * expand, x, stride if block == 0 else 1
            if expand != 1:
                y = clip(b.norm(b.conv(y, name + "e", (inner, channels, 1, 1), bias=False), name + "ne", inner))
            y = clip(b.norm(b.conv(y, name + "d", (inner, 1, 3, 3), bias=False, pads=[1] * 4, strides=[step] * 2, group=inner), name + "nd", inner))
            y = b.norm(b.conv(y, name + "p", (wide, inner, 1, 1), bias=False), name + "np", wide)
            x, channels = b.op("Add", x, y) if step == 1 and channels == wide else y, wide
    x = clip(b.norm(b.conv(x, "last", (1280, 320, 1, 1), bias=False), "nl", 1280))
    return b.model(b.linear(b.op("Flatten", b.op("GlobalAveragePool", x)), "fc", 1280, 100), [("x", TensorProto.FLOAT, [3, 224, 224])], [100]), 8, 100


def bert_mini():
    """Four layers of 256, four heads, 128 tokens."""
    b, wide, heads = nets.Builder(4), 256, 4
    x = b.op("Gather", b.weight("table", 1000, wide, scale=0.5), "ids")
    def dense(y, name, inputs, outputs):
        return b.op("Add", b.op("MatMul", y, b.weight(name + ".w", inputs, outputs, scale=inputs ** -0.5)), b.weight(name + ".b", outputs, scale=0.02))
    def norm(y, name):
        return b.op("LayerNormalization", y, b.weight(name + ".w", wide, scale=0.02, offset=1), b.weight(name + ".b", wide, scale=0.02))
    for layer in range(4):
        def split(name, layer=layer, x=x):
            y = dense(x, f"l{layer}{name}", wide, wide)
            return b.op("Transpose", b.op("Reshape", y, b.ints(f"l{layer}{name}.split", [0, 0, heads, wide // heads])), perm=[0, 2, 1, 3])
        q, k, v = split("q"), split("k"), split("v")
        scores = b.op("Mul", b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2])), b.op("Constant", value_float=(wide // heads) ** -0.5))
        y = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = norm(b.op("Add", x, dense(b.op("Reshape", y, b.ints(f"l{layer}.join", [0, 0, wide])), f"l{layer}o", wide, wide)), f"l{layer}n1")
        y = dense(x, f"l{layer}up", wide, 4 * wide)
        y = b.op("Mul", b.op("Mul", y, b.op("Add", b.op("Erf", b.op("Div", y, b.op("Constant", value_float=2 ** 0.5))), b.op("Constant", value_float=1.0))), b.op("Constant", value_float=0.5))
        x = norm(b.op("Add", x, dense(y, f"l{layer}down", 4 * wide, wide)), f"l{layer}n2")
    return b.model(b.linear(b.op("ReduceMean", x, axes=[1], keepdims=0), "head", wide, 10), [("ids", TensorProto.INT64, [128])], [10]), 8, 10


def lstm_gru():
    """100 steps of 64 numbers through an LSTM and a GRU of 128."""
    b = nets.Builder(5)
    y = b.recurrent("LSTM", b.op("Transpose", "x", perm=[1, 0, 2]), "lstm", 64, 128, 3)[0]
    last = b.recurrent("GRU", b.op("Squeeze", y, b.ints("one", [1])), "gru", 128, 128, 2, linear_before_reset=1)[1]
    return b.model(b.linear(b.op("Squeeze", last, b.ints("zero", [0])), "head", 128, 10), [("x", TensorProto.FLOAT, [100, 64])], [10]), 8, 10


NETWORKS = {build.__name__: build for build in (simple_cnn, mlp, resnet18, mobilenet_v2, bert_mini, lstm_gru)}


def batch_of(model, batch, classes):
    """Inputs by name, and labels."""
    random = np.random.default_rng(5)
    value = model.graph.input[0]
    dims = [batch, *(dim.dim_value for dim in value.type.tensor_type.shape.dim[1:])]
    is_ids = value.type.tensor_type.elem_type == TensorProto.INT64
    x = random.integers(0, 1000, dims) if is_ids else random.standard_normal(dims).astype(np.float32)
    return {value.name: x}, random.integers(0, classes, [batch])
