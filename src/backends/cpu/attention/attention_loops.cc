// The loops of attention/attention_loops.h for one cluster. For blocks of few rows keys are read where they lie, as dot products;
// for others they are packed, a panel of columns at a time, and so are the values, some rows at a time.
#include "backends/cpu/attention/attention_loops.h"

#include "backends/cpu/attention/attention_product.h"
#include "backends/cpu/attention/attention_rows.h"
#include "backends/cpu/simd/lanes.h"

namespace evn::EVN_ISA {
namespace {

using simd_attention::kFewRows;

constexpr std::int64_t kAhead = 64;           // rows of keys that are read where they lie come near so early
constexpr std::int64_t kNarrowAhead = 128;    // rows in 16 or 8 bits
constexpr std::int64_t kKeysPerPoint = 8192;  // of a row, a multiple of two vectors

// ----------------------------------------------------------------------------------------------------- softmax --

// What is added to the scores of keys [t, t + n): n lanes count.
__attribute__((noinline)) Vec mask_at(const Block& b, std::int64_t row, std::int64_t t, std::int64_t n) {
  if (b.mask != nullptr) {
    const float* p = b.mask + row * b.mask_row + t * b.mask_step;
    return b.mask_step == 0 ? splat(*p) : n == kLanes ? load(p) : load_n(p, n);
  }
  typedef std::uint8_t Bytes __attribute__((vector_size(kLanes)));
  const std::uint8_t* p = b.bool_mask + row * b.mask_row + t * b.mask_step;
  Bytes seen = {};
  if (n == kLanes && b.mask_step == 1) {
    __builtin_memcpy(&seen, p, sizeof seen);
  } else {
    for (std::int64_t i = 0; i < n; ++i) seen[i] = p[i * b.mask_step];
  }
  return __builtin_convertvector(seen, IntVec) != 0 ? zero() : splat(-__builtin_inff());
}

__attribute__((noinline)) bool sees_nothing(const Block& b, std::int64_t row, std::int64_t low, std::int64_t high) {
  if (b.mask == nullptr && b.bool_mask == nullptr) return low >= high;
  // Most see the first or the last key.
  if (low < high && mask_at(b, row, high - 1, 1)[0] != -__builtin_inff()) return false;
  bool none = true;
  in_parts(b.points, high - low, kKeysPerPoint, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = low + begin; t < low + end && none; ++t) none = mask_at(b, row, t, 1)[0] == -__builtin_inff();
  });
  return none;
}

// Adds the mask of one row of scores, and hides [0, low) and [high, whole vectors of keys). The largest is among the lanes
// returned.
Vec mask_row(const Block& b, std::int64_t row, float* s, std::int64_t low, std::int64_t high) {
  const bool masked = b.mask != nullptr || b.bool_mask != nullptr;
  const Vec hidden = splat(-__builtin_inff());
  Vec top[2] = {hidden, hidden};
  std::int64_t t = 0;
  const auto at = [&](int i) {
    const bool edge = t < low || t + kLanes > high;
    if (!edge && !masked) {
      top[i] = max_of(top[i], load(s + t));
      return;
    }
    Vec v = hidden;
    if (t < high && t + kLanes > low) {
      v = load(s + t);
      if (masked) v = v + mask_at(b, row, t, smaller(high - t, kLanes));
      if (edge) {
        const Vec number = lane_numbers() + splat(static_cast<float>(t - low));
        v = number < zero() ? hidden : number < splat(static_cast<float>(high - low)) ? v : hidden;
      }
    }
    store(s + t, v);
    top[i] = max_of(top[i], v);
  };
  const std::int64_t end = round_up(b.keys, kLanes);
  while (t + 2 * kLanes <= end) {
    const std::int64_t part_end = smaller(end, t + kKeysPerPoint);
    if (stops(b.points, (part_end - t) * (masked ? 4 : 1))) break;
    for (; t + 2 * kLanes <= part_end; t += kLanes) {
      at(0);
      t += kLanes;
      at(1);
    }
  }
  if (t < end) at(0);
  return max_of(top[0], top[1]);
}

// Scores of one row, masked, to weights that do not sum to 1 yet. Returns their sum over the lanes.
__attribute__((noinline)) Vec weigh_row(const Block& b, float* s, float top) {
  const Vec shift = splat(top);
  const Vec log2e = splat(1.44269504088896341f);
  const std::int64_t end = round_up(b.keys, kLanes);
  Vec sum[2] = {zero(), zero()};
  std::int64_t t = 0;
  while (t + 2 * kLanes <= end) {
    const std::int64_t part_end = smaller(end, t + kKeysPerPoint);
    if (stops(b.points, (part_end - t) * kFunction)) break;
    for (; t + 2 * kLanes <= part_end; t += 2 * kLanes) {
      const Vec x = exp2_of((load(s + t) - shift) * log2e);
      const Vec y = exp2_of((load(s + t + kLanes) - shift) * log2e);
      store(s + t, x);
      store(s + t + kLanes, y);
      sum[0] = sum[0] + x;
      sum[1] = sum[1] + y;
    }
  }
  if (t < end) {
    const Vec x = exp2_of((load(s + t) - shift) * log2e);
    store(s + t, x);
    sum[0] = sum[0] + x;
  }
  return sum[0] + sum[1];
}

__attribute__((noinline)) void cap_row(const Block& b, float* s) {
  const Vec cap = splat(b.softcap), inverse = splat(1 / b.softcap);
  const std::int64_t end = round_up(b.keys, kLanes);
  for (std::int64_t t = 0; t < end; t += kLanes) {
    if (stops(b.points, kLanes * kFunction)) return;
    store(s + t, cap * tanh_of(load(s + t) * inverse));
  }
}

// Up to kLanes rows together, so that one tree over the lanes serves them all. inverse[i] becomes 1 / the sum of a row's weights.
void weigh_rows(const Block& b, std::int64_t first, std::int64_t count, float* scores, std::int64_t step, float* inverse) {
  Vec lanes[kLanes];
  float top[kLanes];
  bool blind[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) {
    const std::int64_t row = first + i;
    std::int64_t low = larger(0, b.first_low + row * b.slope);
    std::int64_t high = smaller(b.visible_keys, b.first_high + row * b.slope);
    if (low >= high) low = high = 0;
    if (b.softcap != 0 && i < count) cap_row(b, scores + i * step);
    lanes[i] = i < count ? mask_row(b, row, scores + i * step, low, high) : zero();
    blind[i] = i < count && b.blind_is_zero && sees_nothing(b, row, low, high);
  }
  top_all(lanes);
  store(top, lanes[0]);
  for (std::int64_t i = 0; i < kLanes; ++i) {
    lanes[i] = zero();
    if (i >= count) continue;
    if (blind[i]) {
      const std::int64_t end = round_up(b.keys, kLanes);
      for (std::int64_t t = 0; t < end && !stops(b.points, kKeysPerPoint); t += kKeysPerPoint) {
        zero_over(scores + i * step + t, smaller(end - t, kKeysPerPoint));
      }
    } else {
      const float sink = b.sinks == nullptr ? -__builtin_inff() : b.sinks[(first + i) * b.sink_row];
      top[i] = sink > top[i] ? sink : top[i];
      lanes[i] = weigh_row(b, scores + i * step, top[i]);
      if (b.sinks != nullptr) lanes[i][0] += exp2_of(splat((sink - top[i]) * 1.44269504088896341f))[0];
    }
  }
  fold_all(lanes);
  store(inverse, splat(1.0f) / lanes[0]);
  for (std::int64_t i = 0; i < count; ++i) {
    if (blind[i]) inverse[i] = 0;
  }
}

// --------------------------------------------------------------------------------------------------- the block --

struct Buffers {
  float* scores;  // [queries][score_step]
  std::int64_t score_step;
  float* result;  // [queries][width]
  std::int64_t width;
  float* panel;    // of keys or values
  float* room;     // for kLanes keys that are widened
  float* inverse;  // [queries], 1 / sum of the weights
};

std::int64_t panel_floats(std::int64_t keys, std::int64_t depth, std::int64_t value_depth) {
  const std::int64_t columns = smaller(round_up(keys, kLanes), kNv * kLanes);
  return larger(depth * columns, smaller(keys, kKc) * round_up(value_depth, kLanes));
}

std::int64_t buffer_floats(std::int64_t queries, std::int64_t keys, std::int64_t depth, std::int64_t value_depth) {
  return queries * (round_up(keys, kLanes) + round_up(value_depth, kLanes)) + panel_floats(keys, depth, value_depth) +
         round_up(queries, kLanes) + kLanes * (round_up(depth, kLanes) + 1);
}

Buffers cut_buffer(const Block& b) {
  Buffers f{};
  f.score_step = round_up(b.keys, kLanes);
  f.width = round_up(b.value_depth, kLanes);
  f.scores = b.buffer;
  f.result = f.scores + b.queries * f.score_step;
  f.inverse = f.result + b.queries * f.width;
  f.panel = f.inverse + round_up(b.queries, kLanes);
  f.room = f.panel + panel_floats(b.keys, b.depth, b.value_depth);
  return f;
}

// kLanes keys, and rows of the cache that are prefetched while these are read.
struct Keys {
  const float* key[kLanes];
  const char* later[kLanes];
  std::int64_t later_bytes;  // of an element
};

// Scores of rows [first, first + R) by kLanes keys from t on: kLanes / R keys at a time, so that each key that is loaded serves R
// rows, and one tree over the lanes as many sums as there are lanes. That tree is the same for any R.
template <int R>
__attribute__((noinline)) void score_few(const Block& b, const Buffers& f, std::int64_t first, std::int64_t t, const Keys& keys) {
  constexpr int kKeys = kLanes / R;
  const float* const q = b.q + first * b.q_step;
  float* const s = f.scores + first * f.score_step + t;
  const std::int64_t whole = b.depth - b.depth % kLanes, rest = b.depth - whole;
  for (int at = 0; at < kLanes; at += kKeys) {
    // Key by key, as they lie in memory: the hardware's prefetchers follow one stream.
    Vec acc[kLanes];
    for (int j = 0; j < kKeys; ++j) {
      const float* const key = keys.key[at + j];
      const char* const later = first == 0 ? keys.later[at + j] : reinterpret_cast<const char*>(key);
      Vec sum[R];
      for (int r = 0; r < R; ++r) sum[r] = zero();
      for (std::int64_t d = 0; d < whole; d += kLanes) {
        __builtin_prefetch(later + d * keys.later_bytes, 0, 2);
        const Vec k = load(key + d);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) sum[r] = fma(load(q + r * b.q_step + d), k, sum[r]);
      }
      if (rest > 0) {
        const Vec k = load_n(key + whole, rest);
        for (int r = 0; r < R; ++r) sum[r] = fma(load_n(q + r * b.q_step + whole, rest), k, sum[r]);
      }
      for (int r = 0; r < R; ++r) acc[r * kKeys + j] = sum[r];
    }
    fold_all(acc);
    float sums[kLanes];
    store(sums, acc[0] * splat(b.scale));
    for (int r = 0; r < R; ++r) __builtin_memcpy(s + r * f.score_step + at, sums + r * kKeys, kKeys * sizeof(float));
  }
}

void score_in_place(const Block& b, const Buffers& f) {
  const std::int64_t ahead = is_narrow(b.k, 0) ? kNarrowAhead : kAhead;
  expect(b.k, 0, smaller(b.keys, ahead), b.depth);
  for (std::int64_t t = 0; t < b.keys; t += kLanes) {
    if (stops(b.points, b.queries * kLanes * b.depth)) return;
    Keys keys;
    find_keys(b, t, f.room, keys.key);
    keys.later_bytes = bytes_of_element(b.k, t);
    for (int j = 0; j < kLanes; ++j) keys.later[j] = address_of(b.k, smaller(t + j + ahead, b.keys - 1));
    std::int64_t i = 0;
    for (; i + 4 <= b.queries; i += 4) score_few<4>(b, f, i, t, keys);
    for (; i < b.queries; ++i) score_few<1>(b, f, i, t, keys);
  }
}

void score(const Block& b, const Buffers& f) {
  if (b.queries <= kFewRows && b.k.element_step == 1) return score_in_place(b, f);
  each_panel(f.score_step / kLanes, [&](std::int64_t first, std::int64_t vectors) {
    const std::int64_t t = first * kLanes;
    const std::int64_t columns = vectors * kLanes;
    if (stops(b.points, columns * b.depth)) return;
    pack_keys(b, t, smaller(b.keys - t, columns), f.panel, columns, f.room);
    expect(b.v, t, smaller(b.keys - t, columns), b.value_depth);
    if (b.k.element_step == 1)
      expect(b.k, smaller(b.keys, t + columns), larger(0, smaller(b.keys - t - columns, columns)), b.depth);
    product(b.points, {b.q, b.q_step, f.panel, columns, b.depth, nullptr, 0, f.scores + t, f.score_step, b.scale, nullptr},
            b.queries, vectors);
  });
}

// The weighted sum of values [first, first + count), which lie ldb apart: to the result, or with the last of them to Y.
void add_values(const Block& b, const Buffers& f, const float* values, std::int64_t ldb, std::int64_t first, std::int64_t count) {
  const bool last = first + count == b.keys && f.width == b.value_depth;
  const std::int64_t vectors = f.width / kLanes;
  const auto add = [&](std::int64_t at, std::int64_t n) {
    const std::int64_t d = at * kLanes;
    const float* start = first == 0 ? nullptr : f.result + d;
    product(b.points,
            {f.scores + first, f.score_step, values + d, ldb, count, start, f.width, last ? b.y + d : f.result + d,
             last ? b.y_step : f.width, 1.0f, last ? f.inverse : nullptr},
            b.queries, n);
  };
  std::int64_t at = 0;
  for (; b.queries == 1 && vectors - at >= kRowNv; at += kRowNv) add(at, kRowNv);
  each_panel(vectors - at, [&](std::int64_t begin, std::int64_t n) { add(at + begin, n); });
}

// Whole vectors are read where they lie, but those of 16 or 8 bits.
void weigh_values_in_place(const Block& b, const Buffers& f) {
  const bool few = b.queries <= kFewRows;
  for (std::int64_t t = 0, count = 0; t < b.keys; t += count) {
    const bool is_past = t < b.v.past_count;
    count = smaller((is_past ? b.v.past_count : b.keys) - t, few ? kAhead : kKc);
    if (is_past && b.v.pages != nullptr) count = smaller(count, b.v.page_mask + 1 - (t & b.v.page_mask));
    const bool narrow = is_narrow(b.v, t);
    if (few && narrow) count = smaller(count, kLanes);
    if (few) {
      const std::int64_t later = smaller(t + (narrow ? kNarrowAhead : kAhead), b.keys);
      expect(b.v, later, smaller(count, b.keys - later), b.value_depth);
    }
    if (narrow) {
      if (stops(b.points, count * f.width)) return;
      pack_values(b, t, count, f.panel, f.width);
      add_values(b, f, f.panel, f.width, t, count);
      continue;
    }
    const std::int64_t step = is_past ? b.v.past_step / static_cast<std::int64_t>(sizeof(float)) : b.v.step;
    add_values(b, f, reinterpret_cast<const float*>(address_of(b.v, t)), step, t, count);
  }
}

void weigh_values(const Block& b, const Buffers& f) {
  if (f.width == b.value_depth) return weigh_values_in_place(b, f);
  for (std::int64_t t = 0; t < b.keys; t += kKc) {
    const std::int64_t count = smaller(b.keys - t, kKc);
    if (stops(b.points, count * f.width)) return;
    pack_values(b, t, count, f.panel, f.width);
    add_values(b, f, f.panel, f.width, t, count);
  }
  for (std::int64_t i = 0; i < b.queries; ++i) {
    if (stops(b.points, f.width)) return;
    const Vec scale = splat(f.inverse[i]);
    const float* from = f.result + i * f.width;
    float* y = b.y + i * b.y_step;
    std::int64_t d = 0;
    for (; d + kLanes <= b.value_depth; d += kLanes) store(y + d, load(from + d) * scale);
    store_n(y + d, load(from + d) * scale, b.value_depth - d);
  }
}

// Passes over keys before the first that any row sees. Their number is a multiple of two vectors and, where they are past, of whole
// pages, so that the sums over the others are the same.
void skip_keys(Block* b) {
  std::int64_t skipped = larger(0, smaller(b->first_low, b->keys));
  std::int64_t unit = 2 * kLanes;
  for (const Rows* r : {&b->k, &b->v}) {
    if (r->pages == nullptr) continue;
    skipped = smaller(skipped, r->past_count);
    unit = larger(unit, r->page_mask + 1);
  }
  skipped -= skipped % unit;
  if (skipped == 0) return;
  for (Rows* r : {&b->k, &b->v}) {
    const std::int64_t past = smaller(skipped, r->past_count);
    if (r->pages != nullptr) {
      r->pages += past >> r->page_shift;
    } else if (r->past != nullptr) {
      r->past += past * r->past_step;
    }
    r->past_count -= past;
    r->row += (skipped - past) * r->step;
  }
  if (b->mask != nullptr) b->mask += skipped * b->mask_step;
  if (b->bool_mask != nullptr) b->bool_mask += skipped * b->mask_step;
  b->keys -= skipped;
  b->first_low -= skipped;
  b->first_high -= skipped;
  b->visible_keys -= skipped;
}

// Leaves out keys that no row of the block sees: a causal block is half of a square, a window a strip of it.
Block of_seen_keys(Block b) {
  if (!b.blind_is_zero) return b;
  const std::int64_t high = smaller(b.visible_keys, b.first_high + (b.queries - 1) * b.slope);
  b.keys = smaller(b.keys, larger(high, 0));
  for (Rows* r : {&b.k, &b.v}) r->past_count = smaller(r->past_count, b.keys);
  skip_keys(&b);
  return b;
}

void run(const Block& block) {
  const Block b = of_seen_keys(block);
  const Buffers f = cut_buffer(b);
  if (b.keys == 0) {
    for (std::int64_t i = 0; i < b.queries; ++i) {
      for (std::int64_t d = 0; d < b.value_depth; ++d) b.y[i * b.y_step + d] = 0;
    }
    return;
  }
  score(b, f);
  if (b.queries <= kFewRows) expect(b.v, 0, smaller(b.keys, kAhead), b.value_depth);
  for (std::int64_t i = 0; i < b.queries && !has_stopped(b.points); i += kLanes) {
    weigh_rows(b, i, smaller(b.queries - i, kLanes), f.scores + i * f.score_step, f.score_step, f.inverse + i);
  }
  weigh_values(b, f);
}

void weigh(const Block& b, std::int64_t first, std::int64_t count, float* scores, std::int64_t step, float* inverse) {
  const Vec scale = splat(b.scale);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t some = smaller(count - i, kLanes);
    float* const rows = scores + i * step;
    for (std::int64_t r = 0; r < some; ++r) {
      if (stops(b.points, b.keys)) return;
      float* const s = rows + r * step;
      for (std::int64_t t = 0; t < b.keys; t += kLanes) store(s + t, load(s + t) * scale);
    }
    weigh_rows(b, first + i, some, rows, step, inverse + i);
  }
}

void rotate(const float* x, const float* cosines, const float* sines, std::int64_t pairs, std::int64_t rest, float* y) {
  for (std::int64_t p = 0; p < pairs; p += kLanes) {
    const std::int64_t n = pairs - p;
    const Vec a = load_some(x + p, n), b = load_some(x + pairs + p, n);
    const Vec c = load_some(cosines + p, n), s = load_some(sines + p, n);
    store_some(y + p, c * a - s * b, n);
    store_some(y + pairs + p, s * a + c * b, n);
  }
  for (std::int64_t i = 2 * pairs, end = i + rest; i < end; i += kLanes) store_some(y + i, load_some(x + i, end - i), end - i);
}

void scale_rows(float* rows, std::int64_t step, std::int64_t count, std::int64_t n, const float* scales) {
  for (std::int64_t i = 0; i < count; ++i, rows += step) {
    const Vec scale = splat(scales[i]);
    std::int64_t d = 0;
    for (; d + kLanes <= n; d += kLanes) store(rows + d, load(rows + d) * scale);
    if (d < n) store_n(rows + d, load_n(rows + d, n - d) * scale, n - d);
  }
}

}  // namespace

extern const simd_attention::Loops loops_attention;
const simd_attention::Loops loops_attention = {run, buffer_floats, weigh, scale_rows, rotate, {widen_one, store_row}};

}  // namespace evn::EVN_ISA
