// Q, K and V of com.microsoft's attention as rows of heads, however they come: projected, packed, with a past, with a mask.
#pragma once

#include <limits>
#include <vector>

#include "ops/attention_core.h"
#include "ops/infra/quantized.h"
#include "ops/infra/walk.h"

namespace evn::contrib_attention {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Attributes that all have; Attention has more.
enum : int { kFilter, kHeads, kScale, kUnidirectional, kDoRotary, kShareBuffer, kHiddenSizes };

// Inputs of MultiHeadAttention.
inline constexpr int kPastLength = 8, kIndirection = 9;

// The inputs' numbers; -1: the operator has none.
struct AttentionInputs {
  int x, weight, bias, mask, past, past_value, attention_bias;
};
// [batch, heads, steps, depth]
struct HeadRows {
  std::int64_t heads, steps, depth;
  std::vector<double> values;

  HeadRows(std::int64_t batch, std::int64_t head_count, std::int64_t step_count, std::int64_t row_depth)
      : heads(head_count),
        steps(step_count),
        depth(row_depth),
        values(static_cast<std::size_t>(Shape{batch, head_count, step_count, row_depth}.elements())) {}
  double* row(std::int64_t b, std::int64_t h, std::int64_t s) { return values.data() + ((b * heads + h) * steps + s) * depth; }
};

// Q, K and V with the past, as attention_core.h wants them.
class Rows {
 public:
  Rows(const ReferenceContext& c, const AttentionInputs& in, const AttentionSizes& z, std::int64_t past_steps)
      : c_(c),
        in_(in),
        z_(z),
        past_(past_steps),
        queries_(z.batch, z.heads, z.queries, z.depth),
        keys_(z.batch, z.heads, z.keys, z.depth),
        values_(z.batch, z.heads, z.keys, z.value_depth),
        result_(static_cast<std::size_t>(c.output().desc.shape.elements())) {}

  const double* q(std::int64_t b, std::int64_t h, std::int64_t s) { return queries_.row(b, h, s); }
  const double* k(std::int64_t b, std::int64_t h, std::int64_t t) { return keys_.row(b, h, t); }
  const double* v(std::int64_t b, std::int64_t h, std::int64_t t) { return values_.row(b, h, t); }
  float* y(std::int64_t b, std::int64_t h, std::int64_t s) {
    return result_.data() + ((b * z_.queries + s) * z_.heads + h) * z_.value_depth;
  }
  double sink(std::int64_t) const { return -kInfinity; }

  double bias(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t t) const {
    if (attr_int(c_.node, kUnidirectional) != 0 && t > past_ + s) return -kInfinity;
    double sum = is_masked(b, s, t) ? static_cast<double>(attr_float(c_.node, kFilter)) : 0;
    if (in_.attention_bias >= 0 && c_.has_input(in_.attention_bias)) {
      const ConstTensor& added = c_.input(in_.attention_bias);
      const Strides step = broadcast_strides(added.desc.shape, {z_.batch, z_.heads, z_.queries, z_.keys});
      sum += static_cast<double>(added.as<float>()[b * step.step[0] + h * step.step[1] + s * step.step[2] + t * step.step[3]]);
    }
    return sum;
  }

  void scores(int stage, std::int64_t b, std::int64_t h, std::int64_t s, std::span<const double> row) const {
    if (stage != 2 || c_.outputs.size() < 4 || !c_.output(3).present()) return;
    float* to = c_.output(3).as<float>() + ((b * z_.heads + h) * z_.queries + s) * z_.keys;
    for (const double x : row) {
      cancellation_point();
      *to++ = static_cast<float>(x);
    }
  }

  // Reads the past; then calls f(which, row, b, h, s) for each new row of Q (0), K (1) and V (2).
  template <typename F>
  void fill(F&& f) {
    const std::int64_t step_counts[] = {z_.queries, z_.keys - past_, z_.keys - past_};
    for (int which = 0; which < 3; ++which) {
      HeadRows& to = which == 0 ? queries_ : which == 1 ? keys_ : values_;
      const std::int64_t begin = which == 0 ? 0 : past_;
      for (std::int64_t i = 0; i < z_.batch * z_.heads * step_counts[which]; ++i) {
        cancellation_point();
        const std::int64_t s = i % step_counts[which], head = i / step_counts[which];
        f(which, to.row(head / z_.heads, head % z_.heads, s + begin), head / z_.heads, head % z_.heads, s);
      }
      if (which > 0) copy_past(which, to);
    }
  }

  void store_result() const {
    for (std::size_t i = 0; i < result_.size(); ++i) {
      cancellation_point();
      put_scaled(c_.output(), static_cast<std::int64_t>(i), static_cast<double>(result_[i]));
    }
  }
  void store_present() const {
    const bool joined = in_.past_value < 0;
    if (c_.outputs.size() > 1 && c_.output(1).present()) {
      store_present(keys_, 1, 0);
      if (joined) store_present(values_, 1, static_cast<std::int64_t>(keys_.values.size()));
    }
    if (!joined && c_.outputs.size() > 2 && c_.output(2).present()) store_present(values_, 2, 0);
  }

 private:
  bool is_masked(std::int64_t b, std::int64_t s, std::int64_t t) const {
    if (!c_.has_input(in_.mask)) return false;
    const ConstTensor& mask = c_.input(in_.mask);
    const auto* values = mask.as<std::int32_t>();
    if (mask.desc.shape.rank() == 3) return values[(b * z_.queries + s) * z_.keys + t] <= 0;
    if (mask.desc.shape.rank() == 2) return values[b * z_.keys + t] <= 0;
    const bool has_begin = mask.desc.shape[0] == 2 * z_.batch;
    return t >= values[b] || (has_begin && t < values[z_.batch + b]);
  }

  // In a buffer that past and present share only the rows of the new keys change.
  void store_present(const HeadRows& from, int output, std::int64_t begin) const {
    const MutableTensor& present = c_.output(output);
    const bool joined = in_.past_value < 0, shared = !joined && c_.has_input(kPastLength);
    const std::int64_t rows = joined ? from.steps : present.desc.shape[2];
    for (std::int64_t i = 0; i < z_.batch * z_.heads * rows; ++i) {
      cancellation_point();
      const std::int64_t head = i / rows, t = i % rows;
      const double* row = from.values.data() + (head * from.steps + t) * from.depth;
      const bool is_new = !shared || (t >= past_ && t < from.steps);
      for (std::int64_t d = i * from.depth; d < (i + 1) * from.depth; ++d) {
        cancellation_point();
        const int past = output == 1 ? in_.past : in_.past_value;
        put_scaled(present, begin + d, is_new ? row[d - i * from.depth] : static_cast<double>(scale_value(c_.input(past), d)));
      }
    }
  }

  // The batch whose row t is the past of batch b.
  std::int64_t source_of(std::int64_t b, std::int64_t t) const {
    if (in_.past_value < 0 || !c_.has_input(kIndirection)) return b;
    const ConstTensor& indirection = c_.input(kIndirection);
    const std::int64_t beams = indirection.desc.shape[1], beam = indirection.as<std::int32_t>()[b * indirection.desc.shape[2] + t];
    if (beam < 0 || beam >= beams)
      fail(EVN_ERROR_INVALID_ARGUMENT, "cache_indirection names beam %lld", static_cast<long long>(beam));
    return b / beams * beams + beam;
  }

  void copy_past(int which, HeadRows& to) {
    if (past_ == 0) return;
    const bool joined = in_.past_value < 0;
    const ConstTensor& past = c_.input(which == 1 || joined ? in_.past : in_.past_value);
    const std::int64_t rows = past.desc.shape[joined ? 3 : 2];
    const std::int64_t begin = joined && which == 2 ? z_.batch * z_.heads * past_ * z_.depth : 0;
    for (std::int64_t i = 0; i < z_.batch * z_.heads * past_; ++i) {
      cancellation_point();
      const std::int64_t b = i / past_ / z_.heads, h = i / past_ % z_.heads, t = i % past_;
      const std::int64_t from = begin + ((source_of(b, t) * z_.heads + h) * rows + t) * to.depth;
      for (std::int64_t d = 0; d < to.depth; ++d) {
        cancellation_point();
        to.row(b, h, t)[d] = static_cast<double>(scale_value(past, from + d));
      }
    }
  }

  const ReferenceContext& c_;
  const AttentionInputs& in_;
  const AttentionSizes& z_;
  std::int64_t past_;
  HeadRows queries_, keys_, values_;
  std::vector<float> result_;
};

}  // namespace evn::contrib_attention
