#include "backends/cpu/pool/pool_line_loops.h"

#include "backends/cpu/simd/copy.h"

namespace evn::EVN_ISA {
namespace {

using simd_pool_line::Geometry, simd_pool_line::Narrow;

// A NaN stays: where one of the two is NaN, max_of gives what there is so far.
struct MaxOp {
  static Vec add(Vec so_far, Vec x) { return x != x ? x : max_of(x, so_far); }
  static float add(float so_far, float x) { return x > so_far || x != x ? x : so_far; }
};
// The maximum of numbers among which there is no NaN.
struct OrderedMaxOp {
  static constexpr bool kTotals = true;  // narrow_line sums all elements
  static Vec add(Vec so_far, Vec x) { return max_of(x, so_far); }
  static float add(float so_far, float x) { return MaxOp::add(so_far, x); }
};
struct SumOp {
  static constexpr bool kTotals = false;
  template <typename V>
  static V add(V so_far, V x) {
    return so_far + x;
  }
};

inline bool any_nan(Vec v) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0;
#else
  return max_lanes(v) != max_lanes(v);
#endif
}

// Two vectors from x on, of which n elements are there. `total` grows by all of them: it is NaN where one of them is.
template <typename Op, bool Whole>
inline void join_two(const float* const* lines, std::int64_t count, std::int64_t x, std::int64_t n, Vec (&to)[2], Vec* total) {
  for (int i = 0; i < 2; ++i)
    to[i] = Whole ? load(lines[0] + x + i * kLanes) : load_some(lines[0] + x + i * kLanes, n - i * kLanes);
  Vec sum = to[0] + to[1];
  for (std::int64_t r = 1; r < count; ++r) {
    Vec next[2];
    for (int i = 0; i < 2; ++i) {
      const float* const from = lines[r] + x + i * kLanes;
      next[i] = Whole ? load(from) : load_some(from, n - i * kLanes);
      to[i] = Op::add(to[i], next[i]);
    }
    sum += next[0] + next[1];
  }
  *total += sum;
}

template <typename Op>
inline void join_by_element(const Geometry& g, const float* const* lines, std::int64_t count, std::int64_t begin,
                            std::int64_t end) {
  std::int64_t phase = (begin + g.pad) % g.stride, at = (begin + g.pad) / g.stride;
  for (std::int64_t x = begin; x < end; ++x) {
    if (phase < g.phases) {
      float joined = lines[0][x];
      for (std::int64_t r = 1; r < count; ++r) joined = Op::add(joined, lines[r][x]);
      g.joined[phase * g.length + at] = joined;
    }
    if (++phase == g.stride) phase = 0, ++at;
  }
}

// For strides of 1 and 2. Returns the sum of all elements, by lanes.
template <typename Op>
inline Vec join(const Geometry& g, const float* const* lines, std::int64_t count, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kTwo = 2 * kLanes;
  // With a stride of 2 elements at even and at odd positions go to two phases, which an odd padding exchanges.
  float* const first = g.stride == 1 ? g.joined + g.pad : g.joined + g.pad % 2 * g.length + g.pad / 2;
  float* const second = g.stride == 1 ? first + kLanes : g.joined + (g.pad + 1) % 2 * g.length + (g.pad + 1) / 2;
  Vec total = zero();
  for (std::int64_t x = begin; x < end; x += kTwo) {
    const std::int64_t n = end - x;
    Vec v[2];
    if (n >= kTwo) join_two<Op, true>(lines, count, x, n, v, &total);
    else join_two<Op, false>(lines, count, x, n, v, &total);
    if (g.stride == 1) {
      store_some(first + x, v[0], n);
      store_some(second + x, v[1], n - kLanes);
    } else {
      store_some(first + x / 2, even_lanes(v[0], v[1]), (n + 1) / 2);
      store_some(second + x / 2, odd_lanes(v[0], v[1]), n / 2);
    }
  }
  return total;
}

bool join_max(const Geometry& g, const float* const* lines, std::int64_t count, std::int64_t begin, std::int64_t end) {
  if (g.stride > 2) {
    join_by_element<MaxOp>(g, lines, count, begin, end);
    return true;
  }
  if (!any_nan(join<OrderedMaxOp>(g, lines, count, begin, end))) return false;
  join<MaxOp>(g, lines, count, begin, end);
  return true;
}

void join_sum(const Geometry& g, const float* const* lines, std::int64_t count, std::int64_t begin, std::int64_t end) {
  if (g.stride > 2) join_by_element<SumOp>(g, lines, count, begin, end);
  else join<SumOp>(g, lines, count, begin, end);
}

// N vectors of outputs together, to hide the latency of their chains. Loads may run over the end of the outputs.
template <typename Op, int N>
inline void fold(const Geometry& g, std::int64_t i, Vec (&to)[N]) {
  for (int v = 0; v < N; ++v) to[v] = load(g.joined + g.taps[0] + i + v * kLanes);
  for (std::int64_t k = 1; k < g.kernel; ++k) {
    const float* const from = g.joined + g.taps[k] + i;
    for (int v = 0; v < N; ++v) to[v] = Op::add(to[v], load(from + v * kLanes));
  }
}

template <typename Op, typename Post>
inline void fold_all(const Geometry& g, float* y, std::int64_t begin, std::int64_t end, Post post) {
  std::int64_t i = begin;
  for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
    Vec v[2];
    fold<Op, 2>(g, i, v);
    for (int k = 0; k < 2; ++k) store(y + i + k * kLanes, post(v[k], i + k * kLanes));
  }
  for (; i < end; i += kLanes) {
    Vec v[1];
    fold<Op, 1>(g, i, v);
    store_some(y + i, post(v[0], i), end - i);
  }
}

void max(const Geometry& g, bool nan, float* y, std::int64_t begin, std::int64_t end) {
  const auto same = [](Vec v, std::int64_t) { return v; };
  if (nan) fold_all<MaxOp>(g, y, begin, end, same);
  else fold_all<OrderedMaxOp>(g, y, begin, end, same);
}

void average(const Geometry& g, float scale, const float* divisors, float* y, std::int64_t begin, std::int64_t end) {
  fold_all<SumOp>(g, y, begin, end, [&](Vec v, std::int64_t i) {
    const Vec count = splat(scale) * load(divisors + i);
    return count == zero() ? zero() : v / count;
  });
}

#if !defined(EVN_SMALL_CLUSTER)
// Two vectors of elements from x on, joined over the lines. `total`: as in join_two.
template <typename Op>
inline void join_rows(const Narrow& g, const float* x, std::int64_t rows, Vec (&to)[2], Vec* total) {
  to[0] = load(x), to[1] = load(x + kLanes);
  if constexpr (Op::kTotals) *total += to[0] + to[1];
  for (std::int64_t r = 1; r < rows; ++r) {
    x += g.row_step;
    const Vec a = load(x), b = load(x + kLanes);
    to[0] = Op::add(to[0], a), to[1] = Op::add(to[1], b);
    if constexpr (Op::kTotals) *total += a + b;
  }
}

// A vector of outputs, whose first taps begin at x. Lines are joined first, then taps in their order.
template <typename Op>
inline Vec narrow_vector(const Narrow& g, const float* x, std::int64_t rows, Vec* total) {
  Vec v[2];
  join_rows<Op>(g, x, rows, v, total);
  const Vec first = even_lanes(v[0], v[1]);
  if (g.kernel == 2) return Op::add(first, odd_lanes(v[0], v[1]));
  join_rows<Op>(g, x + 1, rows, v, total);
  return Op::add(Op::add(first, even_lanes(v[0], v[1])), odd_lanes(v[0], v[1]));
}

// An output with taps in the padding, which counts as `none`.
template <typename Op>
__attribute__((noinline)) float narrow_edge(const Narrow& g, const float* x, std::int64_t rows, std::int64_t at, float none) {
  float all = none;
  for (std::int64_t k = 0; k < g.kernel; ++k) {
    const std::int64_t column = 2 * at - g.pad + k;
    if (column < 0 || column >= g.input) continue;
    float joined = x[column];
    for (std::int64_t r = 1; r < rows; ++r) joined = Op::add(joined, x[r * g.row_step + column]);
    all = Op::add(all, joined);
  }
  return all;
}

// post: of a vector of outputs or of one, and where it is. Returns NaN in some lane where one of the elements is, of Ops with
// kTotals. The last vector may overlap the one before it.
template <typename Op, typename Post>
inline Vec narrow_line(const Narrow& g, const float* x, std::int64_t rows, float none, float* y, Post post) {
  Vec total = zero();
  for (std::int64_t i = 0; i < g.output; ++i) {
    if (i == g.begin) i = g.end;
    if (i == g.output) break;
    const float edge = narrow_edge<Op>(g, x, rows, i, none);
    if constexpr (Op::kTotals) total += splat(edge - edge);
    y[i] = post(edge, i);
  }
  const float* const first = x - g.pad;
  for (std::int64_t i = g.begin;;) {
    store(y + i, post(narrow_vector<Op>(g, first + 2 * i, rows, &total), i));
    if (i + kLanes == g.end) return total;
    i = i + 2 * kLanes <= g.end ? i + kLanes : g.end - kLanes;
  }
}

std::int64_t narrow_max(const Narrow& g, const float* x, std::int64_t rows, float* y, std::int64_t lines) {
  const auto same = [](auto v, std::int64_t) { return v; };
  for (std::int64_t i = 0; i < lines; ++i, x += g.line_step, y += g.output) {
    if (any_nan(narrow_line<OrderedMaxOp>(g, x, rows, -__builtin_inff(), y, same))) return i;
  }
  return lines;
}

struct Quotient {
  float scale;
  const float* divisors;
  Vec count, inverse;
  bool is_exact;  // the count is a power of two, and a product with its inverse has the bits of the quotient

  Vec operator()(Vec v, std::int64_t) const { return is_exact ? v * inverse : v / count; }
  float operator()(float v, std::int64_t i) const {
    const float count_of = scale * divisors[i];
    return count_of == 0 ? 0 : v / count_of;
  }
};

void narrow_average(const Narrow& g, const float* x, std::int64_t rows, float scale, const float* divisors, float* y,
                    std::int64_t lines) {
  const float count = scale * divisors[g.begin];
  const bool is_exact = (__builtin_bit_cast(std::uint32_t, count) & 0x7fffffu) == 0;
  const Quotient quotient = {scale, divisors, splat(count), splat(1 / count), is_exact};
  for (std::int64_t i = 0; i < lines; ++i, x += g.line_step, y += g.output) narrow_line<SumOp>(g, x, rows, 0.0f, y, quotient);
}
#endif

}  // namespace

extern const simd_pool_line::Loops loops_pool_line;
const simd_pool_line::Loops loops_pool_line = {.lanes = kLanes,
                                               .join_max = join_max,
                                               .join_sum = join_sum,
                                               .max = max,
                                               .average = average,
#if defined(EVN_SMALL_CLUSTER)
                                               .narrow_max = nullptr,
                                               .narrow_average = nullptr
#else
                                               .narrow_max = narrow_max,
                                               .narrow_average = narrow_average
#endif
};

}  // namespace evn::EVN_ISA
