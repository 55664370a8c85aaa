// MaxPoolGradient and AveragePoolGradient of float32, one to three spatial axes, plain. A tile is some planes.
#include "backends/cpu/support.h"
#include "backends/cpu/training/pool_gradient_loops.h"
#include "ops/gradient.h"
#include "ops/merge.h"
#include "ops/pool.h"

namespace evn {
namespace {

constexpr std::int64_t kMostTaps = 4096;  // of a window, between cancellation points

struct PoolGradientState {
  Isa isa;
  Window window;
  bool include_pad;
  bool by_pairs;  // windows of 2 x 2 side by side
  std::int64_t planes, per_tile;
};

Refusal supports(const OpDesc& d) {
  if (const Refusal reason = plain_float32(d)) return reason;
  std::int64_t taps = 1;
  for (const std::int64_t k : attr_ints(*d.node, MaxPoolAttr::kKernelShape)) {
    if (k > kMostTaps / taps) return "the kernel is too large";
    taps *= k;
  }
  return nullptr;
}

// The window with axes of 1 in front, so that axis 2 is the line.
Window from_the_back(const Window& w) {
  Window r;
  r.rank = w.rank;
  for (int i = 0; i < w.rank; ++i) r.axis[kMaxSpatial - w.rank + i] = w.axis[i];
  return r;
}

bool are_pairs(const Window& w) {
  const auto is_pair = [](const WindowAxis& a) {
    return a.kernel == 2 && a.stride == 2 && a.dilation == 1 && a.pad_begin == 0 && 2 * a.output <= a.input;
  };
  return w.rank == 2 && is_pair(w.axis[1]) && is_pair(w.axis[2]);
}

template <bool Average>
void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<PoolGradientState>();
  const Shape& x = d.inputs[0].shape;
  s.isa = cpu_isa();
  s.window = from_the_back(pool_window(*d.node, x));
  s.include_pad = Average && attr_int(*d.node, AveragePoolAttr::kCountIncludePad) != 0;
  s.by_pairs = !Average && are_pairs(s.window);
  s.planes = x.elements(0, 2);
  const double work = static_cast<double>(s.window.output_elements()) * static_cast<double>(s.window.kernel_elements());
  s.per_tile = units_per_tile(s.planes, work + static_cast<double>(s.window.input_elements()), kElementsPerTile);
  p->tiles = ceil_div(s.planes, s.per_tile);
  p->flops = static_cast<double>(s.planes) * work;
  p->bytes = bytes_of(d);
}

// Calls part(taps of the two outer axes, begin, end, number of the line's first window) for parts of each line of windows of a
// plane.
template <typename F>
void for_each_line(const Window& w, CancelPoints* points, F&& part) {
  const std::int64_t work = w.kernel_elements() + kFarElement;
  for (std::int64_t o0 = 0; o0 < w.axis[0].output; ++o0) {
    for (std::int64_t o1 = 0; o1 < w.axis[1].output; ++o1) {
      const Taps t0 = taps_of(w.axis[0], o0), t1 = taps_of(w.axis[1], o1);
      const std::int64_t first = (o0 * w.axis[1].output + o1) * w.axis[2].output;
      const bool goes_on = by_parts(points, w.axis[2].output, 1, work,
                                    [&](std::int64_t begin, std::int64_t end) { part(t0, t1, begin, end, first); });
      if (!goes_on) return;
    }
  }
}

// Calls f(first element of a line under the window) for each.
template <typename F>
void for_each_line_under(const Window& w, const Taps& t0, const Taps& t1, F&& f) {
  for (std::int64_t k0 = 0; k0 < t0.count; ++k0) {
    for (std::int64_t k1 = 0; k1 < t1.count; ++k1) {
      f(((t0.first + k0 * w.axis[0].dilation) * w.axis[1].input + t1.first + k1 * w.axis[1].dilation) * w.axis[2].input);
    }
  }
}

// The windows of a line that lie inside of it.
IndexRange windows_inside(const WindowAxis& a) {
  const std::int64_t low = std::min(a.output, ceil_div(a.pad_begin, a.stride));
  const std::int64_t room = a.input + a.pad_begin - a.extent();
  return {low, std::clamp(room < 0 ? 0 : room / a.stride + 1, low, a.output)};
}

// What lies under a line of windows.
struct Line {
  const Window& window;
  Taps t0, t1;
  std::int64_t first;  // window, of the plane
};

// Windows [begin, end) of a line, one after the other.
void max_windows(const Line& l, const float* x, const float* dy, float* dx, std::int64_t begin, std::int64_t end) {
  const WindowAxis& a = l.window.axis[2];
  for (std::int64_t o = begin; o < end; ++o) {
    const Taps t = taps_of(a, o);
    std::int64_t at = -1;
    float best = 0;
    for_each_line_under(l.window, l.t0, l.t1, [&](std::int64_t line) {
      for (std::int64_t k = 0, i = line + t.first; k < t.count; ++k, i += a.dilation) {
        if (at >= 0 && !beats(x[i], best)) continue;
        best = x[i];
        at = i;
      }
    });
    if (at >= 0) dx[at] += dy[l.first + o];
  }
}

constexpr std::int32_t kMostVectorTaps = 64;
constexpr std::int64_t kWindowsAtOnce = 64;

// Windows that lie inside the line, by vectors.
void max_windows_inside(const PoolGradientState& s, const Line& l, const float* x, const float* dy, float* dx, std::int64_t begin,
                        std::int64_t end) {
  const WindowAxis& a = l.window.axis[2];
  std::int64_t offsets[kMostVectorTaps];
  std::int32_t taps = 0, taken[kWindowsAtOnce];
  for_each_line_under(l.window, l.t0, l.t1, [&](std::int64_t line) {
    for (std::int64_t k = 0; k < a.kernel; ++k) offsets[taps++] = line - a.pad_begin + k * a.dilation;
  });
  if (taps == 0) return;
  for (std::int64_t o = begin; o < end; o += kWindowsAtOnce) {
    const std::int64_t n = std::min(kWindowsAtOnce, end - o);
    simd_pool_gradient::loops(s.isa).max_taps(x + o * a.stride, offsets, taps, a.stride, taken, n);
    for (std::int64_t i = 0; i < n; ++i) dx[offsets[taken[i]] + (o + i) * a.stride] += dy[l.first + o + i];
  }
}

void max_plane(const PoolGradientState& s, const float* x, const float* dy, float* dx, CancelPoints* points) {
  const Window& w = s.window;
  const IndexRange inside = windows_inside(w.axis[2]);
  const bool by_vectors = w.axis[2].stride <= 2 && w.kernel_elements() <= kMostVectorTaps;
  for_each_line(w, points, [&](const Taps& t0, const Taps& t1, std::int64_t begin, std::int64_t end, std::int64_t first) {
    const Line line = {w, t0, t1, first};
    if (!by_vectors) return max_windows(line, x, dy, dx, begin, end);
    const std::int64_t low = std::clamp(inside.low, begin, end), high = std::clamp(inside.high, low, end);
    max_windows(line, x, dy, dx, begin, low);
    max_windows_inside(s, line, x, dy, dx, low, high);
    max_windows(line, x, dy, dx, high, end);
  });
}

void average_plane(const PoolGradientState& s, const float* dy, float* dx, CancelPoints* points) {
  const Window& w = s.window;
  const WindowAxis& a = w.axis[2];
  for_each_line(w, points, [&](const Taps& t0, const Taps& t1, std::int64_t begin, std::int64_t end, std::int64_t first) {
    const std::int64_t lines = s.include_pad ? t0.padded * t1.padded : t0.count * t1.count;
    for (std::int64_t o = begin; o < end; ++o) {
      const Taps t = taps_of(a, o);
      const float share = dy[first + o] / static_cast<float>(lines * (s.include_pad ? t.padded : t.count));
      for_each_line_under(w, t0, t1, [&](std::int64_t line) {
        for (std::int64_t k = 0, i = line + t.first; k < t.count; ++k, i += a.dilation) dx[i] += share;
      });
    }
  });
}

// Lines and a column behind the last windows stay 0.
void pairs_plane(const PoolGradientState& s, const float* x, const float* dy, float* dx, CancelPoints* points) {
  const simd_pool_gradient::Loops& loops = simd_pool_gradient::loops(s.isa);
  const WindowAxis &rows = s.window.axis[1], &line = s.window.axis[2];
  const std::int64_t width = line.input, used = 2 * line.output;
  for (std::int64_t o = 0; o < rows.output; ++o) {
    const float* const above = x + 2 * o * width;
    float* const to = dx + 2 * o * width;
    const bool goes_on = by_parts(points, line.output, 64, 8, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t at = 2 * begin;
      loops.max_pairs(above + at, above + width + at, dy + o * line.output + begin, to + at, to + width + at, end - begin);
    });
    if (!goes_on) return;
    std::fill(to + used, to + width, 0.0f);
    std::fill(to + width + used, to + 2 * width, 0.0f);
  }
  fill_by_parts(points, dx + 2 * rows.output * width, (rows.input - 2 * rows.output) * width, 0.0f);
}

template <bool Average>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<PoolGradientState>();
  const std::int64_t in = s.window.input_elements(), out = s.window.output_elements();
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = std::min((index + 1) * s.per_tile, s.planes);
    for (std::int64_t plane = index * s.per_tile; plane < last && !points.stopped; ++plane) {
      const float* const dy = args.in<float>(1) + plane * out;
      float* const dx = args.out<float>() + plane * in;
      if (s.by_pairs) {
        pairs_plane(s, args.in<float>(0) + plane * in, dy, dx, &points);
        continue;
      }
      if (!fill_by_parts(&points, dx, in, 0.0f)) return;
      if constexpr (Average) {
        average_plane(s, dy, dx, &points);
      } else {
        max_plane(s, args.in<float>(0) + plane * in, dy, dx, &points);
      }
    }
  }
}

constexpr Kernel kKernels[] = {
    {.name = "max_pool_gradient",
     .op = kMaxPoolGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports,
     .plan = plan<false>,
     .run = run<false>},
    {.name = "average_pool_gradient",
     .op = kAveragePoolGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports,
     .plan = plan<true>,
     .run = run<true>},
};

}  // namespace

extern const KernelFamily pool_gradient_kernels;
const KernelFamily pool_gradient_kernels = {kKernels};

}  // namespace evn
