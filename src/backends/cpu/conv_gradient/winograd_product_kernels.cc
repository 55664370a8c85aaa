// Conv 3 x 3 without strides with a weight that is computed, as in training, and its derivative by the input, which is the same
// convolution of dy with the filters turned around: Winograd's F(4 x 4, 3 x 3) (conv/winograd_loops.h). A tile is a block of output
// tiles, whole lines of them, by a range of output channels: its planes are turned to channels last, transformed, multiplied by the
// transformed filters of 36 positions, transformed back and turned again. Where there are several blocks, each panel of filters is
// transformed once in a run, by the first tile that needs it, to the scratch memory that all share; else the one tile that needs it
// has it in its own, where it is still in a cache when it is multiplied.
#include <algorithm>
#include <thread>

#include "backends/cpu/conv/winograd_loops.h"
#include "backends/cpu/conv_gradient/conv_pieces.h"
#include "backends/cpu/conv_gradient/winograd_plan.h"
#include "backends/cpu/gemm/pack.h"
#include "backends/cpu/gemm/packed_gemm_plan.h"
#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/support.h"
#include "base/error.h"
#include "ops/conv.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {
namespace {

using winograd::kPositions;
using winograd::kTile;
using winograd::step_of;

enum : int { kWeight = 1, kBias = 2 };
constexpr int kGradient = 2;

constexpr std::int64_t kDepth = 128;     // channels of a panel whose filters are in L2 at once
constexpr std::int64_t kTurned = 4;      // channels whose filters are turned at once
constexpr std::int64_t kMostWidth = 64;  // of a panel

// Where the transformed filters of a panel of output channels are; the first bytes of the scratch memory have one for each panel.
enum : std::int32_t { kUntouched, kTaken, kReady, kGivenUp };

struct WinogradState {
  Isa isa;
  bool turned;  // the derivative by the input
  std::int64_t channels, outputs;
  WindowAxis v, h;  // of the convolution that is computed: its input, output and pads
  winograd::Blocks blocks;
  std::int64_t columns, column_tiles;  // output channels of a tile
  std::int64_t panels, position_step;
  std::size_t flag_bytes;

  bool shares_filters() const { return blocks.count() > 1; }
};

// A thread's memory.
struct Parts {
  float *planes, *pixels, *products;  // planes: channels last, first those of the input, then those of the output
  float* filters;                     // of a panel
  std::int64_t bytes;

  Parts(const WinogradState& s, void* memory) {
    ScratchParts parts(memory);
    const winograd::Blocks& b = s.blocks;
    planes = parts.take<float>(std::max(checked_mul(checked_mul(b.most_in_rows(), s.h.input), s.channels),
                                        checked_mul(checked_mul(b.most_rows(), s.h.output), s.columns)));
    pixels = parts.take<float>(checked_mul<std::int64_t>(kPositions, step_of(checked_mul(b.most_tiles(), s.channels))));
    products = parts.take<float>(checked_mul<std::int64_t>(kPositions, step_of(checked_mul(b.most_tiles(), s.columns))));
    const std::int64_t panel = step_of(std::min(s.channels, kDepth) * simd_packed_gemm::loops(s.isa).nr);
    filters = parts.take<float>(s.shares_filters() ? 0 : checked_mul<std::int64_t>(kPositions, panel));
    bytes = parts.bytes();
  }
};

Refusal supports_conv(const OpDesc& d) {
  if (d.constant(kWeight) != nullptr) return "the weight is constant";
  return winograd::refuse_conv(d);
}
Refusal supports_gradient(const OpDesc& d) { return winograd::refuse(d, kWeight, d.outputs[0].shape, d.inputs[kGradient].shape); }

// Blocks, and ranges of output channels so that all threads have tiles.
void choose_tiles(const OpDesc& d, std::int64_t images, WinogradState* s) {
  const simd_packed_gemm::Loops& product = simd_packed_gemm::loops(s->isa);
  const std::int64_t threads = std::max<std::int64_t>(1, d.threads);
  // Threads share the filters of a layer with many of them, so that none are transformed twice, else its images.
  const bool has_many = winograd::filter_work(s->channels, s->outputs) * 2 >
                        winograd::pixel_work(s->channels, s->outputs, winograd::count_tiles(images, s->v.output, s->h.output));
  s->blocks = winograd::Blocks(images, s->v.output, s->h.output, winograd::block_tiles(s->channels, s->outputs),
                               has_many ? images : ceil_div(images, threads));
  const std::int64_t wanted = threads < 2 ? 1 : s->shares_filters() ? 2 * threads : threads;
  const std::int64_t ranges = std::clamp<std::int64_t>(ceil_div(wanted, s->blocks.count()), 1, s->panels);
  s->columns = std::min(s->outputs, ceil_div(s->panels, ranges) * product.nr);
  s->column_tiles = ceil_div(s->outputs, s->columns);
}

void plan(const OpDesc& d, bool turned, KernelPlan* p) {
  auto& s = p->state<WinogradState>();
  const Shape& w = d.inputs[kWeight].shape;
  const PlaneAxes axes(conv_window(*d.node, turned ? d.outputs[0].shape : d.inputs[0].shape, w));
  s.isa = cpu_isa();
  s.turned = turned;
  s.v = axes.v;
  s.h = axes.h;
  for (WindowAxis* a : {&s.v, &s.h}) {
    if (!turned) continue;
    std::swap(a->input, a->output);
    a->pad_begin = 2 - a->pad_begin;
  }
  s.channels = w[turned ? 0 : 1];
  s.outputs = w[turned ? 1 : 0];
  const simd_packed_gemm::Loops& product = simd_packed_gemm::loops(s.isa);
  s.panels = ceil_div(s.outputs, std::int64_t{product.nr});
  EVN_CHECK(product.nr <= kMostWidth);
  s.position_step = step_of(packed_gemm_floats(product, s.outputs, s.channels));
  p->flops = 18.0 * static_cast<double>(s.channels) * static_cast<double>(d.outputs[0].shape.elements());  // of the direct method
  p->bytes = bytes_of(d);
  p->tiles = 0;
  if (d.outputs[0].shape.elements() == 0) return;
  choose_tiles(d, d.outputs[0].shape[0], &s);
  p->tiles = checked_mul(s.blocks.count(), s.column_tiles);
  p->thread_scratch_bytes = static_cast<std::size_t>(Parts(s, nullptr).bytes);
  if (!s.shares_filters()) return;
  p->cleared_bytes = static_cast<std::size_t>(s.panels) * sizeof(std::int32_t);
  s.flag_bytes = ceil_div(p->cleared_bytes, std::size_t{64}) * 64;
  const std::int64_t floats = checked_mul<std::int64_t>(kPositions, s.position_step);
  p->scratch_bytes = checked_add(s.flag_bytes, checked_mul(static_cast<std::size_t>(floats), sizeof(float)));
}

void plan_conv(const OpDesc& d, KernelPlan* p) { plan(d, false, p); }
void plan_gradient(const OpDesc& d, KernelPlan* p) { plan(d, true, p); }

class Tile {
 public:
  Tile(const KernelArgs& args, CancelPoints* points)
      : args_(args),
        s_(args.plan->state<WinogradState>()),
        product_(simd_packed_gemm::loops(s_.isa)),
        loops_(simd_winograd::loops(s_.isa).of(kTile)),
        parts_(s_, args.thread_scratch),
        flags_(static_cast<std::int32_t*>(args.scratch.address())),
        filters_(s_.shares_filters() ? reinterpret_cast<float*>(static_cast<char*>(args.scratch.address()) + s_.flag_bytes)
                                     : parts_.filters),
        points_(points) {}

  void run(std::int64_t index) {
    column_ = index % s_.column_tiles * s_.columns;
    columns_ = std::min(s_.columns, s_.outputs - column_);
    block_ = s_.blocks.at(index / s_.column_tiles);
    tiles_ = s_.blocks.tiles_of(block_);
    if (!transform_pixels() || !(s_.shares_filters() ? multiply_shared() : multiply_panels())) return;
    put();
  }

 private:
  const KernelArgs& args_;
  const WinogradState& s_;
  const simd_packed_gemm::Loops& product_;
  const simd_winograd::Transforms& loops_;
  const Parts parts_;
  std::int32_t* const flags_;
  float* const filters_;
  CancelPoints* const points_;
  std::int64_t column_ = 0, columns_ = 0, tiles_ = 0;
  winograd::Block block_ = {};

  // Transforms the filters of those panels of the tile that no other thread has taken, and waits for the others, which are being
  // worked at. Returns false if the run is to stop.
  bool take_filters() {
    const std::int64_t first = column_ / product_.nr, end = ceil_div(column_ + columns_, std::int64_t{product_.nr});
    for (std::int64_t i = first; i < end; ++i) {
      std::int32_t seen = kUntouched;
      if (!__atomic_compare_exchange_n(&flags_[i], &seen, kTaken, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) continue;
      const std::int64_t column = i * product_.nr, columns = std::min<std::int64_t>(product_.nr, s_.outputs - column);
      const bool done = transform_filters({0, s_.channels, column, columns}, filters_ + column * s_.channels, s_.position_step);
      __atomic_store_n(&flags_[i], done ? kReady : kGivenUp, __ATOMIC_RELEASE);
      if (!done) return false;
    }
    for (std::int64_t i = first; i < end; ++i) {
      while (true) {
        const std::int32_t seen = __atomic_load_n(&flags_[i], __ATOMIC_ACQUIRE);
        if (seen == kReady) break;
        if (seen == kGivenUp || stops_now(points_)) return false;
        std::this_thread::yield();
      }
    }
    return true;
  }

  // Some channels by some output channels.
  struct Part {
    std::int64_t channel, channels, column, columns;
  };

  // Of one panel: to[channel][column], `step` floats from one position to the next.
  bool transform_filters(const Part& part, float* to, std::int64_t step) {
    const std::int64_t column = part.column, columns = part.columns, end = part.channel + part.channels;
    const std::int64_t width = ceil_div(columns, product_.lanes) * product_.lanes;
    const float* const w = args_.in<float>(kWeight);
    alignas(64) float turned[kTurned * 9 * kMostWidth];
    for (std::int64_t channel = part.channel; channel < end; channel += kTurned) {
      const std::int64_t channels = std::min(kTurned, end - channel);
      if (stops(points_, 4 * kPositions * channels * width)) return false;
      if (!s_.turned) {
        pack_panel(w + (column * s_.channels + channel) * 9, 1, s_.channels * 9, columns, width, channels * 9, turned);
      } else {  // [channel][column][tap], and the taps from the last to the first
        for (std::int64_t c = 0; c < channels; ++c) {
          alignas(64) float filter[9 * kMostWidth];
          pack_panel(w + ((channel + c) * s_.outputs + column) * 9, 1, 9, columns, width, 9, filter);
          for (std::int64_t tap = 0; tap < 9; ++tap) std::copy_n(filter + (8 - tap) * width, width, turned + (c * 9 + tap) * width);
        }
      }
      loops_.filters(turned, channels, width, to + (channel - part.channel) * width, step);
    }
    return true;
  }

  bool transform_pixels() {
    const winograd::Lines lines = winograd::lines_of(block_, s_.v, s_.h, s_.channels);
    const simd_winograd::Geometry& g = lines.geometry;
    const std::int64_t plane = s_.v.input * s_.h.input, image = s_.channels * plane;
    const float* const from = args_.in<float>(s_.turned ? kGradient : 0) + block_.image * image + lines.begin * s_.h.input;
    if (!winograd::turn(s_.isa, {from, image, plane, block_.images, s_.channels, g.height * g.width}, parts_.planes, points_)) {
      return false;
    }
    const std::int64_t step = step_of(tiles_ * s_.channels);
    return by_parts(points_, tiles_, 1, 4 * kPositions * s_.channels, [&](std::int64_t begin, std::int64_t end) {
      loops_.pixels(g, parts_.planes, begin, end - begin, parts_.pixels + begin * s_.channels, step);
    });
  }

  bool multiply_shared() {
    if (!take_filters()) return false;
    return multiply({0, s_.channels, column_, columns_}, filters_ + column_ * s_.channels, s_.position_step);
  }

  bool multiply_panels() {
    const std::int64_t step = step_of(std::min(s_.channels, kDepth) * product_.nr);
    for (std::int64_t column = column_; column < column_ + columns_; column += product_.nr) {
      for (std::int64_t channel = 0; channel < s_.channels; channel += kDepth) {
        const Part part{channel, std::min(kDepth, s_.channels - channel), column,
                        std::min<std::int64_t>(product_.nr, column_ + columns_ - column)};
        if (!transform_filters(part, filters_, step) || !multiply(part, filters_, step)) return false;
      }
    }
    return true;
  }

  // By the filters of a part, whose positions are `step` floats apart; sums go on from the channels before it.
  bool multiply(const Part& part, const float* filters, std::int64_t step) {
    const std::int64_t pixel_step = step_of(tiles_ * s_.channels), product_step = step_of(tiles_ * columns_);
    for (std::int64_t position = 0; position < kPositions && !points_->stopped; ++position) {
      simd_packed_gemm::Tile t{};
      t.m = tiles_;
      t.n = part.columns;
      t.k = part.channels;
      t.a = parts_.pixels + position * pixel_step + part.channel;
      t.lda = s_.channels;
      t.b = filters + position * step;
      t.c = parts_.products + position * product_step + part.column - column_;
      t.ldc = columns_;
      if (part.channel > 0) {
        t.init = t.c;
        t.init_row = columns_;
        t.init_column = 1;
        t.init_scale = 1;
      }
      t.points = points_;
      product_.run(t);
    }
    return !points_->stopped;
  }

  void put() {
    simd_winograd::Geometry g = winograd::lines_of(block_, s_.v, s_.h, s_.channels).geometry;
    g.out_pixel = g.out_channels = columns_;
    const std::int64_t step = step_of(tiles_ * columns_), here = block_.rows * s_.h.output, plane = s_.v.output * s_.h.output;
    simd_winograd::Finish f{};
    f.y = parts_.planes;
    const bool has_bias = !s_.turned && args_.desc->has_input(kBias);
    f.bias = has_bias ? args_.in<float>(kBias) + column_ : nullptr;
    f.epilogue = epilogue_of(*args_.desc);
    f.count = columns_;
    const bool done =
        by_parts(points_, tiles_, 1, (4 * kPositions + kFunction * 16) * columns_, [&](std::int64_t from, std::int64_t until) {
          loops_.products(g, parts_.products + from * columns_, step, from, until - from, f);
        });
    for (std::int64_t i = 0; done && i < block_.images; ++i) {
      float* const to = args_.out<float>() + ((block_.image + i) * s_.outputs + column_) * plane + block_.row * s_.h.output;
      by_parts(points_, here, 16, 2 * columns_, [&](std::int64_t from, std::int64_t until) {
        simd_transpose::loops(s_.isa).transpose(parts_.planes + (i * here + from) * columns_, columns_, until - from, columns_,
                                                to + from, plane);
      });
    }
  }
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  CancelPoints points = points_of(cancel);
  Tile tile(args, &points);
  for (std::int64_t i = begin; i < end && !cancel.stop() && !points.stopped; ++i) tile.run(i);
}

constexpr Kernel kKernels[] = {
    {.name = "conv_dynamic_weight_winograd", .op = "Conv", .rank = 36, .supports = supports_conv, .plan = plan_conv, .run = run},
    {.name = "conv_input_gradient_winograd",
     .op = kConvInputGradient,
     .domain = kInternalDomain,
     .rank = 36,
     .supports = supports_gradient,
     .plan = plan_gradient,
     .run = run},
};

}  // namespace

extern const KernelFamily winograd_product_kernels;
const KernelFamily winograd_product_kernels = {kKernels};

}  // namespace evn
