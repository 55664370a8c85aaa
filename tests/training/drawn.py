"""Graphs that are drawn by a number: operators that have rules of differentiation, on values of small shapes, down to one number."""
import dataclasses

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET = 23
TRAINING = "ai.onnx.preview.training"


@dataclasses.dataclass
class Drawn:
    nodes: list
    feeds: dict       # what is differentiated by, float64
    constants: dict   # initializers: lists of axes and sizes, masks
    watched: list     # values that corners depend on, and how: "zero" (of elements), "order" (of elements among one another) or a number

    def model(self, outputs, dtype=np.float64, gradient=False):
        def cast(a):
            return a.astype(dtype) if a.dtype == np.float64 else a

        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        inputs = [helper.make_tensor_value_info(n, kind, a.shape) for n, a in self.feeds.items()]
        nodes = list(self.nodes)
        if gradient:
            nodes.append(helper.make_node("Gradient", list(self.feeds), outputs, name="gradient", domain=TRAINING, xs=list(self.feeds), y="y"))
        graph = helper.make_graph(nodes, "drawn", inputs, [helper.make_tensor_value_info(n, kind, None) for n in outputs],
                                  [numpy_helper.from_array(cast(a), n) for n, a in self.constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(TRAINING, 1)], ir_version=10)
        for node in graph_nodes(model.graph):  # bodies and branches declare their types
            for a in node.attribute:
                if a.HasField("g"):
                    for value in (*a.g.input, *a.g.output):
                        if value.type.tensor_type.elem_type == TensorProto.DOUBLE:
                            value.type.tensor_type.elem_type = kind
        return model.SerializeToString()


def graph_nodes(graph):
    for node in graph.node:
        yield node
        for a in node.attribute:
            if a.HasField("g"):
                yield from graph_nodes(a.g)


class Drawer:
    """Draws nodes; shapes are known by computing nothing: each operator says what it makes."""

    def __init__(self, seed):
        self.random = np.random.default_rng([seed, 20261127])
        self.nodes, self.feeds, self.constants, self.shapes, self.watched, self.used = [], {}, {}, {}, [], set()
        self.count = 0

    # ---- values
    def shape_of_rank(self, rank, most=5):
        return tuple(int(n) for n in self.random.integers(1, most + 1, rank))

    def parameter(self, shape, low=-1.0, high=1.0):
        name = f"x{len(self.feeds)}"
        self.feeds[name] = self.random.uniform(low, high, shape)
        self.shapes[name] = tuple(shape)
        return name

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def pick(self, wanted=lambda shape: True):
        """A value that is there, mostly one that nobody reads yet, of a shape that is wanted; else None."""
        fitting = [n for n, s in self.shapes.items() if wanted(s)]
        fresh = [n for n in fitting if n not in self.used]
        if not fitting:
            return None
        name = str(self.random.choice(fresh if fresh and self.random.random() < 0.7 else fitting))
        self.used.add(name)
        return name

    def of_rank(self, low, high=None):
        """A value of such a rank: one that is there, or a new parameter."""
        high = low if high is None else high
        if self.random.random() < 0.8 and (name := self.pick(lambda s: low <= len(s) <= high and 0 < np.prod(s) <= 400)):
            return name
        name = self.parameter(self.shape_of_rank(int(self.random.integers(low, high + 1))))
        self.used.add(name)
        return name

    def weight(self, *shape, scale=None):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        bound = (1 / max(fan, 1)) ** 0.5 if scale is None else scale
        name = self.parameter(shape, -bound, bound)
        self.used.add(name)
        return name

    def op(self, kind, *inputs, shape, outputs=1, wanted=0, **attributes):
        self.count += 1
        names = [f"v{self.count}" if i == wanted else f"v{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=f"n{self.count}", **attributes))
        self.shapes[names[wanted]] = tuple(shape)
        return names[wanted]

    def axis(self, rank):
        return int(self.random.integers(-rank, rank))

    def chance(self, share=0.5):
        return bool(self.random.random() < share)

    # ---- operators
    def unary(self):
        x = self.of_rank(0, 4)
        kind = str(self.random.choice(["Tanh", "Sigmoid", "Softplus", "Softsign", "Erf", "Sin", "Cos", "Atan", "Neg", "Gelu", "Mish", "Identity", "Asinh"]))
        return self.op(kind, x, shape=self.shapes[x])

    def cornered(self):
        x = self.of_rank(1, 4)
        kind = str(self.random.choice(["Relu", "Abs", "LeakyRelu", "Elu", "Selu"]))
        self.watched.append((x, "zero"))
        return self.op(kind, x, shape=self.shapes[x])

    def clip(self):
        x = self.of_rank(1, 4)
        self.watched += [(x, -0.4), (x, 0.5)]
        return self.op("Clip", x, self.constant(np.float64(-0.4)), self.constant(np.float64(0.5)), shape=self.shapes[x])

    def positive(self):
        x = self.of_rank(1, 3)
        y = self.op("Softplus", x, shape=self.shapes[x])
        return self.op(str(self.random.choice(["Sqrt", "Log", "Reciprocal"])), y, shape=self.shapes[x])

    def binary(self):
        a = self.of_rank(0, 4)
        shape = list(self.shapes[a])
        if self.chance() and (b := self.pick(lambda s: self.broadcasts(s, shape))):
            other = self.shapes[b]
        else:
            other = tuple(1 if self.chance(0.3) else n for n in shape)[int(self.random.integers(0, len(shape) + 1)):]
            b = self.weight(*other, scale=1.0)
        kind = str(self.random.choice(["Add", "Sub", "Mul", "Div", "Sum", "Mean"]))
        if kind == "Div":
            b = self.op("Softplus", b, shape=other)
            self.used.add(b)
        a, b = (a, b) if kind == "Div" or self.chance() else (b, a)
        return self.op(kind, a, b, shape=np.broadcast_shapes(shape, other))

    @staticmethod
    def broadcasts(s, shape):
        try:
            return int(np.prod(np.broadcast_shapes(s, tuple(shape)))) <= 400
        except ValueError:
            return False

    def where(self):
        a = self.of_rank(1, 3)
        b = self.weight(*self.shapes[a], scale=1.0)
        return self.op("Where", self.constant(self.random.random(self.shapes[a]) < 0.5), a, b, shape=self.shapes[a])

    def matmul(self):
        a = self.of_rank(1, 4)
        shape = self.shapes[a]
        n = int(self.random.integers(1, 6))
        batch = shape[:-2] if len(shape) > 2 and self.chance() else ()
        b = self.weight(*batch, shape[-1], n, scale=shape[-1] ** -0.5)
        return self.op("MatMul", a, b, shape=(*shape[:-1], n))

    def gemm(self):
        a = self.of_rank(2)
        m, k = self.shapes[a]
        across_a, across_b, n = self.chance(), self.chance(), int(self.random.integers(1, 6))
        m, k = (k, m) if across_a else (m, k)
        b, c = self.weight(*((n, k) if across_b else (k, n)), scale=k ** -0.5), self.weight(*((m, n), (n,), (m, 1), ())[int(self.random.integers(4))])
        return self.op("Gemm", a, b, c, shape=(m, n), transA=int(across_a), transB=int(across_b), alpha=float(self.random.uniform(0.5, 1.5)), beta=0.5)

    def einsum(self):
        a = self.of_rank(3)
        i, j, k = self.shapes[a]
        n = int(self.random.integers(1, 5))
        equation, other, shape = [("ijk,ikn->inj", (i, k, n), (i, n, j)), ("ijk,nk->njk", (n, k), (n, j, k)), ("ijk,j->ik", (j,), (i, k))][int(self.random.integers(3))]
        return self.op("Einsum", a, self.weight(*other, scale=0.5), shape=shape, equation=equation)

    def conv(self):
        x = self.of_rank(3, 4)
        n, channels, *dims = self.shapes[x]
        if self.chance(0.7):
            kernel = [int(self.random.integers(1, min(3, d + 2) + 1)) for d in dims]
            pads = [int(k > d or self.chance()) for k, d in zip(kernel, dims)]
            group = channels if self.chance(0.2) else 1
            wide = channels * int(self.random.integers(1, 3)) if group > 1 else int(self.random.integers(1, 5))
            strides = [int(self.random.integers(1, 3)) for _ in dims]
            out = [(d + 2 * p - k) // s + 1 for d, p, k, s in zip(dims, pads, kernel, strides)]
            return self.op("Conv", x, self.weight(wide, channels // group, *kernel), self.weight(wide), shape=(n, wide, *out), kernel_shape=kernel, pads=pads * 2, strides=strides, group=group)
        kernel = [int(self.random.integers(2, 4)) for _ in dims]
        strides, wide = [int(self.random.integers(1, 3)) for _ in dims], int(self.random.integers(1, 4))
        out = [(d - 1) * s + k for d, k, s in zip(dims, kernel, strides)]
        return self.op("ConvTranspose", x, self.weight(channels, wide, *kernel, scale=0.4), self.weight(wide), shape=(n, wide, *out), kernel_shape=kernel, strides=strides)

    def pool(self):
        x = self.of_rank(3, 4)
        n, channels, *dims = self.shapes[x]
        kernel = [int(self.random.integers(1, min(d, 3) + 1)) for d in dims]
        strides = [int(self.random.integers(1, 3)) for _ in dims]
        out = [(d - k) // s + 1 for d, k, s in zip(dims, kernel, strides)]
        kind = str(self.random.choice(["MaxPool", "AveragePool"]))
        if kind == "MaxPool":
            self.watched.append((x, "order"))
        return self.op(kind, x, shape=(n, channels, *out), kernel_shape=kernel, strides=strides)

    def reduction(self):
        x = self.of_rank(1, 4)
        shape = self.shapes[x]
        axis, keep = self.axis(len(shape)), int(self.chance())
        kind = str(self.random.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceLogSumExp"]))
        if kind in ("ReduceMax", "ReduceMin"):
            self.watched.append((x, "order"))
        out = list(shape)
        out[axis] = 1
        if not keep:
            del out[axis]
        return self.op(kind, x, self.ints(axis), shape=out, keepdims=keep)

    def softmax(self):
        x = self.of_rank(1, 4)
        return self.op(str(self.random.choice(["Softmax", "LogSoftmax"])), x, shape=self.shapes[x], axis=self.axis(len(self.shapes[x])))

    def norm(self):
        x = self.of_rank(2, 4)
        shape = self.shapes[x]
        if self.chance(0.4):
            return self.op("LayerNormalization", x, self.weight(shape[-1], scale=1.0), self.weight(shape[-1]), shape=shape, epsilon=0.1)
        if self.chance(0.4):
            return self.op("RMSNormalization", x, self.weight(shape[-1], scale=1.0), shape=shape, epsilon=0.1)
        channels = shape[1]
        statistics = [self.constant(np.zeros(channels)), self.constant(np.ones(channels))]
        return self.op("BatchNormalization", x, self.weight(channels, scale=1.0), self.weight(channels), *statistics, shape=shape, outputs=3, training_mode=1, epsilon=0.1)

    def moved(self):
        x = self.of_rank(2, 4)
        shape = self.shapes[x]
        rank, axis = len(shape), self.axis(len(shape))
        at = axis % rank
        match int(self.random.integers(9)):
            case 0:
                perm = [int(i) for i in self.random.permutation(rank)]
                return self.op("Transpose", x, shape=[shape[i] for i in perm], perm=perm)
            case 1:
                return self.op("Reshape", x, self.ints(-1, shape[-1]), shape=(int(np.prod(shape[:-1])), shape[-1]))
            case 2:
                other = self.weight(*shape, scale=1.0)
                return self.op("Concat", x, other, shape=[2 * n if i == at else n for i, n in enumerate(shape)], axis=axis)
            case 3:
                chosen = self.random.integers(0, shape[at], int(self.random.integers(1, 5)))
                return self.op("Gather", x, self.ints(*chosen), shape=[len(chosen) if i == at else n for i, n in enumerate(shape)], axis=axis)
            case 4:
                first = int(self.random.integers(0, shape[at]))
                return self.op("Slice", x, self.ints(first), self.ints(shape[at]), self.ints(axis), shape=[n - first if i == at else n for i, n in enumerate(shape)])
            case 5:
                pads = [int(n) for n in self.random.integers(0, 2, 2 * rank)]
                return self.op("Pad", x, self.ints(*pads), shape=[n + pads[i] + pads[rank + i] for i, n in enumerate(shape)])
            case 6:
                return self.op("Unsqueeze", x, self.ints(at), shape=(*shape[:at], 1, *shape[at:])) if rank < 4 else self.op("Flatten", x, shape=(shape[0], int(np.prod(shape[1:]))))
            case 7:
                return self.op("CumSum", x, self.constant(np.int64(axis)), shape=shape)
            case _:
                return self.op("Tile", x, self.ints(*([1] * at + [2] + [1] * (rank - at - 1))), shape=[2 * n if i == at else n for i, n in enumerate(shape)])

    def recurrent(self):
        x = self.of_rank(3)
        steps, batch, inputs = self.shapes[x]
        kind, hidden = str(self.random.choice(["LSTM", "GRU", "RNN"])), int(self.random.integers(1, 4))
        directions = 1 + int(self.chance(0.3))
        rows = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind] * hidden
        attributes = {"direction": "bidirectional"} if directions == 2 else {}
        if kind == "GRU":
            attributes["linear_before_reset"] = 1
        outputs = 3 if kind == "LSTM" else 2
        wanted = int(self.random.integers(outputs))
        shape = (steps, directions, batch, hidden) if wanted == 0 else (directions, batch, hidden)
        return self.op(kind, x, self.weight(directions, rows, inputs, scale=0.7), self.weight(directions, rows, hidden, scale=0.7), self.weight(directions, 2 * rows),
                       shape=shape, outputs=outputs, wanted=wanted, hidden_size=hidden, **attributes)

    def attention(self):
        q = self.of_rank(4)
        batch, heads, queries, depth = self.shapes[q]
        keys, value = int(self.random.integers(1, 6)), int(self.random.integers(1, 4))
        k, v = self.weight(batch, heads, keys, depth, scale=1.0), self.weight(batch, heads, keys, value, scale=1.0)
        mask = [self.weight(queries, keys, scale=1.0)] if self.chance(0.4) else []
        return self.op("Attention", q, k, v, *mask, shape=(batch, heads, queries, value), is_causal=int(self.chance(0.3)), softcap=float(self.chance(0.3)))

    def branches(self):
        x = self.of_rank(1, 3)
        w = self.weight(*self.shapes[x], scale=1.0)
        name = f"b{self.count}"

        def branch(kind, *inputs):
            output = f"{name}_{kind}"
            return helper.make_graph([helper.make_node(kind, list(inputs), [output])], kind, [], [helper.make_tensor_value_info(output, TensorProto.DOUBLE, None)])

        return self.op("If", self.constant(np.bool_(self.chance())), shape=self.shapes[x], then_branch=branch("Mul", x, w), else_branch=branch("Sin", x))

    def body(self, is_loop):
        """h' = tanh(h w + x), of rows of x, or of itself."""
        rank = 2 if is_loop else 3
        x = self.of_rank(rank)
        shape = self.shapes[x][rank - 2:]
        w, name = self.weight(shape[-1], shape[-1], scale=0.8), f"b{self.count}_"
        info = helper.make_tensor_value_info
        nodes = [helper.make_node("MatMul", [name + "h", w], [name + "m"]), helper.make_node("Add", [name + "m", x if is_loop else name + "x"], [name + "a"]),
                 helper.make_node("Tanh", [name + "a"], [name + "h2"])]
        if is_loop:
            nodes.append(helper.make_node("Identity", [name + "go"], [name + "go2"]))
            inputs = [info(name + "i", TensorProto.INT64, []), info(name + "go", TensorProto.BOOL, []), info(name + "h", TensorProto.DOUBLE, shape)]
            outputs = [info(name + "go2", TensorProto.BOOL, []), info(name + "h2", TensorProto.DOUBLE, shape)]
            return self.op("Loop", self.constant(np.int64(self.random.integers(1, 4))), "", self.weight(*shape), shape=shape, body=helper.make_graph(nodes, "body", inputs, outputs))
        inputs = [info(name + "h", TensorProto.DOUBLE, shape), info(name + "x", TensorProto.DOUBLE, shape)]
        nodes.append(helper.make_node("Identity", [name + "h2"], [name + "o"]))
        outputs = [info(name + "h2", TensorProto.DOUBLE, shape), info(name + "o", TensorProto.DOUBLE, shape)]
        wanted = int(self.chance())
        return self.op("Scan", self.weight(*shape), x, shape=self.shapes[x] if wanted else shape, outputs=2, wanted=wanted, num_scan_inputs=1,
                       body=helper.make_graph(nodes, "body", inputs, outputs), scan_input_directions=[int(self.chance())])

    def draw(self):
        kinds = [self.unary] * 3 + [self.binary] * 4 + [self.moved] * 4 + [self.conv, self.pool, self.reduction, self.softmax, self.norm, self.matmul] * 2
        kinds += [self.cornered, self.clip, self.positive, self.where, self.gemm, self.einsum, self.recurrent, self.attention, self.branches,
                  lambda: self.body(True), lambda: self.body(False)]
        for _ in range(int(self.random.integers(4, 13))):
            kinds[int(self.random.integers(len(kinds)))]()
        # All that nobody reads, weighted.
        ends = []
        for name in [n for n in self.shapes if n not in self.used]:
            r = self.constant(self.random.uniform(0.5, 1.5, self.shapes[name]))
            weighted = self.op("Mul", name, r, shape=self.shapes[name])
            ends.append(self.op("ReduceSum", weighted, shape=(), keepdims=0))
        self.nodes.append(helper.make_node("Sum", ends, ["y"], name="y"))
        return Drawn(self.nodes, self.feeds, self.constants, self.watched)


def draw(seed):
    return Drawer(seed).draw()


def directions(drawn, seed, count):
    """Directions in the space of all parameters, together."""
    random = np.random.default_rng([seed, 5])
    return [{n: random.uniform(-1, 1, a.shape) for n, a in drawn.feeds.items()} for _ in range(count)]


def along(gradients, direction):
    return float(sum((gradients[n].astype(np.float64) * d).sum() for n, d in direction.items()))
