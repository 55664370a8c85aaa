#include "backends/cpu/qgemm/qgemm_plan.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "backends/cpu/elementwise/bytes_loops.h"
#include "backends/cpu/qgemm/interleave.h"
#include "backends/cpu/simd/epilogue_ops_loops.h"
#include "backends/cpu/support.h"
#include "base/error.h"

namespace evn {

std::int64_t qgemm_padded(const simd_qgemm::Loops& loops, std::int64_t segment) { return round_up(segment, loops.k_step); }

std::int64_t qgemm_block_bytes(const simd_qgemm::Loops& loops, const QgemmShape& shape) {
  return checked_mul(checked_mul(shape.segments, qgemm_padded(loops, shape.segment)), std::int64_t{loops.lanes});
}

std::int64_t qgemm_data_bytes(const simd_qgemm::Loops& loops, const QgemmShape& shape) {
  return checked_mul(qgemm_block_bytes(loops, shape), ceil_div(shape.columns, std::int64_t{loops.lanes}));
}

std::int64_t qgemm_room_bytes(const simd_qgemm::Loops& loops, const QgemmShape& shape) {
  return checked_mul<std::int64_t>(checked_mul(shape.segments, qgemm_padded(loops, shape.segment)),
                                   loops.wide_columns * std::int64_t{sizeof(std::int16_t)});
}

namespace {

std::int64_t whole_lines(std::int64_t bytes) { return round_up(bytes, 64); }

}  // namespace

std::int64_t qgemm_bytes(const simd_qgemm::Loops& loops, const QgemmShape& shape) {
  const std::int64_t sums =
      checked_mul<std::int64_t>(ceil_div(shape.columns, std::int64_t{loops.lanes}) * loops.lanes, sizeof(std::int32_t));
  return whole_lines(checked_add(qgemm_data_bytes(loops, shape), sums));
}

namespace {

#if defined(__x86_64__)
// 16 or 8 bytes of each of four rows, four of a column side by side, or two of all columns and then the other two.
inline void store_rows(const __m128i (&r)[4], std::int64_t lanes, std::int64_t group, std::uint8_t* to) {
  const auto store = [&](std::int64_t at, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to + at), v); };
  const __m128i low = _mm_unpacklo_epi8(r[0], r[1]), other_low = _mm_unpacklo_epi8(r[2], r[3]);
  const __m128i high = _mm_unpackhi_epi8(r[0], r[1]), other_high = _mm_unpackhi_epi8(r[2], r[3]);
  const bool quads = group == 4, wide = lanes == 16;
  store(0, quads ? _mm_unpacklo_epi16(low, other_low) : low);
  store(quads ? 16 : 2 * lanes, quads ? _mm_unpackhi_epi16(low, other_low) : other_low);
  if (wide) store(quads ? 32 : 16, quads ? _mm_unpacklo_epi16(high, other_high) : high);
  if (wide) store(48, quads ? _mm_unpackhi_epi16(high, other_high) : other_high);
}

constexpr std::int64_t kSummedRows = 128;  // int8 whose sum fits 16 bits

// The first `count` of 16 or 8 bytes, of which those before `end` may be read.
inline __m128i load_columns(const std::uint8_t* p, const std::uint8_t* end, std::int64_t lanes, std::int64_t count) {
  std::uint8_t part[16] = {};
  if (end - p < lanes) {
    std::memcpy(part, p, static_cast<std::size_t>(count));
    p = part;
  }
  return lanes == 16 ? _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p))
                     : _mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(p));
}
#endif

// A block of columns whose rows lie one by one, as far as there are instructions for it: else false.
bool pack_rows(const simd_qgemm::Loops& loops, const QgemmSource& from, std::int64_t first, std::int64_t columns, std::uint8_t* to,
               std::uint32_t* sum, CancelPoints* points) {
#if defined(__x86_64__)
  const std::int64_t lanes = loops.lanes, group = loops.k_group;
  if ((lanes != 16 && lanes != 8) || (group != 4 && group != 2) || loops.k_step % 4 != 0) return false;
  const std::int64_t count = std::min(lanes, columns - first);
  const std::uint8_t* const all = from.b + (from.channels - 1) * from.channel_step + columns;
  const __m128i flip = _mm_set1_epi8(from.flip ? -128 : 0);
  const __m128i places = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m128i wanted = _mm_cmplt_epi8(places, _mm_set1_epi8(static_cast<char>(count)));
  const auto widened = [](__m128i bytes, bool high) {
    return _mm_srai_epi16(high ? _mm_unpackhi_epi8(bytes, bytes) : _mm_unpacklo_epi8(bytes, bytes), 8);
  };
  for (std::int64_t begin = 0; begin < from.channels; begin += kSummedRows) {
    if (stops(points, kSummedRows * (lanes + kFarElement))) return true;
    __m128i low = _mm_setzero_si128(), high = low;
    const std::int64_t end = std::min(from.channels, begin + kSummedRows);
    for (std::int64_t k = begin; k < end; k += 4) {
      __m128i r[4];
      for (std::int64_t i = 0; i < 4; ++i) {
        const std::uint8_t* const row = from.b + (k + i) * from.channel_step + first;
        r[i] = k + i >= end ? flip : load_columns(row, all, lanes, count);
        r[i] = _mm_and_si128(_mm_xor_si128(r[i], flip), wanted);
        low = _mm_add_epi16(low, widened(r[i], false));
        if (lanes == 16) high = _mm_add_epi16(high, widened(r[i], true));
      }
      store_rows(r, lanes, group, to + k * lanes);
    }
    std::int16_t part[16];
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(part), low);
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(part + 8), high);
    for (std::int64_t j = 0; j < lanes; ++j) sum[j] += static_cast<std::uint32_t>(std::int32_t{part[j]});
  }
  return true;
#else
  static_cast<void>(loops), static_cast<void>(from), static_cast<void>(first), static_cast<void>(columns), static_cast<void>(to),
      static_cast<void>(sum), static_cast<void>(points);
  return false;
#endif
}

// A block of columns whose taps and channels lie by themselves, one tap's channels after the other.
void pack_columns(const simd_qgemm::Loops& loops, const QgemmSource& from, std::int64_t padded, std::int64_t first,
                  std::int64_t count, std::uint8_t* to, std::uint32_t* sum, CancelPoints* points) {
  constexpr std::int64_t kPart = 512;  // bytes of a column at a time
  const std::int64_t lanes = loops.lanes, group = loops.k_group, taps = from.taps_h * from.taps_w;
  std::uint8_t part[kInterleaved][kPart];
  for (std::int64_t j = 0; j < count; j += kInterleaved) {
    const std::int64_t together = std::min<std::int64_t>(kInterleaved, count - j);
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const std::int64_t begin = from.by_tap ? tap * padded : tap / from.taps_w * padded + tap % from.taps_w * from.channels;
      for (std::int64_t channel = 0; channel < from.channels; channel += kPart) {
        const std::int64_t n = std::min(kPart, from.channels - channel), k = begin + channel;
        if (stops(points, 4 * together * n)) return;
        const std::uint8_t* columns[kInterleaved] = {};
        for (std::int64_t c = 0; c < together; ++c) {
          const std::uint8_t* const source = from.b + tap + channel * from.channel_step + (first + j + c) * from.column_step;
          if (from.channel_step == 1) {
            std::memcpy(part[c], source, static_cast<std::size_t>(n));
          } else {
            for (std::int64_t i = 0; i < n; ++i) part[c][i] = source[i * from.channel_step];
          }
          sum[j + c] += flip_and_sum(part[c], n, from.flip);
          columns[c] = part[c];
        }
        const std::int64_t units = group == 4 && k % 4 == 0 ? n / 4 : 0;
        if (units > 0) interleave_columns(columns, units, lanes * group, to + (k / 4 * lanes + j) * 4);
        for (std::int64_t c = 0; c < together; ++c) {
          for (std::int64_t i = 4 * units; i < n; ++i) to[((k + i) / group * lanes + j + c) * group + (k + i) % group] = part[c][i];
        }
      }
    }
  }
}

}  // namespace

void pack_qgemm(const simd_qgemm::Loops& loops, const QgemmSource& from, std::int64_t columns, void* packed, CancelPoints* points) {
  const QgemmShape shape = from.shape(columns);
  const std::int64_t lanes = loops.lanes, padded = qgemm_padded(loops, shape.segment), block = qgemm_block_bytes(loops, shape),
                     group = loops.k_group;
  auto* const to = static_cast<std::uint8_t*>(packed);
  fill_by_parts(points, to, qgemm_bytes(loops, shape), std::uint8_t{0});
  auto* const sums = reinterpret_cast<std::int32_t*>(to + qgemm_data_bytes(loops, shape));
  const unsigned change = from.flip ? 0x80u : 0;
  for (std::int64_t first = 0; first < columns; first += lanes) {
    if (has_stopped(points)) return;
    std::uint8_t* const at = to + first / lanes * block;
    const std::int64_t count = std::min(lanes, columns - first);
    std::uint32_t sum[64] = {};
    EVN_CHECK(lanes <= 64);
    // In the order in which B lies in memory.
    const bool by_rows = from.column_step == 1;
    if (by_rows && !pack_rows(loops, from, first, columns, at, sum, points)) {
      for (std::int64_t k = 0; k < from.channels; ++k) {
        if (stops(points, 4 * count)) return;
        const std::uint8_t* const row = from.b + k * from.channel_step + first;
        std::uint8_t* const side_by_side = at + k / group * lanes * group + k % group;
        for (std::int64_t j = 0; j < count; ++j) {
          const auto byte = static_cast<std::uint8_t>(row[j] ^ change);
          side_by_side[group * j] = byte;
          sum[j] += static_cast<std::uint32_t>(static_cast<std::int8_t>(byte));
        }
      }
    }
    if (!by_rows) pack_columns(loops, from, padded, first, count, at, sum, points);
    for (std::int64_t j = 0; j < count; ++j) sums[first + j] = static_cast<std::int32_t>(sum[j]);
  }
}

namespace {

// Whole vectors, and whole lines of memory.
std::int64_t column_step(const simd_qgemm::Loops& loops, std::int64_t columns) {
  const std::int64_t step = std::max(loops.lanes, 16);
  return ceil_div(columns, step) * step;
}

constexpr int kArrays = 4;              // start, b_zero, scale, bias
constexpr float kBoundedScale = 0.99f;  // of which 2^31 times are below it

bool all_zero(const std::uint8_t* bytes, std::int64_t n) {
  std::uint8_t any = 0;
  for (std::int64_t i = 0; i < n; ++i) any |= bytes[i];
  return any == 0;
}

std::int32_t wrapped_sum(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}

}  // namespace

std::size_t qgemm_columns_bytes(const simd_qgemm::Loops& loops, std::int64_t columns) {
  return static_cast<std::size_t>(checked_mul<std::int64_t>(column_step(loops, columns), kArrays * sizeof(float)));
}

bool set_columns(const simd_qgemm::Loops& loops, const QgemmParameters& numbers, const QgemmShape& shape, const void* packed,
                 std::int64_t column, void* memory, simd_qgemm::Tile* tile) {
  constexpr std::int64_t kColumnWork = 16;  // units per column
  const std::int64_t n = tile->n, step = column_step(loops, n);
  if (stops(tile->points, kColumnWork * n)) return false;
  const auto* const bytes = static_cast<const std::int8_t*>(packed);
  const auto* const sums = reinterpret_cast<const std::int32_t*>(bytes + qgemm_data_bytes(loops, shape)) + column;
  auto* const start = static_cast<std::int32_t*>(memory);
  auto* const b_zero = start + step;
  auto* const scale = reinterpret_cast<float*>(b_zero + step);
  float* const bias = scale + step;
  std::memset(memory, 0, static_cast<std::size_t>(step) * kArrays * sizeof(float));
  const auto k = static_cast<std::uint32_t>(shape.segments * shape.segment);
  const auto a_zero = static_cast<std::uint32_t>(numbers.a_zero), a_rest = a_zero - static_cast<std::uint32_t>(loops.a_offset);
  std::uint32_t any_zero = 0;
  const bool has_zeros =
      numbers.flip_b || (numbers.b_zero != nullptr && !all_zero(numbers.b_zero, numbers.b_zero_step == 0 ? 1 : column + n));
  if (!has_zeros) {
    for (std::int64_t j = 0; j < n; ++j) start[j] = static_cast<std::int32_t>(0u - a_rest * static_cast<std::uint32_t>(sums[j]));
    if (numbers.added != nullptr) {
      const std::int32_t* const added = numbers.added + column * numbers.added_step;
      for (std::int64_t j = 0; j < n; ++j) start[j] = wrapped_sum(start[j], added[j * numbers.added_step]);
    }
  }
  for (std::int64_t j = 0; has_zeros && j < n; ++j) {
    std::uint32_t zero = 0;  // of B as int8
    if (numbers.b_zero != nullptr) {
      const unsigned byte = numbers.b_zero[(column + j) * numbers.b_zero_step] ^ (numbers.flip_b ? 0x80u : 0);
      zero = static_cast<std::uint32_t>(static_cast<std::int8_t>(byte));
    } else if (numbers.flip_b) {
      zero = static_cast<std::uint32_t>(-128);
    }
    any_zero |= zero;
    b_zero[j] = static_cast<std::int32_t>(zero);
    std::uint32_t s = a_zero * k * zero - a_rest * static_cast<std::uint32_t>(sums[j]);
    if (numbers.added != nullptr) s += static_cast<std::uint32_t>(numbers.added[(column + j) * numbers.added_step]);
    start[j] = static_cast<std::int32_t>(s);
  }
  if (numbers.b_scale != nullptr) {
    const auto scaled = [&](std::int64_t j) {
      return static_cast<float>(numbers.a_scale * static_cast<double>(numbers.b_scale[j]) / numbers.divisor);
    };
    if (numbers.b_scale_step == 0) {
      std::fill_n(scale, n, scaled(0));
    } else {
      simd_bytes::loops(cpu_isa()).scale(numbers.a_scale, numbers.b_scale + column, n, numbers.divisor, scale);
    }
  }
  if (numbers.bias != nullptr) std::copy_n(numbers.bias + column, n, bias);
  tile->b = bytes + column / loops.lanes * qgemm_block_bytes(loops, shape);
  tile->start = start;
  tile->b_zero = any_zero != 0 ? b_zero : nullptr;
  tile->scale = numbers.b_scale != nullptr ? scale : nullptr;
  if (tile->scale != nullptr) {
    float low = 0, high = 0;
    simd_bytes::loops(cpu_isa()).range(scale, n, &low, &high);
    tile->is_bounded = low > -kBoundedScale && high < kBoundedScale;
  }
  tile->bias = numbers.bias != nullptr ? bias : nullptr;
  tile->segments = shape.segments;
  tile->segment = shape.segment;
  tile->padded = qgemm_padded(loops, shape.segment);
  return true;
}

simd_qgemm::Output qgemm_output(DType dtype) {
  switch (dtype) {
    case DType::kInt32: return simd_qgemm::Output::kInt32;
    case DType::kFloat32: return simd_qgemm::Output::kFloat;
    case DType::kInt8: return simd_qgemm::Output::kInt8;
    default: return simd_qgemm::Output::kUint8;
  }
}

std::int32_t zero_point_of(const KernelArgs& args, int input) {
  if (input < 0 || !args.desc->has_input(input)) return 0;
  const bool is_signed = args.desc->inputs[static_cast<std::size_t>(input)].dtype == DType::kInt8;
  return is_signed ? *args.in<std::int8_t>(input) : *args.in<std::uint8_t>(input);
}

const QgemmConvInputs& conv_inputs_of(const OpDesc& d) {
  if (d.node->op_type == "QLinearConv") return kQLinearConvInputs;
  return d.node->op_type == "ConvInteger" ? kConvIntegerInputs : kConvIntegerToFloatInputs;
}

void apply_steps(const Epilogue* epilogue, Isa isa, void* c, std::int64_t lines, std::int64_t line_step, std::int64_t width,
                 std::int64_t ldc, std::int64_t n, CancelPoints* points) {
  if (epilogue == nullptr) return;
  const std::int64_t most = part_of(1, n * kFunction);  // rows whose columns are counted together
  for (std::int64_t line = 0; line < lines; ++line) {
    for (std::int64_t x = 0; x < width && !has_stopped(points); x += most) {
      const std::int64_t rows = std::min(most, width - x);
      float* const from = static_cast<float*>(c) + line * line_step + x * ldc;
      by_parts(points, n, 64, rows * kFunction, [&](std::int64_t column, std::int64_t end) {
        simd_epilogue_ops::loops(isa).apply(epilogue->ops, epilogue->count, from + column, rows, ldc, end - column);
      });
    }
  }
}

Refusal refuses_unsymmetric(const OpDesc& d, const QgemmConvInputs& in) {
  if (is_uint8(d.inputs[static_cast<std::size_t>(in.w)])) return "only a weight of int8";
  if (!d.has_input(in.w_zero)) return nullptr;
  const Weight* const zeros = d.constant(in.w_zero);
  if (zeros == nullptr) return "the zero points must be constant";
  const auto* const zero = zeros->as<std::int8_t>();
  return std::all_of(zero, zero + zeros->desc.shape.elements(), [](std::int8_t z) { return z == 0; }) ? nullptr
                                                                                                      : "zero points of the weight";
}

bool is_one_number(const OpDesc& d, int input) {
  if (input < 0 || !d.has_input(input)) return true;
  const Shape& s = d.inputs[static_cast<std::size_t>(input)].shape;
  for (int i = 0; i < s.rank(); ++i) {
    if (s[i] != 1) return false;
  }
  return true;
}

namespace {

constexpr std::int64_t kTilesPerThread = 4;
// Nanoseconds, roughly: of a tile, of an element of B that is read, of one of C that is stored.
constexpr double kTileTime = 1e4, kReadTime = 0.06, kStoreTime = 0.12;
constexpr std::int64_t kRowStep = 32;  // of a tile: those of two tiles of AMX

}  // namespace

std::int64_t qgemm_pieces(const simd_qgemm::Loops& loops, const QgemmWork& w) {
  if (w.threads < 2) return 1;
  const double m = static_cast<double>(w.m), n = static_cast<double>(w.n), k = static_cast<double>(w.k);
  const double time = m * n * k * (kTileTime / loops.tile_cost) + k * n * kReadTime + m * n * kStoreTime;
  const double tiles = static_cast<double>(w.outer) * time / kTileTime + 0.5;
  return std::max<std::int64_t>(1, std::min(static_cast<std::int64_t>(std::min(tiles, 1e6)), kTilesPerThread * w.threads));
}

PackedGemmTiling tile_qgemm(const simd_qgemm::Loops& loops, const QgemmWork& w) {
  const std::int64_t most = has_large_l2() ? kQgemmRowsBytesLarge : kQgemmRowsBytes;
  return tile_rows(w, qgemm_pieces(loops, w), most / (loops.wide_columns != 0 ? 2 : 1));
}

PackedGemmTiling tile_rows(const QgemmWork& w, std::int64_t pieces, std::int64_t most_elements) {
  const std::int64_t m = std::max<std::int64_t>(1, w.m), n = std::max<std::int64_t>(1, w.n);
  const std::int64_t most_rows = std::max(kRowStep, most_elements / std::max<std::int64_t>(1, w.k) / kRowStep * kRowStep);
  std::int64_t row_tiles = ceil_div(m, most_rows), column_tiles = 1;
  if (n > m) {
    column_tiles = std::min(ceil_div(pieces, row_tiles), ceil_div(n, kQgemmColumnStep));
    row_tiles = std::max(row_tiles, std::min(ceil_div(pieces, column_tiles), ceil_div(m, kRowStep)));
  } else {
    row_tiles = std::max(row_tiles, std::min(pieces, ceil_div(m, kRowStep)));
    column_tiles = std::min(ceil_div(pieces, row_tiles), ceil_div(n, kQgemmColumnStep));
  }
  PackedGemmTiling t;
  t.rows = ceil_div(ceil_div(m, row_tiles), kRowStep / 2) * (kRowStep / 2);
  t.columns = ceil_div(ceil_div(n, column_tiles), kQgemmColumnStep) * kQgemmColumnStep;
  t.row_tiles = ceil_div(m, t.rows);
  t.column_tiles = ceil_div(n, t.columns);
  return t;
}

}  // namespace evn
