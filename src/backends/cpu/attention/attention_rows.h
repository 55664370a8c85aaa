// Rows of keys and values for one cluster: where they lie, prefetching them, and packing them, from 16 or 8 bits too. Included by
// attention_loops.cc only.
#pragma once

#include "backends/cpu/attention/attention_loops.h"
#include "backends/cpu/attention/narrow_rows.h"
#include "backends/cpu/simd/copy.h"

namespace evn::EVN_ISA {
namespace {

using simd_attention::Block;
using simd_attention::Rows;

inline std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }
inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
inline std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

// Where row t lies, in whatever format.
inline const char* address_of(const Rows& r, std::int64_t t) {
  if (t >= r.past_count) return reinterpret_cast<const char*>(r.row + (t - r.past_count) * r.step);
  if (r.pages == nullptr) return r.past + t * r.past_step;
  return static_cast<const char*>(r.pages[t >> r.page_shift]) + r.page_first + (t & r.page_mask) * r.past_step;
}

inline bool is_narrow(const Rows& r, std::int64_t t) { return r.format != RowFormat::kPlain && t < r.past_count; }

inline std::int64_t bytes_of_element(const Rows& r, std::int64_t t) {
  constexpr std::int64_t kBytes[] = {4, 2, 2, 1};  // by RowFormat
  return is_narrow(r, t) ? kBytes[static_cast<int>(r.format)] : kBytes[0];
}

// Rows [first, first + count) of the past, of n elements, as float32: to[t * width], with zeros up to whole vectors.
void widen(const Rows& r, std::int64_t first, std::int64_t count, std::int64_t n, float* to, std::int64_t width) {
  for (std::int64_t t = first, some = 0; t < first + count; t += some) {
    some = first + count - t;
    if (r.pages != nullptr) some = smaller(some, r.page_mask + 1 - (t & r.page_mask));
    widen_rows(r.format, address_of(r, t), r.past_step, some, n, to + (t - first) * width, width);
  }
}

// kLanes keys from t on, where they lie or widened to `room`; the last one stands for those that are not there.
inline void find_keys(const Block& b, std::int64_t t, float* room, const float** keys) {
  const std::int64_t width = round_up(b.depth, kLanes), last = smaller(b.keys - t, kLanes) - 1;
  std::int64_t widened = 0;
  if (is_narrow(b.k, t)) widen(b.k, t, widened = smaller(last + 1, b.k.past_count - t), b.depth, room, width);
  for (std::int64_t j = 0; j < kLanes; ++j) {
    const std::int64_t at = smaller(j, last);
    keys[j] = at < widened ? room + at * width : reinterpret_cast<const float*>(address_of(b.k, t + at));
  }
}

// Keys [first, first + count) as columns: to[d * columns + key]; what is beyond `count` is 0. `columns` is a whole number of
// vectors.
void pack_keys(const Block& b, std::int64_t first, std::int64_t count, float* to, std::int64_t columns, float* room) {
  if (b.k.element_step != 1) {
    for (std::int64_t d = 0; d < b.depth; ++d) {
      const float* from = b.k.row + first * b.k.step + d * b.k.element_step;
      for (std::int64_t j = 0; j < columns; j += kLanes) {
        const std::int64_t n = smaller(count - j, kLanes);
        store(to + d * columns + j, n <= 0 ? zero() : load_n(from + j, n));
      }
    }
    return;
  }
  for (std::int64_t j = 0; j < columns; j += kLanes) {
    const float* rows[kLanes] = {};
    if (j < count) find_keys(b, first + j, room, rows);
    for (std::int64_t d = 0; d < b.depth; d += kLanes) {
      const std::int64_t n = smaller(b.depth - d, kLanes);
      Vec v[kLanes];
      if (n == kLanes && j + kLanes <= count) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) v[i] = load(rows[i] + d);
      } else {
        for (int i = 0; i < kLanes; ++i) v[i] = j + i >= count ? zero() : load_n(rows[i] + d, n);
      }
      transpose(v);
      for (int i = 0; i < n; ++i) store(to + (d + i) * columns + j, v[i]);
    }
  }
}

// Rows that will be wanted come into the L2 cache meanwhile: it has more requests under way than the L1 cache could have.
inline void expect_row(const Rows& rows, std::int64_t t, std::int64_t length) {
  constexpr std::int64_t kLine = 64;
  const char* const row = address_of(rows, t);
  const std::int64_t bytes = is_narrow(rows, t) ? rows.past_step : length * static_cast<std::int64_t>(sizeof(float));
  for (std::int64_t d = 0; d < bytes; d += kLine) __builtin_prefetch(row + d, 0, 2);
}

void expect(const Rows& rows, std::int64_t first, std::int64_t count, std::int64_t length) {
  for (std::int64_t t = first; t < first + count; ++t) expect_row(rows, t, length);
}

// Values [first, first + count), as rows of `width` floats, whole vectors of which the last is filled up with 0.
void pack_values(const Block& b, std::int64_t first, std::int64_t count, float* to, std::int64_t width) {
  const std::int64_t narrow = is_narrow(b.v, first) ? smaller(count, b.v.past_count - first) : 0;
  if (narrow > 0) widen(b.v, first, narrow, b.value_depth, to, width);
  for (std::int64_t t = narrow; t < count; ++t)
    copy_over(to + t * width, reinterpret_cast<const float*>(address_of(b.v, first + t)), b.value_depth);
}

}  // namespace
}  // namespace evn::EVN_ISA
