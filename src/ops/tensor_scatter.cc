// TensorScatter: y = past_cache with the updates written along `axis`, for each index of axis 0 from its write index on (0 where
// input 2 is not given). `mode` circular: positions are taken modulo the length of the axis.
//   inputs      past_cache [batch, ..., length, ...], update (the same but for the axis), write_indices [batch]
// dtypes: any; write_indices int64. Failures: axis 0 or outside the rank, dims that do not fit, an update longer than the cache,
// another mode; at run: a position outside the cache. Exact.
#include "ops/infra/check.h"
#include "ops/infra/index.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

enum : int { kAxis, kMode };

bool is_circular(const Node& node) {
  const std::string& mode = attr_string(node, kMode);
  if (mode != "linear" && mode != "circular") fail(EVN_ERROR_INVALID_MODEL, "mode must not be '%s'", mode.c_str());
  return mode == "circular";
}

void infer_scatter(InferContext& c) {
  require_same_dtype(c, 0, 1);
  require_dtype(c, 2, dtype_bit(DType::kInt64));
  require_rank(c, 0, 2);
  const Shape& cache = c.shape(0);
  require_rank(c, 1, cache.rank(), cache.rank());
  require_vector(c, 2, cache[0]);
  const int axis = normalize_axis(attr_int(c.node, kAxis), cache.rank());
  if (axis == 0) fail(EVN_ERROR_INVALID_MODEL, "axis must not be that of the batch");
  is_circular(c.node);
  for (int i = 0; i < cache.rank(); ++i) {
    if (i != axis) require_dim(c.shape(1)[i], cache[i], 1);
  }
  if (cache[axis] >= 0 && c.shape(1)[axis] > cache[axis]) fail(EVN_ERROR_INVALID_MODEL, "the update is longer than the cache");
  infer_same_shape(c);
}

void reference_scatter(const ReferenceContext& c) {
  const Shape& cache = c.input(0).desc.shape;
  const Shape& update = c.input(1).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, kAxis), cache.rank());
  const bool circular = is_circular(c.node);
  const std::int64_t rows = cache.elements(1, axis);
  const std::int64_t inner = cache.elements(axis + 1, cache.rank());
  copy_all(c.input(0), c.output());
  if (update.elements() == 0) return;
  with_width(c.input(0).desc.dtype, [&](auto width) {
    for (std::int64_t i = 0; i < cache[0] * rows * update[axis]; ++i) {
      cancellation_point();
      const std::int64_t row = i / update[axis];
      const std::int64_t first = c.has_input(2) ? c.input(2).as<std::int64_t>()[row / rows] : 0;
      std::int64_t position = 0;
      const bool overflow = __builtin_add_overflow(first, i % update[axis], &position);
      if (circular && !overflow) position = (position % cache[axis] + cache[axis]) % cache[axis];
      if (overflow || position < 0 || position >= cache[axis]) {
        fail(EVN_ERROR_INVALID_ARGUMENT, "write index %lld does not fit into a cache of %lld", static_cast<long long>(first),
             static_cast<long long>(cache[axis]));
      }
      for (std::int64_t n = 0; n < inner; ++n) {
        cancellation_point();
        move_element<width()>(c.output().data, (row * cache[axis] + position) * inner + n, c.input(1).data, i * inner + n);
      }
    }
  });
}

constexpr AttributeSpec kAttributes[] = {int_attribute("axis", -2), string_attribute("mode", "linear")};
constexpr OpDef kOps[] = {
    {.name = "TensorScatter",
     .since = 24,
     .min_inputs = 2,
     .max_inputs = 3,
     .attributes = kAttributes,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_scatter,
     .reference = reference_scatter},
};

}  // namespace

extern const OpFamily tensor_scatter_family;
const OpFamily tensor_scatter_family = {kOps};

}  // namespace evn
