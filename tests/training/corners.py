"""Operators at their corners: 0 and -0, ties, bounds, infinities, denormals, rows without variance. make_corner_reference.py has PyTorch's derivatives of them."""
import dataclasses

import numpy as np
from onnx import TensorProto, helper, numpy_helper

INF, TRAINING = np.inf, "ai.onnx.preview.training"
OPSET = 22


@dataclasses.dataclass
class Corner:
    """The outputs of one node, times 1, 2, 3, ..., are summed and differentiated by the float inputs named in `by`."""
    op: str
    inputs: list                # arrays; None: not given
    attributes: dict = dataclasses.field(default_factory=dict)
    by: tuple = (0,)
    opset: int = OPSET
    outputs: int = 1
    least: float = 0            # the smallest number that matters: a denormal of float32 is none for a device that has no such numbers

    def model(self, dtype):
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        arrays = {f"x{i}": (x.astype(dtype) if x.dtype == np.float64 else x) for i, x in enumerate(self.inputs) if x is not None}
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.inputs)]
        xs = [f"x{i}" for i in self.by]
        outputs = ["y"] + [f"y{i}" for i in range(1, self.outputs)]
        nodes = [helper.make_node(self.op, names, outputs, name="node", **self.attributes),
                 helper.make_node("Size", ["y"], ["size"]),
                 helper.make_node("Add", ["size", "one"], ["end"]),
                 helper.make_node("Range", ["one", "end", "one"], ["numbers"]),
                 helper.make_node("Cast", ["numbers"], ["floats"], to=kind),
                 helper.make_node("Shape", ["y"], ["shape"]),
                 helper.make_node("Reshape", ["floats", "shape"], ["weights"]),
                 helper.make_node("Mul", ["y", "weights"], ["weighted"]),
                 helper.make_node("ReduceSum", ["weighted"], ["sum"], keepdims=0),
                 helper.make_node("Gradient", xs, [f"d{x}" for x in xs], name="gradient", domain=TRAINING, xs=xs, y="sum")]
        constants = [numpy_helper.from_array(np.int64(1), "one")]
        if self.opset < 11:  # which has no Range
            nodes, constants = [nodes[0], *nodes[7:]], [numpy_helper.from_array(np.arange(1, self.inputs[0].size + 1).astype(dtype).reshape(self.inputs[0].shape), "weights")]
        graph = helper.make_graph(nodes, "corner", [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in arrays.items()],
                                  [helper.make_tensor_value_info(f"d{x}", kind, None) for x in xs], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset), helper.make_opsetid(TRAINING, 1)], ir_version=10)
        return model.SerializeToString(), arrays


def a(*values):
    return np.array(values, np.float64)


def i(*values):
    return np.array(values, np.int64)


FINITE = a(-1000, -100, -20, -1, -0.0, 0, 1, 20, 100, 1000)
LARGE = a(1e19, 1e20, 3e38)  # of float32, whose squares overflow
FAR = np.concatenate([-LARGE[::-1], FINITE, LARGE])
ENDS = np.concatenate([[-INF], FAR, [INF]])
TINY = 2.0 ** -140  # a denormal of float32
ROWS = np.array([[0, 0, 0], [3, 3, 1], [-2, -2, -2], [0, -0.0, 0], [1, 2, 2]], np.float64)
HIDDEN = np.array([[1, -INF, 2], [-INF, -INF, 0], [1000, -1000, 999], [0, 0, 0]], np.float64)
CLASSES = i(0, 2, 2, 1)
PLANES = np.array([[[[0, 0, 1, 1], [0, 0, 1, 0], [2, 3, -1, -1], [3, 2, -1, -1]], [[5] * 4] * 4]], np.float64)
WEIGHTS = a(0.5, 0, 2)


def recurrent(activation, values, **attributes):
    """A recurrent layer of one unit whose outputs are the activation of the values."""
    return Corner("RNN", [a(*values).reshape(-1, 1, 1), np.ones((1, 1, 1)), np.zeros((1, 1, 1))],
                  {"hidden_size": 1, "activations": [activation]} | {f"activation_{name}": [value] for name, value in attributes.items()})


CORNERS = {
    # kinks
    "abs": Corner("Abs", [ENDS]),
    "relu": Corner("Relu", [ENDS]),
    "leaky_relu": Corner("LeakyRelu", [ENDS], {"alpha": 0.25}),
    "thresholded_relu": Corner("ThresholdedRelu", [a(-1, 0, 1, 1.5)], {"alpha": 1.0}),
    "prelu": Corner("PRelu", [FINITE, a(0.25)], by=(0, 1)),
    "prelu_by_element": Corner("PRelu", [a(-1, 0, -0.0, 2), a(0.25, 0.5, 0, 3)], by=(0, 1)),
    "elu": Corner("Elu", [a(-INF, -1000, -18, -1, -0.0, 0, 1, INF)], {"alpha": 0.75}),
    "selu": Corner("Selu", [a(-INF, -1000, -18, -1, -0.0, 0, 1, INF)]),
    "celu": Corner("Celu", [a(-INF, -1000, -18, -1, -0.0, 0, 1, INF)], {"alpha": 0.5}),
    "hard_sigmoid": Corner("HardSigmoid", [a(-INF, -4, -3, -1, 0, 2, 3, 4, INF)], {"alpha": 1 / 6, "beta": 0.5}),
    "hard_swish": Corner("HardSwish", [a(-INF, -4, -3, -1, -0.0, 0, 2, 3, 4, INF)]),
    "hard_shrink": Corner("Shrink", [a(-1, -0.5, -0.25, 0, 0.5, 2)], {"lambd": 0.5, "bias": 0.0}),
    "soft_shrink": Corner("Shrink", [a(-1, -0.5, -0.25, 0, 0.5, 2)], {"lambd": 0.5, "bias": 0.5}),
    "relu_of_a_recurrent_layer": recurrent("Relu", [-1, -0.0, 0, 1]),
    "leaky_relu_of_a_recurrent_layer": recurrent("LeakyRelu", [-1, -0.0, 0, 1], alpha=0.25),
    "thresholded_relu_of_a_recurrent_layer": recurrent("ThresholdedRelu", [-1, 0, 1, 1.5], alpha=1.0),
    "elu_of_a_recurrent_layer": recurrent("Elu", [-1000, -18, -1, -0.0, 0, 1], alpha=0.75),
    "hard_sigmoid_of_a_recurrent_layer": recurrent("HardSigmoid", [-4, -3, -1, 0, 2, 3, 4], alpha=1 / 6, beta=0.5),
    "softsign_of_a_recurrent_layer": recurrent("Softsign", [-1, -0.0, 0, 1]),
    # smooth functions far out
    "softplus": Corner("Softplus", [ENDS]),
    "softsign": Corner("Softsign", [FAR]),
    "sigmoid": Corner("Sigmoid", [ENDS]),
    "tanh": Corner("Tanh", [ENDS]),
    "erf": Corner("Erf", [ENDS]),
    "gelu": Corner("Gelu", [FAR]),
    "gelu_tanh": Corner("Gelu", [FAR], {"approximate": "tanh"}),
    "mish": Corner("Mish", [FAR]),
    "swish": Corner("Swish", [FAR], {"alpha": 1.0}, opset=24),
    "swish_of_alpha": Corner("Swish", [FAR], {"alpha": 1.75}, opset=24),
    "exp": Corner("Exp", [a(-INF, -1000, -0.0, 0, 80)]),
    "atan": Corner("Atan", [ENDS]),
    "asinh": Corner("Asinh", [ENDS]),
    # ends of domains
    "sqrt": Corner("Sqrt", [a(0, -0.0, 4, INF)]),
    "log": Corner("Log", [a(0, -0.0, 4, INF)]),
    "reciprocal": Corner("Reciprocal", [a(0, 4, INF)]),
    "asin": Corner("Asin", [a(-1, 0, 1)]),
    "acos": Corner("Acos", [a(-1, 0, 1)]),
    "acosh": Corner("Acosh", [np.concatenate([a(1, 2), LARGE])]),
    "atanh": Corner("Atanh", [a(-1, 0, 1)]),
    "div": Corner("Div", [a(1, 0, -1, 0, 3, 1, INF), a(0, 0, 0, 2, INF, -INF, 2)], by=(0, 1)),
    "pow": Corner("Pow", [a(0, 0, 0, 0, 0, -0.0, 2, 1, -2, -2, INF), a(2, 1, 0, 0.5, -1, 3, 0, INF, 2, -1, 0.5)], by=(0,)),
    "pow_exponent": Corner("Pow", [a(0, 0, 0, -0.0, 2, 1, 4), a(2, 1, 0, 3, 0, 5, 0.5)], by=(0, 1)),
    "pow_exponent_of_any_base": Corner("Pow", [a(-2, -2, -1, -0.5, 0, -0.0, 0, 0.5, 2), a(2, -1, 0, 0.5, 0, 2, -1, -2, 3)], by=(1,)),
    # ties
    "max": Corner("Max", [a(0, -0.0, 1, 2, INF, -INF), a(-0.0, 0, 1, 1, INF, -INF)], by=(0, 1)),
    "min": Corner("Min", [a(0, -0.0, 1, 2, INF, -INF), a(-0.0, 0, 1, 1, INF, -INF)], by=(0, 1)),
    "max_with_a_number": Corner("Max", [a(-1, 0, -0.0, 1), np.float64(0)], by=(0, 1)),
    "max_of_three": Corner("Max", [a(1, 2, 3, 0), a(1, 2, 1, 0), a(1, 0, 3, -0.0)], by=(0, 1, 2)),
    "min_of_three": Corner("Min", [a(1, 2, 3, 0), a(1, 2, 1, 0), a(1, 0, 3, -0.0)], by=(0, 1, 2)),
    "clip": Corner("Clip", [a(-INF, -2, -1, -0.5, 0, 0.5, 2, INF), np.float64(-1), np.float64(0.5)], by=(0, 1, 2)),
    "clip_at_zero": Corner("Clip", [a(-1, -0.0, 0, 1), np.float64(0)]),
    "clip_without_upper": Corner("Clip", [a(-INF, -2, 0, 1, INF), np.float64(-1)], by=(0, 1)),
    "clip_with_crossed_bounds": Corner("Clip", [a(-2, -1, 0, 1, 2), np.float64(1), np.float64(-1)], by=(0, 1, 2)),
    "clip_by_attributes": Corner("Clip", [a(-2, -1, -0.5, 1, 2)], {"min": -1.0, "max": 1.0}, opset=10),
    "where": Corner("Where", [np.array([True, False, True]), a(INF, INF, 0), a(-INF, 1, INF)], by=(1, 2)),
    "reduce_max": Corner("ReduceMax", [ROWS, i(1)]),
    "reduce_min": Corner("ReduceMin", [ROWS, i(1)], {"keepdims": 0}),
    "reduce_max_of_all": Corner("ReduceMax", [a(-INF, -INF)], {"keepdims": 0}),
    "max_pool": Corner("MaxPool", [PLANES], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "max_pool_with_overlap": Corner("MaxPool", [PLANES], {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1]}),
    "max_pool_of_nothing": Corner("MaxPool", [np.full((1, 1, 4), -INF)], {"kernel_shape": [2], "strides": [2]}),
    "global_max_pool": Corner("GlobalMaxPool", [PLANES]),
    "top_k": Corner("TopK", [a(1, 5, -INF, 3, INF), i(3)], outputs=2),
    # norms and products
    "reduce_l1": Corner("ReduceL1", [ROWS, i(1)]),
    "reduce_l2": Corner("ReduceL2", [ROWS, i(1)]),
    "reduce_l2_of_all": Corner("ReduceL2", [a(0, -0.0, 0)], {"keepdims": 0}),
    "reduce_sum_square": Corner("ReduceSumSquare", [ROWS, i(0)]),
    "reduce_prod": Corner("ReduceProd", [np.array([[2, 3, 4], [2, 0, 4], [0, 5, 0], [-0.0, 1, -3]], np.float64), i(1)]),
    "reduce_log_sum": Corner("ReduceLogSum", [np.array([[1, 2], [0, 0], [3, 0]], np.float64), i(1)]),
    "reduce_log_sum_exp": Corner("ReduceLogSumExp", [np.array([[1000, 999], [-1000, -1001], [0, 0], [-INF, 1]], np.float64), i(1)]),
    "softmax": Corner("Softmax", [HIDDEN]),
    "log_softmax": Corner("LogSoftmax", [HIDDEN[2:]]),
    "layer_norm": Corner("LayerNormalization", [ROWS, a(1, 2, 3), a(0, 0, 1)], by=(0, 1, 2)),
    "instance_norm": Corner("InstanceNormalization", [PLANES, a(1, 2), a(0, 1)], by=(0, 1, 2)),
    "group_norm": Corner("GroupNormalization", [PLANES, a(1, 2), a(0, 1)], {"num_groups": 2}, by=(0, 1, 2)),
    "batch_norm": Corner("BatchNormalization", [PLANES, a(1, 2), a(0, 1), a(0, 0), a(1, 1)], {"training_mode": 1}, by=(0, 1, 2), outputs=3),
    "rms_norm": Corner("RMSNormalization", [ROWS, a(1, 2, 3)], by=(0, 1), opset=23),
    # losses
    **{f"cross_entropy_{reduction}{'_weighted' if weights is not None else ''}{'_ignoring' if ignored is not None else ''}":
       Corner("SoftmaxCrossEntropyLoss", [HIDDEN, CLASSES] + ([] if weights is None else [weights]), {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored}))
       for reduction in ("none", "sum", "mean") for weights in (None, WEIGHTS) for ignored in (None, 2)},
    **{f"likelihood_{reduction}{'_weighted' if weights is not None else ''}{'_ignoring' if ignored is not None else ''}":
       Corner("NegativeLogLikelihoodLoss", [ROWS[:4], CLASSES] + ([] if weights is None else [weights]), {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored}))
       for reduction in ("none", "sum", "mean") for weights in (None, WEIGHTS) for ignored in (None, 2)},
    "cross_entropy_of_pictures": Corner("SoftmaxCrossEntropyLoss", [np.array([[[0, 0], [1, -1]], [[5, 0], [-1000, 1000]]], np.float64), np.array([[0, 1], [1, -1]], np.int64), a(1, 3)],
                                        {"ignore_index": -1}),
    "cross_entropy_of_nothing": Corner("SoftmaxCrossEntropyLoss", [ROWS[:2], i(1, 1)], {"reduction": "sum", "ignore_index": 1}),
    # repeated places
    "gather": Corner("Gather", [ROWS, i(1, 1, -1, 0)]),
    "gather_elements": Corner("GatherElements", [a(1, 2, 3), i(0, 0, 2, -1)]),
    "scatter_add": Corner("ScatterElements", [a(1, 2, 3), i(0, 0, 2), a(5, 6, 7)], {"reduction": "add"}, by=(0, 2)),
    "scatter": Corner("ScatterElements", [a(1, 2, 3), i(0, 2), a(5, 6)], by=(0, 2)),
    # numbers that only float32 has as denormals
    "relu_of_denormals": Corner("Relu", [a(TINY, -TINY, 0)], least=TINY),
    "abs_of_denormals": Corner("Abs", [a(TINY, -TINY, 0)], least=TINY),
    "leaky_relu_of_denormals": Corner("LeakyRelu", [a(TINY, -TINY, 0)], {"alpha": 0.25}, least=TINY),
    "max_of_denormals": Corner("Max", [a(TINY, 0, -TINY), a(0, TINY, -TINY)], by=(0, 1), least=TINY),
    "clip_of_denormals": Corner("Clip", [a(TINY, 0, -TINY), np.float64(0)], least=TINY),
    "reduce_max_of_denormals": Corner("ReduceMax", [a(TINY, 0, -TINY)], {"keepdims": 0}, least=TINY),
}
