// Transpose: output axis i is input axis perm[i]; without perm the axes are reversed.
// dtypes: any. Failures: perm of a wrong length, outside the rank or with an axis twice. Exact.
#include "ops/transpose.h"

#include "ops/infra/check.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

void infer_transpose(InferContext& c) {
  const Shape& x = c.shape(0);
  int perm[kMaxRank];
  transpose_perm(c.node, x.rank(), perm);
  Shape out = Shape::of_rank(x.rank());
  for (int i = 0; i < x.rank(); ++i) out[i] = x[perm[i]];
  c.outputs[0].shape = out;
}

void reference_transpose(const ReferenceContext& c) {
  const TensorDesc& x = c.input(0).desc;
  int perm[kMaxRank];
  transpose_perm(c.node, x.shape.rank(), perm);
  const Strides dense = dense_strides(x.shape);
  Strides permuted;
  for (int i = 0; i < x.shape.rank(); ++i) permuted.step[i] = dense.step[perm[i]];
  gather_strided(c.output().desc.shape, x.dtype, c.output().data, c.input(0).data, permuted);
}

constexpr AttributeSpec kAttributes[] = {optional_attribute("perm", AttributeType::kInts)};
constexpr OpDef kOps[] = {
    {.name = "Transpose",
     .since = 1,
     .attributes = kAttributes,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_transpose,
     .reference = reference_transpose},
};

}  // namespace

void transpose_perm(const Node& node, int rank, int* perm) {
  const std::span<const std::int64_t> given = attr_ints(node, TransposeAttr::kPerm);
  if (given.empty()) {
    for (int i = 0; i < rank; ++i) perm[i] = rank - 1 - i;
    return;
  }
  if (given.size() != static_cast<std::size_t>(rank)) {
    fail(EVN_ERROR_INVALID_MODEL, "perm has %zu values for rank %d", given.size(), rank);
  }
  axes_mask(given, rank);
  for (int i = 0; i < rank; ++i) perm[i] = normalize_axis(given[i], rank, "perm");
}

extern const OpFamily transpose_family;
const OpFamily transpose_family = {kOps};

}  // namespace evn
