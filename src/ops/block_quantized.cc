// com.microsoft's operators on weights that are quantized block by block, with a scale and a zero point for each block:
//   MatMulNBits            y = A W' + bias, W[n, k] = (q[n, k] - zero point) * scale. `bits` (2, 4, 8) of each q lie in bytes, the
//                          first in the lowest ones: B [N, blocks, block_size * bits / 8], scales [N, blocks]; zero points packed
//                          likewise, [N, bytes], or in the dtype of A, [N, blocks]; 2^(bits - 1) where there are none. g_idx [K]
//                          names the block of each k, which otherwise is k / block_size. The attributes K and N are W's dims.
//                          accuracy_level 4 without g_idx: A is rounded to multiples of 1/127 of the largest magnitude of each
//                          block of a row (ops/row_quantization.h), whose sums are NaN where it is not finite
//   GatherBlockQuantized   Gather along `gather_axis` of (q - zero point) * scale, with blocks of block_size along `quantize_axis`.
//                          uint8 holds `bits` of several q, packed along the last axis, as its zero points are, with 2^(bits - 1)
//                          where there are none; other types hold one q an element, with 0. An index out of range gives zeros
// dtypes: A float32; gathered: uint8, int4, uint4, the floating formats of 8 and 4 bits, to float32, float16 or bfloat16, which is
// the dtype of the scales. Failures: dims that do not fit, other numbers of bits. Tolerance: rtol 1e-4, atol 1e-5; gathered 1e-6.
#include <vector>

#include "ops/block_quantized.h"
#include "ops/infra/index.h"
#include "ops/infra/quantized.h"
#include "ops/infra/small_types.h"
#include "ops/row_quantization.h"

namespace evn {
namespace {

constexpr std::uint32_t kFloat = dtype_bit(DType::kFloat32);
constexpr std::uint32_t kByte = dtype_bit(DType::kUint8);

// Number i of those that are packed into bytes, the first in the lowest bits.
std::int32_t packed_at(const std::uint8_t* bytes, std::int64_t bits, std::int64_t i) {
  const std::int64_t per_byte = 8 / bits;
  return bytes[i / per_byte] >> (i % per_byte * bits) & ((1 << bits) - 1);
}

// ------------------------------------------------------------------------------------------------ MatMulNBits --

using namespace matmul_nbits;

// [rows, columns], or a vector of as many.
void require_table(const InferContext& c, int i, std::int64_t rows, std::int64_t columns) {
  if (!c.has_input(i)) return;
  require_rank(c, i, 1, 2);
  if (c.shape(i).rank() == 1) return require_vector(c, i, checked_mul(rows, columns));
  require_dim(c.shape(i)[0], rows, i);
  require_dim(c.shape(i)[1], columns, i);
}

void infer_matmul(InferContext& c) {
  const BlockShape s = block_shape(c.node);
  if (attr_int(c.node, kPrepacked) != 0) fail(EVN_ERROR_UNSUPPORTED, "weights that are packed for another device");
  require_rank(c, kA, 1);
  require_dtype(c, kB, kByte);
  require_rank(c, kB, 2, 3);
  const Shape& b = c.shape(kB);
  const std::int64_t blob = s.block / (8 / s.bits);
  require_dim(b[0], s.n, kB);
  require_dim(dim_elements(b, 1, b.rank()), checked_mul(s.blocks, blob), kB);
  require_dtype(c, kScales, kFloat);
  require_table(c, kScales, s.n, s.blocks);
  require_dtype(c, kZeros, kFloat | kByte);
  if (c.has_input(kZeros)) require_table(c, kZeros, s.n, c.inputs[kZeros].dtype == DType::kUint8 ? s.zero_bytes : s.blocks);
  require_dtype(c, kGroups, dtype_bit(DType::kInt32));
  if (c.has_input(kGroups)) {
    require_rank(c, kGroups, 1, 1);
    const std::int64_t count = c.shape(kGroups)[0];
    if (count >= 0 && count != s.k) require_dim(count, checked_mul(s.blocks, s.block), kGroups);
  }
  require_dtype(c, kBias, kFloat);
  require_vector(c, kBias, s.n);
  Shape out = c.shape(kA);
  require_dim(out[out.rank() - 1], s.k, kA);
  out[out.rank() - 1] = s.n;
  c.outputs[0].shape = out;
}

double block_zero(const ReferenceContext& c, const BlockShape& s, std::int64_t n, std::int64_t block) {
  if (!c.has_input(kZeros)) return static_cast<double>(1 << (s.bits - 1));
  const ConstTensor& zeros = c.input(kZeros);
  if (zeros.desc.dtype == DType::kFloat32) return static_cast<double>(zeros.as<float>()[n * s.blocks + block]);
  return packed_at(zeros.as<std::uint8_t>() + n * s.zero_bytes, s.bits, block);
}

void weights_of(const ReferenceContext& c, const BlockShape& s, std::int64_t n, std::vector<double>& row) {
  const std::uint8_t* bytes = c.input(kB).as<std::uint8_t>() + n * s.blocks * (s.block / (8 / s.bits));
  for (std::int64_t k = 0; k < s.k; ++k) {
    cancellation_point();
    const std::int64_t block = c.has_input(kGroups) ? c.input(kGroups).as<std::int32_t>()[k] : k / s.block;
    if (block < 0 || block >= s.blocks) fail(EVN_ERROR_INVALID_ARGUMENT, "g_idx names block %lld", static_cast<long long>(block));
    const auto scale = static_cast<double>(c.input(kScales).as<float>()[n * s.blocks + block]);
    row[static_cast<std::size_t>(k)] = (packed_at(bytes, s.bits, k) - block_zero(c, s, n, block)) * scale;
  }
}

// The elements of A as they are multiplied: rounded block by block. Empty where they are taken as they are.
std::vector<double> quantized_elements(const ReferenceContext& c, const BlockShape& s) {
  if (!quantizes_rows(c.node, c.has_input(kGroups))) return {};
  const std::int64_t count = c.input(kA).desc.shape.elements();
  const float* a = c.input(kA).as<float>();
  std::vector<double> elements(static_cast<std::size_t>(count));
  for (std::int64_t begin = 0, end; begin < count; begin = end) {
    const std::int64_t row_end = (begin / s.k + 1) * s.k;
    end = std::min(begin + s.block, row_end);
    float largest = 0;
    for (std::int64_t i = begin; i < end && !std::isnan(largest); ++i) {
      cancellation_point();
      if (!(std::fabs(a[i]) <= largest)) largest = std::fabs(a[i]);
    }
    const RowQuantization q = row_quantization(largest);
    for (std::int64_t i = begin; i < end; ++i) {
      cancellation_point();
      const float number = q.factor == 0 ? 0.0f : std::nearbyint(a[i] * q.factor);
      elements[static_cast<std::size_t>(i)] = static_cast<double>(number) * static_cast<double>(q.scale);
    }
  }
  return elements;
}

void reference_matmul(const ReferenceContext& c) {
  const BlockShape s = block_shape(c.node);
  const std::int64_t rows = c.input(kA).desc.shape.elements() / s.k;
  const std::vector<double> quantized = quantized_elements(c, s);
  std::vector<double> weights(static_cast<std::size_t>(s.k));
  for (std::int64_t n = 0; n < s.n; ++n) {
    cancellation_point();
    weights_of(c, s, n, weights);
    for (std::int64_t m = 0; m < rows; ++m) {
      cancellation_point();
      double sum = c.has_input(kBias) ? static_cast<double>(c.input(kBias).as<float>()[n]) : 0;
      const float* a = c.input(kA).as<float>() + m * s.k;
      const double* rounded = quantized.empty() ? nullptr : quantized.data() + m * s.k;
      for (std::int64_t k = 0; k < s.k; ++k) {
        cancellation_point();
        sum += (rounded != nullptr ? rounded[k] : static_cast<double>(a[k])) * weights[static_cast<std::size_t>(k)];
      }
      c.output().as<float>()[m * s.n + n] = static_cast<float>(sum);
    }
  }
}

// --------------------------------------------------------------------------------------- GatherBlockQuantized --

enum : int { kData, kIndices, kGatherScales, kGatherZeros };
enum : int { kGatherBits, kGatherBlockSize, kGatherAxis, kQuantizeAxis };

constexpr std::uint32_t kFloatFormats = (kFloat8s & ~dtype_bit(DType::kFloat8E8M0)) | dtype_bit(DType::kFloat4E2M1);
constexpr std::uint32_t kGathered = kByte | kFloatFormats | dtype_bit(DType::kInt4) | dtype_bit(DType::kUint4);

struct GatherView {
  Shape data;  // of numbers, not of bytes
  int gather, quantize;
  std::int64_t bits;   // of each in uint8; 0 for the other types
  std::int64_t block;  // the length of a block
};

GatherView gather_view(const Node& node, const TensorDesc& data) {
  const bool packed = data.dtype == DType::kUint8;
  GatherView v{data.shape, 0, 0, packed ? checked_bits(attr_int(node, kGatherBits)) : 0, attr_int(node, kGatherBlockSize)};
  const int rank = data.shape.rank();
  v.gather = normalize_axis(attr_int(node, kGatherAxis), rank);
  v.quantize = normalize_axis(attr_int(node, kQuantizeAxis), rank);
  if (packed) v.data[rank - 1] = dim_product(v.data[rank - 1], 8 / v.bits);
  if (packed && v.gather != 0) fail(EVN_ERROR_INVALID_MODEL, "gather_axis of uint8 is not 0");
  if (packed && v.bits < 8 && v.gather == v.quantize) fail(EVN_ERROR_INVALID_MODEL, "numbers are gathered along their blocks");
  const bool whole = v.block == 0 && (kFloatFormats >> static_cast<int>(data.dtype) & 1u) != 0;
  if (!whole) checked_block(v.block);
  if (whole) v.block = std::max<std::int64_t>(v.data[v.quantize], 1);
  return v;
}

DType gathered_dtype(const Node&, std::span<const DType> inputs, int) { return inputs[kGatherScales]; }

// The dims of scales, or of zero points, which are packed in uint8.
void require_blocks(const InferContext& c, const GatherView& v, int input, bool packed) {
  if (!c.has_input(input)) return;
  const int rank = v.data.rank();
  require_rank(c, input, rank, rank);
  const bool may_be_one = (kFloatFormats >> static_cast<int>(c.inputs[kData].dtype) & 1u) != 0;
  for (int i = 0; i < rank; ++i) {
    std::int64_t dim = v.data[i];
    if (i == v.quantize && dim >= 0) dim = ceil_div(dim, v.block);
    if (packed && i == rank - 1 && dim >= 0) dim = ceil_div(dim, 8 / v.bits);
    if (!(may_be_one && i != v.quantize && c.shape(input)[i] == 1)) require_dim(c.shape(input)[i], dim, input);
  }
}

void infer_gather(InferContext& c) {
  require_dtype(c, kIndices, kIndexDtypes);
  require_dtype(c, kGatherScales, kScaleDtypes);
  require_rank(c, kData, 1);
  require_zero_point(c, kGatherZeros, c.inputs[kData].dtype);
  const GatherView v = gather_view(c.node, c.inputs[kData]);
  if (c.has_input(kGatherZeros) && (kFloatFormats >> static_cast<int>(c.inputs[kData].dtype) & 1u) != 0) {
    fail(EVN_ERROR_INVALID_MODEL, "floating formats have no zero points");
  }
  require_blocks(c, v, kGatherScales, false);
  require_blocks(c, v, kGatherZeros, v.bits != 0);
  Shape out;
  for (int i = 0; i < v.gather; ++i) out.push_back(v.data[i]);
  for (const std::int64_t dim : c.shape(kIndices).dims()) out.push_back(dim);
  for (int i = v.gather + 1; i < v.data.rank(); ++i) out.push_back(v.data[i]);
  c.outputs[0].shape = out;
}

// Number `column` of row `row` of data or zero points; a row is along the last axis and begins at a byte where numbers are packed.
double number_at(const ConstTensor& t, std::int64_t bits, std::int64_t row, std::int64_t column) {
  const std::int64_t length = t.desc.shape[t.desc.shape.rank() - 1];
  if (bits == 0) return small_value(t.desc.dtype, t.data, row * length + column);
  return packed_at(t.as<std::uint8_t>() + row * length, bits, column);
}

double dequantized(const ReferenceContext& c, const GatherView& v, const std::int64_t (&at)[kMaxRank]) {
  const Shape& scales = c.input(kGatherScales).desc.shape;
  std::int64_t data_row = 0, scale_row = 0, zero_row = 0;
  const int last = v.data.rank() - 1;
  const auto block_of = [&](int axis) { return axis == v.quantize ? at[axis] / v.block : at[axis]; };
  for (int i = 0; i < last; ++i) {
    data_row = data_row * v.data[i] + at[i];
    scale_row = scale_row * scales[i] + (scales[i] == 1 ? 0 : block_of(i));
    if (c.has_input(kGatherZeros)) zero_row = zero_row * c.input(kGatherZeros).desc.shape[i] + block_of(i);
  }
  const std::int64_t scale_at = scale_row * scales[last] + (scales[last] == 1 ? 0 : block_of(last));
  double zero = v.bits == 0 ? 0 : static_cast<double>(1 << (v.bits - 1));
  if (c.has_input(kGatherZeros)) zero = number_at(c.input(kGatherZeros), v.bits, zero_row, block_of(last));
  const double number = number_at(c.input(kData), v.bits, data_row, at[last]);
  return (number - zero) * static_cast<double>(scale_value(c.input(kGatherScales), scale_at));
}

void reference_gather(const ReferenceContext& c) {
  const GatherView v = gather_view(c.node, c.input(kData).desc);
  const std::int64_t count = c.input(kIndices).desc.shape.elements();
  const std::int64_t inner = v.data.elements(v.gather + 1, v.data.rank());
  for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) {
    cancellation_point();
    std::int64_t index = int_at(c.input(kIndices), i / inner % count);
    const std::int64_t dim = v.data[v.gather];
    if (index < -dim || index >= dim) {
      put_scaled(c.output(), i, 0);
      continue;
    }
    std::int64_t at[kMaxRank] = {};
    std::int64_t rest = i % inner;
    for (int axis = v.data.rank() - 1; axis > v.gather; --axis, rest /= v.data[axis + 1]) at[axis] = rest % v.data[axis];
    rest = i / inner / count;
    for (int axis = v.gather - 1; axis >= 0; --axis, rest /= v.data[axis + 1]) at[axis] = rest % v.data[axis];
    at[v.gather] = index < 0 ? index + dim : index;
    put_scaled(c.output(), i, dequantized(c, v, at));
  }
}

constexpr const char* kDomain = "com.microsoft";
constexpr AttributeSpec kMatMul[] = {required_attribute("K", AttributeType::kInt),
                                     required_attribute("N", AttributeType::kInt),
                                     int_attribute("accuracy_level", 0),
                                     int_attribute("bits", 4),
                                     required_attribute("block_size", AttributeType::kInt),
                                     int_attribute("weight_prepacked", 0)};
constexpr AttributeSpec kGather[] = {int_attribute("bits", 4), int_attribute("block_size", 128), int_attribute("gather_axis", 0),
                                     int_attribute("quantize_axis", 1)};
constexpr OpDef kOps[] = {
    {.name = "MatMulNBits",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 6,
     .attributes = kMatMul,
     .dtypes = kFloat,
     .infer = infer_matmul,
     .reference = reference_matmul,
     .tolerance = {1e-4, 1e-5}},
    {.name = "GatherBlockQuantized",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 4,
     .attributes = kGather,
     .dtypes = kGathered,
     .output_dtype = gathered_dtype,
     .infer = infer_gather,
     .reference = reference_gather,
     .tolerance = {1e-6, 0}},
};

}  // namespace

extern const OpFamily block_quantized_family;
const OpFamily block_quantized_family = {kOps};

}  // namespace evn
