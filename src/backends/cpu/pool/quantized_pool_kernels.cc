// Pools of bytes: MaxPool without indices and QLinearAveragePool, one or two spatial axes, channels last, and
// QLinearGlobalAveragePool in either layout. A tile is a line of the output, or some channels.
#include <algorithm>
#include <cmath>

#include "backends/cpu/elementwise/bytes_loops.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/support.h"
#include "ops/infra/quantized.h"
#include "ops/pool.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace evn {
namespace {

bool is_byte(DType d) { return d == DType::kInt8 || d == DType::kUint8; }

// -------------------------------------------------------------------------------------------------------------- max --

constexpr std::int64_t kShortLine = 1 << 12;  // of positions, taps and channels

struct MaxState {
  Isa isa;
  WindowAxis y, x;
  std::int64_t images, channels, in_pitch, out_pitch;
};

Refusal max_supports(const OpDesc& d) {
  if (!is_byte(d.inputs[0].dtype)) return "only int8 and uint8";
  if (d.outputs.size() > 1) return "indices";
  const int rank = d.inputs[0].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  return d.node->epilogue.empty() ? nullptr : "no fused steps";
}

void max_layouts(const OpDesc&, std::span<Layout> inputs, std::span<Layout> outputs) {
  inputs[0] = outputs[0] = Layout::kChannelsLast;
}

void max_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<MaxState>();
  const Shape& x = d.inputs[0].shape;
  const Window window = pool_window(*d.node, x);
  s.isa = cpu_isa();
  s.y = window.rank == 2 ? window.axis[0] : WindowAxis{};
  s.x = window.axis[window.rank - 1];
  s.images = x[0];
  s.channels = x[1];
  s.in_pitch = d.input_pitch(0);
  s.out_pitch = d.output_pitch();
  p->tiles = d.outputs[0].shape.elements() == 0 ? 0 : checked_mul(s.images, s.y.output);
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul(s.x.input, s.channels));
  p->flops = static_cast<double>(window.kernel_elements()) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

// The lines under the window first, as one of the image, and then what is in it side by side.
void max_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<MaxState>();
  const simd_bytes::Loops& loops = simd_bytes::loops(s.isa);
  const bool is_signed = args.desc->inputs[0].dtype == DType::kInt8;
  const std::uint8_t least = is_signed ? 128 : 0;
  auto* const line = static_cast<std::uint8_t*>(args.thread_scratch);
  const std::int64_t width = s.x.input * s.channels;
  CancelPoints points = points_of(cancel);
  const std::int64_t line_work =
      (s.y.kernel + 1) * (width + kFarElement * s.x.input) + s.x.output * s.x.kernel * (s.channels + kFarElement);
  const bool is_short = s.y.kernel <= kShortLine && s.x.kernel <= kShortLine && s.x.input <= kShortLine &&
                        s.x.output <= kShortLine && s.channels <= kShortLine && line_work <= kTileWorkPerLook;
  // widen_max over n contiguous bytes.
  const auto widen = [&](const std::uint8_t* from, std::uint8_t* to, std::int64_t n) {
    if (is_short) {
      loops.widen_max(from, to, n, is_signed);
      return true;
    }
    return by_parts(&points, n, 64, 1,
                    [&](std::int64_t first, std::int64_t last) {
                      loops.widen_max(from + first, to + first, last - first, is_signed);
                    }) &&
           !stops(&points, kFarElement);
  };
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t image = index / s.y.output, out_y = index % s.y.output;
    if (is_short && stops(&points, line_work)) return;
    if (!fill_by_parts(&points, line, width, least)) return;
    for (std::int64_t k = 0; k < s.y.kernel; ++k) {
      const std::int64_t y = out_y * s.y.stride - s.y.pad_begin + k * s.y.dilation;
      if (!is_short && stops(&points, kFarElement)) return;
      if (y < 0 || y >= s.y.input) continue;
      const std::uint8_t* from = args.in<std::uint8_t>(0) + (image * s.y.input + y) * s.x.input * s.in_pitch;
      if (s.in_pitch == s.channels) {
        if (!widen(from, line, width)) return;
        continue;
      }
      for (std::int64_t x = 0; x < s.x.input; ++x) {
        if (!widen(from + x * s.in_pitch, line + x * s.channels, s.channels)) return;
      }
    }
    std::uint8_t* to = args.out<std::uint8_t>() + index * s.x.output * s.out_pitch;
    for (std::int64_t out_x = 0; out_x < s.x.output; ++out_x, to += s.out_pitch) {
      bool first = true;
      for (std::int64_t k = 0; k < s.x.kernel; ++k) {
        const std::int64_t x = out_x * s.x.stride - s.x.pad_begin + k * s.x.dilation;
        if (!is_short && stops(&points, kFarElement)) return;
        if (x < 0 || x >= s.x.input) continue;
        const std::uint8_t* const from = line + x * s.channels;
        if (is_short && first) std::copy_n(from, s.channels, to);
        else if (first ? !copy_by_parts(&points, to, from, s.channels) : !widen(from, to, s.channels)) return;
        first = false;
      }
      if (!first) continue;
      if (stops(&points, s.channels)) return;
      std::fill_n(to, s.channels, least);
    }
  }
}

// ------------------------------------------------------------------------------------------------------------ average --

enum : int { kX, kXScale, kXZero, kYScale, kYZero };

constexpr std::int64_t kMostTaps = 1 << 20;  // whose sum fits into 32 bits

struct PoolState {
  Isa isa;
  WindowAxis y, x;
  std::int64_t channels, in_pitch, out_pitch;
  bool include_pad;
};

Refusal pool_supports(const OpDesc& d) {
  const int rank = d.inputs[kX].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  if (attr_int(*d.node, AveragePoolAttr::kChannelsLast) != 0) return "channels_last";
  if (pool_window(*d.node, d.inputs[kX].shape).kernel_elements() > kMostTaps) return "the kernel is too large";
  return d.node->epilogue.empty() ? nullptr : "no fused steps";
}

void pool_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<PoolState>();
  const Shape& x = d.inputs[kX].shape;
  const Window window = pool_window(*d.node, x);
  s.isa = cpu_isa();
  s.y = window.rank == 2 ? window.axis[0] : WindowAxis{};
  s.x = window.axis[window.rank - 1];
  s.channels = x[1];
  s.in_pitch = d.input_pitch(kX);
  s.out_pitch = d.output_pitch();
  s.include_pad = attr_int(*d.node, AveragePoolAttr::kCountIncludePad) != 0;
  p->tiles = d.outputs[0].shape.elements() == 0 ? 0 : checked_mul(x[0], s.y.output);
  p->thread_scratch_bytes = static_cast<std::size_t>(window.kernel_elements()) * sizeof(const std::uint8_t*);
  p->flops = static_cast<double>(window.kernel_elements()) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

std::int32_t zero_of(const KernelArgs& args, int input) {
  if (!args.desc->has_input(input)) return 0;
  return args.desc->inputs[kX].dtype == DType::kInt8 ? *args.in<std::int8_t>(input) : *args.in<std::uint8_t>(input);
}

void pool_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<PoolState>();
  const simd_bytes::Loops& loops = simd_bytes::loops(s.isa);
  const bool is_signed = args.desc->inputs[kX].dtype == DType::kInt8;
  const double x_scale = static_cast<double>(*args.in<float>(kXScale)), y_scale = static_cast<double>(*args.in<float>(kYScale));
  const auto x_zero = static_cast<std::uint32_t>(zero_of(args, kXZero) + (is_signed ? 128 : 0));
  auto* const taps = static_cast<const std::uint8_t**>(args.thread_scratch);
  simd_bytes::Mean mean{0, is_signed ? 0x80u : 0u, 0, zero_of(args, kYZero)};
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::uint8_t* const image = args.in<std::uint8_t>(kX) + index / s.y.output * s.y.input * s.x.input * s.in_pitch;
    const Taps lines = taps_of(s.y, index % s.y.output);
    std::uint8_t* to = args.out<std::uint8_t>() + index * s.x.output * s.out_pitch;
    for (std::int64_t x = 0; x < s.x.output; ++x, to += s.out_pitch) {
      const Taps columns = taps_of(s.x, x);
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < lines.count; ++i) {
        if (stops(&points, columns.count * 2 + kFarElement)) return;
        for (std::int64_t j = 0; j < columns.count; ++j) {
          taps[count++] = image + ((lines.first + i * s.y.dilation) * s.x.input + columns.first + j * s.x.dilation) * s.in_pitch;
        }
      }
      const std::int64_t all = s.include_pad ? lines.padded * columns.padded : count;
      mean.start = x_zero * static_cast<std::uint32_t>(count);
      mean.scale = static_cast<float>(all == 0 ? 0 : x_scale / (y_scale * static_cast<double>(all)));
      loops.average(mean, taps, count, s.channels, to, &points);
      if (stops(&points, kFarElement)) return;
    }
  }
}

// ---------------------------------------------------------------------------------------------------- global average --

constexpr std::int64_t kColumns = 512;         // channels of a tile
constexpr std::int64_t kMostSummed = 1 << 20;  // positions whose sum fits into 32 bits

struct AverageState {
  Isa isa;
  bool last;
  std::int64_t images, channels, positions, pitch, blocks;
};

Refusal average_supports(const OpDesc& d) {
  if (attr_int(*d.node, 0) != 0) return "channels_last";
  return d.node->epilogue.empty() ? nullptr : "no fused steps";
}

void average_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<AverageState>();
  const Shape& x = d.inputs[kX].shape;
  s.isa = cpu_isa();
  s.last = d.input_layout(kX) == Layout::kChannelsLast;
  s.images = x[0];
  s.channels = x[1];
  s.positions = x.elements(2, x.rank());
  s.pitch = s.last ? d.input_pitch(kX) : 1;
  s.blocks = ceil_div(s.channels, kColumns);
  p->tiles = checked_mul(s.images, s.blocks);
  p->flops = static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

// The sum of n bytes. With flip = 128 they are int8: x ^ 128 is the value + 128, which is subtracted at the end.
std::int64_t sum_of(const std::uint8_t* x, std::int64_t n, std::uint8_t flip) {
  std::int64_t sum = 0, i = 0;
#if defined(__x86_64__)
  const __m128i change = _mm_set1_epi8(static_cast<char>(flip));
  __m128i sums = _mm_setzero_si128();
  for (; i + 16 <= n; i += 16) {
    sums = _mm_add_epi64(
        sums, _mm_sad_epu8(_mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i)), change), _mm_setzero_si128()));
  }
  sum = _mm_cvtsi128_si64(sums) + _mm_cvtsi128_si64(_mm_unpackhi_epi64(sums, sums));
#endif
  for (; i < n; ++i) sum += x[i] ^ flip;
  return sum - n * flip;
}

void average_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<AverageState>();
  const OpDesc& d = *args.desc;
  const simd_bytes::Loops& loops = simd_bytes::loops(s.isa);
  const bool is_signed = d.inputs[kX].dtype == DType::kInt8;
  const auto zero = [&](int i) { return std::int64_t{zero_of(args, i)}; };
  const double x_scale = static_cast<double>(*args.in<float>(kXScale)), y_scale = static_cast<double>(*args.in<float>(kYScale));
  const MutableTensor y = {d.outputs[0], args.out<void>()};
  auto* const to = args.out<std::uint8_t>();
  const double least = is_signed ? -128 : 0, x_zeros = static_cast<double>(zero(kXZero) * s.positions),
               y_zero = static_cast<double>(zero(kYZero));
  const double divisor = y_scale * static_cast<double>(s.positions);
  constexpr double kMiddle = 6755399441055744.0;  // 1.5 * 2^52
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t image = index / s.blocks, channel = index % s.blocks * kColumns;
    const std::int64_t n = std::min(kColumns, s.channels - channel);
    std::int64_t sums[kColumns] = {};
    if (s.last) {
      const std::uint8_t* x = args.in<std::uint8_t>(kX) + image * s.positions * s.pitch + channel;
      for (std::int64_t first = 0; first < s.positions; first += kMostSummed) {
        std::int32_t part[kColumns] = {};
        by_parts(&points, std::min(s.positions - first, kMostSummed), 1, n + kFarElement,
                 [&](std::int64_t from, std::int64_t until) {
                   for (std::int64_t i = first + from; i < first + until; ++i) loops.add_to(x + i * s.pitch, part, n, is_signed);
                 });
        if (points.stopped) return;
        for (std::int64_t c = 0; c < n; ++c) sums[c] += part[c];
      }
    } else {
      const std::int64_t at = (image * s.channels + channel) * s.positions;
      const bool goes_on = by_parts(&points, s.positions, 64, n, [&](std::int64_t from, std::int64_t until) {
        const std::uint8_t* const x = args.in<std::uint8_t>(kX) + at + from;
        for (std::int64_t c = 0; c < n; ++c) sums[c] += sum_of(x + c * s.positions, until - from, is_signed ? 128 : 0);
      });
      if (!goes_on) return;
    }
    for (std::int64_t c = 0; c < n; ++c) {
      const double sum = static_cast<double>(sums[c]) - x_zeros;
      const double steps = s.positions == 0 ? 0 : sum * x_scale / divisor;
      if (std::fabs(steps) < kMiddle / 2) {  // rounding by addition, to even
        const double rounded = (steps + kMiddle) - kMiddle + y_zero;
        to[image * s.channels + channel + c] =
            static_cast<std::uint8_t>(static_cast<std::int32_t>(std::clamp(rounded, least, least + 255)));
      } else {
        put_byte(y, image * s.channels + channel + c, round_even(steps) + y_zero);
      }
    }
  }
}

constexpr Kernel kKernels[] = {
    {.name = "max_pool_bytes",
     .op = "MaxPool",
     .rank = 9,
     .supports = max_supports,
     .plan = max_plan,
     .run = max_run,
     .layouts = max_layouts,
     .fusion = {.channel_views = channel_views<kViewInput | kViewOutputs>}},
    {.name = "qlinear_average_pool",
     .op = "QLinearAveragePool",
     .domain = "com.microsoft",
     .rank = 10,
     .supports = pool_supports,
     .plan = pool_plan,
     .run = pool_run,
     .layouts = channels_last,
     .fusion = {.channel_views = channel_views<kViewInput | kViewOutputs>}},
    {.name = "qlinear_global_average_pool",
     .op = "QLinearGlobalAveragePool",
     .domain = "com.microsoft",
     .rank = 10,
     .supports = average_supports,
     .plan = average_plan,
     .run = average_run,
     .layouts = follow_first,
     .fusion = {.channel_views = channel_views<kViewInput>}},
};

}  // namespace

extern const KernelFamily quantized_pool_kernels;
const KernelFamily quantized_pool_kernels = {kKernels};

}  // namespace evn
