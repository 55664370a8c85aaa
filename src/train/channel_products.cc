// Convolutions and products with matrices, which make channels.
#include <algorithm>

#include "train/channel_rules.h"

namespace evn_train {
namespace {

using Spans = std::vector<ChannelSpan>;

// For a grouped convolution whose groups read `in` channels each and make `out`: what each span of channels becomes. Where a span
// ends within a group, its channels stay.
Spans grouped_outputs(ChannelFlow* f, const Spans& channels, std::int64_t in, std::int64_t out) {
  Spans made;
  Spans counted;  // the spans of `channels`, in groups
  for (const ChannelSpan& s : channels) {
    if (s.length % in != 0) return {};
    const std::int64_t groups = s.length / in;
    made.push_back(f->new_dim(groups * out));
    f->tie(s.group == ChannelSpan::kNone ? made.back().group : s.group, made.back().group, groups);
    if (s.group == ChannelSpan::kNone) {
      f->block({made.back()}, f->node_text() + " is a grouped convolution of what comes from no convolution");
    }
    counted.push_back({s.group == ChannelSpan::kNone ? made.back().group : s.group, groups});
  }
  f->note_groups(std::move(counted));
  return made;
}

// Both kinds of convolutions. `in_axis` and `out_axis` are those of the filters [out, in, ...] or [in, out, ...].
struct Filters {
  bool is_transposed = false;
  std::vector<std::int64_t> dims;
  std::int64_t groups = 1, in = 0, out = 0;
  std::size_t in_axis = 1, out_axis = 0;
};

// The channels that a convolution makes; its filters are bound to them and to those that it reads. Empty: `why` says why it does
// not go on with those that it reads.
Spans made_channels(ChannelFlow* f, const Filters& w, const Flow& x, const char** why) {
  if (x.has_channels() && (!is_image(x) || x.dims.size() != w.dims.size() || total(x.spans) != w.in)) {
    *why = "reads them along another axis";
    return {};
  }
  const Spans read = x.has_channels() ? x.spans : Spans{{ChannelSpan::kNone, w.in}};
  if (w.groups == 1) {
    Spans made = {f->new_dim(w.out)};
    f->bind(1, {{w.in_axis, read}, {w.out_axis, made, ChannelFlow::Part::kFilter}});
    return made;
  }
  Spans made = grouped_outputs(f, read, w.in / w.groups, w.out / w.groups);
  if (made.empty()) {
    *why = "has groups of channels that several convolutions make";
  } else {
    f->bind(1, {{0, w.is_transposed ? read : made, ChannelFlow::Part::kFilter}});
  }
  return made;
}

void convolution(ChannelFlow* f, bool is_transposed) {
  const Flow x = f->input(0);
  if (!f->is_constant(1) || f->constant_dims(1).size() < 3) return f->block_inputs("has no constant filters");
  Filters w;
  w.is_transposed = is_transposed;
  w.dims = f->constant_dims(1);
  w.groups = evn::int_attribute_of(f->node(), "group", 1);
  w.in_axis = is_transposed ? 0 : 1;
  w.out_axis = 1 - w.in_axis;
  if (w.groups < 1 || w.groups > w.dims[0] || w.dims[0] % w.groups != 0)
    return f->block_inputs("has another number of groups than filters");
  w.in = is_transposed ? w.dims[0] : w.dims[1] * w.groups;  // no more than the filters have elements
  w.out = is_transposed ? w.dims[1] * w.groups : w.dims[0];
  const char* why = nullptr;
  Flow y;
  y.spans = made_channels(f, w, x, &why);
  if (why != nullptr) {
    f->block_inputs(why);
    y.spans = {f->new_dim(w.out)};
    f->block(y.spans, f->node_text() + " " + why);
  }
  f->add_convolution(y.spans);
  y.has_rank = true;
  y.dims = windowed(f->node(), x, {w.dims.begin() + 2, w.dims.end()});
  if (is_transposed) std::fill(y.dims.begin() + 2, y.dims.end(), -1);
  y.dims[1] = w.out;
  y.axis = 1;
  if (f->has_input(2)) {
    if (f->is_constant(2) && f->constant_dims(2) == std::vector<std::int64_t>{w.out}) {
      f->bind(2, {{0, y.spans}});
    } else {
      f->block(y.spans, f->node_text() + " has no constant bias");
    }
  }
  f->set_output(std::move(y));
}

}  // namespace

void conv_channels(ChannelFlow* f) { convolution(f, false); }

void conv_transpose_channels(ChannelFlow* f) { convolution(f, true); }

namespace {

// For rows times a matrix [in, out], whose axes are in_axis and the other one.
void product_with_matrix(ChannelFlow* f, const Flow& x, std::size_t in_axis) {
  const std::vector<std::int64_t> w = f->constant_dims(1);
  Spans read = {{ChannelSpan::kNone, w[in_axis]}};
  if (x.has_channels()) {
    read = spans_along(x, w[in_axis]);
    if (read.empty()) return f->block_inputs("has another number of rows than they are");
  }
  Flow y;
  y.has_rank = true;
  y.dims = x.dims;
  y.dims.back() = w[1 - in_axis];
  y.axis = y.dims.size() - 1;
  y.spans = {f->new_dim(w[1 - in_axis])};
  f->bind(1, {{in_axis, std::move(read)}, {1 - in_axis, y.spans}});
  if (f->has_input(2) && !f->bind_operand(2, y)) {
    f->block(y.spans, f->node_text() + " adds what is not followed");
    f->block_inputs("adds what is not followed");
  }
  f->set_output(std::move(y));
}

bool is_matrix(const ChannelFlow& f) { return f.is_constant(1) && f.constant_dims(1).size() == 2; }

}  // namespace

void gemm_channels(ChannelFlow* f) {
  const Flow x = f->input(0);
  const bool fits = x.has_rank && x.dims.size() == 2 && evn::int_attribute_of(f->node(), "transA", 0) == 0 && is_matrix(*f);
  if (!fits || (x.has_channels() && x.axis != 1)) return f->block_inputs("has no constant matrix on its right");
  product_with_matrix(f, x, evn::int_attribute_of(f->node(), "transB", 0) != 0 ? 1 : 0);
}

void matmul_channels(ChannelFlow* f) {
  const Flow x = f->input(0);
  const bool fits = x.has_rank && x.dims.size() >= 2 && is_matrix(*f);
  if (!fits || (x.has_channels() && x.axis + 1 != x.dims.size())) return f->block_inputs("has no constant matrix on its right");
  product_with_matrix(f, x, 0);
}

}  // namespace evn_train
