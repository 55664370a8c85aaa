// Winograd's F(4 x 4, 3 x 3) for bytes, exact: points 0, +-1, +-2 and infinity, whose matrices are whole numbers when each row of
// the filters' is multiplied by its denominator (4, 6, 6, 24, 24, 1). Pixels of uint8 become at most 17,340, filters of int8 49 x
// 128: both fit 16 bits. Sums of products wrap; 576 times an output modulo 2^32 is left, 64 of which are shifted away: an output is
// exact if it is below 2^25. For that channels are summed in parts (kWinogradMost).
#pragma once

#include <cstdint>

namespace evn::simd_qgemm {

struct Tile;

inline constexpr int kWinogradTile = 4, kWinogradPatch = 6, kWinogradPositions = 36;
inline constexpr std::int64_t kWinogradOutputs = kWinogradTile * kWinogradTile;
inline constexpr std::int64_t kWinogradColumns = 64;    // whose products are held at once
inline constexpr std::int64_t kWinogradMost = 1 << 25;  // a part's outputs are below this

struct WinogradImage {
  const std::uint8_t* x;    // the first image
  const std::uint8_t* end;  // of the last
  std::int64_t height, width, channels;
  std::int64_t pad_top, pad_left;
  std::int64_t tiles_y, tiles_x;  // of an image; tile number = (image * tiles_y + y) * tiles_x + x
  bool flip;                      // the image is int8
  std::uint8_t pad;               // as uint8
};

// Some pairs of channels of one position: m tiles by n columns, which begin at a whole kWinogradColumns.
struct WinogradProduct {
  const std::int16_t* a;  // the first pair
  std::int64_t lda, m;
  const std::int16_t* b;  // the first column, pair 0
  std::int64_t all_pairs, pair, pairs;
  std::int64_t n;
  std::int32_t* c;  // rows of kWinogradColumns
};

// Outputs [tile][16][kWinogradColumns] from products [position][tile][kWinogradColumns].
struct WinogradOutputs {
  const std::int32_t* products;
  std::int64_t step;  // from one position to the next
  std::int32_t* sums;
  std::int64_t tiles, n;
  bool add;                   // to what is there
  const std::int32_t* start;  // else: of each column
};

// A tile of 4 x 4 or fewer, from its 16 sums; column: in `tile`, whose c is the image.
struct WinogradStore {
  const Tile* tile;
  const std::int32_t* sums;
  std::int64_t line, x, lines, width;
  std::int64_t column, n;
};

struct WinogradLoops {
  // Tiles [first, first + count): v[position][tile][lda], channels from lda's multiple on are anything; `step` from one position to
  // the next. lda: channels in whole kWinogradGranule.
  void (*pixels)(const WinogradImage& image, std::int64_t first, std::int64_t count, std::int64_t lda, std::int16_t* v,
                 std::int64_t step);
  // The filters of a pair of channels, [2][9][lanes] int32, to [position] `step` apart, a vector each.
  void (*filters)(const std::int32_t* taps, std::int16_t* u, std::int64_t step);
  void (*product)(const WinogradProduct& p);
  void (*outputs)(const WinogradOutputs& o);
  void (*store)(const WinogradStore& s);
};
inline constexpr std::int64_t kWinogradGranule = 32;  // channels

}  // namespace evn::simd_qgemm
