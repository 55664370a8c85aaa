// RotaryEmbedding: turns pairs of elements of each head by the angles of its position: (a, b) becomes
// (cos a - sin b, sin a + cos b). The pairs of the first rotary_embedding_dim elements (0: all) are halves, or with `interleaved`
// neighbours; the rest stays.
//   inputs  x [B, heads, S, D] or [B, S, heads * D] (then num_heads is needed); cos and sin: [B, S, pairs], or, with position_ids
//           [B, S] int64, [positions, pairs]
// com.microsoft's RotaryEmbedding: x, position_ids [B, S] or [1] (where a batch's positions begin), cos and sin [positions, pairs].
// `scale` must be 1: what it would scale is nowhere said. The heads of a flat x without num_heads are as wide as the caches say.
// dtypes: floating point, all alike. Failures: dims that do not fit; at run: a position outside the caches. Tolerance: rtol 1e-5.
#include "ops/rotary.h"

#include "ops/infra/check.h"
#include "ops/infra/index.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

enum : int { kInterleaved, kHeads, kRotaryDim };

struct Geometry {
  bool flat;
  std::int64_t batch, heads, steps, depth, turned;
};

Geometry geometry_of(const Node& node, const Shape& x) {
  Geometry g{x.rank() == 3, x[0], 0, 0, 0, attr_int(node, kRotaryDim)};
  g.heads = g.flat ? attr_int(node, kHeads) : x[1];
  g.steps = x[g.flat ? 1 : 2];
  if (g.flat && g.heads < 1) fail(EVN_ERROR_INVALID_MODEL, "an input of rank 3 needs num_heads");
  if (g.flat && x[2] >= 0 && x[2] % g.heads != 0) fail(EVN_ERROR_INVALID_MODEL, "num_heads does not divide the hidden size");
  g.depth = g.flat ? (x[2] < 0 ? -1 : x[2] / g.heads) : x[3];
  if (g.turned == 0) g.turned = g.depth;
  if (g.turned >= 0 && g.turned % 2 != 0) fail(EVN_ERROR_INVALID_MODEL, "an odd number of elements cannot be turned in pairs");
  if (attr_int(node, kRotaryDim) < 0 || (g.depth >= 0 && g.turned > g.depth)) {
    fail(EVN_ERROR_INVALID_MODEL, "rotary_embedding_dim does not fit the head");
  }
  return g;
}

void infer_rotary(InferContext& c) {
  require_same_dtype(c, 0, 2);
  require_rank(c, 0, 3, 4);
  const Geometry g = geometry_of(c.node, c.shape(0));
  const std::int64_t pairs = g.turned < 0 ? -1 : g.turned / 2;
  const bool by_position = c.has_input(3);
  for (int i = 1; i < 3; ++i) {
    require_rank(c, i, by_position ? 2 : 3, by_position ? 2 : 3);
    require_dim(c.shape(i)[by_position ? 1 : 2], pairs, i);
    require_dim(c.shape(i)[0], by_position ? c.shape(1)[0] : g.batch, i);
    if (!by_position) require_dim(c.shape(i)[1], g.steps, i);
  }
  if (by_position) {
    require_dtype(c, 3, dtype_bit(DType::kInt64));
    require_rank(c, 3, 2, 2);
    require_dim(c.shape(3)[0], g.batch, 3);
    require_dim(c.shape(3)[1], g.steps, 3);
  }
  infer_same_shape(c);
}

template <typename T>
void turn(const ReferenceContext& c, const Geometry& g) {
  const bool interleaved = attr_int(c.node, kInterleaved) != 0;
  const std::int64_t pairs = g.turned / 2;
  for (std::int64_t i = 0; i < g.batch * g.heads * g.steps; ++i) {
    cancellation_point();
    const std::int64_t step = g.flat ? i / g.heads % g.steps : i % g.steps;
    const std::int64_t batch = i / (g.heads * g.steps);
    std::int64_t angles = batch * g.steps + step;
    if (c.has_input(3)) angles = index_at(c.input(3), angles, c.input(1).desc.shape[0]);
    const T* x = c.input(0).as<T>() + i * g.depth;
    T* y = c.output().as<T>() + i * g.depth;
    turn_pairs(x, y, g.depth, c.input(1).as<T>() + angles * pairs, c.input(2).as<T>() + angles * pairs, pairs, interleaved);
  }
}

void reference_rotary(const ReferenceContext& c) {
  const Geometry g = geometry_of(c.node, c.input(0).desc.shape);
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { turn<decltype(zero)>(c, g); });
}

// ---------------------------------------------------------------------------------------------- com.microsoft --

enum : int { kX, kPositions, kCosine, kSine };
enum : int { kScale = kRotaryDim + 2 };  // behind is_packed_batching, which changes nothing: position_ids say where each step is

Geometry contrib_geometry(const Node& node, const Shape& x, const Shape& cosine) {
  if (x.rank() == 4 || attr_int(node, kHeads) > 0) return geometry_of(node, x);
  if (attr_int(node, kRotaryDim) != 0) fail(EVN_ERROR_INVALID_MODEL, "rotary_embedding_dim needs num_heads");
  Geometry g{true, x[0], -1, x[1], dim_product(cosine[1], 2), dim_product(cosine[1], 2)};
  if (g.depth == 0) fail(EVN_ERROR_INVALID_MODEL, "heads of no elements");
  if (g.depth > 0 && x[2] >= 0) {
    if (x[2] % g.depth != 0) fail(EVN_ERROR_INVALID_MODEL, "the caches do not divide the hidden size");
    g.heads = x[2] / g.depth;
  }
  return g;
}

void infer_contrib(InferContext& c) {
  require_same_dtype(c, kCosine, kSine);
  if (c.inputs[kX].dtype != c.inputs[kCosine].dtype) fail(EVN_ERROR_INVALID_MODEL, "the caches have another dtype");
  if (attr_float(c.node, kScale) != 1) fail(EVN_ERROR_UNSUPPORTED, "a scale of angles");
  require_rank(c, kX, 3, 4);
  for (const int i : {kCosine, kSine}) require_rank(c, i, 2, 2);
  const Geometry g = contrib_geometry(c.node, c.shape(kX), c.shape(kCosine));
  for (const int i : {kCosine, kSine}) {
    require_dim(c.shape(i)[1], g.turned < 0 ? -1 : g.turned / 2, i);
    require_dim(c.shape(i)[0], c.shape(kCosine)[0], i);
  }
  require_dtype(c, kPositions, dtype_bit(DType::kInt64));
  require_rank(c, kPositions, 1, 2);
  const Shape& positions = c.shape(kPositions);
  require_dim(positions[0], positions.rank() == 1 ? 1 : g.batch, kPositions);
  if (positions.rank() == 2) require_dim(positions[1], g.steps, kPositions);
  infer_same_shape(c);
}

std::int64_t position_of(const ReferenceContext& c, std::int64_t batch, std::int64_t step, std::int64_t steps) {
  const ConstTensor& ids = c.input(kPositions);
  const std::int64_t limit = c.input(kCosine).desc.shape[0];
  const bool all = ids.desc.shape.rank() == 2;
  const std::int64_t begin = ids.as<std::int64_t>()[all ? batch * steps + step : 0];
  const std::int64_t position = begin < 0 || begin >= limit ? -1 : begin + (all ? 0 : step);
  if (position < 0 || position >= limit) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "position %lld is outside the caches", static_cast<long long>(begin));
  }
  return position;
}

void reference_contrib(const ReferenceContext& c) {
  const Geometry g = contrib_geometry(c.node, c.input(kX).desc.shape, c.input(kCosine).desc.shape);
  const bool interleaved = attr_int(c.node, kInterleaved) != 0;
  const std::int64_t pairs = g.turned / 2;
  dispatch_floats(c.input(kX).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < g.batch * g.heads * g.steps; ++i) {
      cancellation_point();
      const std::int64_t step = g.flat ? i / g.heads % g.steps : i % g.steps;
      const std::int64_t angles = position_of(c, i / (g.heads * g.steps), step, g.steps) * pairs;
      turn_pairs(c.input(kX).as<T>() + i * g.depth, c.output().as<T>() + i * g.depth, g.depth, c.input(kCosine).as<T>() + angles,
                 c.input(kSine).as<T>() + angles, pairs, interleaved);
    }
  });
}

constexpr AttributeSpec kContrib[] = {int_attribute("interleaved", 0), int_attribute("num_heads", 0),
                                      int_attribute("rotary_embedding_dim", 0), int_attribute("is_packed_batching", 0),
                                      float_attribute("scale", 1)};
constexpr AttributeSpec kAttributes[] = {int_attribute("interleaved", 0), int_attribute("num_heads", 0),
                                         int_attribute("rotary_embedding_dim", 0)};
constexpr OpDef kOps[] = {
    {.name = "RotaryEmbedding",
     .since = 23,
     .min_inputs = 3,
     .max_inputs = 4,
     .attributes = kAttributes,
     .dtypes = kFloats,
     .infer = infer_rotary,
     .reference = reference_rotary,
     .tolerance = {1e-5, 1e-6}},
    {.name = "RotaryEmbedding",
     .domain = "com.microsoft",
     .since = 1,
     .min_inputs = 4,
     .max_inputs = 4,
     .attributes = kContrib,
     .dtypes = kFloats,
     .infer = infer_contrib,
     .reference = reference_contrib,
     .tolerance = {1e-5, 1e-6}},
};

}  // namespace

extern const OpFamily rotary_embedding_family;
const OpFamily rotary_embedding_family = {kOps};

}  // namespace evn
