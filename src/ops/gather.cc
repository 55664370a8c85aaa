// Gather: y[p..., i..., q...] = x[p..., indices[i...], q...]: the axes of the indices stand in place of `axis`. Negative indices
// count from the end.
// dtypes: x any; indices int32 or int64. Failures: axis outside the rank; at run: an index outside [-dim, dim). Exact.
#include "ops/gather.h"

#include <cstring>

#include "ops/infra/check.h"
#include "ops/infra/index.h"

namespace evn {
namespace {

void infer_gather(InferContext& c) {
  require_dtype(c, 1, kIndexDtypes);
  const Shape& x = c.shape(0);
  const int axis = normalize_axis(attr_int(c.node, GatherAttr::kAxis), x.rank());
  Shape out;
  for (int i = 0; i < axis; ++i) out.push_back(x[i]);
  for (std::int64_t dim : c.shape(1).dims()) out.push_back(dim);
  for (int i = axis + 1; i < x.rank(); ++i) out.push_back(x[i]);
  c.outputs[0].shape = out;
}

void reference_gather(const ReferenceContext& c) {
  const TensorDesc& x = c.input(0).desc;
  const int axis = normalize_axis(attr_int(c.node, GatherAttr::kAxis), x.shape.rank());
  const std::int64_t outer = x.shape.elements(0, axis);
  const std::int64_t count = c.input(1).desc.shape.elements();
  const std::int64_t inner = x.shape.elements(axis + 1, x.shape.rank());
  const std::size_t size = dtype_size(x.dtype) * static_cast<std::size_t>(inner);
  const auto block = static_cast<std::int64_t>(size);
  auto* to = c.output().as<char>();
  for (std::int64_t o = 0; o < outer; ++o) {
    cancellation_point();
    for (std::int64_t i = 0; i < count; ++i) {
      cancellation_point();
      const std::int64_t from = o * x.shape[axis] + index_at(c.input(1), i, x.shape[axis]);
      if (size > 0) move_in_pieces(to + (o * count + i) * block, c.input(0).as<char>() + from * block, size);
    }
  }
}

constexpr AttributeSpec kAttributes[] = {int_attribute("axis", 0)};
constexpr OpDef kOps[] = {
    {.name = "Gather",
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kAttributes,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_gather,
     .reference = reference_gather},
};

}  // namespace

extern const OpFamily gather_family;
const OpFamily gather_family = {kOps};

}  // namespace evn
