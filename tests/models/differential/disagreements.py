"""Where the two judges differ, and which of them follows the text of the ONNX specification; tolerances that differ from the dtype's.

A rule names operators, the cases that it is about, the judges that are right there and the reason. With no judge right, a case does not
count.
"""
import dataclasses
import functools
import typing

import numpy
import onnx
import onnxruntime
from onnx import helper


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """`right`: names of the judges to compare with."""

    ops: tuple
    right: tuple
    reason: str
    applies: typing.Callable = lambda case: True


def rule(ops, right, reason, applies=lambda case: True):
    return Disagreement(tuple(ops.split()), tuple(right.split()), reason, applies)


def dims(case, index=0):
    return case.inputs[index].shape


def kind(case, index=0):
    return case.inputs[index].dtype.name


def empty(case):
    return any(x is not None and x.size == 0 for x in case.inputs)


def starts_before(case):
    """A start of Slice lies before the first element."""
    axes = range(len(dims(case))) if case.inputs[3] is None else case.inputs[3]
    return any(start < -dims(case)[axis] for start, axis in zip(case.inputs[1], axes))


def unlike_reference(case):
    """Words that StringNormalizer's reference changes or keeps for reasons of its own."""
    stops = case.attributes.get("stopwords", ())
    words = [*case.inputs[0].ravel(), *stops]
    return not all(word.isascii() and " " not in word for word in words) or bool(stops) and not case.attributes.get("is_case_sensitive", 0)


def some_votes_missing(case):
    """A leaf of a tree has no vote for some target or class."""
    a = case.attributes
    count = a.get("n_targets") or len(a.get("classlabels_int64s", ())) or len(a["classlabels_strings"])
    return len(a.get("target_ids") or a["class_ids"]) != count * a["nodes_modes"].count("LEAF")


def nan_is_unequal(case):
    return nan(case) and "BRANCH_NEQ" in case.attributes["nodes_modes"]


def special(case):
    """Among the input's values are NaN or infinities."""
    x = case.inputs[0]
    return x.dtype.kind not in "iub" and not numpy.isfinite(x.astype("float64")).all()


def nan(case):
    x = case.inputs[0]
    return x.dtype.kind not in "iub" and numpy.isnan(x.astype("float64")).any()


def infinite_and_nan(case):
    x = case.inputs[0].astype("float64")
    return numpy.isnan(x).any() and numpy.isinf(x).any()


def leaves_float32_on_the_way(case):
    """A product of some of the elements may lie beyond float32, in some order."""
    x = numpy.abs(case.inputs[0].astype("float64")).ravel()
    with numpy.errstate(divide="ignore"):
        logarithms = numpy.log10(x[numpy.isfinite(x) & (x > 0)])
    return logarithms[logarithms > 0].sum() > 37 or logarithms[logarithms < 0].sum() < -36


def of_no_logarithm(case):
    x = case.inputs[0]
    return x.dtype == "float64" and bool((numpy.isnan(x) | (x == numpy.inf)).any())


def spread_of_finite(case):
    x = case.inputs[0].astype("float64")
    return numpy.ptp(x[numpy.isfinite(x)]) if numpy.isfinite(x).any() else 0


def vanishes_beside_infinity(case):
    """Beside an infinity there are finite elements whose exponentials are 0 in float32. Seen: of [-inf, -2813610.25] ONNX Runtime gives -inf; it
    subtracts no maximum where the first element is infinite."""
    x = case.inputs[0].astype("float64")
    return x.size > 0 and numpy.isinf(x).any() and (x[numpy.isfinite(x)] < -80).any()


def one_to_a_channel(case):
    return case.inputs[0].size == numpy.prod(dims(case)[:2] if case.op == "InstanceNormalization" else dims(case)[1:2])


def pooled_as_common(case):
    """The reference computes it with the code of all pools, which has no padding for a maximum; MaxPool's own has."""
    return all(n == 1 for key in ("strides", "dilations") for n in case.attributes.get(key, ()))


def negative_infinity(case):
    x = case.inputs[0]
    return x.dtype.kind not in "iub" and bool((x == -numpy.inf).any())


def negative_infinity_in_plain_windows(case):
    """Windows that the reference's MaxPool has right."""
    plain = case.attributes.get("auto_pad", "NOTSET") == "NOTSET" and case.attributes.get("ceil_mode", 0) == 0
    return negative_infinity(case) and plain and case.outputs == 1 and not pooled_as_common(case)


def cast_type(case):
    """What a Cast or CastLike makes."""
    return onnx.helper.tensor_dtype_to_np_dtype(case.attributes["to"]).name if case.op == "Cast" else kind(case, 1)


def quantized_type(case):
    """What a QuantizeLinear makes."""
    if len(case.inputs) > 2:
        return case.inputs[2].dtype.name
    return onnx.helper.tensor_dtype_to_np_dtype(case.attributes["output_dtype"]).name if "output_dtype" in case.attributes else "uint8"


def beyond_int32(case):
    """Of a QuantizeLinear to integers some quotient is none of int32."""
    if "float" in quantized_type(case) or case.inputs[0].size == 0:
        return False
    return numpy.abs(case.inputs[0].astype("float64")).max() / case.inputs[1].astype("float64").min() > 2.0 ** 31 - 2 ** 8


@functools.cache
def ort_saturates():
    """Whether ONNX Runtime adds two products of 8 bits in 16 on this machine, as it does on x86 without VNNI."""
    rows, weight = numpy.full((1, 4), 255, "uint8"), numpy.full((4, 1), 127, "int8")
    ends = [helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [1, 4]), helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [1, 1])]
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "g", ends[:1], ends[1:],
                              [onnx.numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": rows})[0][0, 0] != 4 * 255 * 127


BYTE_PRODUCTS = set(("ConvInteger MatMulInteger QLinearConv QLinearMatMul QGemm MatMulIntegerToFloat ConvIntegerToFloat DynamicQuantizeMatMul "
                     "QAttention DynamicQuantizeLSTM QLinearConvTranspose").split())
SATURATES = "ONNX Runtime adds two products of 8 bits in 16 where the CPU has no VNNI"


def may_saturate(case):
    """Whether ONNX Runtime's sums may be wrong: it is not believed where it alone differs."""
    return case.op in BYTE_PRODUCTS and any(x is not None and x.dtype.name == "int8" for x in case.inputs) and ort_saturates()


HALF = ("float16", "bfloat16")
DISAGREEMENTS = [
    rule("ReduceLogSumExp", "", "of NaN and infinities at a time one judge passes over the first, the other makes the first of the second", infinite_and_nan),
    rule("ReduceLogSumExp", "", "the reference takes infinity from infinity, and ONNX Runtime's exponentials overflow in half precision",
         lambda c: kind(c) in HALF and special(c)),
    rule("ReduceLogSumExp", "", "the reference takes infinity from infinity, and ONNX Runtime the logarithm of what has become 0", vanishes_beside_infinity),
    rule("ReduceProd", "", "both judges multiply in float32, where a product may overflow or vanish on its way", leaves_float32_on_the_way),
    # Of NaN and infinities the text says little. NaN goes through here; what is no number where there must be one has no result.
    rule("ArgMax ArgMin ReduceMax ReduceMin TopK ReduceLogSumExp", "onnx", "ONNX Runtime passes over NaN", nan),
    rule("Hardmax", "", "ONNX Runtime passes over NaN, and the reference computes versions before 13 as 13", nan),
    rule("MaxPool", "", "both judges compare with < and > from the lowest number on, which NaN never passes: a window with NaN has the largest of the others", nan),
    # Seen: the largest of [-inf, -inf] is -3.4e38 in ONNX Runtime, which is none of the window's elements.
    rule("MaxPool", "onnx", "ONNX Runtime begins with the lowest finite number, which a window of nothing but -infinity keeps", negative_infinity_in_plain_windows),
    rule("MaxPool", "", "ONNX Runtime begins with the lowest finite number; the reference has other windows", negative_infinity),
    rule("GlobalMaxPool", "", "ONNX Runtime passes over NaN and begins with the lowest finite number; the reference is for pictures only",
         lambda c: (nan(c) or negative_infinity(c)) and len(dims(c)) != 4),
    rule("GlobalMaxPool", "onnx", "ONNX Runtime passes over NaN and begins with the lowest finite number", lambda c: nan(c) or negative_infinity(c)),
    rule("LpPool", "ort", "the reference leaves NaN out of a window, as its padding is NaN", nan),
    # Seen in float64 only: of [inf, 1, 2] it answers [NaN, -inf, -inf], x - max - log(sum) with a sum of infinity; of [1, 2, NaN] 44 and more,
    # with a sum that began anew behind NaN. Log(Softmax(x)) of the text is NaN throughout, and so it is in the reference and in float32.
    rule("LogSoftmax", "", "in float64 ONNX Runtime has numbers beside NaN and infinity; the reference takes the logarithm of what has become 0",
         lambda c: of_no_logarithm(c) and spread_of_finite(c) > 80),
    rule("LogSoftmax", "onnx", "in float64 ONNX Runtime has numbers and -infinity beside NaN and infinity", lambda c: of_no_logarithm(c) and c.opset >= 13),
    rule("LogSoftmax", "", "in float64 ONNX Runtime has numbers and -infinity beside NaN and infinity; the reference computes versions before 13 as 13", of_no_logarithm),
    rule("LogSoftmax", "ort", "the reference takes the logarithm of what has become 0", lambda c: spread_of_finite(c) > 80),
    # Seen: 0.03417969 here and in the reference, where updates of one element add up to 0.03378296 of float32.
    rule("ScatterElements ScatterND", "onnx", "ONNX Runtime combines the updates of an element in float32; in the reference, and here, each is rounded",
         lambda c: kind(c) in HALF and c.attributes.get("reduction") in ("add", "mul")),
    rule("ScatterElements ScatterND", "ort", "a maximum with NaN is the update in ONNX Runtime, NaN in the reference",
         lambda c: c.attributes.get("reduction") in ("max", "min") and any(numpy.isnan(x.astype("float64")).any() for x in c.inputs[::2])),
    rule("ReduceLogSumExp", "ort", "the reference takes infinity from infinity", special),
    rule("QuantizeLinear", "", "NaN is no integer", nan),
    # Seen: 3e9 / 1 becomes 0 of uint8 in the reference, -128 of int8, 255 and 127 in ONNX Runtime, as saturate() of the text has it.
    rule("QuantizeLinear", "", "to 4 bits, by blocks and of float16 ONNX Runtime converts to int32 before it saturates, too: 255 of uint8 is 0",
         lambda c: beyond_int32(c) and (quantized_type(c) in ("int4", "uint4") or "block_size" in c.attributes or kind(c) in HALF)),
    rule("QuantizeLinear", "ort", "the reference converts to int32 before it saturates, and 2^31 and more become the least number", beyond_int32),
    # Sequences, bodies and strings.
    rule("Loop", "ort", "the reference puts the elements of scan outputs end to end, without an axis of their own", lambda c: c.attributes["scans"] > 0),
    rule("Scan", "ort", "the reference has no batches", lambda c: c.opset < 9),
    rule("Scan", "ort", "the reference passes over scan_output_axes and over some of scan_input_axes",
         lambda c: any(c.attributes.get("scan_output_axes", ())) or any(c.attributes.get("scan_input_axes", ()))),
    rule("Optional OptionalGetElement OptionalHasElement", "ort", "the reference makes a list of an optional's tensor, and finds something in an empty one"),
    rule("SequenceInsert SequenceEmpty", "ort", "the reference inserts in front where the position is the length"),
    rule("SplitToSequence", "onnx", "with an input `split` keepdims is ignored, says the text; ONNX Runtime takes the axis away",
         lambda c: len(c.inputs) > 1 and c.attributes.get("keepdims") == 0),
    rule("StringSplit", "ort", "of an empty element there is no part, in ONNX Runtime; there is an empty one in the reference",
         lambda c: c.attributes.get("delimiter", "") != "" and "" in c.inputs[0].ravel()),
    rule("StringSplit", "ort", "white space at the end is removed, says the text; the reference keeps that behind the last cut",
         lambda c: c.attributes.get("delimiter", "") == "" and "maxsplit" in c.attributes and any(x.endswith(" ") for x in c.inputs[0].ravel())),
    rule("StringNormalizer", "ort", "the reference takes accents away and stop words out of the midst of elements, and lets them differ in case as it likes",
         unlike_reference),
    rule("RegexFullMatch", "ort", "the reference's patterns are Python's, the text's RE2's", lambda c: "[[:" in c.attributes["pattern"]),
    rule("TfIdfVectorizer", "ort", "a weight belongs to an n-gram of the pool, says the text; to an element of the output in the reference",
         lambda c: "weights" in c.attributes and c.attributes["mode"] != "TF" and c.attributes["ngram_indexes"] != sorted(c.attributes["ngram_indexes"])),
    # ai.onnx.ml
    rule("Normalizer", "ort", "MAX divides by the largest, says the text; the reference divides by the largest magnitude",
         lambda c: c.attributes["norm"] == "MAX" and (c.inputs[0] < 0).any()),
    rule("TreeEnsembleRegressor", "", "NaN goes where the node says, which ONNX Runtime forgets of BRANCH_NEQ; the reference has another type",
         lambda c: nan_is_unequal(c) and kind(c) != "float32"),
    rule("TreeEnsembleClassifier", "", "NaN and BRANCH_NEQ as below, and the reference is wrong about SOFTMAX_ZERO",
         lambda c: nan_is_unequal(c) and c.attributes["post_transform"] == "SOFTMAX_ZERO"),
    rule("TreeEnsembleRegressor TreeEnsembleClassifier", "onnx", "NaN goes where the node says, which ONNX Runtime forgets of BRANCH_NEQ",
         lambda c: nan_is_unequal(c) and not some_votes_missing(c)),
    rule("TreeEnsembleRegressor TreeEnsembleClassifier", "", "NaN and BRANCH_NEQ as above; without a vote the reference is wrong too", lambda c: nan_is_unequal(c)),
    rule("TreeEnsembleClassifier", "ort", "the reference chooses the class among transformed scores, where SOFTMAX_ZERO has made 0 the least",
         lambda c: c.attributes["post_transform"] == "SOFTMAX_ZERO"),
    rule("TreeEnsembleRegressor", "", "a base value is added to every target, which ONNX Runtime forgets without a vote; the reference has another type or the largest number",
         lambda c: some_votes_missing(c) and (kind(c) != "float32" or c.attributes.get("aggregate_function") in ("MIN", "MAX"))),
    rule("TreeEnsembleRegressor", "onnx", "a base value is added to every target; ONNX Runtime forgets it without a vote", lambda c: some_votes_missing(c)),
    rule("TreeEnsembleRegressor", "ort", "the reference answers in the type of the input, not in float32", lambda c: kind(c) != "float32"),
    rule("TreeEnsembleClassifier", "ort", "a class without a vote has a score of 0 in the reference and wins over negative ones", lambda c: some_votes_missing(c)),
    rule("FeatureVectorizer LinearClassifier Normalizer Scaler", "ort", "the reference answers in the type of the input, not in float32",
         lambda c: kind(c) != "float32"),
    rule("LinearRegressor", "ort", "the reference adds NaN where there are no intercepts", lambda c: "intercepts" not in c.attributes),
    rule("TreeEnsemble", "ort", "of a target that no tree has a leaf for, the reference gives the least or largest number",
         lambda c: c.attributes["aggregate_function"] > 1),
    # What the reference evaluator leaves out.
    rule("AffineGrid", "ort", "the reference answers in float32 whatever the type of theta", lambda c: kind(c) != "float32"),
    rule("BatchNormalization", "ort", "the reference takes version 9 for training", lambda c: c.opset == 9),
    rule("GlobalMaxPool", "ort", "the reference is for pictures only", lambda c: len(dims(c)) != 4),
    rule("Softmax LogSoftmax Hardmax", "ort", "the reference computes versions before 13 as 13", lambda c: c.opset < 13),
    rule("LRN", "ort", "the reference takes the sum over other channels than the text says"),
    rule("LpNormalization", "ort", "the reference's L1 norm has no absolute values", lambda c: c.attributes.get("p") == 1),
    rule("LSTM GRU RNN", "ort", "the reference has no activations, clip or lengths of its own",
         lambda c: {"activations", "clip", "input_forget"} & c.attributes.keys() or len(c.inputs) > 4 and c.inputs[4] is not None),
    rule("QLinearConv", "ort", "the reference is for pictures only", lambda c: len(dims(c)) != 4),
    rule("RoiAlign", "ort", "the reference computes version 10 as 16, whose default is half_pixel", lambda c: c.opset < 16),
    rule("Shape", "ort", "the reference takes an end before -rank for one counted from the end again", lambda c: c.attributes.get("end", 0) < -len(dims(c))),
    rule("Unique", "ort", "the reference sorts where it must not", lambda c: c.attributes.get("sorted") == 0),
    rule("ReduceSumSquare", "ort", "the reference gives int64 for one element", lambda c: "int" in kind(c) and not empty(c)),
    rule("ReduceSumSquare", "", "both judges are wrong, as above and below", lambda c: "int" in kind(c)),
    rule("Slice", "ort", "the text clamps starts to [0, dim - 1] when it goes backwards; the reference leaves it to numpy",
         lambda c: c.opset >= 10 and len(c.inputs) == 5 and c.inputs[4] is not None and c.inputs[4].min() < 0 and starts_before(c)),
    rule("Det", "ort", "the reference answers in float64 whatever the type", lambda c: kind(c) in HALF),
    rule("LpPool AveragePool MaxPool", "ort", "the reference does not count dilations where auto_pad is VALID or ceil_mode is set",
         lambda c: (c.attributes.get("auto_pad") == "VALID" or c.attributes.get("ceil_mode")) and "dilations" in c.attributes),
    rule("MaxPool AveragePool LpPool", "ort", "the reference rounds the size down where the text says ceil(size / stride)",
         lambda c: c.attributes.get("auto_pad", "").startswith("SAME") and "strides" in c.attributes),
    rule("MaxPool", "ort", "the reference counts the indices of windows of one element anew in each channel", lambda c: c.outputs == 2),
    rule("MaxPool LpPool AveragePool", "ort", "the reference leaves out windows that end in the padding, or averages what lies beyond it",
         lambda c: c.attributes.get("ceil_mode") == 1 or c.op == "MaxPool" and any(c.attributes.get("pads", ())) and pooled_as_common(c)),
    rule("ConvTranspose", "ort", "the reference adds the bias of the first group to all", lambda c: c.attributes.get("group", 1) > 1 and len(c.inputs) == 3),
    rule("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", "ort", "the reference takes label -1 for the last class", lambda c: c.attributes.get("ignore_index") == -1),
    rule("Resize", "ort", "the reference rounds interpolated integers, ONNX Runtime cuts them off; the text says nothing",
         lambda c: "int" in kind(c) and c.attributes.get("mode") == "linear" and not c.attributes.get("antialias")),
    rule("Resize", "onnx", "ONNX Runtime rounds antialiased integers after each axis", lambda c: "int" in kind(c) and c.attributes.get("antialias")),
    rule("Resize", "ort", "a length of 1 has the coordinate 0 in the text, and -0.5 in the reference",
         lambda c: c.attributes.get("coordinate_transformation_mode") == "pytorch_half_pixel"),
    rule("Unsqueeze", "ort", "the reference takes axes in their order, which has no meaning", lambda c: c.opset < 13),
    rule("Cast CastLike", "", "what float8e8m0 cannot hold is NaN in the text when saturate is 0, the nearest in the reference; ONNX Runtime lacks the type",
         lambda c: c.attributes.get("to") == 24 and c.attributes.get("saturate") == 0),
    rule("Cast CastLike", "onnx", "ONNX Runtime rounds floats to integers of 4 bits, -6.5 to -7, where it cuts them off for all others",
         lambda c: "float" in kind(c) and cast_type(c) in ("int4", "uint4")),
    rule("AveragePool LpPool", "ort", "the reference leaves NaN out of an average, as its padding is NaN", special),
    # What ONNX Runtime does otherwise.
    rule("QuantizeLinear", "onnx", "ONNX Runtime saturates where saturate is 0, float16 always, float32 at the bound", lambda c: c.attributes.get("saturate") == 0),
    rule("BatchNormalization InstanceNormalization", "onnx",
         "ONNX Runtime scales before it subtracts the mean: of a single element is left what rounding leaves",
         lambda c: (c.op == "InstanceNormalization" or c.attributes.get("training_mode")) and one_to_a_channel(c)),
    rule("ReduceLogSumExp", "onnx", "ONNX Runtime's exponentials overflow in half precision", lambda c: kind(c) in HALF and not special(c)),
    rule("Pad", "", "float8e8m0 has no zero to pad with: the smallest number, or NaN",
         lambda c: kind(c) == "float8_e8m0fnu" and c.attributes.get("mode", "constant") == "constant"),
    rule("QLinearConv QLinearMatMul", "ort", "the reference rounds with an odd zero point in it, where the text adds that to what has been rounded",
         lambda c: int(c.inputs[7].ravel()[0]) % 2 == 1),
    rule("Sign", "onnx", "ONNX Runtime gives 0 for NaN in float16 and bfloat16, NaN in other types", lambda c: kind(c) in HALF and nan(c)),
    rule("Attention", "onnx", "ONNX Runtime aligns the causal mask with the end of the keys, the text with the first query", lambda c: c.attributes.get("is_causal")),
    rule("Dropout", "onnx", "without training nothing is dropped: ONNX Runtime's mask says that everything is", lambda c: c.outputs == 2 and c.opset < 12),
    rule("GridSample", "onnx", "ONNX Runtime moves the point into the picture before it takes its neighbours",
         lambda c: c.attributes.get("mode") in ("cubic", "bicubic") and c.attributes.get("padding_mode", "zeros") != "zeros"),
    rule("ReduceLogSumExp", "onnx", "ONNX Runtime cuts off each exponential of an integer", lambda c: "int" in kind(c)),
    rule("Resize", "onnx", "the length of align_corners is size * scale, a fraction, in ONNX's own node tests; ONNX Runtime rounds it",
         lambda c: c.attributes.get("coordinate_transformation_mode") == "align_corners" and len(c.inputs) == 3),
    rule("MultiHeadAttention", "", "ONNX Runtime forgets cache_indirection beside masks of rank 1 and 3, and takes a wrong batch of the bias",
         lambda c: c.inputs[9] is not None and (c.inputs[4] is not None and c.inputs[4].ndim != 2 or c.inputs[5] is not None)),
    rule("GroupQueryAttention", "", "ONNX Runtime leaves the scores of keys unset that do not count in a shorter sequence of the batch",
         lambda c: c.outputs == 4 and len(set(c.inputs[5])) > 1),
    rule("Clip", "onnx", "without a bound the function body of the specification leaves infinities; ONNX Runtime clips them to the largest number",
         lambda c: len(c.inputs) < 3 or None in c.inputs[1:]),
    rule("Col2Im", "onnx", "ONNX Runtime puts elements elsewhere with three dims", lambda c: len(c.inputs[1]) != 2),
    rule("Gemm", "onnx", "ONNX Runtime leaves the output unset for k = 0", empty),
    rule("MatMul", "onnx", "ONNX Runtime does not broadcast where k = 0", empty),
    rule("MeanVarianceNormalization", "onnx", "ONNX Runtime divides by a variance of 0 without the epsilon", lambda c: 1 in dims(c)),
    rule("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMin ReduceProd ReduceSum ReduceSumSquare", "onnx",
         "ONNX Runtime gives other shapes for tensors without elements", empty),
]

# (rtol, atol[, absolute]) by operator and dtype of output 0.
TOLERANCES = {
    ("BatchNormalization", "float32"): (1e-3, 1e-4),  # ONNX Runtime scales before it subtracts the mean
    ("InstanceNormalization", "float32"): (1e-3, 1e-4),
    ("ReduceSum", "float32"): (1e-4, 1e-5, 1e-6),  # a single sum may cancel out
    ("ReduceMean", "float32"): (1e-4, 1e-5, 1e-6),
    ("HardSwish", "float64"): (1e-5, 1e-6, 1e-7),  # both have a sixth in float32
    ("DeformConv", "float64"): (1e-4, 1e-5),  # the reference's offsets are in float32
    ("GroupNormalization", "float64"): (1e-4, 1e-4),  # both normalize in float32, stash_type's default
    ("Gelu", "float64"): (1e-3, 1e-5, 1e-6),  # the reference's erf has seven digits
    ("GridSample", "float64"): (1e-4, 1e-5),  # the reference's coordinates are in float32
    ("Resize", "float64"): (1e-4, 1e-5),
    # ONNX Runtime subtracts numbers that are nearly alike, or approximates, where the result is next to nothing.
    ("Celu", "float32"): (1e-4, 1e-5, 1e-6),
    ("Elu", "float32"): (1e-4, 1e-5, 1e-6),
    ("Gelu", "float32"): (1e-4, 1e-5, 1e-6),
    ("Selu", "float32"): (1e-4, 1e-5, 1e-6),
    ("Sigmoid", "float32"): (1e-4, 1e-5, 1e-7),
    ("Sigmoid", "float64"): (1e-6, 1e-7, 1e-20),
    ("Mish", "float64"): (1e-6, 1e-7, 1e-16),
    ("Swish", "float64"): (1e-6, 1e-7, 1e-13),
    ("GRU", "float32"): (1e-4, 1e-5, 1e-6),
    ("ReduceLogSumExp", "float32"): (1e-4, 1e-5, 1e-6),
    ("NegativeLogLikelihoodLoss", "float32"): (1e-4, 1e-5, 1e-6),  # a mean may cancel out
    ("Swish", "float32"): (1e-4, 1e-5, 1e-5),
    # x - r v may cancel: of numbers below 3 and attributes below 1 the terms are below 8, and each is rounded by 2^-24 of itself, twice.
    ("Momentum", "float32"): (1e-4, 1e-5, 1e-6),
}
