// BatchNormalization in training and its derivative, float32, in either layout. A tile is some channels: planes of [N, C, ...], or,
// channels last and where a plane is one element, columns.
#include "ops/batch_norm.h"

#include <cmath>

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/reduce/rows_loops.h"
#include "backends/cpu/support.h"
#include "backends/cpu/training/norm_gradient_loops.h"
#include "ops/gradient.h"
#include "ops/merge.h"
#include "ops/training/norm_gradient.h"

namespace evn {
namespace {

using Gradient = NormGradientInput;

constexpr std::int64_t kColumns = 16;       // of a tile
constexpr std::int64_t kRowsAtOnce = 1024;  // whose sums are made in float32

struct BatchState {
  Isa isa;
  bool columns;
  std::int64_t samples, channels, inner;  // of columns, `samples` is the rows, and `inner` 1
  std::int64_t per_tile;
  double epsilon, momentum;
  bool trains;
};

void plan_channels(const OpDesc& d, double passes, KernelPlan* p) {
  auto& s = p->state<BatchState>();
  const Shape& x = d.inputs[0].shape;
  s.isa = cpu_isa();
  s.samples = x[0];
  s.channels = x[1];
  s.inner = x.elements(2, x.rank());
  s.columns = d.output_layout() == Layout::kChannelsLast || s.inner == 1;
  if (s.columns) {
    s.samples = checked_mul(s.samples, s.inner);
    s.inner = 1;
  }
  const double of_channel = static_cast<double>(s.samples) * static_cast<double>(s.inner);
  s.per_tile = s.columns ? kColumns : units_per_tile(s.channels, of_channel, kElementsPerTile);
  p->tiles = ceil_div(s.channels, s.per_tile);
  p->flops = passes * static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

// What is known of a channel.
struct Moments {
  double mean, variance;
};

// Calls f(first element, elements) for the parts of a channel of planes. Returns false if the run is to stop.
template <typename F>
bool for_each_part(const BatchState& s, std::int64_t channel, CancelPoints* points, F&& f) {
  for (std::int64_t n = 0; n < s.samples; ++n) {
    const std::int64_t plane = (n * s.channels + channel) * s.inner;
    if (stops(points, kFarElement)) return false;
    const bool goes_on =
        in_parts(points, s.inner, kLongLine, 1, [&](std::int64_t begin, std::int64_t end) { f(plane + begin, end - begin); });
    if (!goes_on) return false;
  }
  return true;
}

bool find_moments(const BatchState& s, const float* x, std::int64_t channel, Moments* m, CancelPoints* points) {
  const simd_rows::Loops& loops = simd_rows::loops(s.isa);
  const double count = static_cast<double>(s.samples) * static_cast<double>(s.inner);
  double sum = 0, squares = 0;
  const bool goes_on = for_each_part(s, channel, points, [&](std::int64_t at, std::int64_t n) {
    sum += static_cast<double>(loops.reduce(simd_rows::Reduce::kSum, x + at, n));
  });
  if (!goes_on) return false;
  m->mean = sum / count;
  const auto mean = static_cast<float>(m->mean);
  if (!for_each_part(s, channel, points,
                     [&](std::int64_t at, std::int64_t n) { squares += static_cast<double>(loops.squares(x + at, mean, n)); }))
    return false;
  m->variance = squares / count;
  return true;
}

// The columns of a tile.
struct Columns {
  std::int64_t first, width;
};
Columns columns_of(const BatchState& s, std::int64_t tile) {
  return {tile * kColumns, std::min(kColumns, s.channels - tile * kColumns)};
}

// Two sums of each column, as Loops::column_products makes them; without a dy, of x. Returns false if the run is to stop.
bool sum_columns(const BatchState& s, const Columns& c, const float* x, const float* dy, const float* means, double* sums,
                 double* products, CancelPoints* points) {
  std::fill_n(sums, kColumns, 0.0);
  std::fill_n(products, kColumns, 0.0);
  return in_parts(points, s.samples, kRowsAtOnce, c.width + kFarElement, [&](std::int64_t row, std::int64_t end) {
    float plain[kColumns], along[kColumns];
    const std::int64_t at = row * s.channels + c.first;
    simd_norm_gradient::loops(s.isa).column_products(x + at, dy == nullptr ? nullptr : dy + at, means, end - row, s.channels,
                                                     c.width, plain, along);
    for (std::int64_t j = 0; j < c.width; ++j) {
      sums[j] += static_cast<double>(plain[j]);
      products[j] += static_cast<double>(along[j]);
    }
  });
}

bool find_column_moments(const BatchState& s, const Columns& c, const float* x, Moments* m, CancelPoints* points) {
  double sums[kColumns], squares[kColumns];
  float means[kColumns] = {};
  const auto count = static_cast<double>(s.samples);
  if (!sum_columns(s, c, x, nullptr, means, sums, squares, points)) return false;
  for (std::int64_t j = 0; j < c.width; ++j) {
    m[j].mean = sums[j] / count;
    means[j] = static_cast<float>(m[j].mean);
  }
  if (!sum_columns(s, c, x, nullptr, means, sums, squares, points)) return false;
  for (std::int64_t j = 0; j < c.width; ++j) m[j].variance = squares[j] / count;
  return true;
}

bool is_wanted(const KernelArgs& args, std::size_t output) {
  return output < args.desc->outputs.size() && args.desc->outputs[output].dtype != DType::kUndefined;
}

void put(const KernelArgs& args, std::size_t output, std::int64_t channel, double value) {
  if (is_wanted(args, output)) args.out<float>(static_cast<int>(output))[channel] = static_cast<float>(value);
}

// ---------------------------------------------------------------------------------------------------- in training --

Refusal train_supports(const OpDesc& d) {
  if (!batch_norm_trains(*d.node)) return "only in training mode";
  if (batch_norm_by_element(*d.node)) return "only with parameters per channel";
  if (d.inputs[0].shape.rank() < 2) return "only with a channel axis";
  return all_float32(d) ? nullptr : kNeedsFloat32;
}

void train_plan(const OpDesc& d, KernelPlan* p) {
  plan_channels(d, 6, p);
  auto& s = p->state<BatchState>();
  s.epsilon = static_cast<double>(attr_float(*d.node, BatchNormAttr::kEpsilon));
  s.momentum = static_cast<double>(attr_float(*d.node, BatchNormAttr::kMomentum));
  p->in_place = 1;
}

// Means and variances are moved on where they lie.
int train_written_over(const OpDesc&, int output) {
  return output == 1 ? BatchNormInput::kMean : output == 2 ? BatchNormInput::kVariance : -1;
}

struct Affine {
  float scale, offset;
};

// Writes the statistics of a channel, and says how its elements are normalized.
Affine finish_channel(const KernelArgs& args, const BatchState& s, std::int64_t channel, const Moments& m) {
  const auto in = [&](int input) { return static_cast<double>(args.in<float>(input)[channel]); };
  put(args, 1, channel, s.momentum * in(BatchNormInput::kMean) + (1 - s.momentum) * m.mean);
  put(args, 2, channel, s.momentum * in(BatchNormInput::kVariance) + (1 - s.momentum) * m.variance);
  put(args, 3, channel, m.mean);
  put(args, 4, channel, m.variance);
  const double scale = in(BatchNormInput::kScale) / std::sqrt(m.variance + s.epsilon);
  return {static_cast<float>(scale), static_cast<float>(in(BatchNormInput::kBias)-m.mean * scale)};
}

bool train_columns(const KernelArgs& args, const BatchState& s, std::int64_t tile, CancelPoints* points) {
  const Columns c = columns_of(s, tile);
  const float* const x = args.in<float>(0);
  Moments m[kColumns];
  float scale[kColumns], offset[kColumns];
  if (!find_column_moments(s, c, x, m, points)) return false;
  for (std::int64_t j = 0; j < c.width; ++j) {
    const Affine affine = finish_channel(args, s, c.first + j, m[j]);
    scale[j] = affine.scale;
    offset[j] = affine.offset;
  }
  if (!is_wanted(args, 0)) return true;
  return in_parts(points, s.samples, kRowsAtOnce, c.width + kFarElement, [&](std::int64_t row, std::int64_t end) {
    const std::int64_t at = row * s.channels + c.first;
    simd_elementwise::loops(s.isa).affine_rows(scale, offset, x + at, s.channels, args.out<float>() + at, s.channels, end - row,
                                               c.width, epilogue_of(*args.desc));
  });
}

bool train_planes(const KernelArgs& args, const BatchState& s, std::int64_t channel, CancelPoints* points) {
  const float* const x = args.in<float>(0);
  Moments m;
  if (!find_moments(s, x, channel, &m, points)) return false;
  const Affine affine = finish_channel(args, s, channel, m);
  if (!is_wanted(args, 0)) return true;
  return for_each_part(s, channel, points, [&](std::int64_t at, std::int64_t n) {
    simd_elementwise::loops(s.isa).affine(0, affine.scale, affine.offset, x + at, args.out<float>() + at, n,
                                          epilogue_of(*args.desc));
  });
}

// Calls columns or planes for the tiles, until one of them returns false.
template <bool (*OfColumns)(const KernelArgs&, const BatchState&, std::int64_t, CancelPoints*),
          bool (*OfPlanes)(const KernelArgs&, const BatchState&, std::int64_t, CancelPoints*)>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<BatchState>();
  CancelPoints points = points_of(cancel);
  for (std::int64_t tile = begin; tile < end && !cancel.stop(); ++tile) {
    if (s.columns) {
      if (!OfColumns(args, s, tile, &points)) return;
      continue;
    }
    const std::int64_t last = std::min((tile + 1) * s.per_tile, s.channels);
    for (std::int64_t channel = tile * s.per_tile; channel < last; ++channel) {
      if (!OfPlanes(args, s, channel, &points)) return;
    }
  }
}

// ------------------------------------------------------------------------------------------------- the derivative --

void gradient_plan(const OpDesc& d, KernelPlan* p) {
  plan_channels(d, 10, p);
  auto& s = p->state<BatchState>();
  s.epsilon = static_cast<double>(attr_float(*d.node, BatchNormGradientAttr::kEpsilon));
  s.trains = attr_int(*d.node, BatchNormGradientAttr::kTrains) != 0;
  p->in_place = 1u << Gradient::kX | 1u << Gradient::kDy;
}

bool has_moments(const KernelArgs& args) {
  return args.desc->has_input(Gradient::kVariance) && args.desc->has_input(Gradient::kMean);
}
Moments given_moments(const KernelArgs& args, std::int64_t channel) {
  return {static_cast<double>(args.in<float>(Gradient::kMean)[channel]),
          static_cast<double>(args.in<float>(Gradient::kVariance)[channel])};
}

// Finishes a channel with these sums of dy and dy * (x - mean): writes the gradients of its scale and bias.
simd_norm_gradient::Combination combination_of(const KernelArgs& args, const BatchState& s, std::int64_t channel, const Moments& m,
                                               double sum, double product) {
  const double inverse = 1 / std::sqrt(m.variance + s.epsilon);
  const double a = static_cast<double>(args.in<float>(Gradient::kScale)[channel]) * inverse;
  const double count = static_cast<double>(s.samples) * static_cast<double>(s.inner);
  put(args, 1, channel, product * inverse);
  put(args, 2, channel, sum);
  const double b = s.trains ? -a * inverse * inverse * product / count : 0, c = s.trains ? sum / count : 0;
  return {static_cast<float>(m.mean), static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)};
}

bool gradient_columns(const KernelArgs& args, const BatchState& s, std::int64_t tile, CancelPoints* points) {
  const Columns c = columns_of(s, tile);
  const float *const x = args.in<float>(Gradient::kX), *const dy = args.in<float>(Gradient::kDy);
  Moments m[kColumns];
  double sums[kColumns], products[kColumns];
  float means[kColumns];
  simd_norm_gradient::Combination of[kColumns];
  if (!has_moments(args)) {
    if (!find_column_moments(s, c, x, m, points)) return false;
  } else {
    for (std::int64_t j = 0; j < c.width; ++j) m[j] = given_moments(args, c.first + j);
  }
  for (std::int64_t j = 0; j < c.width; ++j) means[j] = static_cast<float>(m[j].mean);
  if (!sum_columns(s, c, x, dy, means, sums, products, points)) return false;
  for (std::int64_t j = 0; j < c.width; ++j) {
    of[j] = combination_of(args, s, c.first + j, m[j], sums[j], products[j]);
  }
  if (!is_wanted(args, 0)) return true;
  return in_parts(points, s.samples, kRowsAtOnce, c.width + kFarElement, [&](std::int64_t row, std::int64_t end) {
    const std::int64_t at = row * s.channels + c.first;
    simd_norm_gradient::loops(s.isa).combine_columns(x + at, dy + at, of, args.out<float>() + at, end - row, s.channels, c.width);
  });
}

bool gradient_planes(const KernelArgs& args, const BatchState& s, std::int64_t channel, CancelPoints* points) {
  const simd_norm_gradient::Loops& loops = simd_norm_gradient::loops(s.isa);
  const float *const x = args.in<float>(Gradient::kX), *const dy = args.in<float>(Gradient::kDy);
  Moments m;
  if (has_moments(args)) m = given_moments(args, channel);
  else if (!find_moments(s, x, channel, &m, points)) return false;
  double sum = 0, product = 0;
  const auto mean = static_cast<float>(m.mean);
  const bool goes_on = for_each_part(s, channel, points, [&](std::int64_t at, std::int64_t n) {
    float both[2];
    loops.products(x + at, dy + at, nullptr, mean, n, both);
    sum += static_cast<double>(both[0]);
    product += static_cast<double>(both[1]);
  });
  if (!goes_on) return false;
  const simd_norm_gradient::Combination of = combination_of(args, s, channel, m, sum, product);
  if (!is_wanted(args, 0)) return true;
  return for_each_part(s, channel, points, [&](std::int64_t at, std::int64_t n) {
    loops.combine(x + at, dy + at, nullptr, of, args.out<float>() + at, n);
  });
}

constexpr Kernel kKernels[] = {
    {.name = "batch_norm_training",
     .op = "BatchNormalization",
     .rank = 11,
     .supports = train_supports,
     .plan = train_plan,
     .run = run<train_columns, train_planes>,
     .layouts = follow_first,
     .written_over = train_written_over},
    {.name = "batch_norm_gradient",
     .op = kBatchNormGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = plain_float32,
     .plan = gradient_plan,
     .run = run<gradient_columns, gradient_planes>,
     .layouts = follow_broadcast},
};

}  // namespace

extern const KernelFamily batch_norm_kernels;
const KernelFamily batch_norm_kernels = {kKernels};

}  // namespace evn
