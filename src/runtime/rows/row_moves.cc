// Rows through operators that compute element by element, along axes, or only move elements.
#include <algorithm>

#include "ops/pad.h"
#include "ops/reduce.h"
#include "ops/slice.h"
#include "ops/transpose.h"
#include "runtime/rows/rows.h"

namespace evn {
namespace {

constexpr char kMixes[] = "works along the axis of the batch's rows";
constexpr char kHasNoRows[] = "takes rows of the batch for a parameter";

// Kernels that add up along axes go through elements that lie one after the other in another order than through columns.
constexpr char kOtherOrder[] = "adds up in another order if the rows of the batch lie inside of the axes that it adds up";

// The position of the first input's rows, the other inputs being alike.
int only_rows_of_first(const NodeRows& c) {
  c.require_alike(1);
  if (!c.is_rows(0)) c.refuse(kHasNoRows);
  return c.axis(0);
}

int axis_of(const NodeRows& c, std::int64_t fallback, int rank) { return normalize_axis(c.int_attribute("axis", fallback), rank); }

// Outputs of the input's rank, made along one axis.
void along_axis(NodeRows& c) {
  const int at = only_rows_of_first(c);
  if (axis_of(c, -1, c.rank(0)) == at) c.refuse(kMixes);
  c.set_all_rows(at);
}

// Before opset 13 all axes from `axis` on are one.
void softmax(NodeRows& c) {
  const std::int64_t version = c.int_attribute("opset", c.node.op->since);  // QLinearSoftmax's is an attribute
  if (version >= 13) {
    along_axis(c);
    const int along = axis_of(c, -1, c.rank(0));
    if (c.axis(0) > along && c.shape(0).elements(along + 1, c.rank(0)) == 1) c.refuse(kOtherOrder);
    return;
  }
  const int at = only_rows_of_first(c);
  const std::int64_t axis = c.int_attribute("axis", 1);
  if (axis != c.rank(0) && at >= normalize_axis(axis, c.rank(0))) c.refuse(kMixes);
  c.set_all_rows(at);
}

// All axes from `axis` on are normalized together.
void layer_norm(NodeRows& c) {
  const int at = only_rows_of_first(c);
  if (at >= axis_of(c, -1, c.rank(0))) c.refuse(kMixes);
  c.set_all_rows(at);
}

// Over the last axis, after a sum.
void skip_layer_norm(NodeRows& c) {
  c.require_alike(3);
  NodeRows sum = c;
  broadcast_rows(sum, 3);
  if (c.out[0].axis == c.one_out[0].shape.rank() - 1) c.refuse(kMixes);
}

void set_reduced(NodeRows& c, std::uint32_t axes, bool keeps) {
  const int at = c.axis(0);
  if ((axes >> at & 1u) != 0) c.refuse("brings together all rows of the batch");
  int to = at;
  for (int i = 0; i < at && !keeps; ++i) to -= static_cast<int>(axes >> i & 1u);
  c.set_all_rows(to);
}

// True if one row alone leaves reduced axes side by side, or elements of one innermost, which several rows keep apart.
bool joins_reduced_axes(const NodeRows& c, std::uint32_t reduced) {
  const Shape& shape = c.shape(0);
  const int at = c.axis(0);
  if (shape[at] != 1) return false;
  const auto next = [&](int step) {  // the next axis that has more than one element; -1: there is none
    int i = at + step;
    while (i >= 0 && i < shape.rank() && shape[i] == 1) i += step;
    return i < shape.rank() ? i : -1;
  };
  const int before = next(-1), behind = next(1);
  const bool is_kept_behind = behind >= 0 && (reduced >> behind & 1u) == 0;
  return before >= 0 && (reduced >> before & 1u) != 0 && !is_kept_behind;
}

void reduce(NodeRows& c) {
  only_rows_of_first(c);
  std::vector<std::int64_t> axes;
  if (reduce_axes_is_input(c.node) && c.has(1)) {
    if (c.one[1].data == nullptr) c.refuse("takes its axes from what the run computes");
    const auto* given = c.one[1].as<std::int64_t>();
    axes.assign(given, given + c.shape(1).elements());
  }
  const std::uint32_t reduced = reduce_axes(c.node, c.rank(0), axes);
  set_reduced(c, reduced, c.int_attribute("keepdims", 1) != 0);
  const bool is_exact = c.node.op_type == "ReduceMax" || c.node.op_type == "ReduceMin";
  if (!is_exact && joins_reduced_axes(c, reduced)) c.refuse(kOtherOrder);
}

void arg_reduce(NodeRows& c) {
  only_rows_of_first(c);
  set_reduced(c, 1u << axis_of(c, 0, c.rank(0)), c.int_attribute("keepdims", 1) != 0);
}

void cumulate(NodeRows& c) {
  const int at = only_rows_of_first(c);
  if (c.one[1].data == nullptr) c.refuse("takes its axis from what the run computes");
  const std::int64_t axis = c.one[1].desc.dtype == DType::kInt32 ? c.one[1].as<std::int32_t>()[0] : c.one[1].as<std::int64_t>()[0];
  if (normalize_axis(axis, c.rank(0)) == at) c.refuse(kMixes);
  c.set_all_rows(at);
}

// Values one after the other along an axis: inputs first, first + step, ...; others are parameters.
void join(NodeRows& c, std::size_t first, std::size_t step) {
  int at = -1;
  for (std::size_t k = first; k < c.one.size(); k += step) at = c.is_rows(k) ? c.axis(k) : at;
  for (std::size_t k = 0; k < c.one.size(); ++k) {
    if (k >= first && (k - first) % step == 0) {
      c.require_rows(k, at);
    } else if (!c.is_alike(k)) {
      c.refuse(kHasNoRows);
    }
  }
  if (axis_of(c, 0, c.one_out[0].shape.rank()) == at) c.refuse("joins values along the axis of the batch's rows");
  c.set_rows(0, at);
}

// Numbers of rows, and behind them what other indices there are: along the last axis, for GatherND.
bool join_indices(NodeRows& c) {
  const int at = c.axis(0);
  const int last = c.rank(0) - 1;
  bool fits = axis_of(c, 0, c.rank(0)) == last && at != last && c.shape(0)[last] == 1;
  for (std::size_t k = 1; fits && k < c.one.size(); ++k) fits = c.is_rows(k) && c.axis(k) == at && c.shape(k)[at] == 1;
  if (fits) c.set_rows(0, at, RowPlace::Kind::kIndices);
  return fits;
}

void concat(NodeRows& c) {
  if (!c.is_numbers(0) || !join_indices(c)) join(c, 0, 1);
}
void concat_bytes(NodeRows& c) { join(c, 2, 3); }

void split(NodeRows& c) {
  const int at = only_rows_of_first(c);
  if (axis_of(c, 0, c.rank(0)) == at) c.refuse("cuts the batch along its rows");
  c.set_all_rows(at);
}

void slice(NodeRows& c) {
  if (!c.is_rows(0)) c.refuse("cuts by the size of the batch");
  const int at = c.axis(0);
  SliceAxis one[kMaxRank], many[kMaxRank];
  resolve_slice(c.node, c.one, c.shape(0), one);
  resolve_slice(c.node, c.many, c.many[0].desc.shape, many);
  for (int i = 0; i < c.rank(0); ++i) {
    const bool all = one[i].start == 0 && many[i].start == 0 && one[i].step == 1 && many[i].step == 1;
    const bool same = one[i].start == many[i].start && one[i].step == many[i].step;
    const bool whole = one[i].count == c.shape(0)[i] && many[i].count == c.many[0].desc.shape[i];
    if (i == at ? !(all && whole) : !same) c.refuse(i == at ? "cuts the batch along its rows" : "cuts by the size of the batch");
  }
  c.set_rows(0, at);
}

void pad(NodeRows& c) {
  if (!c.is_rows(0) || !c.is_alike(2)) c.refuse(kHasNoRows);
  const int at = c.axis(0);
  const PadAmounts one = resolve_pads(c.node, c.one, c.rank(0));
  const PadAmounts many = resolve_pads(c.node, c.many, c.rank(0));
  for (int i = 0; i < c.rank(0); ++i) {
    if (one.begin[i] != many.begin[i] || one.end[i] != many.end[i]) c.refuse("pads by the size of the batch");
  }
  if (one.begin[at] != 0 || one.end[at] != 0) c.refuse("pads the batch along its rows");
  c.set_rows(0, at);
}

// Where indices, which are known, of each row stay within that row's part of an axis and choose what they choose for one row alone:
// the axis of the indices that has the rows. -1: they do not.
int axis_of_offsets(const NodeRows& c, int axis) {
  const TensorDesc& one = c.one[1].desc;
  const TensorDesc& many = c.many[1].desc;
  if (one.dtype != DType::kInt64 || c.one[1].data == nullptr || c.many[1].data == nullptr) return -1;
  int at = -1;
  for (int i = 0; one.shape.rank() == many.shape.rank() && i < one.shape.rank(); ++i) {
    if (one.shape[i] == many.shape[i]) continue;
    if (at >= 0 || many.shape[i] != c.rows * one.shape[i]) return -1;
    at = i;
  }
  if (at < 0) return -1;
  const std::int64_t part = c.shape(0)[axis];
  const std::int64_t block = one.shape.elements(at, one.shape.rank());
  for (std::int64_t i = 0; i < many.shape.elements(); ++i) {
    const std::int64_t alone = c.one[1].as<std::int64_t>()[i / block / c.rows * block + i % block];
    const std::int64_t row = i / block % c.rows;
    if (alone < 0 || alone >= part || c.many[1].as<std::int64_t>()[i] != row * part + alone) return -1;
  }
  return at;
}

void gather(NodeRows& c) {
  c.require_alike(3);
  const int axis = normalize_axis(c.int_attribute("axis", 0), c.rank(0));
  if (c.is_rows(0) && c.axis(0) == axis && !c.is_alike(1)) {
    if (const int at = axis_of_offsets(c, axis); at >= 0) return c.set_rows(0, axis + at);
  }
  if (c.is_rows(0) && c.is_rows(1)) c.refuse("chooses from rows of the batch by rows of the batch");
  if (!c.is_alike(0) && !c.is_rows(0)) c.refuse("chooses by the size of the batch");
  if (!c.is_alike(1) && !c.is_rows(1)) c.refuse("chooses by the size of the batch");
  if (c.is_rows(1)) return c.set_rows(0, axis + c.axis(1));
  if (axis == c.axis(0)) c.refuse("chooses among the rows of the batch");
  c.set_rows(0, c.axis(0) < axis ? c.axis(0) : c.axis(0) + c.rank(1) - 1);
}

// Data, indices and, in scatters, updates with rows at the same axis, which is not theirs.
void elements_along_axis(NodeRows& c) {
  for (std::size_t k = 0; k < c.one.size(); ++k) c.require_rows(k, c.axis(0));
  const int at = c.axis(0);
  if (axis_of(c, 0, c.rank(0)) == at) c.refuse("chooses among the rows of the batch");
  for (std::size_t k = 1; k < c.one.size(); ++k) {
    if (c.shape(k)[at] != c.shape(0)[at]) c.refuse("has indices for some rows of the batch only");
  }
  c.set_rows(0, at);
}

void gather_nd(NodeRows& c) {
  const auto batch_axes = static_cast<int>(c.int_attribute("batch_dims", 0));
  if (c.is_rows(0) && c.is_rows(1) && c.axis(0) == c.axis(1) && c.axis(0) < batch_axes) return c.set_rows(0, c.axis(0));
  const bool by_number = c.in[1].kind == RowPlace::Kind::kIndices;
  if (by_number && c.is_rows(0) && c.axis(0) == 0 && c.shape(0)[0] == 1 && batch_axes == 0) return c.set_rows(0, c.axis(1));
  if (c.is_alike(0) && c.is_rows(1) && c.axis(1) < c.rank(1) - 1 && batch_axes == 0) return c.set_rows(0, c.axis(1));
  c.refuse("chooses among the rows of the batch");
}

// Indices that are the same for all rows, of axes before that of the rows.
void scatter_nd(NodeRows& c) {
  if (!c.is_rows(0) || !c.is_alike(1)) c.refuse("chooses among the rows of the batch");
  const auto depth = static_cast<int>(c.shape(1)[c.rank(1) - 1]);
  if (depth > c.axis(0)) c.refuse("chooses among the rows of the batch");
  c.require_rows(2, c.rank(1) - 1 + c.axis(0) - depth);
  c.set_rows(0, c.axis(0));
}

void transpose(NodeRows& c) {
  const int at = only_rows_of_first(c);
  int perm[kMaxRank];
  transpose_perm(c.node, c.rank(0), perm);
  c.set_rows(0, static_cast<int>(std::find(perm, perm + c.rank(0), at) - perm));
}

// The first axis of which both runs have another dim; -1: there is none.
int unlike_axis(const NodeRows& c) {
  const Shape& one = c.one_out[0].shape;
  const Shape& many = c.many_out[0].shape;
  for (int i = 0; i < one.rank() && one.rank() == many.rank(); ++i) {
    if (one[i] != many[i]) return i;
  }
  return -1;
}

// Reshape keeps rows together where as many elements stand before the rows' axis in the output as in the input. -1: they do not.
int reshaped_axis(const NodeRows& c) {
  const int at = unlike_axis(c);
  return at >= 0 && c.one_out[0].shape.elements(0, at) == c.shape(0).elements(0, c.axis(0)) ? at : -1;
}

void reshape(NodeRows& c) {
  if (!c.is_rows(0)) c.refuse("takes rows of the batch for a parameter");
  const int at = reshaped_axis(c);
  if (at < 0) c.refuse("mixes the rows of the batch with other axes");
  c.set_rows(0, at);
}

// What is repeated to a shape, in which one axis may have the batch's size.
void set_repeated(NodeRows& c) {
  const int at = unlike_axis(c);
  if (c.one_out[0].shape == c.many_out[0].shape) c.out[0] = {};
  else if (c.fits_rows(0, at)) c.out[0] = {RowPlace::Kind::kRows, at};
}

void expand(NodeRows& c) {
  if (!c.is_rows(0)) c.refuse("computes with the size of the batch");
  const int at = c.axis(0) + c.one_out[0].shape.rank() - c.rank(0);
  if (c.one_out[0].shape[at] != c.shape(0)[c.axis(0)]) c.refuse("repeats the rows of the batch");
  c.set_rows(0, at);
}

void tile(NodeRows& c) {
  if (!c.is_rows(0)) c.refuse("computes with the size of the batch");
  if (c.one_out[0].shape[c.axis(0)] != c.shape(0)[c.axis(0)]) c.refuse("repeats the rows of the batch");
  c.set_rows(0, c.axis(0));
}

void one_hot(NodeRows& c) {
  const int at = only_rows_of_first(c);
  const int axis = normalize_axis(c.int_attribute("axis", -1), c.one_out[0].shape.rank());
  c.set_rows(0, at < axis ? at : at + 1);
}

void trilu(NodeRows& c) {
  const int at = only_rows_of_first(c);
  if (at >= c.rank(0) - 2) c.refuse(kMixes);
  c.set_rows(0, at);
}

void top_k(NodeRows& c) { along_axis(c); }

void first_input(NodeRows& c) { c.set_rows(0, only_rows_of_first(c)); }

// CastLike reads only the dtype of its second input.
void cast_like(NodeRows& c) { c.is_rows(0) ? c.set_rows(0, c.axis(0)) : c.refuse(kHasNoRows); }

void dropout(NodeRows& c) {
  const bool trains = c.has(2) && (c.one[2].data == nullptr || *c.one[2].as<std::uint8_t>() != 0);
  if (trains) c.refuse("draws numbers, of which a request has others alone");
  for (std::size_t k = 0; k < c.out.size(); ++k) c.out[k] = {};
  if (c.is_rows(0)) c.set_all_rows(c.axis(0));
  else if (!c.is_alike(0)) c.refuse(kHasNoRows);
}

// Scales and zero points of the whole, or of an axis that the rows are not.
void quantize(NodeRows& c) {
  const int at = only_rows_of_first(c);
  if (c.has(1) && c.shape(1).elements() != 1 && axis_of(c, 1, c.rank(0)) == at) c.refuse("has scales along the batch's rows");
  c.set_rows(0, at);
}

void dynamic_quantize(NodeRows& c) { c.refuse("takes one scale from all rows of the batch"); }

void binary_of_bytes(NodeRows& c) { broadcast_rows(c, 1u | 1u << 3); }
void where_of_bytes(NodeRows& c) { broadcast_rows(c, 1u | 1u << 1 | 1u << 4); }

// The shape of something with rows that is not known when a run is planned: nobody can do anything with it.
void shape_of(NodeRows& c) {
  for (std::size_t k = 0; k < c.out.size(); ++k) c.out[k] = {RowPlace::Kind::kUnlike, 0};
}

void reverse_sequence(NodeRows& c) {
  const auto batch_axis = static_cast<int>(c.int_attribute("batch_axis", 1));
  c.require_rows(0, batch_axis);
  c.require_rows(1, 0);
  c.set_rows(0, batch_axis);
}

void halve_last(NodeRows& c) {
  const int at = only_rows_of_first(c);
  if (at == c.rank(0) - 1) c.refuse(kMixes);
  c.set_rows(0, at);
}

constexpr RowRuleOf kRules[] = {
    {"Softmax", nullptr, softmax},
    {"LogSoftmax", nullptr, softmax},
    {"Hardmax", nullptr, softmax},
    {"QLinearSoftmax", nullptr, softmax},
    {"LpNormalization", nullptr, along_axis},
    {"LayerNormalization", nullptr, layer_norm},
    {"RMSNormalization", nullptr, layer_norm},
    {"SimplifiedLayerNormalization", nullptr, layer_norm},
    {"SkipLayerNormalization", nullptr, skip_layer_norm},
    {"SkipSimplifiedLayerNormalization", nullptr, skip_layer_norm},
    {"ReduceL1", nullptr, reduce},
    {"ReduceL2", nullptr, reduce},
    {"ReduceLogSum", nullptr, reduce},
    {"ReduceLogSumExp", nullptr, reduce},
    {"ReduceMax", nullptr, reduce},
    {"ReduceMean", nullptr, reduce},
    {"ReduceMin", nullptr, reduce},
    {"ReduceProd", nullptr, reduce},
    {"ReduceSum", nullptr, reduce},
    {"ReduceSumSquare", nullptr, reduce},
    {"ArgMax", nullptr, arg_reduce},
    {"ArgMin", nullptr, arg_reduce},
    {"CumSum", nullptr, cumulate},
    {"CumProd", nullptr, cumulate},
    {"Concat", nullptr, concat},
    {"QLinearConcat", nullptr, concat_bytes},
    {"Split", nullptr, split},
    {"Slice", nullptr, slice},
    {"Pad", nullptr, pad},
    {"Gather", nullptr, gather},
    {"GatherElements", nullptr, elements_along_axis},
    {"ScatterElements", nullptr, elements_along_axis},
    {"Scatter", nullptr, elements_along_axis},
    {"GatherND", nullptr, gather_nd},
    {"ScatterND", nullptr, scatter_nd},
    {"Transpose", nullptr, transpose},
    {"Reshape", nullptr, reshape},
    {"Flatten", nullptr, reshape},
    {"Squeeze", nullptr, reshape},
    {"Unsqueeze", nullptr, reshape},
    {"Identity", nullptr, first_input},
    {"Expand", nullptr, expand},
    {"Tile", nullptr, tile},
    {"OneHot", nullptr, one_hot},
    {"Trilu", nullptr, trilu},
    {"TopK", nullptr, top_k},
    {"CastLike", nullptr, cast_like},
    {"Dropout", nullptr, dropout},
    {"QuantizeLinear", nullptr, quantize},
    {"DequantizeLinear", nullptr, quantize},
    {"DynamicQuantizeLinear", nullptr, dynamic_quantize},
    {"DynamicQuantizeMatMul", nullptr, dynamic_quantize},
    {"DynamicQuantizeLSTM", nullptr, dynamic_quantize},
    {"QLinearAdd", nullptr, binary_of_bytes},
    {"QLinearMul", nullptr, binary_of_bytes},
    {"QLinearWhere", nullptr, where_of_bytes},
    {"QLinearSigmoid", nullptr, first_input},
    {"QLinearLeakyRelu", nullptr, first_input},
    {"Shape", nullptr, shape_of},
    {"Size", nullptr, shape_of},
    {"ReverseSequence", nullptr, reverse_sequence},
    {"BiasSplitGelu", nullptr, halve_last},
};

}  // namespace

std::span<const RowRuleOf> row_rules_of_moves() { return kRules; }

void follow_sizes(NodeRows& c) {
  for (RowPlace& p : c.out) p = {RowPlace::Kind::kUnlike, 0};
  const std::string& op = c.node.op_type;
  if (c.in.empty() || c.out.size() != 1) return;
  if (c.is_alike(0) && (op == "Expand" || op == "Tile")) return set_repeated(c);
  if (op == "ConstantOfShape") return set_repeated(c);
  if (!c.is_numbers(0)) return;
  int at = -1;
  if (op == "Identity" || op == "Cast") at = c.axis(0);
  if (op == "Expand") at = c.axis(0) + c.one_out[0].shape.rank() - c.rank(0);
  if (op == "Reshape" || op == "Squeeze" || op == "Unsqueeze") at = reshaped_axis(c);
  if (op == "Transpose") {
    int perm[kMaxRank];
    transpose_perm(c.node, c.rank(0), perm);
    at = static_cast<int>(std::find(perm, perm + c.rank(0), c.axis(0)) - perm);
  }
  if (c.fits_rows(0, at) && c.one_out[0].shape[at] == 1) c.out[0] = {RowPlace::Kind::kRowNumbers, at};
}

}  // namespace evn
