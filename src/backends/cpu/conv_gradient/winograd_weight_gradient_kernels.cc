// The derivative of a Conv 3 x 3 without strides by its weight, by the derivative of Winograd's F(4 x 4, 3 x 3)
// (winograd_gradient_loops.h): for each of 36 positions the product of the transformed pixels and the transformed dy, summed up
// over all tiles of all images, which the last transform makes nine taps of. A tile is some input by some output channels, of all
// blocks or of a chain of them; then the last tile adds up what the others have left in the scratch memory, in the order of the
// chains.
#include <algorithm>

#include "backends/cpu/conv_gradient/conv_pieces.h"
#include "backends/cpu/conv_gradient/winograd_gradient_loops.h"
#include "backends/cpu/conv_gradient/winograd_plan.h"
#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {
namespace {

using winograd::kPositions;
using winograd::step_of;

// Channels of a tile, of either side: the sums of a position stay in L2 where blocks are added to them.
constexpr std::int64_t kMostChannels = 128, kMostOfOneBlock = 256;
constexpr std::int64_t kFewestChannels = 16;
// Blocks whose products are added to each other before they are transformed: a quarter of all, if that is not too few, nor more
// than kMostInChain output tiles, so that errors of long sums do not add up.
constexpr std::int64_t kChains = 4, kFewestInChain = 2, kMostInChain = 1 << 12;
constexpr std::size_t kSumsAt = 64;  // in the scratch memory, behind what counts the tiles
enum : int { kWeight, kInput, kGradient };

struct WinogradGradientState {
  Isa isa;
  WindowAxis v, h;
  std::int64_t channels, outputs;
  winograd::Blocks blocks;
  std::int64_t tile_channels, channel_tiles, tile_outputs, output_tiles;
  std::int64_t chain, chains;  // blocks of a chain; chains
  bool is_split;               // a tile has one chain
};

// A thread's memory.
struct Parts {
  float *planes, *pixels, *gradients, *sums, *taps;
  std::int64_t *rows, *tiles;
  std::int64_t width, bytes;

  Parts(const WinogradGradientState& s, void* memory) {
    ScratchParts parts(memory);
    const winograd::Blocks& b = s.blocks;
    width = round_up(s.tile_outputs, simd_implicit_gemm::loops(s.isa).lanes);
    const std::int64_t rows_of_sums = s.tile_channels + simd_implicit_gemm::kRows;
    planes = parts.take<float>(std::max(checked_mul(checked_mul(b.most_in_rows(), s.h.input), s.tile_channels),
                                        checked_mul(checked_mul(b.most_rows(), s.h.output), s.tile_outputs)));
    pixels = parts.take<float>(checked_mul<std::int64_t>(kPositions, step_of(checked_mul(b.most_tiles(), s.tile_channels))));
    gradients = parts.take<float>(checked_mul<std::int64_t>(kPositions, step_of(checked_mul(b.most_tiles(), width))));
    sums = parts.take<float>(checked_mul<std::int64_t>(kPositions, step_of(checked_mul(rows_of_sums, width))));
    taps = parts.take<float>(checked_mul<std::int64_t>(9, checked_mul(s.tile_channels, width)));
    rows = parts.take<std::int64_t>(rows_of_sums);
    tiles = parts.take<std::int64_t>(b.most_tiles());
    bytes = parts.bytes();
  }
};

Refusal supports(const OpDesc& d) { return winograd::refuse(d, kWeight, d.inputs[kInput].shape, d.inputs[kGradient].shape); }

// Each tile transforms all pixels of its channels, so that chains are divided before channels, and there are no more than threads
// want. The sums do not depend on it.
void choose_tiles(std::int64_t threads, WinogradGradientState* s) {
  const auto cut = [](std::int64_t all, std::int64_t most, std::int64_t* size, std::int64_t* count) {
    *size = std::min(all, round_up(ceil_div(all, ceil_div(all, most)), kFewestChannels));
    *count = ceil_div(all, *size);
  };
  const auto cut_both = [&](std::int64_t channels, std::int64_t outputs) {
    cut(s->channels, channels, &s->tile_channels, &s->channel_tiles);
    cut(s->outputs, outputs, &s->tile_outputs, &s->output_tiles);
  };
  const std::int64_t most = s->blocks.count() > 1 ? kMostChannels : kMostOfOneBlock;
  cut_both(most, most);
  s->is_split = s->chains > 1 && s->channel_tiles * s->output_tiles < threads;
  const std::int64_t wanted = s->is_split ? ceil_div(threads, s->chains) : threads;
  while (s->channel_tiles * s->output_tiles < wanted && std::max(s->tile_channels, s->tile_outputs) > kFewestChannels) {
    const auto half = [](std::int64_t size) { return std::max(kFewestChannels, ceil_div(size, std::int64_t{2})); };
    if (s->tile_channels > s->tile_outputs) {
      cut_both(half(s->tile_channels), s->tile_outputs);
    } else {
      cut_both(s->tile_channels, half(s->tile_outputs));
    }
  }
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<WinogradGradientState>();
  const Shape &w = d.inputs[kWeight].shape, &x = d.inputs[kInput].shape;
  const PlaneAxes axes(conv_window(*d.node, x, w));
  s.isa = cpu_isa();
  s.v = axes.v;
  s.h = axes.h;
  s.channels = w[1];
  s.outputs = w[0];
  p->flops = 18.0 * static_cast<double>(s.channels) * static_cast<double>(d.inputs[kGradient].shape.elements());
  p->bytes = bytes_of(d);
  s.blocks = winograd::Blocks(x[0], s.v.output, s.h.output, winograd::block_tiles(s.channels, s.outputs), x[0]);
  const std::int64_t blocks = std::max<std::int64_t>(1, s.blocks.count());
  const std::int64_t most = std::max<std::int64_t>(1, kMostInChain / s.blocks.most_tiles());
  s.chain = std::clamp(ceil_div(blocks, kChains), std::min(kFewestInChain, most), most);
  s.chains = ceil_div(blocks, s.chain);
  choose_tiles(d.threads, &s);
  p->tiles = checked_mul(s.channel_tiles * s.output_tiles, s.is_split ? s.chains : 1);
  if (s.is_split) {
    p->cleared_bytes = kDoneBytes;
    const std::int64_t floats = checked_mul(checked_mul<std::int64_t>(s.chains, 9), checked_mul(s.channels, s.outputs));
    p->scratch_bytes = checked_add(kSumsAt, checked_mul(static_cast<std::size_t>(floats), sizeof(float)));
  }
  p->thread_scratch_bytes = static_cast<std::size_t>(Parts(s, nullptr).bytes);
}

class Tile {
 public:
  Tile(const KernelArgs& args, CancelPoints* points)
      : args_(args),
        s_(args.plan->state<WinogradGradientState>()),
        product_(simd_implicit_gemm::loops(s_.isa)),
        pixels_(simd_winograd::loops(s_.isa).of(winograd::kTile)),
        loops_(simd_winograd_gradient::loops(s_.isa)),
        parts_(s_, args.thread_scratch),
        points_(points) {}

  void run(std::int64_t index) {
    const std::int64_t chain = s_.is_split ? index % s_.chains : 0, part = s_.is_split ? index / s_.chains : index;
    channel_ = part / s_.output_tiles * s_.tile_channels;
    channels_ = std::min(s_.tile_channels, s_.channels - channel_);
    output_ = part % s_.output_tiles * s_.tile_outputs;
    outputs_ = std::min(s_.tile_outputs, s_.outputs - output_);
    width_ = round_up(outputs_, product_.lanes);
    sums_step_ = step_of((channels_ + simd_implicit_gemm::kRows) * width_);
    const std::int64_t end = s_.is_split ? (chain + 1) * s_.chain : s_.blocks.count();
    if (!sum_up(chain * s_.chain, std::min(end, s_.blocks.count())) || stops(points_, 9 * channels_ * width_)) return;
    if (!s_.is_split) return put(parts_.taps, width_, channel_, channels_, output_, outputs_);
    float* const to = sums_of(chain) + channel_ * 9 * s_.outputs + output_;
    simd_transpose::loops(s_.isa).copy(parts_.taps, width_, channels_ * 9, outputs_, to, s_.outputs);
  }

  // The sums of all chains, behind the last tile.
  void join() {
    const std::int64_t floats = s_.channels * 9 * s_.outputs;
    for (std::int64_t chain = 1; chain < s_.chains; ++chain) {
      by_parts(points_, floats, 64, 1, [&](std::int64_t begin, std::int64_t end) {
        simd_elementwise::loops(s_.isa).binary(simd_elementwise::Binary::kAdd, sums_of(0) + begin, 1, sums_of(chain) + begin, 1,
                                               sums_of(0) + begin, end - begin, {1, 0, 0, 0}, false, nullptr);
      });
    }
    if (!points_->stopped && !stops(points_, 2 * floats)) put(sums_of(0), s_.outputs, 0, s_.channels, 0, s_.outputs);
  }

 private:
  const KernelArgs& args_;
  const WinogradGradientState& s_;
  const simd_implicit_gemm::Loops& product_;
  const simd_winograd::Transforms& pixels_;
  const simd_winograd_gradient::Loops& loops_;
  const Parts parts_;
  CancelPoints* const points_;
  std::int64_t channel_ = 0, channels_ = 0, output_ = 0, outputs_ = 0, width_ = 0, sums_step_ = 0;

  // [channel][tap][output]
  float* sums_of(std::int64_t chain) const {
    auto* const sums = reinterpret_cast<float*>(static_cast<char*>(args_.scratch.address()) + kSumsAt);
    return sums + chain * s_.channels * 9 * s_.outputs;
  }

  // Rows of taps, `width` floats each, to where they are in the output.
  void put(const float* taps, std::int64_t width, std::int64_t channel, std::int64_t channels, std::int64_t output,
           std::int64_t outputs) {
    float* const to = args_.out<float>() + (output * s_.channels + channel) * 9;
    simd_transpose::loops(s_.isa).transpose(taps, width, channels * 9, outputs, to, s_.channels * 9);
    const Epilogue* const epilogue = epilogue_of(*args_.desc);
    for (std::int64_t m = 0; epilogue != nullptr && m < outputs && !points_->stopped; ++m) {
      chain_long(s_.isa, to + m * s_.channels * 9, channels * 9, epilogue, points_);
    }
  }

  // All products of some blocks, as taps. Returns false if the run is to stop.
  bool sum_up(std::int64_t begin, std::int64_t end) {
    if (begin == end) return fill_by_parts(points_, parts_.taps, 9 * channels_ * width_, 0.0f);
    for (std::int64_t i = begin; i < end; ++i) {
      if (!add(s_.blocks.at(i), i % s_.chain != 0)) return false;
      if (i + 1 < end && (i + 1) % s_.chain != 0) continue;
      const bool adds = i - begin >= s_.chain;
      const bool done = by_parts(points_, channels_, 1, 4 * kPositions * width_, [&](std::int64_t c, std::int64_t last) {
        loops_.filters(parts_.sums + c * width_, sums_step_, last - c, width_, adds, parts_.taps + c * 9 * width_);
      });
      if (!done) return false;
    }
    return true;
  }

  bool add(const winograd::Block& block, bool goes_on) {
    const std::int64_t tiles = s_.blocks.tiles_of(block);
    const std::int64_t pixel_step = step_of(tiles * channels_), gradient_step = step_of(tiles * width_);
    if (!transform_pixels(block, tiles, pixel_step) || !transform_gradient(block, tiles, gradient_step)) return false;
    for (std::int64_t r = 0; r < channels_ + simd_implicit_gemm::kRows; ++r) {
      parts_.rows[r] = std::min(r, channels_ - 1);
    }
    for (std::int64_t t = 0; t < tiles; ++t) parts_.tiles[t] = t * channels_;
    for (std::int64_t position = 0; position < kPositions && !points_->stopped; ++position) {
      product_.run({channels_, outputs_, tiles, parts_.pixels + position * pixel_step, parts_.rows, parts_.tiles,
                    parts_.gradients + position * gradient_step, parts_.sums + position * sums_step_, width_, goes_on, points_});
    }
    return !points_->stopped;
  }

  bool transform_pixels(const winograd::Block& block, std::int64_t tiles, std::int64_t step) {
    const winograd::Lines lines = winograd::lines_of(block, s_.v, s_.h, channels_);
    const std::int64_t plane = s_.v.input * s_.h.input, image = s_.channels * plane;
    const float* const from = args_.in<float>(kInput) + block.image * image + channel_ * plane + lines.begin * s_.h.input;
    const std::int64_t here = lines.geometry.height * lines.geometry.width;
    if (!winograd::turn(s_.isa, {from, image, plane, block.images, channels_, here}, parts_.planes, points_)) return false;
    return by_parts(points_, tiles, 1, 4 * kPositions * channels_, [&](std::int64_t begin, std::int64_t end) {
      pixels_.pixels(lines.geometry, parts_.planes, begin, end - begin, parts_.pixels + begin * channels_, step);
    });
  }

  // To panels of output channels, a row for each tile.
  bool transform_gradient(const winograd::Block& block, std::int64_t tiles, std::int64_t step) {
    const std::int64_t plane = s_.v.output * s_.h.output, image = s_.outputs * plane;
    const float* const from = args_.in<float>(kGradient) + block.image * image + output_ * plane + block.row * s_.h.output;
    if (!winograd::turn(s_.isa, {from, image, plane, block.images, outputs_, block.rows * s_.h.output}, parts_.planes, points_)) {
      return false;
    }
    bool done = true;
    simd_implicit_gemm::for_each_panel(product_.lanes, product_.panel_vectors, outputs_, [&](std::int64_t m, std::int64_t count) {
      const std::int64_t row = round_up(count, product_.lanes);
      const simd_winograd_gradient::Gradients g{
          parts_.planes + m, block.rows, s_.h.output, outputs_, ceil_div(block.rows, std::int64_t{winograd::kTile}),
          s_.blocks.tiles_x, count};
      done = done && by_parts(points_, tiles, 1, 4 * kPositions * row, [&](std::int64_t begin, std::int64_t end) {
               loops_.gradients(g, begin, end - begin, parts_.gradients + m * tiles + begin * row, step, row);
             });
    });
    return done;
  }
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  CancelPoints points = points_of(cancel);
  Tile tile(args, &points);
  for (std::int64_t i = begin; i < end; ++i) {
    if (cancel.stop() || points.stopped) return;
    tile.run(i);
  }
  if (!points.stopped && args.plan->state<WinogradGradientState>().is_split && are_all_done(args, end - begin)) tile.join();
}

constexpr Kernel kKernels[] = {
    {.name = "conv_weight_gradient_winograd",
     .op = kConvWeightGradient,
     .domain = kInternalDomain,
     .rank = 36,
     .supports = supports,
     .plan = plan,
     .run = run,
     .takes_empty = true},
};

}  // namespace

extern const KernelFamily winograd_weight_gradient_kernels;
const KernelFamily winograd_weight_gradient_kernels = {kKernels};

}  // namespace evn
