// softmax(scale * Q K^T + mask) V for a block of query rows of one head, float32. Scores of the whole block stay in the caller's
// scratch; keys and values are packed as they are used. An element of the result is one chain over the keys in their order, so
// block sizes change no bit of it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"
#include "device/paged.h"

namespace evn::simd_attention {

// Rows of keys or values: those of the past, which may lie in pages and in 16 or 8 bits there, then the new ones.
struct Rows {
  const char* past = nullptr;
  std::int64_t past_count = 0, past_step = 0;  // bytes from one row of the past to the next
  const float* row = nullptr;
  std::int64_t step = 0;          // of new rows, in elements
  std::int64_t element_step = 1;  // between the elements of a row: of keys without a past, which may lie transposed (step 1)
  void* const* pages =
      nullptr;  // in the place of `past`: row t is number t & page_mask of page t >> page_shift, from byte page_first on
  int page_shift = 0;
  RowFormat format = RowFormat::kPlain;  // of the past
  std::int64_t page_mask = 0, page_first = 0;

  void set_past(const float* rows, std::int64_t count, std::int64_t depth) {
    past = reinterpret_cast<const char*>(rows);
    past_count = count;
    past_step = depth * static_cast<std::int64_t>(sizeof(float));
  }
  // Row t, where none lie in pages.
  const float* at(std::int64_t t) const {
    return t < past_count ? reinterpret_cast<const float*>(past + t * past_step) : row + (t - past_count) * step;
  }
  // Number `of` of the outer ones of a table.
  void set_pages(const PageTable& table, std::int64_t of) {
    pages = table.pages;
    page_shift = table.shift;
    page_mask = table.page_rows() - 1;
    past_step = table.row_bytes;
    page_first = (of << table.shift) * past_step;
    format = table.format;
  }
};

struct Block {
  const float* q;
  std::int64_t q_step;
  Rows k, v;
  std::int64_t queries, keys, depth, value_depth;  // keys: with those of the past
  float scale;
  float softcap;                  // scores become softcap * tanh(score / softcap) before the mask; 0: they do not
  const float* sinks;             // nullable: of query 0, a key without a value that counts in the sum
  std::int64_t sink_row;          // from the sink of one query to that of the next
  const float* mask;              // nullable: is added; of query 0
  const std::uint8_t* bool_mask;  // nullable: 0 hides the key
  std::int64_t mask_row, mask_step;
  // Query i sees keys [first_low + i * slope, first_high + i * slope) of [0, visible_keys); slope is 0 or 1.
  std::int64_t first_low, first_high, slope, visible_keys;
  bool blind_is_zero;  // a row that sees nothing is 0; else NaN, as softmax of minus infinities is
  float* y;
  std::int64_t y_step;
  float* buffer;         // buffer_floats, aligned to 64
  CancelPoints* points;  // null: none
};

// Query rows of a block whose keys are read where they lie; of more they are packed.
inline constexpr std::int64_t kFewRows = 8;

// Heads whose only query rows form one block, because they share keys and values, of `heads` that do: as many as divide them and
// leave a block for each thread. Results do not depend on it.
inline std::int64_t heads_together(std::int64_t heads, std::int64_t groups, std::int64_t threads) {
  std::int64_t together = std::max<std::int64_t>(std::min(heads, kFewRows), 1);
  while (together > 1 && (heads % together != 0 || groups * (heads / together) < threads)) --together;
  return together;
}

// What a block of query rows costs, in multiply-adds that one core does in the same time: a few rows wait for the keys and values,
// which come from memory, as long as so many rows multiply.
inline double cost_of_rows(std::int64_t rows, std::int64_t keys, std::int64_t depths) {
  constexpr std::int64_t kRowsOfRead = 16;
  return static_cast<double>(std::max(rows, kRowsOfRead)) * static_cast<double>(keys) * static_cast<double>(depths);
}

struct Loops {
  void (*run)(const Block& block);
  std::int64_t (*buffer_floats)(std::int64_t queries, std::int64_t keys, std::int64_t depth, std::int64_t value_depth);
  // For products that are made elsewhere: turns the sums of `count` queries from `first` on, whole vectors of which may be written,
  // into weights that do not sum to 1 yet. inverse[i], of whole vectors, becomes 1 / the sum of a row's.
  void (*weigh)(const Block& block, std::int64_t first, std::int64_t count, float* scores, std::int64_t step, float* inverse);
  void (*scale_rows)(float* rows, std::int64_t step, std::int64_t count, std::int64_t n, const float* scales);
  // Rotary embedding of one row: element i < pairs and element pairs + i are turned by an angle; `rest` elements behind are copied.
  void (*rotate)(const float* x, const float* cosines, const float* sines, std::int64_t pairs, std::int64_t rest, float* y);
  RowLoops rows;
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_attention
