// DynamicQuantizeLSTM (com.microsoft): LSTM (ops/lstm.cc) whose products W x and R h are of whole numbers: x as a whole, and in
// each step h of all sequences, are quantized as DynamicQuantizeLinear does it; W and R are quantized already and stand transposed.
//   inputs   x [T, B, I], W [directions, I, 4 * hidden], R [directions, hidden, 4 * hidden]; B, lengths, initial h and c, P as
//            LSTM's; then scale and zero point of W and of R, [directions] or [directions, 4 * hidden]
// dtypes: x float32, W and R int8 or uint8. Failures: those of LSTM, scales that do not fit. Tolerance: rtol 1e-4, atol 1e-5; ONNX
// Runtime's own activations differ in the 7th digit, so that now and then an h is quantized one step beside ours.
#include "ops/lstm.h"

#include "base/checked.h"
#include "ops/infra/dynamic.h"
#include "ops/infra/quantized.h"

namespace evn {
namespace {

using In = RecurrentInput;
enum : int { kWScale = In::kPeepholes + 1, kWZero, kRScale, kRZero };
constexpr std::uint32_t kFloat = dtype_bit(DType::kFloat32);
constexpr int kGates = 4;

void require_dims(const InferContext& c, int i, std::initializer_list<std::int64_t> dims) {
  if (!c.has_input(i)) return;
  const int rank = static_cast<int>(dims.size());
  require_rank(c, i, rank, rank);
  for (int k = 0; k < rank; ++k) require_dim(c.shape(i)[k], dims.begin()[k], i);
}

// One number for each direction, or for each of its rows.
void require_row_numbers(const InferContext& c, int i, std::int64_t directions, std::int64_t rows) {
  require_rank(c, i, 1, 2);
  require_dim(c.shape(i)[0], directions, i);
  if (c.shape(i).rank() == 2 && c.shape(i)[1] != 1) require_dim(c.shape(i)[1], rows, i);
}

void infer_lstm(InferContext& c) {
  const RecurrentSpec spec = recurrent_spec(c.node, kLstmForm);
  for (int i = kWScale; i <= kRZero; ++i) require_input(c, i);
  for (const int i : {int{In::kB}, int{In::kInitialH}, int{In::kInitialC}, int{In::kPeepholes}}) require_dtype(c, i, kFloat);
  require_dtype(c, In::kLengths, dtype_bit(DType::kInt32));
  for (const int i : {int{In::kX}, int{In::kW}, int{In::kR}}) require_rank(c, i, 3, 3);
  const Shape& x = c.shape(In::kX);
  const std::int64_t directions = spec.directions, given = attr_int(c.node, RecurrentAttr::kHiddenSize);
  if (given < 0) fail(EVN_ERROR_INVALID_MODEL, "hidden_size is %lld", static_cast<long long>(given));
  const std::int64_t hidden = given > 0 ? given : c.shape(In::kR)[1];
  const auto times = [&](std::int64_t n) { return hidden < 0 ? -1 : checked_mul(n, hidden); };
  require_dims(c, In::kW, {directions, x[2], times(kGates)});
  require_dims(c, In::kR, {directions, hidden, times(kGates)});
  require_dims(c, In::kB, {directions, times(2 * kGates)});
  require_dims(c, In::kLengths, {x[1]});
  require_dims(c, In::kInitialH, {directions, x[1], hidden});
  require_dims(c, In::kInitialC, {directions, x[1], hidden});
  require_dims(c, In::kPeepholes, {directions, times(3)});
  for (const auto& [tensor, scale] : {std::pair{int{In::kW}, int{kWScale}}, std::pair{int{In::kR}, int{kRScale}}}) {
    require_dtype(c, tensor, kByteDtypes);
    require_dtype(c, scale, kFloat);
    require_zero_point(c, scale + 1, c.inputs[static_cast<std::size_t>(tensor)].dtype);
    for (const int i : {scale, scale + 1}) require_row_numbers(c, i, directions, times(kGates));
  }
  for (TensorDesc& output : c.outputs) output.shape = {directions, x[1], hidden};
  if (!c.outputs.empty()) c.outputs[0].shape = {x[0], directions, x[1], hidden};
}

// W or R of one direction, its numbers less the zero points, and the scales of its rows.
struct Weight {
  std::int64_t columns, rows;
  std::vector<std::int32_t> numbers;  // [columns][rows], as the input
  std::vector<double> scales;

  Weight(const ReferenceContext& c, int tensor, int scale, std::int64_t direction)
      : columns(c.input(tensor).desc.shape[1]), rows(c.input(tensor).desc.shape[2]) {
    const auto number = [&](int input, std::int64_t row) {
      const std::int64_t count = c.input(input).desc.shape.rank() == 2 ? c.input(input).desc.shape[1] : 1;
      return direction * count + (count == 1 ? 0 : row);
    };
    for (std::int64_t row = 0; row < rows; ++row) {
      scales.push_back(static_cast<double>(c.input(scale).as<float>()[number(scale, row)]));
    }
    for (std::int64_t i = 0; i < columns * rows; ++i) {
      const std::int32_t zero = byte_at(c.input(scale + 1), number(scale + 1, i % rows));
      numbers.push_back(byte_at(c.input(tensor), direction * columns * rows + i) - zero);
    }
  }

  // sums += W x of one x.
  void multiply(const DynamicRange& range, const std::vector<float>& x, std::vector<double>& sums) const {
    std::vector<std::int64_t> products(static_cast<std::size_t>(rows), 0);
    for (std::int64_t k = 0; k < columns; ++k) {
      const std::int64_t number = range.quantized(x[static_cast<std::size_t>(k)]) - static_cast<std::int64_t>(range.zero);
      const std::int32_t* column = numbers.data() + k * rows;
      for (std::size_t row = 0; row < products.size(); ++row) products[row] += number * column[row];
    }
    for (std::size_t row = 0; row < products.size(); ++row) {
      sums[row] += static_cast<double>(products[row]) * static_cast<double>(range.scale) * scales[row];
    }
  }
};

// One direction over all sequences, which go step by step together, since they are quantized together.
class Direction {
 public:
  Direction(const ReferenceContext& c, const RecurrentSpec& spec, int direction)
      : c_(c), spec_(spec), direction_(direction),
        size_(recurrent_sizes(spec, c.input(In::kX).desc.shape, {0, 0, c.input(In::kR).desc.shape[1]})),
        w_(c, In::kW, kWScale, direction), r_(c, In::kR, kRScale, direction) {
    layer_.spec = &spec;
    layer_.direction = direction;
    layer_.hidden = size_.hidden;
    layer_.w_bias = recurrent_slice(c, In::kB, direction * 2 * w_.rows, w_.rows);
    layer_.r_bias = recurrent_slice(c, In::kB, (direction * 2 + 1) * w_.rows, w_.rows);
    layer_.peephole = recurrent_slice(c, In::kPeepholes, direction * 3 * size_.hidden, 3 * size_.hidden);
    const auto* lengths = c.has_input(In::kLengths) ? c.input(In::kLengths).as<std::int32_t>() : nullptr;
    for (std::int64_t n = 0; n < size_.batch; ++n) {
      lengths_.push_back(sequence_steps(lengths, n, size_.steps));
      longest_ = std::max(longest_, lengths_.back());
      h_.push_back(recurrent_slice(c, In::kInitialH, size_.state_at(spec, direction, n), size_.hidden));
      cells_.push_back(recurrent_slice(c, In::kInitialC, size_.state_at(spec, direction, n), size_.hidden));
    }
  }

  void run() {
    const DynamicRange x_range = dynamic_range(c_.input(In::kX).as<float>(), longest_ * size_.batch * size_.inputs);
    for (std::int64_t s = 0; s < size_.steps; ++s) step(x_range, s);
    for (std::size_t n = 0; n < h_.size(); ++n) {
      const std::int64_t state = size_.state_at(spec_, direction_, static_cast<std::int64_t>(n));
      write_recurrent(c_, 1, state, h_[n]);
      write_recurrent(c_, 2, state, cells_[n]);
    }
  }

 private:
  void step(const DynamicRange& x_range, std::int64_t s) {
    std::vector<float> all;  // h of the sequences that go on
    for (std::size_t n = 0; n < h_.size(); ++n) {
      if (s < lengths_[n]) all.insert(all.end(), h_[n].begin(), h_[n].end());
    }
    const DynamicRange h_range = dynamic_range(all.data(), static_cast<std::int64_t>(all.size()));
    for (std::size_t n = 0; n < h_.size(); ++n) {
      const auto sequence = static_cast<std::int64_t>(n);
      if (s >= lengths_[n]) {
        write_recurrent(c_, 0, size_.y_at(spec_, direction_, s, sequence), std::vector<double>(h_[n].size(), 0.0));
        continue;
      }
      const std::int64_t t = spec_.backwards(direction_) ? lengths_[n] - 1 - s : s;
      std::vector<double> sums = layer_.w_bias;
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += layer_.r_bias[i];
      const float* x = c_.input(In::kX).as<float>() + size_.x_row(spec_, t, sequence) * size_.inputs;
      w_.multiply(x_range, std::vector<float>(x, x + size_.inputs), sums);
      r_.multiply(h_range, std::vector<float>(h_[n].begin(), h_[n].end()), sums);
      lstm_cell(layer_, sums, h_[n], cells_[n]);
      write_recurrent(c_, 0, size_.y_at(spec_, direction_, t, sequence), h_[n]);
    }
  }

  const ReferenceContext& c_;
  const RecurrentSpec& spec_;
  int direction_;
  RecurrentSizes size_;
  Weight w_, r_;
  RecurrentLayer layer_;
  std::int64_t longest_ = 0;
  std::vector<std::int64_t> lengths_;
  std::vector<std::vector<double>> h_, cells_;
};

void reference_lstm(const ReferenceContext& c) {
  const RecurrentSpec spec = recurrent_spec(c.node, kLstmForm);
  for (int d = 0; d < spec.directions; ++d) Direction(c, spec, d).run();
}

constexpr AttributeSpec kAttributes[] = {optional_attribute("activation_alpha", AttributeType::kFloats),
                                         optional_attribute("activation_beta", AttributeType::kFloats),
                                         optional_attribute("activations", AttributeType::kStrings),
                                         float_attribute("clip", 0),
                                         string_attribute("direction", "forward"),
                                         int_attribute("hidden_size", 0),
                                         int_attribute("input_forget", 0)};
constexpr OpDef kOps[] = {
    {"DynamicQuantizeLSTM", "com.microsoft", 1, 3, 12, 0, 3, kAttributes, kFloat, 0, 0, nullptr, infer_lstm, reference_lstm,
     {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily dynamic_quantize_lstm_family;
const OpFamily dynamic_quantize_lstm_family = {kOps};

}  // namespace evn
