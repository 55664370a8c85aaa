// Operators that give channels another place in their value.
#include "train/channel_rules.h"

namespace evn_train {
namespace {

using Spans = std::vector<ChannelSpan>;

}  // namespace

void concat_channels(ChannelFlow* f) {
  const std::size_t count = f->node().inputs.size();
  Flow y;
  std::size_t first = count;
  for (std::size_t i = count; i > 0; --i) {
    if (f->input(i - 1).has_channels()) first = i - 1;
  }
  if (first == count) return f->set_output({});
  y = f->input(first);
  const std::size_t rank = y.dims.size(), axis = axis_of(evn::int_attribute_of(f->node(), "axis", 0), rank);
  bool fits = axis < rank && !y.is_flat;
  const bool beside = axis == y.axis;
  Spans spans;
  std::int64_t length = 0;
  for (std::size_t i = 0; i < count && fits; ++i) {
    const Flow& x = f->input(i);
    fits = x.has_rank && x.dims.size() == rank;
    if (!fits) break;
    const std::int64_t part = x.dims[axis];
    if (length >= 0 && (part < 0 || __builtin_add_overflow(length, part, &length))) length = -1;
    if (x.has_channels()) {
      fits = x.axis == y.axis && !x.is_flat;
      if (fits && beside) spans.insert(spans.end(), x.spans.begin(), x.spans.end());
      if (fits && !beside) f->unite(y.spans, x.spans);
    } else {
      fits = beside && part > 0;
      spans.push_back({ChannelSpan::kNone, part});
    }
    if (length < 0 && beside) fits = false;
  }
  if (!fits) return f->block_inputs("puts them beside values that are not followed");
  y.dims[axis] = length;
  if (beside) y.spans = std::move(spans);
  f->set_output(std::move(y));
}

namespace {

// [batch, channels, ...] as [batch, all the rest].
Flow flattened(const Flow& x) {
  Flow y = x;
  const std::int64_t size = product(x.dims, 1), sum = total(x.spans);
  y.dims = {x.dims[0], size};
  if (x.dims.size() > 2) y.is_flat = true;
  if (y.is_flat && size > 0 && !x.is_flat && size % sum == 0) {
    y.spans = spans_along(y, size);
    y.is_flat = false;
  }
  return y;
}

}  // namespace

void flatten_channels(ChannelFlow* f) {
  const Flow x = f->input(0);
  if (!x.has_channels()) {
    Flow y;
    y.has_rank = true;
    y.dims = {-1, -1};
    return f->set_output(std::move(y));
  }
  if (x.axis != 1 || axis_of(evn::int_attribute_of(f->node(), "axis", 1), x.dims.size()) != 1)
    return f->block_inputs("flattens them into the batch");
  f->set_output(flattened(x));
}

namespace {

// Whether a target keeps the batch, as far as can be known.
bool keeps_batch(const Flow& x, const std::vector<std::int64_t>& target) {
  if (target[0] == 0) return true;
  const std::int64_t rest = product(target, 1);
  if (target[0] > 0) return rest < 0;  // something else follows from the number of elements
  return rest > 0 && rest == product(x.dims, 1);
}

}  // namespace

void reshape_channels(ChannelFlow* f) {
  const Flow x = f->input(0);
  std::vector<std::int64_t> target;
  const bool known = f->numbers_of(1, &target) && evn::int_attribute_of(f->node(), "allowzero", 0) == 0;
  if (!x.has_channels()) {
    Flow y;
    y.has_rank = known;
    y.dims.assign(target.size(), -1);
    return f->set_output(std::move(y));
  }
  const auto refuse = [&] { f->block_inputs("has no constant target that keeps the batch and the channels"); };
  if (!known || target.size() < 2 || x.axis != 1 || !keeps_batch(x, target)) return refuse();
  for (std::size_t i = 2; i < target.size(); ++i) {
    if (target[i] == 0) target[i] = i < x.dims.size() ? x.dims[i] : -1;
  }
  Flow y = x;
  if (target.size() == 2 && target[1] != 0) {
    y = flattened(x);
    if (target[1] > 0) {
      y.spans = spans_along(y, target[1]);
      if (y.spans.empty()) return refuse();
      f->note_reshape(1, y.spans);
      y.dims[1] = target[1];
      y.is_flat = false;
    }
    return f->set_output(std::move(y));
  }
  // The channels stay an axis of their own.
  if (x.is_flat) return refuse();
  const std::int64_t sum = total(x.spans), here = product(x.dims, 2), there = product(target, 2);
  const bool stays = target[1] == 0 || (target[1] == sum && (target[0] == 0 || (here > 0 && here == there))) ||
                     (target[1] == -1 && here > 0 && here == there);
  if (!stays) return refuse();
  if (target[1] > 0) f->note_reshape(1, x.spans);
  y.dims = target;
  y.dims[0] = x.dims[0];
  y.dims[1] = sum;
  f->set_output(std::move(y));
}

void transpose_channels(ChannelFlow* f) {
  const Flow x = f->input(0);
  Flow y = x;
  const std::size_t rank = x.dims.size();
  const std::vector<std::int64_t> perm = evn::ints_attribute_of(f->node(), "perm");
  std::vector<bool> seen(rank, false);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t from = perm.empty() ? rank - 1 - i : perm.size() == rank ? axis_of(perm[i], rank) : rank;
    if (from == rank || seen[from]) return f->block_inputs("has no permutation of their axes");
    seen[from] = true;
    y.dims[i] = x.dims[from];
    if (from == x.axis) y.axis = i;
  }
  f->set_output(std::move(y));
}

namespace {

// The axes of an input, or of the attribute that older opsets have; none: `present` is false.
bool axes_of(const ChannelFlow& f, std::size_t rank, std::vector<bool>* chosen, bool* present) {
  std::vector<std::int64_t> axes = evn::ints_attribute_of(f.node(), "axes");
  if (f.has_input(1) && !f.numbers_of(1, &axes)) return false;
  *present = !axes.empty();
  chosen->assign(rank, false);
  for (const std::int64_t a : axes) {
    const std::size_t axis = axis_of(a, rank);
    if (axis == rank || (*chosen)[axis]) return false;
    (*chosen)[axis] = true;
  }
  return true;
}

}  // namespace

// Squeeze, and means and sums over other axes than that of the channels.
void reduce_channels(ChannelFlow* f) {
  const Flow x = f->input(0);
  if (!x.has_channels()) return f->set_output({});
  std::vector<bool> chosen;
  bool present = false;
  const bool is_squeeze = f->node().op_type == "Squeeze";
  if (!axes_of(*f, x.dims.size(), &chosen, &present) || !present || chosen[x.axis]) return f->block_inputs("reduces them");
  const bool keeps = !is_squeeze && evn::int_attribute_of(f->node(), "keepdims", 1) != 0;
  Flow y = x;
  y.dims.clear();
  for (std::size_t i = 0; i < x.dims.size(); ++i) {
    if (i == x.axis) y.axis = y.dims.size();
    if (!chosen[i]) y.dims.push_back(x.dims[i]);
    if (chosen[i] && keeps) y.dims.push_back(1);
  }
  f->set_output(std::move(y));
}

void unsqueeze_channels(ChannelFlow* f) {
  const Flow x = f->input(0);
  if (!x.has_channels()) return f->set_output({});
  std::vector<std::int64_t> axes;
  std::vector<bool> chosen;
  bool present = false;
  constexpr std::size_t kMostAxes = 16;
  const bool known =
      f->numbers_of(1, &axes) && axes.size() <= kMostAxes && axes_of(*f, x.dims.size() + axes.size(), &chosen, &present);
  if (!known) return f->block_inputs("has no constant axes");
  Flow y = x;
  y.dims.clear();
  std::size_t from = 0;
  for (const bool is_new : chosen) {
    if (!is_new && from == x.axis) y.axis = y.dims.size();
    y.dims.push_back(is_new ? 1 : x.dims[from++]);
  }
  f->set_output(std::move(y));
}

}  // namespace evn_train
