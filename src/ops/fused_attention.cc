// Attention of the domain of our own: what is left of MatMul, Softmax and MatMul with what stands around them. Not an operator of
// the format (ai.onnx has one of that name, which masks and lays out otherwise).
//   Y = softmax(scale * Q K^T + mask) V over the last axis, for each batch and head
// Q, K and V are [batch, heads, steps, depth] once their axes are taken in the order of q_perm, k_perm, v_perm; or they are what
// q_view, k_view, v_view cut out of any tensor: four dims, four steps and an offset, in elements. Y is [batch, heads, queries,
// depth of V] with its axes in the order of y_perm. Batches, heads and the mask broadcast as they do in MatMul and Add. dtypes:
// float32. Failures: dims that do not fit; a view that leaves its tensor. Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/fused_attention.h"

#include <cmath>
#include <vector>

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

using Attr = FusedAttentionAttr;
using Input = FusedAttentionInput;

void read_perm(const Node& node, int attribute, int* perm) {
  const std::span<const std::int64_t> given = attr_ints(node, attribute);
  std::uint32_t seen = 0;
  for (int i = 0; i < 4; ++i) {
    const std::int64_t axis = given.empty() ? i : given.size() == 4 ? given[static_cast<std::size_t>(i)] : -1;
    if (axis < 0 || axis > 3 || (seen >> axis & 1u) != 0)
      fail(EVN_ERROR_INVALID_MODEL, "attribute %d is no order of four axes", attribute);
    seen |= 1u << axis;
    perm[i] = static_cast<int>(axis);
  }
}

AttentionOperand view_of(std::span<const std::int64_t> view, const Shape& shape) {
  if (view.size() != 9) fail(EVN_ERROR_INVALID_MODEL, "a view has %zu numbers", view.size());
  AttentionOperand o;
  std::int64_t low = view[8];
  std::int64_t high = view[8];
  bool is_empty = false;
  for (std::size_t i = 0; i < 4; ++i) {
    o.dims[i] = view[i];
    if (o.dims[i] < 0) fail(EVN_ERROR_INVALID_MODEL, "a view has a dim of %lld", static_cast<long long>(o.dims[i]));
    o.step[i] = o.dims[i] == 1 ? 0 : view[4 + i];
    is_empty |= o.dims[i] == 0;
    const std::int64_t reach = o.dims[i] == 0 ? 0 : checked_mul(o.dims[i] - 1, o.step[i]);
    (reach < 0 ? low : high) = checked_add(reach < 0 ? low : high, reach);
  }
  o.offset = view[8];
  if (shape.is_known() && !is_empty && (low < 0 || high >= shape.elements())) {
    fail(EVN_ERROR_INVALID_MODEL, "a view leaves its tensor of %s", shape.to_string().c_str());
  }
  return o;
}

AttentionOperand operand_of(const Node& node, int perm_attribute, int view_attribute, const Shape& shape) {
  if (attr_given(node, view_attribute)) return view_of(attr_ints(node, view_attribute), shape);
  if (shape.rank() != 4) fail(EVN_ERROR_INVALID_MODEL, "an input of rank %d", shape.rank());
  int perm[4];
  read_perm(node, perm_attribute, perm);
  std::int64_t dense[kMaxRank] = {};
  if (shape.is_known()) row_major_strides(shape, dense);
  AttentionOperand o;
  for (int i = 0; i < 4; ++i) {
    o.dims[i] = shape[perm[i]];
    o.step[i] = o.dims[i] == 1 ? 0 : dense[perm[i]];
  }
  return o;
}

void infer(InferContext& c) {
  require_same_dtype(c, Input::kQ, Input::kMask);
  require_rank(c, Input::kMask, 0, 4);
  const Shape* mask = c.has_input(Input::kMask) ? &c.shape(Input::kMask) : nullptr;
  const FusedAttentionSizes z = fused_attention_sizes(c.node, c.shape(Input::kQ), c.shape(Input::kK), c.shape(Input::kV), mask);
  const std::int64_t dims[] = {z.batch, z.heads, z.queries, z.value_depth};
  int perm[4];
  read_perm(c.node, Attr::kYPerm, perm);
  c.outputs[0].shape = {dims[perm[0]], dims[perm[1]], dims[perm[2]], dims[perm[3]]};
}

const float* at(const ConstTensor& t, const AttentionOperand& o, std::int64_t b, std::int64_t h, std::int64_t s) {
  return t.as<float>() + o.offset + b * o.step[0] + h * o.step[1] + s * o.step[2];
}

// softmax as it is defined, also where a row is all minus infinity.
void softmax(std::vector<double>& row) {
  double top = -std::numeric_limits<double>::infinity();
  for (const double x : row) {
    cancellation_point();
    top = std::max(top, x);
  }
  double sum = 0;
  for (double& x : row) {
    cancellation_point();
    x = std::exp(x - top);
    sum += x;
  }
  for (double& x : row) {
    cancellation_point();
    x /= sum;
  }
}

void reference(const ReferenceContext& c) {
  const auto shape = [&](int i) -> const Shape& { return c.input(i).desc.shape; };
  const bool has_mask = c.has_input(Input::kMask);
  const FusedAttentionSizes z = fused_attention_sizes(c.node, shape(0), shape(1), shape(2), has_mask ? &shape(3) : nullptr);
  const double scale = static_cast<double>(attr_float(c.node, Attr::kScale));
  std::vector<double> row(static_cast<std::size_t>(z.keys));
  const auto attend = [&](std::int64_t b, std::int64_t h, std::int64_t s) {
    const float* q = at(c.input(Input::kQ), z.q, b, h, s);
    for (std::int64_t t = 0; t < z.keys; ++t) {
      cancellation_point();
      const float* k = at(c.input(Input::kK), z.k, b, h, t);
      double sum = 0;
      for (std::int64_t d = 0; d < z.depth; ++d) {
        cancellation_point();
        sum += static_cast<double>(q[d * z.q.step[3]]) * static_cast<double>(k[d * z.k.step[3]]);
      }
      const std::int64_t m = b * z.mask_step[0] + h * z.mask_step[1] + s * z.mask_step[2] + t * z.mask_step[3];
      row[static_cast<std::size_t>(t)] = scale * sum + (has_mask ? static_cast<double>(c.input(Input::kMask).as<float>()[m]) : 0);
    }
    softmax(row);
    float* y = c.output().as<float>() + b * z.y_step[0] + h * z.y_step[1] + s * z.y_step[2];
    for (std::int64_t d = 0; d < z.value_depth; ++d) {
      cancellation_point();
      double sum = 0;
      for (std::int64_t t = 0; t < z.keys; ++t) {
        cancellation_point();
        sum += row[static_cast<std::size_t>(t)] * static_cast<double>(at(c.input(Input::kV), z.v, b, h, t)[d * z.v.step[3]]);
      }
      y[d * z.y_step[3]] = static_cast<float>(sum);
    }
  };
  for (std::int64_t b = 0; b < z.batch; ++b) {
    cancellation_point();
    for (std::int64_t h = 0; h < z.heads; ++h) {
      cancellation_point();
      for (std::int64_t s = 0; s < z.queries; ++s) {
        cancellation_point();
        attend(b, h, s);
      }
    }
  }
}

constexpr AttributeSpec kAttributes[] = {
    float_attribute("scale", 1),
    optional_attribute("q_perm", AttributeType::kInts),
    optional_attribute("k_perm", AttributeType::kInts),
    optional_attribute("v_perm", AttributeType::kInts),
    optional_attribute("y_perm", AttributeType::kInts),
    optional_attribute("q_view", AttributeType::kInts),
    optional_attribute("k_view", AttributeType::kInts),
    optional_attribute("v_view", AttributeType::kInts),
};
constexpr OpDef kOps[] = {
    {.name = kFusedAttention,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 4,
     .attributes = kAttributes,
     .dtypes = dtype_bit(DType::kFloat32),
     .infer = infer,
     .reference = reference,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

FusedAttentionSizes fused_attention_sizes(const Node& node, const Shape& q, const Shape& k, const Shape& v, const Shape* mask) {
  FusedAttentionSizes z;
  z.q = operand_of(node, Attr::kQPerm, Attr::kQView, q);
  z.k = operand_of(node, Attr::kKPerm, Attr::kKView, k);
  z.v = operand_of(node, Attr::kVPerm, Attr::kVView, v);
  require_dim(z.k.dims[3], z.q.dims[3], Input::kK);
  const Shape lead = broadcast_partial({z.q.dims[0], z.q.dims[1]}, {z.k.dims[0], z.k.dims[1]});
  Shape scores = {lead[0], lead[1], z.q.dims[2], z.k.dims[2]};
  if (mask != nullptr) scores = broadcast_partial(scores, *mask);
  require_dim(z.v.dims[2], scores[3], Input::kV);
  const Shape whole = broadcast_partial({scores[0], scores[1]}, {z.v.dims[0], z.v.dims[1]});
  z.batch = whole[0];
  z.heads = whole[1];
  z.queries = scores[2];
  z.keys = scores[3];
  z.depth = z.q.dims[3];
  z.value_depth = z.v.dims[3];
  if (!whole.is_known() || !scores.is_known() || z.value_depth < 0) return z;
  const std::int64_t dims[] = {z.batch, z.heads, z.queries, z.value_depth};
  int perm[4];
  read_perm(node, Attr::kYPerm, perm);
  std::int64_t dense[kMaxRank] = {};
  row_major_strides({dims[perm[0]], dims[perm[1]], dims[perm[2]], dims[perm[3]]}, dense);
  for (int i = 0; i < 4; ++i) z.y_step[perm[i]] = dense[i];
  if (mask == nullptr) return z;
  const Strides steps = broadcast_strides(*mask, {z.batch, z.heads, z.queries, z.keys});
  for (int i = 0; i < 4; ++i) z.mask_step[i] = steps.step[i];
  return z;
}

extern const OpFamily fused_attention_family;
const OpFamily fused_attention_family = {kOps};

}  // namespace evn
