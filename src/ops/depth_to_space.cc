// DepthToSpace: [N, C, H, W] to [N, C / b^2, H b, W b]: blocks of channels become blocks of the plane; with mode DCR the first part
// of the channel index is the place in the block, with CRD (from 11) the last. SpaceToDepth: the inverse (CRD from 28).
// ReverseSequence: of each element of the batch, the first sequence_lens[n] steps in reverse order.
// dtypes: any; lengths int64. Failures: ranks, blocks that do not divide; axes other than 0 and 1; at run: a length outside the
// axis. Exact.
#include "ops/depth_to_space.h"

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

using Attr = BlockAttr;

std::int64_t block_of(const InferContext& c) {
  require_rank(c, 0, 4, 4);
  const std::int64_t block = attr_int(c.node, Attr::kBlock);
  if (block < 1 || block > 1 << 20) fail(EVN_ERROR_INVALID_MODEL, "blocksize is %lld", static_cast<long long>(block));
  return block;
}

std::int64_t divided(std::int64_t dim, std::int64_t by) {
  if (dim >= 0 && dim % by != 0)
    fail(EVN_ERROR_INVALID_MODEL, "the blocks do not divide a dimension of %lld", static_cast<long long>(dim));
  return dim < 0 ? -1 : dim / by;
}

std::int64_t multiplied(std::int64_t dim, std::int64_t by) { return dim < 0 ? -1 : checked_mul(dim, by); }

void check_mode(const Node& node) {
  if (!attr_given(node, Attr::kMode)) return;
  const std::string& mode = attr_string(node, Attr::kMode);
  if (mode != "DCR" && mode != "CRD") fail(EVN_ERROR_INVALID_MODEL, "mode must not be '%s'", mode.c_str());
}

bool is_crd(const Node& node) { return attr_given(node, Attr::kMode) && attr_string(node, Attr::kMode) == "CRD"; }

void infer_depth_to_space(InferContext& c) {
  const std::int64_t b = block_of(c);
  check_mode(c.node);
  const Shape& x = c.shape(0);
  c.outputs[0].shape = {x[0], divided(x[1], b * b), multiplied(x[2], b), multiplied(x[3], b)};
}

void infer_space_to_depth(InferContext& c) {
  const std::int64_t b = block_of(c);
  check_mode(c.node);
  const Shape& x = c.shape(0);
  c.outputs[0].shape = {x[0], multiplied(x[1], b * b), divided(x[2], b), divided(x[3], b)};
}

void reference_move(const ReferenceContext& c, const BlockMove& move) {
  const Strides dense = dense_strides(move.split);
  Shape shape;
  Strides strides;
  for (int i = 0; i < 6; ++i) {
    shape.push_back(move.split[move.perm[i]]);
    strides.step[i] = dense.step[move.perm[i]];
  }
  gather_strided(shape, c.input(0).desc.dtype, c.output().data, c.input(0).data, strides);
}

void reference_depth_to_space(const ReferenceContext& c) { reference_move(c, depth_to_space(c.node, c.input(0).desc.shape)); }

void reference_space_to_depth(const ReferenceContext& c) { reference_move(c, space_to_depth(c.node, c.input(0).desc.shape)); }

// --------------------------------------------------------------------------------------------- ReverseSequence --

enum : int { kBatchAxis, kTimeAxis };

void infer_reverse_sequence(InferContext& c) {
  require_rank(c, 0, 2);
  require_dtype(c, 1, dtype_bit(DType::kInt64));
  const std::int64_t batch = attr_int(c.node, kBatchAxis);
  const std::int64_t time = attr_int(c.node, kTimeAxis);
  if (batch < 0 || batch > 1 || time != 1 - batch) fail(EVN_ERROR_INVALID_MODEL, "batch_axis and time_axis must be 0 and 1");
  require_vector(c, 1, c.shape(0)[static_cast<int>(batch)]);
  infer_same_shape(c);
}

// A part is one element of the first axis.
std::int64_t parts_of_reverse_sequence(const ReferenceContext& c) { return c.input(0).desc.shape[0]; }

void reference_reverse_sequence(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const bool batch_first = attr_int(c.node, kBatchAxis) == 0;
  const std::int64_t batch = x[batch_first ? 0 : 1];
  const std::int64_t time = x[batch_first ? 1 : 0];
  const auto length_of = [&](std::int64_t n) {
    const std::int64_t length = c.input(1).as<std::int64_t>()[n];
    if (length < 0 || length > time) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "a length of %lld for %lld steps", static_cast<long long>(length),
           static_cast<long long>(time));
    }
    return length;
  };
  if (c.begin == 0) each_element(batch, length_of);  // also where there are no steps
  const std::int64_t elements = x.elements(2, x.rank());
  const std::int64_t block = elements * static_cast<std::int64_t>(dtype_size(c.input(0).desc.dtype));
  if (block == 0) return;
  with_width(c.input(0).desc.dtype, [&](auto width) {
    for (std::int64_t i = c.begin; i < std::min(c.end, x[0]); ++i) {
      each_element(x[1], [&](std::int64_t j) {
        const std::int64_t n = batch_first ? i : j, t = batch_first ? j : i;
        const std::int64_t length = length_of(n);
        const std::int64_t source = t < length ? length - 1 - t : t;
        const std::int64_t from = batch_first ? i * x[1] + source : source * x[1] + j, to = i * x[1] + j;
        if (elements == 1) return move_element<width()>(c.output().data, to, c.input(0).data, from);
        copy_block(c.output().as<char>() + to * block, c.input(0).as<char>() + from * block, block);
      });
    }
  });
}

constexpr AttributeSpec kBlocks[] = {required_attribute("blocksize", AttributeType::kInt), string_attribute("mode", "DCR")};
constexpr AttributeSpec kAxes[] = {int_attribute("batch_axis", 1), int_attribute("time_axis", 0)};
constexpr std::span<const AttributeSpec> kBlockOnly = std::span<const AttributeSpec>(kBlocks).first(1);
constexpr OpDef kOps[] = {
    {.name = "DepthToSpace",
     .since = 1,
     .attributes = kBlockOnly,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_depth_to_space,
     .reference = reference_depth_to_space},
    {.name = "DepthToSpace",
     .since = 11,
     .attributes = kBlocks,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_depth_to_space,
     .reference = reference_depth_to_space},
    {.name = "SpaceToDepth",
     .since = 1,
     .attributes = kBlockOnly,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_space_to_depth,
     .reference = reference_space_to_depth},
    {.name = "SpaceToDepth",
     .since = 28,
     .attributes = kBlocks,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_space_to_depth,
     .reference = reference_space_to_depth},
    {.name = "ReverseSequence",
     .since = 10,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kAxes,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_reverse_sequence,
     .reference = reference_reverse_sequence,
     .parts = parts_of_reverse_sequence},
};

}  // namespace

BlockMove depth_to_space(const Node& node, const Shape& x) {
  const std::int64_t b = attr_int(node, Attr::kBlock), channels = x[1] / (b * b);
  if (is_crd(node)) return {{x[0], channels, b, b, x[2], x[3]}, {0, 1, 4, 2, 5, 3}};
  return {{x[0], b, b, channels, x[2], x[3]}, {0, 3, 4, 1, 5, 2}};
}

BlockMove space_to_depth(const Node& node, const Shape& x) {
  const std::int64_t b = attr_int(node, Attr::kBlock);
  const Shape split = {x[0], x[1], x[2] / b, b, x[3] / b, b};
  if (is_crd(node)) return {split, {0, 1, 3, 5, 2, 4}};
  return {split, {0, 3, 5, 1, 2, 4}};
}

extern const OpFamily depth_to_space_family;
const OpFamily depth_to_space_family = {kOps};

}  // namespace evn
