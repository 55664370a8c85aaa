"""Nodes to differentiate: what tests/models/test_gradient.py judges by finite differences."""
import dataclasses

import numpy
from onnx import helper


@dataclasses.dataclass
class Case:
    """One node `op` of inputs `x0`, `x1`, ..., of which one output is differentiated by those of floating point."""
    op: str
    inputs: list                    # arrays; None: not given
    attributes: dict = dataclasses.field(default_factory=dict)
    opset: int = 21
    outputs: int = 1
    by: tuple = None                # numbers of the inputs; None: all of floating point
    constant: tuple = ()            # inputs that are initializers
    wanted: int = 0                 # the output that is differentiated
    has_second: bool = True         # its derivative has a rule
    has_other: bool = True          # another engine has the node

    def __str__(self):
        shapes = ",".join("-" if x is None else "x".join(map(str, x.shape)) or "0d" for x in self.inputs)
        attributes = ",".join(f"{k}={v}" for k, v in self.attributes.items() if not isinstance(v, str) or len(v) < 12)
        return f"{self.op}{self.opset}({shapes}){attributes}".replace(" ", "")

    def xs(self):
        return self.by if self.by is not None else tuple(i for i, x in enumerate(self.inputs) if x is not None and x.dtype == numpy.float64)

    def node(self):
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.inputs)]
        outputs = ["y" if i == self.wanted else f"y_{i}" for i in range(self.outputs)]
        return helper.make_node(self.op, names, outputs, name="node", **self.attributes)


def drawn(*shape, low=-2.0, high=2.0, gap=0.0, seed=1):
    """Values whose distance from 0, and from one another, is no less than `gap`."""
    random = numpy.random.default_rng([seed, *shape])
    values = random.uniform(low, high, shape)
    if gap:
        steps = (numpy.arange(values.size) + 0.5) / max(values.size, 1)
        values = random.permutation(low + (high - low) * steps).reshape(shape)
        values = numpy.where(abs(values) < gap, gap * 2, values)
    return values


def positive(*shape, seed=2):
    return drawn(*shape, low=0.3, high=2.0, seed=seed)


def ints(*values):
    return numpy.array(values, dtype=numpy.int64)


def elementwise():
    plain = ("Neg", "Exp", "Sin", "Cos", "Tanh", "Sigmoid", "Softplus", "Softsign", "Erf", "Gelu", "Mish", "Sinh", "Cosh", "Asinh", "Atan", "Identity")
    for op in plain:
        yield Case(op, [drawn(2, 3)], opset=22)
    for op in ("Sqrt", "Log", "Reciprocal"):
        yield Case(op, [positive(3, 2)])
    yield Case("Gelu", [drawn(5)], {"approximate": "tanh"})
    yield Case("Tan", [drawn(5, low=-1, high=1)])
    for op in ("Asin", "Acos", "Atanh"):
        yield Case(op, [drawn(5, low=-0.9, high=0.9)], opset=22)
    yield Case("Acosh", [drawn(5, low=1.2, high=3)], opset=22)
    for op in ("Abs", "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "HardSwish", "HardSigmoid", "ThresholdedRelu", "Shrink"):
        yield Case(op, [drawn(3, 7, low=-4, high=4, gap=0.05)], opset=22)
    yield Case("LeakyRelu", [drawn(7, gap=0.05)], {"alpha": 0.3})
    yield Case("Elu", [drawn(7, gap=0.05)], {"alpha": 0.7})
    yield Case("Celu", [drawn(7, gap=0.05)], {"alpha": 0.7}, opset=12)
    yield Case("Swish", [drawn(7)], {"alpha": 1.5}, opset=24)
    yield Case("PRelu", [drawn(2, 3, gap=0.05), drawn(3)], opset=16)
    yield Case("Exp", [drawn()])
    yield Case("Sin", [drawn(0, 3)])
    yield Case("Cast", [drawn(2, 3)], {"to": 11})
    yield Case("Dropout", [drawn(2, 3)], opset=13)
    yield Case("Dropout", [drawn(2, 3), numpy.array(0.3), numpy.array(False)], opset=13, by=(0,))
    for bounds in ([numpy.array(-0.87), numpy.array(0.83)], [None, numpy.array(0.83)], [numpy.array(-0.87)]):
        yield Case("Clip", [drawn(3, 5, gap=0.02), *bounds], opset=13)
    yield Case("Clip", [drawn(3, 5, gap=0.02)], {"min": -0.5, "max": 0.5}, opset=10)


def binary():
    shapes = [((2, 3), (2, 3)), ((2, 3), (3,)), ((3, 1), (1, 4)), ((), (2, 2)), ((2, 1, 3), (4, 1)), ((1,), ()), ((0, 3), (3,)), ((2, 1), (2, 0)), ((), ())]
    for a, b in shapes:
        for op in ("Add", "Sub", "Mul", "Div"):
            yield Case(op, [drawn(*a), positive(*b)])
        yield Case("Pow", [positive(*a), drawn(*b)])
    flags = numpy.array([[True], [False]])
    for condition, a, b in [(flags, (2, 3), (3,)), (flags, (), (2, 1)), (numpy.array(True), (3, 1), (1, 2)), (flags, (1, 4), ()), (flags[:0], (1, 3), (3,))]:
        yield Case("Where", [condition, drawn(*a), drawn(*b)])
    yield Case("Pow", [drawn(2, 3), ints(2)])
    yield Case("Pow", [drawn(2, 3), numpy.array([0.0, 3.0, 1.0])], by=(0,))
    for op in ("Min", "Max", "Mean", "Sum"):
        yield Case(op, [drawn(2, 3, gap=0.01), drawn(3, gap=0.02, seed=4), drawn(2, 1, gap=0.03, seed=6)])
        yield Case(op, [drawn(4)])
        if op != "Mean":  # onnx's evaluator cannot
            yield Case(op, [drawn(), drawn(0, 2)])


def shapes():
    yield Case("Reshape", [drawn(2, 6), ints(3, -1)], constant=(1,))
    yield Case("Reshape", [drawn(2, 6), ints(0, 2, 3)])
    yield Case("Reshape", [drawn(), ints(1, 1)])
    yield Case("Flatten", [drawn(2, 3, 2)], {"axis": 2})
    yield Case("Flatten", [drawn(2, 3, 2)], {"axis": -1})
    yield Case("Squeeze", [drawn(2, 1, 3, 1), ints(-1)], constant=(1,))
    yield Case("Squeeze", [drawn(2, 1, 3, 1)])
    yield Case("Squeeze", [drawn(2, 1, 3, 1)], {"axes": [1, 3]}, opset=11)
    yield Case("Unsqueeze", [drawn(2, 3), ints(0, -1)], constant=(1,))
    yield Case("Unsqueeze", [drawn(2, 3)], {"axes": [1]}, opset=11)
    yield Case("Transpose", [drawn(2, 3, 4)])
    yield Case("Transpose", [drawn(2, 3, 4)], {"perm": [1, 2, 0]})
    yield Case("Concat", [drawn(2, 3), drawn(2, 1), drawn(2, 0)], {"axis": 1})
    yield Case("Concat", [drawn(1, 3), drawn(2, 3)], {"axis": -2})
    yield Case("Concat", [drawn(2, 3)], {"axis": -1})
    yield Case("Concat", [drawn(2, 3), drawn(2, 2)], {"axis": -1})
    yield Case("Split", [drawn(5, 2), ints(2, 3)], outputs=2)
    yield Case("Split", [drawn(4, 5)], {"axis": -1, "num_outputs": 3}, outputs=3)
    yield Case("Split", [drawn(4, 2)], {"split": [1, 3]}, outputs=2, opset=11)
    yield Case("Slice", [drawn(5, 4), ints(1), ints(4), ints(0)])
    yield Case("Slice", [drawn(5, 4), ints(-1, 0), ints(-6, 3), ints(0, -1), ints(-2, 2)], constant=(1, 2, 3, 4))
    yield Case("Slice", [drawn(5, 4), ints(4, 0), ints(2, 9), ints(0, 1)])
    yield Case("Slice", [drawn(5, 4)], {"starts": [1, -3], "ends": [9, -1], "axes": [0, 1]}, opset=9)
    yield Case("Pad", [drawn(2, 3), ints(1, 0, 0, 2)])
    yield Case("Pad", [drawn(2, 3), ints(1, -1, 0, 2), numpy.array(0.5)])
    yield Case("Pad", [drawn(2, 3), ints(-1, 2), None, ints(-1)], opset=19)
    yield Case("Pad", [drawn(2, 3)], {"pads": [1, 0, 0, 2], "value": 1.5}, opset=10)
    yield Case("Gather", [drawn(4, 3), ints(1, -1, 1)])
    yield Case("Gather", [drawn(2, 4, 3), ints(3, 0, 3, 1).reshape(2, 2)], {"axis": -2})
    yield Case("Gather", [drawn(4), ints(2).reshape(())])
    yield Case("Gather", [drawn(4, 3), ints()])
    yield Case("GatherElements", [drawn(3, 2), ints(0, 2, 0, 1, -1, 0).reshape(3, 2)])
    yield Case("GatherElements", [drawn(3, 2), ints(0, 0, 1, 1, -1, 0).reshape(3, 2)], {"axis": 1})
    yield Case("GatherND", [drawn(3, 2, 2), ints(0, 1, 2, 0, 0, 1).reshape(3, 2)])
    yield Case("ScatterElements", [drawn(3, 2), ints(0, 2, 1, 1).reshape(2, 2), drawn(2, 2)], {"axis": 0})
    yield Case("ScatterElements", [drawn(3, 2), ints(0, 0, 1, 1).reshape(2, 2), drawn(2, 2)], {"axis": 1, "reduction": "add"})
    yield Case("ScatterND", [drawn(3, 2), ints(2, 0).reshape(2, 1), drawn(2, 2)])
    yield Case("ScatterND", [drawn(3, 2), ints(2, 2).reshape(2, 1), drawn(2, 2)], {"reduction": "add"})
    yield Case("TopK", [drawn(3, 5, gap=0.01), ints(2)], {"axis": -1}, outputs=2)
    yield Case("Expand", [drawn(3, 1), ints(2, 1, 4)])
    yield Case("Expand", [drawn(), ints(2, 2)])
    yield Case("Expand", [drawn(1, 3), ints(0, 3)])
    yield Case("Tile", [drawn(2, 3), ints(2, 3)])
    yield Case("Tile", [drawn(2, 3), ints(1, 0)])
    yield Case("Trilu", [drawn(3, 4)], {"upper": 0})
    yield Case("Trilu", [drawn(3, 4), ints(1).reshape(())])
    yield Case("ReverseSequence", [drawn(4, 3), ints(2, 4, 1)], {"batch_axis": 1, "time_axis": 0})
    yield Case("SpaceToDepth", [drawn(1, 2, 4, 2)], {"blocksize": 2})
    yield Case("SpaceToDepth", [drawn(2, 2, 4, 2)], {"blocksize": 2, "mode": "CRD"}, opset=28, has_other=False)
    yield Case("DepthToSpace", [drawn(1, 4, 1, 2)], {"blocksize": 2})
    yield Case("DepthToSpace", [drawn(2, 8, 1, 2)], {"blocksize": 2, "mode": "CRD"})
    yield Case("DepthToSpace", [drawn(2, 8, 0, 2)], {"blocksize": 2, "mode": "CRD"}, has_other=False)


def reductions():
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"):
        x = positive(2, 3, 4) if op == "ReduceLogSum" else drawn(2, 3, 4, gap=0.02)
        opset = 13 if op != "ReduceSum" else 11
        yield Case(op, [x, ints(1)], {"keepdims": 0}, opset=18)
        yield Case(op, [x, ints(0, -1)], {"keepdims": 1}, opset=18, constant=(1,))
        yield Case(op, [x], {"keepdims": 0}, opset=18)
        yield Case(op, [x], {"axes": [-2], "keepdims": 0}, opset=opset)
        yield Case(op, [x[0, 0, 0]], opset=18)
    yield Case("ReduceSum", [drawn(2, 0, 3), ints(1)], {"keepdims": 0})
    yield Case("ReduceSum", [drawn(2, 3), ints()], {"keepdims": 0, "noop_with_empty_axes": 1})
    yield Case("ReduceMean", [drawn(2, 3), ints()], {"keepdims": 0, "noop_with_empty_axes": 1}, opset=18)
    for opset, inputs, attributes in [(18, [ints(1)], {"keepdims": 0}), (18, [], {"keepdims": 1}), (13, [], {"axes": [0, -1], "keepdims": 0})]:
        yield Case("ReduceProd", [drawn(2, 3, 4, low=-1.5, high=1.5, gap=0.3), *inputs], attributes, opset=opset)
    for op in ("Softmax", "LogSoftmax"):
        yield Case(op, [drawn(2, 3)])
        yield Case(op, [drawn(2, 3, 2)], {"axis": 1})
        yield Case(op, [drawn(3)], {"axis": 0})
        yield Case(op, [drawn(2, 3, 2)], {"axis": 1}, opset=11)
    for attributes in ({}, {"exclusive": 1}, {"reverse": 1}):
        yield Case("CumSum", [drawn(3, 4), ints(-1).reshape(())], attributes)


def products():
    for a, b in [((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((2, 1, 2, 3), (2, 3, 1)), ((3,), (2, 3, 2)), ((2, 2, 3), (3,)),
                 ((2, 3), (2, 3, 2)), ((2, 0), (0, 3)), ((0, 2), (2, 3))]:
        yield Case("MatMul", [drawn(*a), drawn(*b)])
    for trans_a in (0, 1):
        for trans_b in (0, 1):
            a, b = drawn(2, 3), drawn(3, 4)
            yield Case("Gemm", [a.T.copy() if trans_a else a, b.T.copy() if trans_b else b, drawn(4)],
                       {"transA": trans_a, "transB": trans_b, "alpha": 0.5, "beta": 2.0})
    yield Case("Gemm", [drawn(2, 3), drawn(3, 4)])
    for equation, *shapes_ in [("bij,bjk->bik", (2, 2, 3), (2, 3, 2)), ("ij,jk", (2, 3), (3, 2)), ("ij->j", (2, 3)), ("ij,kj,k->i", (2, 3), (4, 3), (4,)),
                               ("ij,k->k", (2, 3), (4,)), ("i,i->", (3,), (3,)), ("ab->ba", (2, 3))]:
        yield Case("Einsum", [drawn(*s) for s in shapes_], {"equation": equation})
    yield Case("Gemm", [drawn(2, 3), drawn(3, 4), drawn(2, 1)])
    yield Case("Gemm", [drawn(2, 3), drawn(3, 4), drawn()])


def windows():
    yield Case("Conv", [drawn(2, 2, 5, 4), drawn(3, 2, 3, 2), drawn(3)])
    yield Case("Conv", [drawn(1, 2, 6, 5), drawn(4, 1, 3, 2)], {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2], "group": 2})
    yield Case("Conv", [drawn(1, 1, 7), drawn(2, 1, 3)], {"strides": [3]})
    yield Case("Conv", [drawn(1, 1, 5, 6), drawn(1, 1, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]})
    yield Case("Conv", [drawn(1, 1, 3, 3, 2), drawn(1, 1, 2, 2, 1)])
    yield Case("ConvTranspose", [drawn(1, 2, 3, 3), drawn(2, 3, 2, 3), drawn(3)], {"strides": [2, 1], "pads": [0, 1, 1, 0]})
    yield Case("ConvTranspose", [drawn(1, 2, 3), drawn(2, 1, 3)], {"strides": [2], "output_padding": [1], "group": 2, "dilations": [2]})
    pool = {"kernel_shape": [2, 3]}
    for attributes in (pool, {**pool, "strides": [2, 2], "pads": [1, 1, 0, 1]}, {**pool, "dilations": [2, 1]}, {**pool, "strides": [2, 2], "ceil_mode": 1}):
        yield Case("MaxPool", [drawn(1, 2, 5, 5, gap=0.001)], attributes)
        yield Case("AveragePool", [drawn(1, 2, 5, 5)], attributes)
    yield Case("AveragePool", [drawn(1, 2, 5)], {"kernel_shape": [3], "pads": [1, 1], "count_include_pad": 1})
    yield Case("MaxPool", [drawn(1, 1, 5, gap=0.001)], {"kernel_shape": [2], "auto_pad": "SAME_LOWER", "strides": [2]})
    sizes, scales = ints(1, 2, 5, 7), numpy.array([1, 1, 2, 0.6], dtype=numpy.float32)
    for attributes in ({}, {"mode": "linear"}, {"mode": "linear", "coordinate_transformation_mode": "align_corners"}, {"mode": "cubic"}):
        yield Case("Resize", [drawn(1, 2, 3, 4), None, None, sizes], attributes, opset=19, constant=(3,))
        yield Case("Resize", [drawn(1, 2, 3, 4), None, scales], {**attributes, "nearest_mode": "round_prefer_ceil"}, opset=13, constant=(2,))
    yield Case("Resize", [drawn(1, 2, 4, 8), None, None, ints(2, 3)], {"mode": "linear", "antialias": 1, "axes": [2, 3]}, opset=18, constant=(3,))
    yield Case("GlobalAveragePool", [drawn(2, 2, 3, 2)])
    yield Case("GlobalMaxPool", [drawn(2, 2, 3, 2, gap=0.001)])


def norms():
    for shape in ((2, 3, 2, 2), (4, 3), (2, 3, 4)):
        yield Case("BatchNormalization", [drawn(*shape), drawn(3), drawn(3), drawn(3), positive(3)], opset=15)
    yield Case("BatchNormalization", [drawn(4, 3, 2), drawn(3), drawn(3), drawn(3), positive(3)], {"training_mode": 1}, outputs=3, by=(0, 1, 2), opset=15)
    yield Case("InstanceNormalization", [drawn(2, 3, 4, 2), drawn(3), drawn(3)])
    yield Case("GroupNormalization", [drawn(2, 4, 3), drawn(4), drawn(4)], {"num_groups": 2})
    yield Case("GroupNormalization", [drawn(0, 4, 3), drawn(4), drawn(4)], {"num_groups": 2}, has_other=False)
    yield Case("GroupNormalization", [drawn(2, 4, 0), drawn(4), drawn(4)], {"num_groups": 2}, has_second=False, has_other=False)
    yield Case("LayerNormalization", [drawn(2, 3, 4), drawn(4), drawn(4)])
    yield Case("LayerNormalization", [drawn(2, 3, 4), drawn(3, 4), drawn(4)], {"axis": 1, "epsilon": 1e-3})
    yield Case("LayerNormalization", [drawn(2, 5), drawn(5)], {"axis": -1})
    yield Case("RMSNormalization", [drawn(2, 3, 4), drawn(4)], opset=23)
    classes = ints(0, 2, 1, 2)
    for op in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
        for reduction in ("none", "sum", "mean"):
            yield Case(op, [drawn(4, 3), classes], {"reduction": reduction})
            yield Case(op, [drawn(4, 3), classes, positive(3)], {"reduction": reduction, "ignore_index": 2}, by=(0,))
        yield Case(op, [drawn(2, 3, 2), classes.reshape(2, 2)])


def recurrent():
    """Of 5 steps, 3 sequences, 2 inputs and a hidden size of 4."""
    gates, states = {"LSTM": 4, "GRU": 3, "RNN": 1}, {"LSTM": 3, "GRU": 2, "RNN": 2}

    def inputs(op, directions=1, layout=0, has_lengths=True, seed=1, wanted=0):
        lengths = numpy.array([3, 5, 0 if wanted == 0 else 1], dtype=numpy.int32)  # the last state of an empty sequence is 0 to ONNX Runtime
        rows = 4 * gates[op]
        x, state = ((3, 5, 2), (3, directions, 4)) if layout else ((5, 3, 2), (directions, 3, 4))
        found = [drawn(*x, seed=seed), drawn(directions, rows, 2, low=-0.8, high=0.8), drawn(directions, rows, 4, low=-0.8, high=0.8), drawn(directions, 2 * rows),
                 lengths if has_lengths else None, drawn(*state, low=-0.9, high=0.9)]
        return found + ([drawn(*state, seed=3), drawn(directions, 12, seed=4)] if op == "LSTM" else [])

    def case(op, attributes=None, wanted=0, missing=(), by=None, **shape):
        given = [None if i in missing else x for i, x in enumerate(inputs(op, wanted=wanted, **shape))]
        return Case(op, given, {"hidden_size": 4, **(attributes or {})}, opset=22, outputs=states[op], wanted=wanted, by=by, has_second=False,
                    has_other=not shape.get("layout"))

    for op in gates:
        for wanted in range(states[op]):
            yield case(op, wanted=wanted)
        yield case(op, {"direction": "reverse"})
        yield case(op, {"direction": "bidirectional"}, directions=2)
        yield case(op, {"direction": "bidirectional", "layout": 1}, directions=2, layout=1, wanted=1)
        yield case(op, {"layout": 1}, layout=1, has_lengths=False)
        yield case(op, missing=(3, 5, 6, 7), has_lengths=False)
        yield case(op, {"clip": 0.9})
        yield case(op, by=(1,))
    yield case("LSTM", {"input_forget": 1})
    yield case("LSTM", {"activations": ["HardSigmoid", "Softsign", "Affine"], "activation_alpha": [0.3, 0.7], "activation_beta": [0.4, 0.1]})
    yield case("LSTM", {"activations": ["Sigmoid", "ScaledTanh", "LeakyRelu", "Softplus", "Elu", "Tanh"], "activation_alpha": [0.8, 0.2, 0.6], "activation_beta": [1.2],
                        "direction": "bidirectional"}, directions=2)
    for attributes in ({}, {"direction": "bidirectional", "layout": 1}, {"clip": 0.9}, {"activations": ["HardSigmoid", "Relu"]}):
        directions = 2 if "layout" in attributes else 1
        attributes = {**attributes, "activations": attributes["activations"] * directions} if "activations" in attributes else attributes
        yield case("GRU", {"linear_before_reset": 1, **attributes}, directions=directions, layout=attributes.get("layout", 0))
    yield case("GRU", {"linear_before_reset": 1}, missing=(3, 5), has_lengths=False, wanted=1)
    yield case("RNN", {"activations": ["ThresholdedRelu"], "activation_alpha": [0.1]})


def attentions():
    q, k, v = drawn(2, 4, 3, 5), drawn(2, 2, 6, 5, seed=3), drawn(2, 2, 6, 4, seed=4)  # of 4 heads, and 2 of keys and values
    mask = numpy.random.default_rng(1).random((2, 1, 3, 6)) < 0.7
    mask[1, 0, 1] = False  # a query that sees nothing

    def case(*inputs, opset=23, has_other=True, **attributes):
        return Case("Attention", list(inputs), attributes, opset=opset, has_second=False, has_other=has_other)

    yield case(q, k, v)
    yield case(q, k, v, is_causal=1)
    yield case(q, k, v, scale=0.3, softcap=1.5)
    yield case(q, k, v, mask)
    yield case(q, k, v, mask, is_causal=1, softcap=2.0)
    yield case(q, k, v, drawn(3, 6))
    yield case(q, k, v, drawn(2, 1, 1, 6), is_causal=1, has_other=False)  # onnx's evaluator adds the mask of another query
    yield case(q, k, v, drawn(4, 1, 6), softcap=0.9)
    yield case(drawn(2, 3, 12), drawn(2, 5, 6, seed=3), drawn(2, 5, 4, seed=4), q_num_heads=4, kv_num_heads=2)
    yield case(q, k, v, None, None, None, ints(4, 6), opset=24)
    yield case(q, k, v, None, None, None, ints(3, 5), opset=24, is_causal=1)


def all_cases():
    for group in (elementwise, binary, shapes, reductions, products, windows, norms, recurrent, attentions):
        yield from group()
