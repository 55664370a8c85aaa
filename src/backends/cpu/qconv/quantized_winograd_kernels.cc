// QLinearConv 3 x 3 without strides, channels last, by Winograd's F(4 x 4, 3 x 3) on whole numbers (qconv/qwinograd.h), where bytes
// are widened to 16 bits to be multiplied. Exact, as the reference. A tile is a block of output tiles of all images, and a range of
// output channels: its pixels are transformed, multiplied by the filters of 36 positions, and transformed back, kWinogradColumns at
// a time.
#include <algorithm>

#include "backends/cpu/follow.h"
#include "backends/cpu/qgemm/qgemm_plan.h"
#include "backends/cpu/support.h"
#include "base/error.h"
#include "ops/conv.h"

namespace evn {
namespace {

using simd_qgemm::kWinogradColumns;
using simd_qgemm::kWinogradGranule;
using simd_qgemm::kWinogradOutputs;
using simd_qgemm::kWinogradPositions;
using simd_qgemm::kWinogradTile;

constexpr const QgemmConvInputs& kIn = kQLinearConvInputs;
constexpr std::int64_t kFewestChannels = 16;
constexpr std::int64_t kFewestTiles =
    9;  // of an image: below, the filters, eight times as large as the weight, are what is waited for
constexpr std::int64_t kManyPairs = 256 * 256;   // of channels; more only where the size of images is known
constexpr std::int64_t kBlockBytes = 768 << 10;  // of transformed pixels, products and sums: most of L2
constexpr std::int64_t kFewestInBlock = 16;
constexpr std::int64_t kTilesPerThread = 4;
constexpr std::int64_t kMostLanes = 16;
// Pairs of channels whose outputs are below kWinogradMost, whatever the weight is.
constexpr std::int64_t kSafePairs = 56;
static_assert(2 * kSafePairs * 9 * 128 * 255 < simd_qgemm::kWinogradMost);

struct WinogradState {
  Isa isa;
  simd_qgemm::WinogradImage image;
  std::int64_t tiles, images;  // of all images
  std::int64_t block, blocks;  // tiles of a block
  std::int64_t columns, column_tiles;
  std::int64_t out_height, out_width;
  std::size_t pixels_at, products_at, sums_at;  // in a thread's block, behind what columns need
};

// What stands in front of the filters and, behind it, the sum of each column's weights.
struct Packed {
  std::int64_t part;       // pairs of channels that are summed at once
  std::int64_t unused[7];  // up to a line of memory
};

// Where things lie in the packed copy.
struct Layout36 {
  std::int64_t lanes, columns, padded, pairs;

  explicit Layout36(const OpDesc& d) {
    const Shape& w = d.inputs[static_cast<std::size_t>(kIn.w)].shape;
    lanes = simd_qgemm::loops(integer_isa()).lanes;
    columns = w[0];
    padded = ceil_div(w[0], kMostLanes) * kMostLanes;
    pairs = ceil_div(w[1], std::int64_t{2});
  }
  std::int64_t position() const { return checked_mul(padded, checked_mul<std::int64_t>(pairs, 2)); }  // elements
  std::int64_t filters_at() const {
    return checked_add<std::int64_t>(sizeof(Packed), checked_mul<std::int64_t>(padded, sizeof(std::int32_t)));
  }
  std::int64_t bytes() const {
    return checked_add(filters_at(), checked_mul(checked_mul<std::int64_t>(kWinogradPositions, sizeof(std::int16_t)), position()));
  }
};

std::int64_t tiles_of(const Shape& y) {
  return checked_mul(ceil_div(y[2], std::int64_t{kWinogradTile}), ceil_div(y[3], std::int64_t{kWinogradTile}));
}

bool is_plain_3x3(const OpDesc& d, const Shape& w) {
  const Window window = conv_window(*d.node, d.inputs[0].shape, w);
  for (int i = 0; i < window.rank; ++i) {
    const WindowAxis& a = window.axis[i];
    if (a.kernel != 3 || a.stride != 1 || a.dilation != 1) return false;
  }
  return true;
}

Refusal supports(const OpDesc& d) {
  if (d.strict) return kStrictRefusesWinograd;
  if (d.small) return kSmallRefusesWinograd;
  if (simd_qgemm::loops(integer_isa()).winograd == nullptr) return "bytes are multiplied without widening them";
  if (d.inputs[0].shape.rank() != 4) return "only two spatial axes";
  if (d.constant(kIn.w) == nullptr) return "the weight must be constant";
  if (attr_int(*d.node, ConvAttr::kGroup) != 1) return "only one group";
  const TensorDesc& weight = d.inputs[static_cast<std::size_t>(kIn.w)];
  const Shape& w = weight.shape;
  if (!is_plain_3x3(d, w)) return "only 3 x 3 without strides and dilations";
  if (w[0] < kFewestChannels || w[1] < kFewestChannels) return "few channels";
  const Shape& y = d.outputs[0].shape;
  if (y.rank() == 4 && y[2] > 0 && y[3] > 0) {
    if (tiles_of(y) < kFewestTiles) return "a small image";
  } else if (w[0] * w[1] > kManyPairs) {
    return "many channels, and images of any size";
  }
  return refuses_unsymmetric(d, kIn);
}

std::size_t prepack_bytes(const OpDesc& d, int input) { return input == kIn.w ? static_cast<std::size_t>(Layout36(d).bytes()) : 0; }

std::uint64_t prepack_variant(const OpDesc&, int) { return static_cast<std::uint64_t>(integer_isa()); }

// Columns [first, first + lanes) of a pair of channels, [2][9][lanes].
void take_taps(const std::int8_t* w, const Shape& shape, std::int64_t first, std::int64_t lanes, std::int64_t channel,
               std::int32_t* taps) {
  std::fill_n(taps, 2 * 9 * lanes, 0);
  for (std::int64_t j = 0; j < lanes && first + j < shape[0]; ++j) {
    const std::int8_t* const from = w + ((first + j) * shape[1] + channel) * 9;
    const std::int64_t n = channel + 1 < shape[1] ? 18 : 9;
    for (std::int64_t i = 0; i < n; ++i) taps[i * lanes + j] = from[i];
  }
}

void prepack(const OpDesc& d, int input, void* packed) {
  const simd_qgemm::Loops& loops = simd_qgemm::loops(integer_isa());
  const Layout36 at(d);
  const Shape& shape = d.inputs[static_cast<std::size_t>(input)].shape;
  const auto* const w = d.constant(input)->as<std::int8_t>();
  auto* const head = static_cast<Packed*>(packed);
  auto* const sums = reinterpret_cast<std::int32_t*>(head + 1);
  std::fill_n(sums, at.padded, 0);
  std::int64_t largest = 0;
  for (std::int64_t j = 0; j < at.columns; ++j) {
    std::int64_t sum = 0, magnitude = 0;
    for (std::int64_t i = 0; i < shape[1] * 9; ++i) {
      const std::int64_t x = w[j * shape[1] * 9 + i], sign = x >> 63;  // no branches: signs cannot be foretold
      sum += x;
      magnitude += (x ^ sign) - sign;
    }
    sums[j] = static_cast<std::int32_t>(sum);
    largest = std::max({largest, (magnitude + sum) / 2, (magnitude - sum) / 2});
  }
  *head = {largest * 255 < simd_qgemm::kWinogradMost ? at.pairs : kSafePairs, {}};
  auto* const filters = reinterpret_cast<std::int16_t*>(static_cast<std::uint8_t*>(packed) + at.filters_at());
  alignas(64) std::int32_t taps[2 * 9 * kMostLanes];
  EVN_CHECK(at.lanes <= kMostLanes);
  // Columns as simd/qgemm multiplies them: wide_columns, half of them, and so on; pair by pair.
  for (std::int64_t begin = 0, width = 0; begin < at.padded; begin += width) {
    const std::int64_t left = std::min(kWinogradColumns - begin % kWinogradColumns, at.padded - begin);
    for (width = loops.wide_columns; width > left;) width /= 2;
    for (std::int64_t pair = 0; pair < at.pairs; ++pair) {
      for (std::int64_t j = 0; j < width; j += at.lanes) {
        take_taps(w, shape, begin + j, at.lanes, 2 * pair, taps);
        loops.winograd->filters(taps, filters + 2 * (begin * at.pairs + pair * width + j), at.position());
      }
    }
  }
}

// Elements from one position to the next, of which a tile reads or writes each: an odd number of lines, else they share few sets of
// L1.
std::int64_t step_of(std::int64_t elements, std::int64_t of_line) { return (ceil_div(elements, of_line) | 1) * of_line; }
std::int64_t pixel_step(const WinogradState& s) {
  return step_of(checked_mul(s.block, ceil_div(s.image.channels, kWinogradGranule) * kWinogradGranule), 32);
}
std::int64_t packed_gemm_step(const WinogradState& s) { return step_of(s.block * kWinogradColumns, 16); }

// Blocks that fill L2, or fewer tiles and ranges of columns where there are threads to share them.
void cut(std::int64_t channels, std::int64_t columns, std::uint32_t threads, WinogradState* s) {
  const std::int64_t per_tile =
      kWinogradPositions * (2 * channels + 4 * kWinogradColumns) + 4 * kWinogradOutputs * kWinogradColumns;
  const std::int64_t most = std::max(kFewestInBlock, kBlockBytes / per_tile);
  const std::int64_t pieces = threads > 1 ? kTilesPerThread * threads : 1;
  const std::int64_t blocks = std::max(ceil_div(s->tiles, most), std::min(pieces, ceil_div(s->tiles, kFewestInBlock)));
  s->block = std::max<std::int64_t>(1, ceil_div(s->tiles, std::max<std::int64_t>(1, blocks)));
  s->blocks = ceil_div(s->tiles, s->block);
  const std::int64_t ranges = ceil_div(columns, kWinogradColumns);
  const std::int64_t wanted =
      s->blocks >= 2 * std::int64_t{threads} ? 1 : std::min(ranges, ceil_div(pieces, std::max<std::int64_t>(1, s->blocks)));
  s->columns = std::min(ceil_div(ranges, wanted) * kWinogradColumns, kMostQgemmColumns);
  s->column_tiles = ceil_div(columns, s->columns);
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<WinogradState>();
  const Shape& x = d.inputs[0].shape;
  const Shape& w = d.inputs[static_cast<std::size_t>(kIn.w)].shape;
  const Window window = conv_window(*d.node, x, w);
  s.isa = integer_isa();
  s.images = x[0];
  s.image = {.x = nullptr,
             .end = nullptr,
             .height = window.axis[0].input,
             .width = window.axis[1].input,
             .channels = x[1],
             .pad_top = window.axis[0].pad_begin,
             .pad_left = window.axis[1].pad_begin,
             .tiles_y = 0,
             .tiles_x = 0,
             .flip = !is_uint8(d.inputs[0]),
             .pad = 0};
  s.out_height = window.axis[0].output;
  s.out_width = window.axis[1].output;
  s.image.tiles_y = ceil_div(s.out_height, std::int64_t{kWinogradTile});
  s.image.tiles_x = ceil_div(s.out_width, std::int64_t{kWinogradTile});
  s.tiles = checked_mul(x[0], checked_mul(s.image.tiles_y, s.image.tiles_x));
  cut(x[1], w[0], d.threads, &s);
  p->tiles = checked_mul(s.blocks, s.column_tiles);
  s.pixels_at = qgemm_columns_bytes(simd_qgemm::loops(s.isa), s.columns);
  s.products_at =
      s.pixels_at + sizeof(std::int16_t) * static_cast<std::size_t>(checked_mul<std::int64_t>(kWinogradPositions, pixel_step(s)));
  s.sums_at = s.products_at +
              sizeof(std::int32_t) * static_cast<std::size_t>(checked_mul<std::int64_t>(kWinogradPositions, packed_gemm_step(s)));
  p->thread_scratch_bytes =
      s.sums_at + sizeof(std::int32_t) * static_cast<std::size_t>(checked_mul(s.block, kWinogradOutputs * kWinogradColumns));
  p->flops = 18.0 * static_cast<double>(w[1]) * static_cast<double>(d.outputs[0].shape.elements());  // of the direct method
  p->bytes = bytes_of(d);
}

QgemmParameters numbers_of(const KernelArgs& args, const WinogradState& s) {
  const OpDesc& d = *args.desc;
  QgemmParameters n;
  n.a_zero = zero_point_of(args, kIn.x_zero) + (s.image.flip ? 128 : 0);
  n.a_scale = static_cast<double>(*args.in<float>(kIn.x_scale));
  n.divisor = static_cast<double>(*args.in<float>(kIn.y_scale));
  n.b_scale = args.in<float>(kIn.w_scale);
  n.b_scale_step = step_of(d, kIn.w_scale);
  n.added_step = 1;
  if (d.has_input(kIn.bias)) n.added = args.in<std::int32_t>(kIn.bias);
  return n;
}

// Output tiles [first, first + count), whose sums are there, of `n` columns from `column` on, counted in t; c: its first column, r:
// what is added, or null.
void store(const WinogradState& s, const simd_qgemm::WinogradLoops& loops, const std::int32_t* sums, std::int64_t first,
           std::int64_t count, std::int64_t column, std::int64_t n, simd_qgemm::Tile* t, std::uint8_t* c, const std::uint8_t* r,
           simd_qgemm::Added* added) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t line = (first + i) / s.image.tiles_x;
    const std::int64_t y = line % s.image.tiles_y * kWinogradTile, x = (first + i) % s.image.tiles_x * kWinogradTile;
    const std::int64_t image = line / s.image.tiles_y * s.out_height * t->line_c;
    t->c = c + image;
    if (r != nullptr) {
      added->r = r + image;
      t->added = added;
    }
    loops.store({t, sums + i * kWinogradOutputs * kWinogradColumns, y, x, std::min<std::int64_t>(kWinogradTile, s.out_height - y),
                 std::min<std::int64_t>(kWinogradTile, s.out_width - x), column, n});
  }
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<WinogradState>();
  const OpDesc& d = *args.desc;
  const simd_qgemm::Loops& loops = simd_qgemm::loops(s.isa);
  const simd_qgemm::WinogradLoops& winograd = *loops.winograd;
  const Layout36 at(d);
  const QgemmParameters numbers = numbers_of(args, s);
  simd_qgemm::WinogradImage image = s.image;
  image.x = args.in<std::uint8_t>(0);
  image.end = image.x + s.images * image.height * image.width * image.channels;
  image.pad = static_cast<std::uint8_t>(numbers.a_zero);
  auto* const memory = static_cast<std::uint8_t*>(args.thread_scratch);
  auto* const pixels = reinterpret_cast<std::int16_t*>(memory + s.pixels_at);
  auto* const products = reinterpret_cast<std::int32_t*>(memory + s.products_at);
  auto* const sums = reinterpret_cast<std::int32_t*>(memory + s.sums_at);
  const auto* const packed = args.pack<std::uint8_t>(kIn.w);
  const std::int64_t part = reinterpret_cast<const Packed*>(packed)->part;
  const auto* const filters = reinterpret_cast<const std::int16_t*>(packed + at.filters_at());
  const std::int64_t lda = ceil_div(image.channels, kWinogradGranule) * kWinogradGranule;
  const std::int64_t v_step = pixel_step(s), m_step = packed_gemm_step(s);
  const ByteSum sum = d.fusion.byte_sum == nullptr ? ByteSum{} : *d.fusion.byte_sum;
  simd_qgemm::Added added{nullptr, sum.x_scale, sum.r_scale, sum.zero, sum.x_zero, sum.r_zero};
  std::int64_t transformed = -1;
  CancelPoints points = points_of(cancel);
  for (std::int64_t i = begin; i < end && !cancel.stop(); ++i) {
    const std::int64_t column = i % s.column_tiles * s.columns, first = i / s.column_tiles * s.block;
    const std::int64_t count = std::min(s.block, s.tiles - first);
    simd_qgemm::Tile t{};
    t.n = std::min(s.columns, at.columns - column);
    t.points = &points;
    // Without segments the sums of the columns are all that is packed.
    if (!set_columns(loops, numbers, {at.columns, 0, 0}, packed + sizeof(Packed), column, memory, &t)) return;
    t.zero = zero_point_of(args, kIn.y_zero);
    t.output = qgemm_output(d.outputs[0].dtype);
    t.ldc = at.columns;
    t.line_c = s.out_width * at.columns;
    if (transformed != first) {
      const bool goes_on =
          by_parts(&points, count, 1, 4 * kWinogradPositions * image.channels, [&](std::int64_t from, std::int64_t until) {
            winograd.pixels(image, first + from, until - from, lda, pixels + from * lda, v_step);
          });
      if (!goes_on) return;
    }
    transformed = first;
    for (std::int64_t range = 0; range < t.n; range += kWinogradColumns) {
      const std::int64_t n = std::min(kWinogradColumns, t.n - range);
      const std::int64_t padded = std::min(kWinogradColumns, at.padded - column - range);
      for (std::int64_t pair = 0; pair < at.pairs; pair += part) {
        for (std::int64_t position = 0; position < kWinogradPositions; ++position) {
          if (stops(&points, 2 * count * padded * std::min(part, at.pairs - pair))) return;
          winograd.product({pixels + position * v_step + 2 * pair, lda, count,
                            filters + position * at.position() + 2 * (column + range) * at.pairs, at.pairs, pair,
                            std::min(part, at.pairs - pair), padded, products + position * m_step});
        }
        if (stops(&points, 4 * kWinogradPositions * count * padded)) return;
        winograd.outputs({products, m_step, sums, count, padded, pair > 0, t.start + range});
      }
      if (stops(&points, kWinogradOutputs * count * n)) return;
      store(s, winograd, sums, first, count, range, n, &t, args.out<std::uint8_t>() + column,
            d.has_residual() ? args.residual<std::uint8_t>() + column : nullptr, &added);
    }
  }
}

constexpr Kernel kKernels[] = {
    {.name = "qlinear_conv_winograd",
     .op = "QLinearConv",
     .rank = 12,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack,
     .plan = plan,
     .run = run,
     .layouts = channels_last,
     .fusion = {.epilogue = kFusesByteResidual}},
};

}  // namespace

extern const KernelFamily quantized_winograd_kernels;
const KernelFamily quantized_winograd_kernels = {kKernels};

}  // namespace evn
