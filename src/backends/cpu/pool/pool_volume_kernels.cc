// MaxPool without indices and AveragePool over three spatial axes, float32. A tile is some output planes. For a row of one, the
// input rows that its windows reach become one row, and that the output tap by tap.
#include <limits>

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/support.h"
#include "ops/pool.h"

namespace evn {
namespace {

struct VolumeState {
  Isa isa;
  Window window;
  std::int64_t planes, per_tile;  // output planes: of all images, channels and depths
  bool include_pad;
};

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;  // indices are int64
  return d.inputs[0].shape.rank() == 5 ? nullptr : "only three spatial axes";
}

template <bool Average>
void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<VolumeState>();
  const Shape& y = d.outputs[0].shape;
  s.isa = cpu_isa();
  s.window = pool_window(*d.node, d.inputs[0].shape);
  s.planes = y.elements(0, 3);
  s.include_pad = Average && attr_int(*d.node, AveragePoolAttr::kCountIncludePad) != 0;
  const double taps = static_cast<double>(s.window.kernel_elements());
  s.per_tile = units_per_tile(s.planes, taps * static_cast<double>(y.elements(3, 5)));
  p->tiles = ceil_div(s.planes, s.per_tile);
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(s.window.axis[2].input, sizeof(float)));
  p->flops = taps * static_cast<double>(y.elements());
  p->bytes = bytes_of(d);
}

// y[i] op= x[i * step] for n elements; as MaxPool says, a NaN stays.
template <bool Average, int Step>
void add_tap(const float* x, std::int64_t step, float* y, std::int64_t n) {
  const std::int64_t by = Step == 0 ? step : Step;
  for (std::int64_t i = 0; i < n; ++i) {
    const float v = x[i * by];
    const bool takes = static_cast<int>(v > y[i]) | static_cast<int>(v != v);
    y[i] = Average ? y[i] + v : takes ? v : y[i];
  }
}

template <bool Average>
void add_row(const WindowAxis& a, const float* row, float* y) {
  for (std::int64_t k = 0; k < a.kernel; ++k) {
    const std::int64_t start = k * a.dilation - a.pad_begin;  // of output 0
    const auto [first, end] = indices_inside(start, a.stride, a.output, a.input);
    if (first >= end) continue;
    const float* const x = row + start + first * a.stride;
    switch (a.stride) {
      case 1: add_tap<Average, 1>(x, 1, y + first, end - first); break;
      case 2: add_tap<Average, 2>(x, 2, y + first, end - first); break;
      default: add_tap<Average, 0>(x, a.stride, y + first, end - first);
    }
  }
}

template <bool Average>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<VolumeState>();
  const WindowAxis* const a = s.window.axis;
  const std::int64_t volume = s.window.input_elements();
  const Epilogue* const epilogue = epilogue_of(*args.desc);
  const simd_elementwise::Loops& loops = simd_elementwise::loops(s.isa);
  constexpr auto kOp = Average ? simd_elementwise::Binary::kAdd : simd_elementwise::Binary::kMax;
  auto* const joined = static_cast<float*>(args.thread_scratch);
  CancelPoints points = points_of(cancel);
  const auto divisor = [&](const Taps& t) { return s.include_pad ? t.padded : t.count; };
  for (std::int64_t plane = begin * s.per_tile; plane < std::min(end * s.per_tile, s.planes) && !cancel.stop(); ++plane) {
    const Taps z = taps_of(a[0], plane % a[0].output);
    const float* const x = args.in<float>(0) + plane / a[0].output * volume;
    for (std::int64_t oy = 0; oy < a[1].output; ++oy) {
      const Taps t = taps_of(a[1], oy);
      if (stops(&points, a[2].input * z.count * t.count + a[2].output * (1 + a[2].kernel))) return;
      float* const y = args.out<float>() + (plane * a[1].output + oy) * a[2].output;
      std::fill_n(y, a[2].output, Average ? 0.0f : -std::numeric_limits<float>::infinity());
      const float* row = nullptr;
      for (std::int64_t kz = 0; kz < z.count; ++kz) {
        for (std::int64_t ky = 0; ky < t.count; ++ky) {
          const std::int64_t line = (z.first + kz * a[0].dilation) * a[1].input + t.first + ky * a[1].dilation;
          const float* const next = x + line * a[2].input;
          if (row != nullptr) loops.binary(kOp, row, 1, next, 1, joined, a[2].input, {1, 0, 0, 0}, false, nullptr);
          row = row == nullptr ? next : joined;
        }
      }
      if (row != nullptr) add_row<Average>(a[2], row, y);
      for (std::int64_t i = 0; Average && i < a[2].output; ++i) {
        const std::int64_t count = divisor(z) * divisor(t) * divisor(taps_of(a[2], i));
        y[i] = count == 0 ? 0 : y[i] / static_cast<float>(count);
      }
      if (epilogue != nullptr) loops.chain(y, a[2].output, epilogue);
    }
  }
}

constexpr Kernel kKernels[] = {
    {.name = "max_pool_volume", .op = "MaxPool", .rank = 8, .supports = supports, .plan = plan<false>, .run = run<false>},
    {.name = "average_pool_volume", .op = "AveragePool", .rank = 8, .supports = supports, .plan = plan<true>, .run = run<true>},
};

}  // namespace

extern const KernelFamily pool_volume_kernels;
const KernelFamily pool_volume_kernels = {kKernels};

}  // namespace evn
