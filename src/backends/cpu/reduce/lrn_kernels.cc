// LRN, float32. A tile is a range of positions of one image: the squares of all channels there are summed in the order of the
// channels, so that tiles do not change a bit.
#include <algorithm>
#include <cmath>

#include "backends/cpu/support.h"
#include "ops/lrn.h"

namespace evn {
namespace {

constexpr std::int64_t kColumns = 64;  // positions of a tile

struct LrnState {
  std::int64_t channels, inner, tiles_per_image;
  LrnWindow window;
  float alpha, beta, bias;
};

Refusal supports(const OpDesc& d) { return all_float32(d) ? nullptr : kNeedsFloat32; }

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<LrnState>();
  const Shape& x = d.inputs[0].shape;
  s.channels = x[1];
  s.inner = x.elements(2, x.rank());
  s.tiles_per_image = ceil_div(s.inner, kColumns);
  s.window = lrn_window(*d.node, s.channels);
  s.alpha = attr_float(*d.node, LrnAttr::kAlpha) / static_cast<float>(attr_int(*d.node, LrnAttr::kSize));
  s.beta = attr_float(*d.node, LrnAttr::kBeta);
  s.bias = attr_float(*d.node, LrnAttr::kBias);
  p->tiles = checked_mul(x[0], s.tiles_per_image);
  p->flops = 20.0 * static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

// y = x * base^-beta; beta is 0.75 in nearly every model, which two square roots give.
void divide(const LrnState& s, const float* x, const float* base, std::int64_t n, float* y) {
  if (s.beta == 0.75f) {
    for (std::int64_t i = 0; i < n; ++i) {
      const float root = std::sqrt(base[i]);
      y[i] = x[i] / (root * std::sqrt(root));
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] / std::pow(base[i], s.beta);
}

void run_tile(const KernelArgs& args, const LrnState& s, std::int64_t tile, CancelPoints* points) {
  const std::int64_t column = tile % s.tiles_per_image * kColumns;
  const std::int64_t n = std::min(kColumns, s.inner - column);
  const std::int64_t begin = tile / s.tiles_per_image * s.channels * s.inner + column;
  const float* x = args.in<float>(0) + begin;
  float* y = args.out<float>() + begin;
  float base[kColumns];
  for (std::int64_t channel = 0; channel < s.channels; ++channel) {
    if (stops(points, n * 4 * kFunction)) return;
    std::fill_n(base, n, 0.0f);
    const std::int64_t end = std::min(channel + s.window.after, s.channels - 1);
    for (std::int64_t k = std::max<std::int64_t>(channel - s.window.before, 0); k <= end; ++k) {
      if (stops(points, n + kFarElement)) return;
      const float* row = x + k * s.inner;
      for (std::int64_t i = 0; i < n; ++i) base[i] += row[i] * row[i];
    }
    for (std::int64_t i = 0; i < n; ++i) base[i] = s.bias + s.alpha * base[i];
    divide(s, x + channel * s.inner, base, n, y + channel * s.inner);
    if (const Epilogue* e = epilogue_of(*args.desc)) {
      for (std::int64_t i = 0; i < n; ++i) y[channel * s.inner + i] = apply_epilogue(*e, y[channel * s.inner + i]);
    }
  }
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<LrnState>();
  CancelPoints points = points_of(cancel);
  for (std::int64_t tile = begin; tile < end && !cancel.stop(); ++tile) run_tile(args, s, tile, &points);
}

constexpr Kernel kKernels[] = {
    {.name = "lrn", .op = "LRN", .rank = 10, .supports = supports, .plan = plan, .run = run},
};

}  // namespace

extern const KernelFamily lrn_kernels;
const KernelFamily lrn_kernels = {kKernels};

}  // namespace evn
