// DynamicQuantizeLSTM (com.microsoft): LSTM (ops/lstm.cc) whose products W x and R h are of whole numbers: x as a whole, and in
// each step h of all sequences, are quantized as DynamicQuantizeLinear does it; W and R are quantized already and stand transposed.
//   inputs   x [T, B, I], W [directions, I, 4 * hidden], R [directions, hidden, 4 * hidden]; B, lengths, initial h and c, P as
//            LSTM's; then scale and zero point of W and of R, [directions] or [directions, 4 * hidden]
// A sum of products is int32, which wraps, and then float32, times its scale, which is computed in float64 and is then a float32;
// from there on all is float32: + (Wb + Rb) to W x, + that to R h, and the cell of ops/lstm_cell.h. dtypes: x float32, W and R int8
// or uint8. Failures: those of LSTM, scales that do not fit. Exact, but for numbers below 1.2e-38, which kernels take for 0; ONNX
// Runtime's own activations differ in the 7th digit, so that now and then an h is quantized one step beside ours.
#include "ops/lstm_cell.h"

#include <limits>

#include "base/checked.h"
#include "ops/infra/dynamic.h"
#include "ops/infra/quantized.h"
#include "ops/recurrent.h"

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
    scales.resize(static_cast<std::size_t>(rows));
    numbers.resize(static_cast<std::size_t>(columns * rows));
    for (std::int64_t row = 0; row < rows; ++row) {
      cancellation_point();
      scales[static_cast<std::size_t>(row)] = static_cast<double>(c.input(scale).as<float>()[number(scale, row)]);
    }
    for (std::int64_t i = 0; i < columns * rows; ++i) {
      cancellation_point();
      const std::int32_t zero = byte_at(c.input(scale + 1), number(scale + 1, i % rows));
      numbers[static_cast<std::size_t>(i)] = byte_at(c.input(tensor), direction * columns * rows + i) - zero;
    }
  }

  // sums += W x of one x.
  void multiply(const DynamicRange& range, const float* x, std::vector<float>& sums) const {
    std::vector<std::int64_t> products(static_cast<std::size_t>(rows), 0);
    for (std::int64_t k = 0; k < columns; ++k) {
      cancellation_point();
      const std::int64_t number = range.quantized(x[k]) - static_cast<std::int64_t>(range.zero);
      const std::int32_t* column = numbers.data() + k * rows;
      for (std::size_t row = 0; row < products.size(); ++row) {
        cancellation_point();
        products[row] += number * column[row];
      }
    }
    for (std::size_t row = 0; row < products.size(); ++row) {
      cancellation_point();
      sums[row] += static_cast<float>(wrapped(products[row])) * static_cast<float>(static_cast<double>(range.scale) * scales[row]);
    }
  }
};

std::vector<float> floats_of(const ReferenceContext& c, int input, std::int64_t begin, std::int64_t count) {
  if (!c.has_input(input)) return std::vector<float>(static_cast<std::size_t>(count));
  const float* const from = c.input(input).as<float>() + begin;
  return {from, from + count};
}

void write(const ReferenceContext& c, std::size_t output, std::int64_t at, const float* values, std::int64_t count) {
  if (output < c.outputs.size() && c.outputs[output].present()) copy_in_pieces(values, count, c.outputs[output].as<float>() + at);
}

// One direction over all sequences, which go step by step together, since they are quantized together.
class Direction {
 public:
  Direction(const ReferenceContext& c, const RecurrentSpec& spec, int direction)
      : c_(c),
        spec_(spec),
        direction_(direction),
        size_(recurrent_sizes(spec, c.input(In::kX).desc.shape, {0, 0, c.input(In::kR).desc.shape[1]})),
        w_(c, In::kW, kWScale, direction),
        r_(c, In::kR, kRScale, direction),
        lengths_(c.has_input(In::kLengths) ? c.input(In::kLengths).as<std::int32_t>() : nullptr) {
    const Activation* f = spec.activations[direction];
    functions_ = {f[0], f[1], f[2], spec.clip > 0 ? spec.clip : std::numeric_limits<float>::infinity(), spec.own};
    bias_ = floats_of(c, In::kB, direction * 2 * w_.rows, w_.rows);
    const std::vector<float> r_bias = floats_of(c, In::kB, (direction * 2 + 1) * w_.rows, w_.rows);
    for (std::size_t i = 0; i < bias_.size(); ++i) {
      cancellation_point();
      bias_[i] += r_bias[i];
    }
    peepholes_ = floats_of(c, In::kPeepholes, direction * 3 * size_.hidden, 3 * size_.hidden);
    const std::int64_t states = size_.batch * size_.hidden;
    h_ = floats_of(c, In::kInitialH, direction * states, states);
    cells_ = floats_of(c, In::kInitialC, direction * states, states);
  }

  void run() {
    std::int64_t longest = 0;
    for (std::int64_t n = 0; n < size_.batch; ++n) {
      cancellation_point();
      longest = std::max(longest, steps(n));
    }
    const DynamicRange x_range = dynamic_range(c_.input(In::kX).as<float>(), longest * size_.batch * size_.inputs);
    for (std::int64_t s = 0; s < size_.steps; ++s) {
      cancellation_point();
      step(x_range, s);
    }
    const std::int64_t states = size_.batch * size_.hidden;
    write(c_, 1, direction_ * states, h_.data(), states);
    write(c_, 2, direction_ * states, cells_.data(), states);
  }

 private:
  std::int64_t steps(std::int64_t n) const { return sequence_steps(lengths_, n, size_.steps); }

  void step(const DynamicRange& x_range, std::int64_t s) {
    float low = 0, high = 0;  // of h of the sequences that go on
    for (std::int64_t i = 0; i < size_.batch * size_.hidden; ++i) {
      cancellation_point();
      if (s >= steps(i / size_.hidden)) continue;
      low = std::min(low, h_[static_cast<std::size_t>(i)]);
      high = std::max(high, h_[static_cast<std::size_t>(i)]);
    }
    const DynamicRange h_range = dynamic_range_of(low, high);
    for (std::int64_t n = 0; n < size_.batch; ++n) {
      cancellation_point();
      if (s >= steps(n)) {
        const std::vector<float> none(static_cast<std::size_t>(size_.hidden));
        write(c_, 0, size_.y_at(spec_, direction_, s, n), none.data(), size_.hidden);
        continue;
      }
      const std::int64_t t = spec_.backwards(direction_) ? steps(n) - 1 - s : s;
      float* const h = h_.data() + n * size_.hidden;
      std::vector<float> sums = bias_;
      w_.multiply(x_range, c_.input(In::kX).as<float>() + size_.x_row(spec_, t, n) * size_.inputs, sums);
      r_.multiply(h_range, h, sums);
      cell(sums.data(), h, cells_.data() + n * size_.hidden);
      write(c_, 0, size_.y_at(spec_, direction_, t, n), h, size_.hidden);
    }
  }

  // Gates stand in the order i, o, f, c, peepholes i, o, f.
  void cell(const float* sums, float* h, float* cells) const {
    const std::int64_t hidden = size_.hidden;
    const bool has_peepholes = c_.has_input(In::kPeepholes);
    const float* p = peepholes_.data();
    for (std::int64_t j = 0; j < hidden; ++j, ++sums, ++p) {
      cancellation_point();
      const LstmSums<float> s = {sums[0],       sums[hidden], sums[2 * hidden], sums[3 * hidden],
                                 has_peepholes, p[0],         p[hidden],        p[2 * hidden]};
      h[j] = lstm_form<FloatNumber>(functions_, s, cells + j);
    }
  }

  const ReferenceContext& c_;
  const RecurrentSpec& spec_;
  int direction_;
  RecurrentSizes size_;
  Weight w_, r_;
  const std::int32_t* lengths_;
  LstmFunctions functions_;
  std::vector<float> bias_, peepholes_, h_, cells_;
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
    {.name = "DynamicQuantizeLSTM",
     .domain = "com.microsoft",
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 12,
     .min_outputs = 0,
     .max_outputs = 3,
     .attributes = kAttributes,
     .dtypes = kFloat,
     .infer = infer_lstm,
     .reference = reference_lstm,
     .tolerance = {0, 1e-37}},
};

}  // namespace

extern const OpFamily dynamic_quantize_lstm_family;
const OpFamily dynamic_quantize_lstm_family = {kOps};

}  // namespace evn
