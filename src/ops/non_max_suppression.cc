// NonMaxSuppression: for each batch and class the boxes by falling score (equal ones in their order), leaving out those whose
// intersection over union with one that was taken is above iou_threshold: rows [batch, class, box], int64.
//   inputs  boxes [B, N, 4], scores [B, C, N] float32; optional scalars max_output_boxes_per_class (0: none are taken),
//           iou_threshold (0), score_threshold (boxes with scores at or below it do not count; not given: all count)
//   center_point_box  0: two corners y1, x1, y2, x2 in any order; 1: x, y of the center, width, height
// dtypes: float32; the count int64. Failures: dims that do not fit, a threshold outside 0 to 1. Exact.
#include <algorithm>
#include <vector>

#include "ops/infra/check.h"

namespace evn {
namespace {

enum : int { kBoxes, kScores, kMost, kOverlap, kLeast };

DType int64_output(const Node&, std::span<const DType>, int) { return DType::kInt64; }

struct Box {
  float y1, x1, y2, x2, area;

  Box(float top, float left, float bottom, float right)
      : y1(top), x1(left), y2(bottom), x2(right), area((bottom - top) * (right - left)) {}
};

Box box_at(const float* from, bool center) {
  if (center) return {from[1] - from[3] / 2, from[0] - from[2] / 2, from[1] + from[3] / 2, from[0] + from[2] / 2};
  return {std::min(from[0], from[2]), std::min(from[1], from[3]), std::max(from[0], from[2]), std::max(from[1], from[3])};
}

struct Candidate {
  float score;
  std::int64_t box;
};

// The order of a heap whose first is the highest score and, of equal ones, the first box.
bool comes_later(const Candidate& a, const Candidate& b) {
  cancellation_point();
  return a.score != b.score ? a.score < b.score : a.box > b.box;
}

float overlap(const Box& a, const Box& b) {
  const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  const float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  if (!(height > 0) || !(width > 0)) return 0;
  const float shared = height * width;
  return shared / (a.area + b.area - shared);
}

template <typename T>
T scalar_or(std::span<const ConstTensor> inputs, int i, T otherwise) {
  const auto index = static_cast<std::size_t>(i);
  return index < inputs.size() && inputs[index].present() ? *inputs[index].as<T>() : otherwise;
}

// Calls take(batch, class, box) for what is selected, in the order of the output.
template <typename F>
void select(const Node& node, std::span<const ConstTensor> inputs, F&& take) {
  const Shape& shape = inputs[kScores].desc.shape;
  const std::int64_t boxes = shape[2];
  const std::int64_t most = scalar_or<std::int64_t>(inputs, kMost, 0);
  const float limit = scalar_or<float>(inputs, kOverlap, 0);
  const bool has_least = inputs.size() > kLeast && inputs[kLeast].present();
  const float least = scalar_or<float>(inputs, kLeast, 0);
  const bool center = attr_int(node, 0) != 0;
  if (!(limit >= 0 && limit <= 1)) fail(EVN_ERROR_INVALID_ARGUMENT, "iou_threshold is not from 0 to 1");
  std::vector<Candidate> candidates;
  std::vector<Box> taken;
  for (std::int64_t row = 0; row < shape[0] * shape[1] && most > 0; ++row) {
    cancellation_point();
    const float* scores = inputs[kScores].as<float>() + row * boxes;
    const float* corners = inputs[kBoxes].as<float>() + row / shape[1] * boxes * 4;
    candidates.clear();
    taken.clear();
    for (std::int64_t i = 0; i < boxes; ++i) {
      cancellation_point();
      // A score that is no number is never taken; it would have no place in the order.
      if (scores[i] == scores[i] && (!has_least || scores[i] > least)) candidates.push_back({scores[i], i});
    }
    // Most of the candidates are often not asked for, so they are not sorted.
    std::make_heap(candidates.begin(), candidates.end(), comes_later);
    while (!candidates.empty()) {
      cancellation_point();
      std::pop_heap(candidates.begin(), candidates.end(), comes_later);
      const std::int64_t i = candidates.back().box;
      candidates.pop_back();
      const Box box = box_at(corners + i * 4, center);
      if (std::any_of(taken.begin(), taken.end(), [&](const Box& other) {
            cancellation_point();
            return overlap(box, other) > limit;
          }))
        continue;
      taken.push_back(box);
      take(row / shape[1], row % shape[1], i);
      if (static_cast<std::int64_t>(taken.size()) >= most) break;
    }
  }
}

void check_inputs(const InferContext& c) {
  constexpr std::uint32_t kFloat = dtype_bit(DType::kFloat32);
  for (const int i : {kScores, kOverlap, kLeast}) require_dtype(c, i, kFloat);
  require_dtype(c, kMost, dtype_bit(DType::kInt64));
  require_rank(c, kBoxes, 3, 3);
  require_rank(c, kScores, 3, 3);
  require_dim(c.shape(kBoxes)[2], 4, kBoxes);
  require_dim(c.shape(kScores)[0], c.shape(kBoxes)[0], kScores);
  require_dim(c.shape(kScores)[2], c.shape(kBoxes)[1], kScores);
  for (int i = kMost; i <= kLeast; ++i) require_scalar(c, i);
}

// How many there are is known once all inputs are: the selection is made here and again when the node runs.
void infer_suppression(InferContext& c) {
  check_inputs(c);
  bool known = true;
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) {
    const bool empty = c.has_input(i) && c.shape(i).is_known() && c.shape(i).elements() == 0;
    known &= !c.has_input(i) || empty || known_input(c, i).data != nullptr;
  }
  std::int64_t count = known ? 0 : -1;
  if (known) select(c.node, c.values, [&](std::int64_t, std::int64_t, std::int64_t) { ++count; });
  c.outputs[0].shape = {count, 3};
}

void reference_suppression(const ReferenceContext& c) {
  auto* to = c.output().as<std::int64_t>();
  select(c.node, c.inputs, [&](std::int64_t batch, std::int64_t category, std::int64_t box) {
    *to++ = batch;
    *to++ = category;
    *to++ = box;
  });
}

constexpr AttributeSpec kAttributes[] = {int_attribute("center_point_box", 0)};
constexpr OpDef kOps[] = {
    {.name = "NonMaxSuppression",
     .since = 10,
     .min_inputs = 2,
     .max_inputs = 5,
     .attributes = kAttributes,
     .dtypes = dtype_bit(DType::kFloat32),
     .value_inputs = 31,
     .output_dtype = int64_output,
     .infer = infer_suppression,
     .reference = reference_suppression},
};

}  // namespace

extern const OpFamily non_max_suppression_family;
const OpFamily non_max_suppression_family = {kOps};

}  // namespace evn
