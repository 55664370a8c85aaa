// Concat: the inputs one after the other along `axis`; the other dims are equal.
// dtypes: any, all inputs alike. Failures: unlike dtypes, ranks or other dims. Exact.
#include "ops/concat.h"

#include <cstring>

#include "base/checked.h"
#include "ops/infra/check.h"

namespace evn {
namespace {

void infer_concat(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  c.outputs[0].shape = concat_shape(c, 0, 1, attr_int(c.node, ConcatAttr::kAxis));
}

void reference_concat(const ReferenceContext& c) {
  const TensorDesc& y = c.output().desc;
  const int axis = normalize_axis(attr_int(c.node, ConcatAttr::kAxis), y.shape.rank());
  const std::int64_t outer = y.shape.elements(0, axis);
  if (y.shape.elements() == 0) return;
  const auto size = static_cast<std::int64_t>(dtype_size(y.dtype));
  const std::int64_t row = y.shape.elements(axis, y.shape.rank()) * size;
  std::int64_t begin = 0;
  for (const ConstTensor& x : c.inputs) {
    cancellation_point();
    const std::int64_t block = x.desc.shape.elements(axis, y.shape.rank()) * size;
    for (std::int64_t i = 0; i < outer && block > 0; ++i) {
      cancellation_point();
      move_in_pieces(c.output().as<char>() + i * row + begin, x.as<char>() + i * block, static_cast<std::size_t>(block));
    }
    begin += block;
  }
}

constexpr AttributeSpec kAttributes[] = {required_attribute("axis", AttributeType::kInt)};
constexpr OpDef kOps[] = {
    {.name = "Concat",
     .since = 4,
     .max_inputs = kVariadic,
     .attributes = kAttributes,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_concat,
     .reference = reference_concat},
};

}  // namespace

Shape concat_shape(const InferContext& c, int first, int step, std::int64_t axis_number) {
  Shape out = c.shape(first);
  const int axis = normalize_axis(axis_number, out.rank());
  for (int n = first + step; n < static_cast<int>(c.inputs.size()); n += step) {
    const Shape& x = c.shape(n);
    require_rank(c, n, out.rank(), out.rank());
    for (int i = 0; i < out.rank(); ++i) {
      if (i == axis) {
        out[i] = out[i] < 0 || x[i] < 0 ? -1 : checked_add(out[i], x[i]);
      } else {
        require_dim(x[i], out[i], n);
        if (out[i] < 0) out[i] = x[i];
      }
    }
  }
  return out;
}

extern const OpFamily concat_family;
const OpFamily concat_family = {kOps};

}  // namespace evn
