#include "backends/cpu/bfloat/bfloat_attention.h"

#include <algorithm>

#include "backends/cpu/support.h"

namespace evn {
namespace {

constexpr std::int64_t kLine = 64;    // bytes
constexpr std::int64_t kVector = 16;  // floats

// Rows of so many elements begin an odd number of lines apart, or they fall into few sets of the cache.
std::int64_t spread(std::int64_t n, std::int64_t element) {
  const std::int64_t lines = ceil_div(checked_mul(n, element), kLine);
  return (lines + (lines % 2 == 0 ? 1 : 0)) * (kLine / element);
}

// Bytes from the start of the buffer.
struct Parts {
  std::int64_t padded_depth, padded_keys;            // of k in the first product and in the second
  std::int64_t query_step, weight_step, score_step;  // elements
  std::int64_t values, queries, weights, scores, inverse, end;

  Parts(const simd_bfloat_gemm::Loops& loops, const BfloatAttentionSizes& s)
      : padded_depth(bfloat_padded(loops, s.depth)),
        padded_keys(bfloat_padded(loops, s.keys)),
        query_step(spread(padded_depth, sizeof(std::uint16_t))),
        weight_step(spread(padded_keys, sizeof(std::uint16_t))),
        score_step(spread(round_up(s.keys, kVector), sizeof(float))) {
    constexpr std::int64_t kBfloat = sizeof(std::uint16_t), kFloat = sizeof(float);
    const auto place = [](std::int64_t at, std::int64_t count, std::int64_t bytes) {
      return checked_add(at, round_up(checked_mul(count, bytes), kLine));
    };
    values = place(0, checked_mul(round_up(s.keys, loops.lanes), padded_depth), kBfloat);
    queries = place(values, checked_mul(round_up(s.value_depth, loops.lanes), padded_keys), kBfloat);
    weights = place(queries, checked_mul(kBfloatQueries, query_step), kBfloat);
    scores = place(weights, checked_mul(kBfloatQueries, weight_step), kBfloat);
    inverse = place(scores, checked_mul(kBfloatQueries, score_step), kFloat);
    end = place(inverse, kBfloatQueries, kFloat);
  }
};

// Rounds a row, and fills it up with zeros.
void round_row(const simd_bfloat_gemm::Loops& loops, const float* from, std::int64_t n, std::int64_t padded, std::uint16_t* to,
               CancelPoints* points) {
  by_parts(points, n, 64, 1, [&](std::int64_t begin, std::int64_t end) { loops.convert(from + begin, end - begin, to + begin); });
  std::fill(to + n, to + padded, std::uint16_t{0});
}

void multiply(const simd_bfloat_gemm::Loops& loops, const std::uint16_t* a, std::int64_t lda, std::int64_t rows,
              std::int64_t padded, const std::uint16_t* b, std::int64_t n, float* c, std::int64_t ldc, bool is_whole,
              CancelPoints* points) {
  const std::int64_t start = 0;
  simd_bfloat_gemm::Tile t{};
  t.a = a;
  t.lines = 1;
  t.width = rows;
  t.lda = lda;
  t.offsets = &start;
  t.segments = 1;
  t.padded = padded;
  t.b = b;
  t.n = n;
  t.c = c;
  t.ldc = ldc;
  t.whole = is_whole;
  t.points = points;
  loops.run(t);
}

}  // namespace

std::size_t bfloat_attention_bytes(const simd_bfloat_gemm::Loops& loops, const BfloatAttentionSizes& sizes) {
  return static_cast<std::size_t>(Parts(loops, sizes).end);
}

void run_bfloat_attention(const simd_bfloat_gemm::Loops& loops, const simd_attention::Loops& rows, const simd_attention::Block& b,
                          bool is_packed) {
  const Parts parts(loops, {b.keys, b.depth, b.value_depth});
  char* const buffer = reinterpret_cast<char*>(b.buffer);
  auto* const keys = reinterpret_cast<std::uint16_t*>(buffer);
  auto* const values = reinterpret_cast<std::uint16_t*>(buffer + parts.values);
  auto* const queries = reinterpret_cast<std::uint16_t*>(buffer + parts.queries);
  auto* const weights = reinterpret_cast<std::uint16_t*>(buffer + parts.weights);
  auto* const scores = reinterpret_cast<float*>(buffer + parts.scores);
  auto* const inverse = reinterpret_cast<float*>(buffer + parts.inverse);
  if (!is_packed) {
    const simd_bfloat_gemm::Loops& pack = simd_bfloat_gemm::loops(Isa::k_avx512_bf16);
    if (b.k.element_step == 1) {
      pack.pack_columns(b.k.row, b.k.step, b.depth, b.keys, parts.padded_depth, parts.padded_depth * pack.lanes, keys, b.points);
    } else {
      pack.pack_rows(b.k.row, b.k.element_step, b.depth, b.keys, parts.padded_depth, parts.padded_depth * pack.lanes, keys,
                     b.points);
    }
    pack.pack_rows(b.v.row, b.v.step, b.keys, b.value_depth, parts.padded_keys, parts.padded_keys * pack.lanes, values, b.points);
  }
  for (std::int64_t first = 0; first < b.queries; first += kBfloatQueries) {
    const std::int64_t count = std::min(b.queries - first, kBfloatQueries);
    if (has_stopped(b.points)) return;
    for (std::int64_t i = 0; i < count; ++i) {
      round_row(loops, b.q + (first + i) * b.q_step, b.depth, parts.padded_depth, queries + i * parts.query_step, b.points);
    }
    multiply(loops, queries, parts.query_step, count, parts.padded_depth, keys, b.keys, scores, parts.score_step, true, b.points);
    rows.weigh(b, first, count, scores, parts.score_step, inverse);
    for (std::int64_t i = 0; i < count; ++i) {
      round_row(loops, scores + i * parts.score_step, b.keys, parts.padded_keys, weights + i * parts.weight_step, b.points);
    }
    float* const y = b.y + first * b.y_step;
    multiply(loops, weights, parts.weight_step, count, parts.padded_keys, values, b.value_depth, y, b.y_step,
             b.value_depth % kVector == 0, b.points);
    rows.scale_rows(y, b.y_step, count, b.value_depth, inverse);
  }
}

}  // namespace evn
