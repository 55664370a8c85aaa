// NonMaxSuppression: for each batch and class the boxes by falling score (equal ones in their order), leaving out those whose
// intersection over union with one that was taken is above iou_threshold: rows [batch, class, box], int64.
//   inputs  boxes [B, N, 4], scores [B, C, N] float32; optional scalars max_output_boxes_per_class (0: none are taken),
//           iou_threshold (0), score_threshold (boxes with scores at or below it do not count; not given: all count)
//   center_point_box  0: two corners y1, x1, y2, x2 in any order; 1: x, y of the center, width, height
// dtypes: float32; the count int64. Failures: dims that do not fit, a threshold outside 0 to 1. Exact.
#include <algorithm>
#include <limits>
#include <vector>

#include "base/cxx20.h"
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

// A candidate as a number: the largest one has the highest score and, of equal ones, the first box.
std::uint64_t candidate(float score, std::int64_t box) {
  const auto bits = bit_cast<std::uint32_t>(score + 0.0f);  // -0 is 0
  const std::uint32_t order = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return std::uint64_t{order} << 32 | (UINT32_MAX - static_cast<std::uint32_t>(box));
}
std::int64_t box_of(std::uint64_t candidate) { return UINT32_MAX - static_cast<std::uint32_t>(candidate); }

void make_heap_of(std::vector<std::uint64_t>* candidates) {
  if (candidates->size() <= kWorkPerLook / 4) {
    cancellation_point(2 * static_cast<std::int64_t>(candidates->size()));
    return std::make_heap(candidates->begin(), candidates->end());
  }
  std::make_heap(candidates->begin(), candidates->end(), [](std::uint64_t a, std::uint64_t b) {
    cancellation_point();
    return a < b;
  });
}

// Boxes that were taken, as lists of their sides and, in groups, of what is certain about them.
class Taken {
 public:
  void clear() { boxes_ = 0; }
  std::int64_t size() const { return boxes_; }

  void add(const Box& box) {
    if (boxes_ % kGroup == 0 && boxes_ / kGroup == static_cast<std::int64_t>(groups_.size())) groups_.emplace_back();
    Group& g = groups_[static_cast<std::size_t>(boxes_ / kGroup)];
    const std::int64_t i = boxes_++ % kGroup;
    // What is behind the last one meets nothing.
    if (i == 0) std::fill_n(g.y2, kGroup, -std::numeric_limits<float>::infinity());
    g.y1[i] = box.y1;
    g.x1[i] = box.x1;
    g.y2[i] = box.y2;
    g.x2[i] = box.x2;
    g.area[i] = box.area;
  }

  // Whether one of them overlaps with the box by more than `limit`.
  bool overlap(const Box& box, float limit) const {
    for (std::int64_t first = 0; first < boxes_; first += kGroup) {
      cancellation_point(kGroup);
      const Group& g = groups_[static_cast<std::size_t>(first / kGroup)];
      // Most do not meet any: then the smaller side of what they share is not above 0.
      std::int32_t meets[kGroup], any = 0;
      for (std::int64_t i = 0; i < kGroup; ++i) meets[i] = std::min(g.height(box, i), g.width(box, i)) > 0 ? 1 : 0;
      for (std::int64_t i = 0; i < kGroup; ++i) any |= meets[i];
      if (any == 0) continue;
      for (std::int64_t i = 0; i < kGroup; ++i) {
        if (meets[i] == 0) continue;
        const float height = g.height(box, i), width = g.width(box, i);
        if (!(height > 0) || !(width > 0)) continue;
        const float shared = height * width;
        if (shared / (box.area + g.area[i] - shared) > limit) return true;
      }
    }
    return false;
  }

 private:
  static constexpr std::int64_t kGroup = 16;
  struct Group {
    float y1[kGroup], x1[kGroup], y2[kGroup], x2[kGroup], area[kGroup];
    float height(const Box& box, std::int64_t i) const { return std::min(box.y2, y2[i]) - std::max(box.y1, y1[i]); }
    float width(const Box& box, std::int64_t i) const { return std::min(box.x2, x2[i]) - std::max(box.x1, x1[i]); }
  };

  std::vector<Group> groups_;
  std::int64_t boxes_ = 0;
};

constexpr std::int64_t kPopWork = 16;  // of taking the first one from a heap

template <typename T>
T scalar_or(std::span<const ConstTensor> inputs, int i, T otherwise) {
  const auto index = static_cast<std::size_t>(i);
  return index < inputs.size() && inputs[index].present() ? *inputs[index].as<T>() : otherwise;
}

// Writes the rows of the output, unless `to` is null. Returns how many they are.
std::int64_t select(const Node& node, std::span<const ConstTensor> inputs, std::int64_t* to) {
  const Shape& shape = inputs[kScores].desc.shape;
  const std::int64_t boxes = shape[2];
  const std::int64_t most = scalar_or<std::int64_t>(inputs, kMost, 0);
  const float limit = scalar_or<float>(inputs, kOverlap, 0);
  const bool has_least = inputs.size() > kLeast && inputs[kLeast].present();
  const float least = scalar_or<float>(inputs, kLeast, 0);
  const bool center = attr_int(node, 0) != 0;
  if (!(limit >= 0 && limit <= 1)) fail(EVN_ERROR_INVALID_ARGUMENT, "iou_threshold is not from 0 to 1");
  if (boxes > UINT32_MAX) fail(EVN_ERROR_LIMIT, "more boxes than can be told apart");
  std::vector<std::uint64_t> candidates;
  Taken taken;
  std::int64_t selected = 0;
  for (std::int64_t row = 0; row < shape[0] * shape[1] && most > 0; ++row) {
    cancellation_point();
    const float* scores = inputs[kScores].as<float>() + row * boxes;
    const float* corners = inputs[kBoxes].as<float>() + row / shape[1] * boxes * 4;
    candidates.resize(static_cast<std::size_t>(boxes));
    taken.clear();
    std::size_t count = 0;
    in_pieces(boxes, 1, [&](std::int64_t i, std::int64_t end) {
      for (; i < end; ++i) {
        // A score that is no number is never taken; it would have no place in the order.
        candidates[count] = candidate(scores[i], i);
        count += scores[i] == scores[i] && (!has_least || scores[i] > least) ? 1 : 0;
      }
    });
    candidates.resize(count);
    // Most of the candidates are often not asked for, so they are not sorted.
    make_heap_of(&candidates);
    while (!candidates.empty() && taken.size() < most) {
      cancellation_point(kPopWork);
      std::pop_heap(candidates.begin(), candidates.end());
      const std::int64_t i = box_of(candidates.back());
      candidates.pop_back();
      const Box box = box_at(corners + i * 4, center);
      if (taken.overlap(box, limit)) continue;
      taken.add(box);
      ++selected;
      if (to == nullptr) continue;
      *to++ = row / shape[1];
      *to++ = row % shape[1];
      *to++ = i;
    }
  }
  return selected;
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
[[gnu::cold]] void infer_suppression(InferContext& c) {
  check_inputs(c);
  bool known = true;
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) {
    const bool empty = c.has_input(i) && c.shape(i).is_known() && c.shape(i).elements() == 0;
    known &= !c.has_input(i) || empty || known_input(c, i).data != nullptr;
  }
  const std::int64_t count = known ? select(c.node, c.values, nullptr) : -1;
  c.outputs[0].shape = {count, 3};
}

void reference_suppression(const ReferenceContext& c) { select(c.node, c.inputs, c.output().as<std::int64_t>()); }

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
