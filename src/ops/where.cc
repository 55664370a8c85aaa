// Where: y = condition ? X : Y, all three broadcast.
// dtypes: condition bool; X and Y alike, any. Failures: shapes that do not broadcast, unlike dtypes. Exact.
#include "ops/infra/check.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

DType second_dtype(const Node&, std::span<const DType> inputs, int) { return inputs[1]; }

void infer_where(InferContext& c) {
  require_dtype(c, 0, dtype_bit(DType::kBool));
  require_same_dtype(c, 1, 2);
  c.outputs[0].shape = broadcast_partial(broadcast_partial(c.shape(0), c.shape(1)), c.shape(2));
}

void reference_where(const ReferenceContext& c) {
  const Shape& out = c.output().desc.shape;
  const auto* condition = c.input(0).as<std::uint8_t>();
  with_width(c.output().desc.dtype, [&](auto width) {
    walk<3>(out,
            {broadcast_strides(c.input(0).desc.shape, out), broadcast_strides(c.input(1).desc.shape, out),
             broadcast_strides(c.input(2).desc.shape, out)},
            [&](std::int64_t i, const std::int64_t* at) {
              const bool first = condition[at[0]] != 0;
              move_element<width()>(c.output().data, i, c.input(first ? 1 : 2).data, at[first ? 1 : 2]);
            });
  });
}

constexpr OpDef kOps[] = {
    {.name = "Where",
     .since = 9,
     .min_inputs = 3,
     .max_inputs = 3,
     .dtypes = dtype_bit(DType::kBool),
     .flags = kOpElementwise | kOpMoves,
     .output_dtype = second_dtype,
     .infer = infer_where,
     .reference = reference_where},
};

}  // namespace

extern const OpFamily where_family;
const OpFamily where_family = {kOps};

}  // namespace evn
