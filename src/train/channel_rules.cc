// What operators do with channels. An operator without a row keeps all channels that it reads.
#include "train/channel_rules.h"

#include <algorithm>
#include <array>

namespace evn_train {
namespace {

using Spans = std::vector<ChannelSpan>;

// Along one axis of an image, -1: not known. Windows of `kernel` elements.
std::int64_t windows(const Node& node, std::size_t k, std::size_t count, std::int64_t size, std::int64_t kernel) {
  const std::vector<std::int64_t> strides = evn::ints_attribute_of(node, "strides"), pads = evn::ints_attribute_of(node, "pads"),
                                  dilations = evn::ints_attribute_of(node, "dilations");
  const std::string automatic = evn::text_attribute_of(node, "auto_pad");
  const std::int64_t stride = k < strides.size() ? strides[k] : 1, dilation = k < dilations.size() ? dilations[k] : 1;
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  for (const std::int64_t number : {size, kernel, stride, dilation}) {
    if (number <= 0 || number >= kMost) return -1;
  }
  if (evn::int_attribute_of(node, "ceil_mode", 0) != 0) return -1;
  if (automatic.starts_with("SAME")) return (size + stride - 1) / stride;
  std::int64_t padded = size;
  if (automatic.empty() || automatic == "NOTSET") {
    for (const std::size_t at : {k, k + count}) {
      const std::int64_t pad = at < pads.size() ? pads[at] : 0;
      if (pad < 0 || pad >= kMost) return -1;
      padded += pad;
    }
  }
  const std::int64_t wide = dilation * (kernel - 1) + 1;
  return padded < wide ? -1 : (padded - wide) / stride + 1;
}

}  // namespace

std::int64_t product(const std::vector<std::int64_t>& dims, std::size_t first) {
  std::int64_t all = 1;
  for (std::size_t i = first; i < dims.size(); ++i) {
    if (dims[i] < 0 || __builtin_mul_overflow(all, dims[i], &all)) return -1;
  }
  return all;
}

bool is_image(const Flow& x) { return x.has_channels() && x.axis == 1 && !x.is_flat && x.dims.size() >= 2; }

std::vector<std::int64_t> windowed(const Node& node, const Flow& x, const std::vector<std::int64_t>& kernel) {
  std::vector<std::int64_t> dims(kernel.size() + 2, -1);
  if (x.has_rank && x.dims.size() == dims.size()) {
    dims[0] = x.dims[0];
    for (std::size_t k = 0; k < kernel.size(); ++k) dims[k + 2] = windows(node, k, kernel.size(), x.dims[k + 2], kernel[k]);
  }
  return dims;
}

std::size_t axis_of(std::int64_t axis, std::size_t rank) {
  if (axis < 0) axis += static_cast<std::int64_t>(rank);
  return axis >= 0 && axis < static_cast<std::int64_t>(rank) ? static_cast<std::size_t>(axis) : rank;
}

namespace {

// BatchNormalization and InstanceNormalization, of constants for each channel.
void normalization(ChannelFlow* f) {
  Flow x = f->input(0);
  const std::size_t constants = f->node().op_type == "BatchNormalization" ? 4 : 2;
  if (x.has_channels()) {
    if (x.axis != 1) return f->block_inputs("normalizes along another axis");
    if (!(evn::float_attribute_of(f->node(), "epsilon", 1e-5f) > 0))
      return f->block_inputs("divides by the deviation of a channel of zeros");
    for (std::size_t o = 1; o < f->node().outputs.size(); ++o) {
      if (f->node().outputs[o] != kNoValue) return f->block_inputs("has statistics as outputs");
    }
    for (std::size_t i = 1; i <= constants; ++i) {
      Spans spans;
      if (f->is_constant(i) && f->constant_dims(i).size() == 1) spans = spans_along(x, f->constant_dims(i)[0]);
      if (spans.empty()) return f->block_inputs("has no constants for each channel");
      f->bind(i, {{0, std::move(spans), i >= 3 ? ChannelFlow::Part::kStatistic : ChannelFlow::Part::kOther}});
    }
  }
  f->set_output(std::move(x));
}

// What reads one value, element by element.
void unary(ChannelFlow* f) { f->set_output(f->input(0)); }

std::vector<std::int64_t> broadcast(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  std::vector<std::int64_t> dims = a.size() >= b.size() ? a : b;
  const std::vector<std::int64_t>& other = a.size() >= b.size() ? b : a;
  for (std::size_t i = 0; i < other.size(); ++i) {
    std::int64_t& dim = dims[dims.size() - 1 - i];
    const std::int64_t d = other[other.size() - 1 - i];
    if (dim == 1) {
      dim = d;
    } else if (dim != d && d != 1) {
      dim = -1;
    }
  }
  return dims;
}

// Add and its like, with broadcasting.
void elementwise(ChannelFlow* f) {
  const std::size_t count = f->node().inputs.size();
  Flow y;
  bool has_ranks = true, fits = true;
  std::size_t from_right = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool constant = f->is_constant(i);
    const Flow& x = f->input(i);
    if (!constant && !x.has_rank) {
      has_ranks = false;
      continue;
    }
    y.dims = broadcast(y.dims, constant ? f->constant_dims(i) : x.dims);
    if (!x.has_channels()) continue;
    if (!y.has_channels()) {
      y.spans = x.spans;
      y.is_flat = x.is_flat;
      from_right = x.dims.size() - x.axis;
      continue;
    }
    fits = fits && y.is_flat == x.is_flat && from_right == x.dims.size() - x.axis;
    if (fits) f->unite(y.spans, x.spans);
  }
  y.has_rank = has_ranks;
  if (y.has_channels()) {
    if (!fits || !has_ranks) return f->block_inputs("reads them with values that are not followed");
    y.axis = y.dims.size() - from_right;
    for (std::size_t i = 0; i < count; ++i) {
      const bool is_followed = f->input(i).has_channels() || !f->has_input(i);
      if (!is_followed && !f->bind_operand(i, y)) return f->block_inputs("reads them with values that are not followed");
    }
  }
  f->set_output(std::move(y));
}

// By a number: what is divided by may not have channels, which could be zero.
void division(ChannelFlow* f) {
  const bool is_number = f->is_constant(1) && f->constant_dims(1).size() <= 1 && product(f->constant_dims(1), 0) == 1;
  if (!is_number) return f->block_inputs("divides them");
  elementwise(f);
}

void pool(ChannelFlow* f) {
  const Flow x = f->input(0);
  if (x.has_channels() && !is_image(x)) return f->block_inputs("reads them along another axis");
  if (f->node().outputs.size() > 1 && f->node().outputs[1] != kNoValue) return f->block_inputs("has places as an output");
  Flow y = x;
  const std::vector<std::int64_t> kernel = evn::ints_attribute_of(f->node(), "kernel_shape");
  const bool is_global = f->node().op_type.starts_with("Global");
  if (x.has_rank && !is_global) {
    std::vector<std::int64_t> dims = windowed(f->node(), x, kernel);
    if (dims.size() != x.dims.size()) return f->block_inputs("has a kernel of another rank");
    dims[1] = x.dims[1];
    y.dims = std::move(dims);
  }
  for (std::size_t i = 2; is_global && i < y.dims.size(); ++i) y.dims[i] = 1;
  f->set_output(std::move(y));
}

// Resize by factors, of which that of the channels is 1.
void resize(ChannelFlow* f) {
  Flow x = f->input(0);
  constexpr std::size_t scales = 2;
  if (x.has_channels()) {
    const bool by_factors = !f->has_input(3) && f->is_constant(scales) &&
                            f->constant_dims(scales) == std::vector<std::int64_t>{static_cast<std::int64_t>(x.dims.size())};
    const bool some_axes = !evn::ints_attribute_of(f->node(), "axes").empty();
    if (!is_image(x) || !by_factors || some_axes || f->number_at(scales, 1, 0) != 1.0f)
      return f->block_inputs("has no constant factors that leave the channels");
    for (std::size_t i = 2; i < x.dims.size(); ++i) x.dims[i] = -1;
  }
  f->set_output(std::move(x));
}

void pad(ChannelFlow* f) {
  Flow x = f->input(0);
  if (x.has_channels()) {
    std::vector<std::int64_t> pads;
    const std::size_t rank = x.dims.size();
    const bool known = f->numbers_of(1, &pads) && pads.size() == 2 * rank && !f->has_input(3);
    if (!known || pads[x.axis] != 0 || pads[rank + x.axis] != 0 || x.is_flat)
      return f->block_inputs("has no constant pads that leave the channels");
    for (std::size_t i = 0; i < rank; ++i) {
      std::int64_t& dim = x.dims[i];
      const bool fits =
          dim >= 0 && !__builtin_add_overflow(dim, pads[i], &dim) && !__builtin_add_overflow(dim, pads[rank + i], &dim);
      if (!fits || dim < 0) dim = -1;
    }
  }
  f->set_output(std::move(x));
}

struct Row {
  std::string_view op;
  void (*rule)(ChannelFlow*);
  bool reads_all = false;  // channels may come by any input, not by the first alone
};

// Activations of which neither the value nor the derivative at 0 is infinite.
constexpr auto kRows = std::to_array<Row>({
    {"Conv", conv_channels},
    {"ConvTranspose", conv_transpose_channels},
    {"Gemm", gemm_channels},
    {"MatMul", matmul_channels},
    {"BatchNormalization", normalization},
    {"InstanceNormalization", normalization},
    {"Add", elementwise, true},
    {"Sub", elementwise, true},
    {"Mul", elementwise, true},
    {"Sum", elementwise, true},
    {"Mean", elementwise, true},
    {"Max", elementwise, true},
    {"Min", elementwise, true},
    {"PRelu", elementwise, true},
    {"Div", division},
    {"MaxPool", pool},
    {"AveragePool", pool},
    {"GlobalAveragePool", pool},
    {"GlobalMaxPool", pool},
    {"Resize", resize},
    {"Pad", pad},
    {"Concat", concat_channels, true},
    {"Flatten", flatten_channels},
    {"Reshape", reshape_channels},
    {"Transpose", transpose_channels},
    {"Squeeze", reduce_channels},
    {"Unsqueeze", unsqueeze_channels},
    {"ReduceMean", reduce_channels},
    {"ReduceSum", reduce_channels},
    {"ReduceMax", reduce_channels},
    {"ReduceMin", reduce_channels},
    {"Abs", unary},
    {"Celu", unary},
    {"Clip", unary},
    {"Dropout", unary},
    {"Elu", unary},
    {"Erf", unary},
    {"Gelu", unary},
    {"HardSigmoid", unary},
    {"HardSwish", unary},
    {"Identity", unary},
    {"LeakyRelu", unary},
    {"Mish", unary},
    {"Neg", unary},
    {"Relu", unary},
    {"Selu", unary},
    {"Sigmoid", unary},
    {"Softplus", unary},
    {"Softsign", unary},
    {"Swish", unary},
    {"Tanh", unary},
    {"ThresholdedRelu", unary},
});

}  // namespace

void follow_channels(ChannelFlow* flow) {
  const Node& node = flow->node();
  const auto fits = [&](const Row& row) { return row.op == node.op_type && node.domain.empty(); };
  const auto row = std::find_if(kRows.begin(), kRows.end(), fits);
  if (row == kRows.end()) return flow->block_inputs("is not followed");
  for (std::size_t i = 1; !row->reads_all && i < node.inputs.size(); ++i) {
    if (flow->input(i).has_channels()) return flow->block_inputs("is set by them");
  }
  row->rule(flow);
}

}  // namespace evn_train
