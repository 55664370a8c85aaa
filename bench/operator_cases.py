"""The cases of operators.py: models of one node, at sizes and layouts as models of vision, language and sound have them."""
import dataclasses

import numpy


@dataclasses.dataclass
class Case:
    name: str
    op: str
    inputs: list  # of functions of a generator, or shapes of float32 with a normal distribution; None: not given
    attributes: dict
    constants: set
    outputs: int
    opset: int
    domain: str
    open: set = dataclasses.field(default_factory=set)  # inputs whose dims the model leaves open

    def input_names(self):
        return ["" if value is None else f"x{i}" for i, value in enumerate(self.inputs)]

    def feeds(self, random):
        return {f"x{i}": random.normal(size=value).astype("float32") if isinstance(value, tuple) else value(random)
                for i, value in enumerate(self.inputs) if value is not None}


def cases():
    return [case for family in (products, block_weights, attentions, convolutions, pools, normalizations, reductions, elementwise, moves, gathers, resizes, detection, sorting,
                                recurrent, others) for case in family()]


def case(op, *inputs, note="", constants=(), outputs=1, opset=20, domain="", opened=(), **attributes):
    shapes = " ".join("x".join(map(str, value)) for value in inputs if isinstance(value, tuple))
    return Case(f"{op} {note} {shapes}".replace("  ", " "), op, list(inputs), attributes, {f"x{i}" for i in constants}, outputs, opset, domain,
                {f"x{i}" for i in opened})


def typed(dtype, *shape, low=0, high=100):
    if dtype == "bool":
        return lambda random: random.integers(0, 2, shape).astype("bool")
    if numpy.dtype(dtype).kind == "f":
        return lambda random: random.normal(size=shape).astype(dtype)
    return lambda random: random.integers(low, high, shape).astype(dtype)


def small(*shape):
    """Normal numbers so small that the steps of a recurrent network do not amplify roundings."""
    return lambda random: random.normal(0, 0.03, shape).astype("float32")


def fixed(values, dtype="int64"):
    return lambda random: numpy.array(values, dtype)


def products():
    for m, k, n in ((1, 512, 512), (1, 768, 3072), (64, 768, 768), (128, 384, 1536), (512, 512, 512)):
        yield case("MatMul", (m, k), (k, n), constants=[1])
    yield case("MatMul", (12, 128, 64), (12, 64, 128))
    yield case("MatMul", (2, 12, 128, 128), (2, 12, 128, 64))
    yield case("Gemm", (64, 1280), (1000, 1280), (1000,), constants=[1, 2], transB=1)
    for equation, shapes in (("bhqd,bhkd->bhqk", ((1, 12, 128, 64), (1, 12, 128, 64))), ("bqhd,bkhd->bhqk", ((1, 128, 12, 64), (1, 128, 12, 64))),
                             ("bhwc,hkc->bhwk", ((12, 14, 14, 64), (14, 14, 64))), ("bij,jk->bik", ((8, 64, 256), (256, 256))),
                             ("nctkv,kvw->nctw", ((1, 64, 60, 3, 25), (3, 25, 25))), ("bi,bj->bij", ((8, 256), (8, 256))),
                             ("bij,bij->b", ((8, 256, 64), (8, 256, 64)))):
        yield case("Einsum", *shapes, note=equation, equation=equation)


def block_weights():
    """Products with weights of 4 and 8 bits in blocks of 32, as exporters of language models write them, one row and a prompt."""
    for bits, level, k, n in ((4, 4, 1024, 4096), (4, 4, 4096, 1024), (4, 0, 1024, 4096), (8, 4, 1024, 4096)):
        for rows in (1, 64):
            yield case("MatMulNBits", (1, rows, k), typed("uint8", n, k // 32, 4 * bits, high=256),
                       lambda random, n=n, k=k: random.uniform(0.001, 0.01, n * k // 32).astype("float32"), constants=[1, 2], domain="com.microsoft",
                       note=f"{bits} bits level {level} {k}x{n}", K=k, N=n, bits=bits, block_size=32, accuracy_level=level)


def attentions():
    """Attention as onnxruntime's optimizer and exporters of language models write it: encoders with a mask, single steps and prompts."""
    for batch, steps, width, heads in ((1, 128, 768, 12), (4, 32, 384, 6)):
        mask = typed("int32", batch, steps, low=1, high=2)
        yield case("Attention", (batch, steps, width), small(width, 3 * width), (3 * width,), mask, constants=[1, 2], domain="com.microsoft",
                   note="com.microsoft with a mask", num_heads=heads)
        yield case("MultiHeadAttention", *[(batch, steps, width)] * 3, (3 * width,), mask, constants=[3], domain="com.microsoft",
                   note="bias and mask", num_heads=heads)
    yield case("MultiHeadAttention", (1, 1, 512), (1, 1, 512), (1, 1, 512), None, None, None, (1, 8, 447, 64), (1, 8, 447, 64), outputs=3,
               domain="com.microsoft", note="a step with a past", num_heads=8)
    yield case("Attention", (1, 8, 1, 64), (1, 2, 1024, 64), (1, 2, 1024, 64), opset=23)
    yield case("Attention", (1, 12, 128, 64), (1, 12, 128, 64), (1, 12, 128, 64), opset=23)
    for heads, groups, steps, past, more in ((16, 4, 1, 1024, {}), (12, 12, 1, 1024, {}), (16, 4, 128, 0, {}), (16, 4, 256, 0, {"local_window_size": 64}),
                                             (8, 4, 64, 64, {"softcap": 30.0})):
        total = steps + past
        yield case("GroupQueryAttention", (1, steps, heads * 64), (1, steps, groups * 64), (1, steps, groups * 64), (1, groups, past, 64),
                   (1, groups, past, 64), fixed([total - 1], "int32"), fixed(total, "int32"), outputs=3, domain="com.microsoft",
                   note=" ".join(more), opened=[3, 4], num_heads=heads, kv_num_heads=groups, **more)


def convolutions():
    def conv(x, w, **attributes):
        return case("Conv", x, w, (w[0],), constants=[1, 2], **attributes)

    yield conv((1, 64, 56, 56), (64, 64, 3, 3), pads=[1, 1, 1, 1])
    yield conv((1, 3, 224, 224), (32, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    yield conv((1, 256, 14, 14), (1024, 256, 1, 1))
    yield conv((1, 96, 56, 56), (96, 1, 3, 3), pads=[1, 1, 1, 1], group=96)
    yield conv((1, 96, 28, 28), (96, 1, 7, 7), pads=[3, 3, 3, 3], group=96)
    yield conv((1, 128, 28, 28), (128, 4, 3, 3), pads=[1, 1, 1, 1], group=32)
    yield conv((1, 256, 28, 28), (256, 8, 3, 3), pads=[1, 1, 1, 1], group=32)
    yield conv((1, 512, 14, 14), (512, 16, 3, 3), pads=[1, 1, 1, 1], group=32)
    yield conv((1, 64, 28, 28), (64, 64, 3, 3), pads=[2, 2, 2, 2], dilations=[2, 2])
    yield conv((1, 80, 1000), (256, 80, 3), pads=[1, 1])
    yield conv((1, 256, 500), (256, 1, 31), pads=[15, 15], group=256)
    yield conv((1, 3, 8, 56, 56), (32, 3, 3, 3, 3), pads=[1] * 6)
    yield conv((1, 32, 8, 28, 28), (64, 32, 3, 3, 3), pads=[1] * 6)
    yield conv((1, 64, 8, 28, 28), (64, 64, 1, 1, 1))
    yield conv((1, 64, 8, 28, 28), (64, 1, 3, 3, 3), pads=[1] * 6, group=64)
    yield case("ConvTranspose", (1, 64, 28, 28), (64, 32, 2, 2), constants=[1], strides=[2, 2])
    yield case("ConvTranspose", (1, 64, 28, 28), (64, 32, 4, 4), constants=[1], strides=[2, 2], pads=[1, 1, 1, 1])
    yield case("ConvTranspose", (1, 64, 4, 14, 14), (64, 32, 2, 2, 2), constants=[1], strides=[2, 2, 2])


def pools():
    yield case("MaxPool", (1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    yield case("AveragePool", (1, 64, 56, 56), kernel_shape=[2, 2], strides=[2, 2])
    yield case("MaxPool", (1, 32, 8, 56, 56), kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    yield case("AveragePool", (1, 32, 8, 56, 56), kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    yield case("MaxPool", (1, 64, 1000), kernel_shape=[3], strides=[2])
    yield case("GlobalAveragePool", (1, 1280, 7, 7))
    yield case("GlobalMaxPool", (1, 256, 14, 14))
    yield case("LpPool", (1, 32, 28, 28), kernel_shape=[2, 2], strides=[2, 2])


def normalizations():
    yield case("BatchNormalization", (1, 64, 56, 56), (64,), (64,), (64,), typed("float32", 64), constants=[1, 2, 3, 4])
    yield case("InstanceNormalization", (1, 64, 56, 56), (64,), (64,), constants=[1, 2])
    yield case("InstanceNormalization", (1, 32, 25088), (32,), (32,), constants=[1, 2], note="groups")
    yield case("GroupNormalization", (1, 64, 56, 56), (64,), (64,), constants=[1, 2], opset=21, num_groups=32)
    yield case("LayerNormalization", (1, 128, 768), (768,), (768,), constants=[1, 2])
    yield case("LayerNormalization", (1, 3136, 96), (96,), (96,), constants=[1, 2])
    yield case("LpNormalization", (64, 512), axis=-1, p=2)
    yield case("MeanVarianceNormalization", (1, 64, 28, 28))
    yield case("LRN", (1, 64, 28, 28), size=5)
    yield case("Softmax", (1, 12, 128, 128), axis=-1)
    yield case("Softmax", (64, 1000), axis=-1)
    yield case("Softmax", (1, 21, 128, 128), axis=1)
    yield case("LogSoftmax", (64, 1000), axis=-1)
    yield case("Hardmax", (64, 1000), axis=-1)


def reductions():
    for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2"):
        for shape, axes in (((1, 64, 56, 56), [2, 3]), ((1, 64, 56, 56), [1]), ((1, 128, 768), [-1]), ((1, 128, 768), [1]), ((8, 16, 32, 64), [0, 2])):
            yield case(op, shape, fixed(axes), constants=[1], note=str(axes))
    yield case("ReduceProd", (64, 512), fixed([-1]), constants=[1])
    yield case("ReduceLogSumExp", (64, 512), fixed([-1]), constants=[1])
    yield case("ReduceSum", typed("int64", 64, 512), fixed([-1]), constants=[1], note="int64")
    yield case("ReduceMax", typed("int64", 64, 512), fixed([-1]), constants=[1], note="int64")
    yield case("ArgMax", (64, 1000), axis=-1)
    yield case("ArgMax", (1, 21, 128, 128), axis=1)
    yield case("CumSum", (64, 512), fixed(1), constants=[1])


def elementwise():
    for op in ("Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Erf", "Abs", "Neg", "Floor", "Round", "Sin", "Cos", "HardSwish", "HardSigmoid", "Softplus",
               "Softsign", "Elu", "Selu", "LeakyRelu", "Mish", "Gelu", "Sign", "Reciprocal", "Ceil", "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Celu", "ThresholdedRelu"):
        yield case(op, (1, 64, 56, 56))
    for op in ("Add", "Mul", "Sub", "Div", "Pow", "Max", "Min"):
        yield case(op, (1, 64, 56, 56), (1, 64, 56, 56))
        yield case(op, (1, 128, 768), (768,), note="row")
    yield case("Add", (1, 64, 56, 56), (1, 64, 1, 1), note="channel")
    yield case("PRelu", (1, 64, 56, 56), (64, 1, 1), constants=[1])
    yield case("Clip", (1, 64, 56, 56), fixed(0, "float32"), fixed(6, "float32"), constants=[1, 2])
    yield case("Mod", (128, 768), (128, 768), fmod=1)
    for op in ("Add", "Mul", "Sub", "Div"):
        yield case(op, typed("int64", 128, 768, low=1), typed("int64", 128, 768, low=1), note="int64")
    yield case("Mod", typed("int64", 128, 768, low=1), typed("int64", 128, 768, low=1), note="int64")
    for op in ("Equal", "Greater", "Less", "GreaterOrEqual"):
        yield case(op, (128, 768), (128, 768))
    yield case("Equal", typed("int64", 128, 768), typed("int64", 128, 768), note="int64")
    for op in ("And", "Or", "Xor"):
        yield case(op, typed("bool", 128, 768), typed("bool", 128, 768), note="bool")
    yield case("Not", typed("bool", 128, 768), note="bool")
    yield case("Where", typed("bool", 128, 768), (128, 768), (128, 768))
    yield case("Where", typed("bool", 1, 1, 128, 128), (1, 12, 128, 128), fixed(-1e9, "float32"), note="mask")
    yield case("IsNaN", (128, 768))
    yield case("IsInf", (128, 768))
    yield case("Sum", (128, 768), (128, 768), (128, 768))
    yield case("Mean", (128, 768), (128, 768), (128, 768))
    for source, target in (("float32", 10), ("float16", 1), ("int64", 1), ("float32", 7), ("int32", 7), ("bool", 1), ("uint8", 1), ("float32", 9)):
        yield case("Cast", typed(source, 128, 768), note=f"{source} to {target}", to=target)
    yield case("BitShift", typed("uint8", 128, 768), typed("uint8", 128, 768, high=7), direction="LEFT", note="uint8")


def moves():
    for shape, perm in (((1, 128, 12, 64), [0, 2, 1, 3]), ((1, 64, 56, 56), [0, 2, 3, 1]), ((1, 56, 56, 64), [0, 3, 1, 2]), ((512, 768), [1, 0]),
                        ((1, 8, 7, 8, 7, 96), [0, 1, 3, 2, 4, 5]), ((1, 3, 14, 16, 14, 16), [0, 2, 4, 3, 5, 1])):
        yield case("Transpose", shape, note=str(perm), perm=perm)
    yield case("Transpose", typed("int64", 512, 768), note="int64", perm=[1, 0])
    yield case("Transpose", typed("uint8", 1, 56, 56, 64), note="uint8", perm=[0, 3, 1, 2])
    yield case("Concat", (1, 64, 56, 56), (1, 64, 56, 56), axis=1)
    yield case("Concat", (1, 128, 384), (1, 128, 384), axis=2)
    yield case("Split", (1, 64, 56, 56), outputs=2, axis=1, num_outputs=2)
    yield case("Split", (1, 128, 2304), outputs=3, axis=2, num_outputs=3)
    yield case("Slice", (1, 64, 56, 56), fixed([0]), fixed([28]), fixed([2]), constants=[1, 2, 3])
    yield case("Slice", (1, 64, 56, 56), fixed([0, 0]), fixed([56, 56]), fixed([2, 3]), fixed([2, 2]), constants=[1, 2, 3, 4], note="steps")
    yield case("Pad", (1, 64, 56, 56), fixed([0, 0, 1, 1, 0, 0, 1, 1]), constants=[1])
    yield case("Pad", (1, 64, 56, 56), fixed([0, 0, 3, 3, 0, 0, 3, 3]), constants=[1], mode="reflect", note="reflect")
    yield case("Pad", (1, 64, 56, 56), fixed([0, 0, 3, 3, 0, 0, 3, 3]), constants=[1], mode="edge", note="edge")
    yield case("Tile", (1, 64, 28, 28), fixed([1, 1, 2, 2]), constants=[1])
    yield case("Tile", (1, 1, 768), fixed([1, 128, 1]), constants=[1])
    yield case("Tile", (128, 768), fixed([4, 1]), constants=[1], note="outer")
    yield case("Tile", typed("int64", 1, 1, 128), fixed([1, 128, 1]), constants=[1], note="int64")
    yield case("Expand", (1, 1, 768), fixed([1, 128, 768]), constants=[1])
    yield case("Expand", (1, 64, 1, 1), fixed([1, 64, 56, 56]), constants=[1])
    yield case("DepthToSpace", (1, 64, 56, 56), blocksize=2, note="DCR")
    yield case("DepthToSpace", (1, 64, 56, 56), blocksize=2, mode="CRD", note="CRD")
    yield case("SpaceToDepth", (1, 16, 112, 112), blocksize=2)
    yield case("ReverseSequence", (128, 32, 64), fixed([128] * 32), batch_axis=1, time_axis=0)
    yield case("Trilu", (12, 128, 128), upper=0)
    yield case("EyeLike", (256, 256))
    yield case("Col2Im", (1, 288, 784), fixed([28, 28]), fixed([3, 3]), constants=[1, 2], pads=[1, 1, 1, 1])
    yield case("CenterCropPad", (3, 256, 256), fixed([224, 224]), constants=[1], axes=[1, 2])


def gathers():
    yield case("Gather", (30522, 384), typed("int64", 1, 128, high=30522), axis=0, note="embedding")
    yield case("Gather", (1, 12, 128, 64), typed("int64", 64, high=128), axis=2)
    yield case("GatherElements", (128, 768), typed("int64", 128, 100), axis=1)
    yield case("GatherElements", (1, 1000, 4), typed("int64", 1, 300, 4, high=1000), axis=1, note="boxes")
    yield case("GatherND", (8, 128, 64), typed("int64", 8, 32, 1, high=128), batch_dims=1)
    yield case("GatherND", (64, 64, 32), typed("int64", 500, 2, high=64), note="points")
    yield case("ScatterElements", (128, 768), lambda random: random.permuted(numpy.tile(numpy.arange(768), (128, 1)), axis=1)[:, :100].copy(), (128, 100), axis=1)
    yield case("ScatterElements", (128, 768), typed("int64", 128, 100), (128, 100), axis=1, reduction="add", note="add")
    yield case("ScatterND", (512, 64), lambda random: random.permutation(512)[:128, None].copy(), (128, 64))
    yield case("ScatterND", (64, 64, 32), typed("int64", 500, 2, high=64), (500, 32), reduction="add", note="add")
    yield case("OneHot", typed("int64", 512), fixed(1000), fixed([0, 1], "float32"), constants=[1, 2])
    yield case("NonZero", typed("float32", 128, 768))
    yield case("Compress", (512, 64), typed("bool", 512), axis=0)


def resizes():
    for mode in ("nearest", "linear", "cubic"):
        yield case("Resize", (1, 64, 28, 28), fixed([], "float32"), fixed([1, 1, 2, 2], "float32"), constants=[1, 2], mode=mode, note=mode)
    yield case("Resize", (1, 3, 480, 640), fixed([], "float32"), fixed([], "float32"), fixed([1, 3, 224, 224]), constants=[1, 2, 3], mode="linear", note="down")
    yield case("Resize", (1, 3, 480, 640), fixed([], "float32"), fixed([], "float32"), fixed([1, 3, 224, 224]), constants=[1, 2, 3], mode="linear", antialias=1,
               note="antialias")
    yield case("Resize", (1, 16, 8, 28, 28), fixed([], "float32"), fixed([1, 1, 2, 2, 2], "float32"), constants=[1, 2], mode="linear", note="3D")
    yield case("GridSample", (1, 32, 56, 56), lambda random: random.uniform(-1, 1, (1, 56, 56, 2)).astype("float32"), mode="linear", note="linear")
    yield case("GridSample", (1, 32, 56, 56), lambda random: random.uniform(-1, 1, (1, 56, 56, 2)).astype("float32"), mode="nearest", note="nearest")
    yield case("AffineGrid", (1, 2, 3), fixed([1, 32, 56, 56]), constants=[1])


def boxes(random, count=2000):
    corner = random.uniform(0, 600, (count, 2))
    return numpy.concatenate([corner, corner + random.uniform(10, 100, (count, 2))], 1).astype("float32")


def detection():
    yield case("NonMaxSuppression", lambda random: boxes(random)[None], lambda random: random.uniform(0, 1, (1, 1, 2000)).astype("float32"), fixed([200]),
               fixed([0.5], "float32"), fixed([0.05], "float32"), constants=[2, 3, 4], note="one class")
    yield case("NonMaxSuppression", lambda random: boxes(random, 1000)[None], lambda random: random.uniform(0, 1, (1, 80, 1000)).astype("float32"), fixed([100]),
               fixed([0.5], "float32"), fixed([0.5], "float32"), constants=[2, 3, 4], note="80 classes")
    yield case("RoiAlign", (1, 256, 50, 50), lambda random: boxes(random, 100) / 16, fixed([0] * 100), output_height=7, output_width=7, sampling_ratio=2)
    yield case("MaxRoiPool", (1, 256, 50, 50), lambda random: numpy.concatenate([numpy.zeros((100, 1), "float32"), boxes(random, 100) / 16], 1), pooled_shape=[7, 7])


def sorting():
    yield case("TopK", (1, 1000), fixed([100]), outputs=2, note="100")
    yield case("TopK", (64, 1000), fixed([5]), outputs=2, note="5")
    yield case("TopK", (1, 20000), fixed([300]), outputs=2, note="300")
    yield case("TopK", (1, 300, 80), fixed([80]), outputs=2, note="all")
    yield case("Unique", typed("int64", 5000), outputs=4, note="int64")


def recurrent():
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        weights = [small(1, gates * 256, 128), small(1, gates * 256, 256), small(1, 2 * gates * 256)]
        yield case(op, (100, 1, 128), *weights, constants=[1, 2, 3], hidden_size=256)


def others():
    yield case("Range", fixed(0), fixed(10000), fixed(1))
    yield case("DFT", (1, 512, 1), note="512", opset=19, axis=1)
    yield case("STFT", (1, 16000), fixed(160), (400,), fixed(400), constants=[1, 2, 3])
    yield case("QuantizeLinear", (1, 64, 56, 56), fixed(0.05, "float32"), fixed(128, "uint8"), constants=[1, 2])
    yield case("DequantizeLinear", typed("uint8", 1, 64, 56, 56), fixed(0.05, "float32"), fixed(128, "uint8"), constants=[1, 2])
    yield case("DynamicQuantizeLinear", (128, 768), outputs=3)
    yield case("MatMulInteger", typed("uint8", 128, 768), typed("int8", 768, 768, low=-100), constants=[1])
    yield case("Det", (64, 3, 3))
    yield case("BitwiseAnd", typed("int32", 128, 768), typed("int32", 128, 768))
