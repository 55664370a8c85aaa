// SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss and their derivatives, float32. A tile is some pieces of places, whose classes
// are lines, or columns where there are axes behind the classes.
#include <cmath>

#include "backends/cpu/support.h"
#include "backends/cpu/training/loss_loops.h"
#include "base/error.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {
namespace {

enum : int { kReduction, kIgnore };             // attributes
constexpr std::int64_t kMostPlaces = 64;        // of a piece
constexpr std::int64_t kClassesAtOnce = 1024;   // of columns
constexpr std::int64_t kLongestLine = 1 << 15;  // classes of a line that are processed at once

struct LossState {
  Isa isa;
  std::int64_t classes, inner, places;
  std::int64_t pieces, per_tile;  // pieces of all samples
  std::int64_t ignored;
  bool none, mean;  // reductions
  int weights;      // input; -1: none
};

// Places of one sample, or of several where each is one place.
struct Piece {
  std::int64_t first, count;  // places
  std::int64_t at;            // of x
};

Piece piece_of(const LossState& s, std::int64_t index) {
  if (s.inner == 1) {
    const std::int64_t first = index * kMostPlaces;
    return {first, std::min(kMostPlaces, s.places - first), first * s.classes};
  }
  const std::int64_t per_sample = ceil_div(s.inner, kMostPlaces);
  const std::int64_t sample = index / per_sample, within = index % per_sample * kMostPlaces;
  return {sample * s.inner + within, std::min(kMostPlaces, s.inner - within), sample * s.classes * s.inner + within};
}

// `weights`: the input that they are.
Refusal supports_of(const OpDesc& d, std::size_t weights) {
  if (epilogue_of(d) != nullptr) return kNoEpilogue;
  if (d.inputs[0].dtype != DType::kFloat32) return kNeedsFloat32;
  if (d.has_input(static_cast<int>(weights)) && d.inputs[weights].dtype != DType::kFloat32) return kNeedsFloat32;
  return nullptr;
}
Refusal loss_supports(const OpDesc& d) { return supports_of(d, 2); }
Refusal gradient_supports(const OpDesc& d) { return supports_of(d, 3); }

// `work`: of an element of x.
void plan_places(const OpDesc& d, int weights, double work, KernelPlan* p) {
  auto& s = p->state<LossState>();
  const Shape& x = d.inputs[0].shape;
  const std::string& reduction = attr_string(*d.node, kReduction);
  s.isa = cpu_isa();
  s.classes = x[1];
  s.inner = x.elements(2, x.rank());
  s.places = checked_mul(x[0], s.inner);
  s.pieces = s.inner == 1 ? ceil_div(s.places, kMostPlaces) : checked_mul(x[0], ceil_div(s.inner, kMostPlaces));
  s.per_tile = units_per_tile(s.pieces, static_cast<double>(s.classes) * kMostPlaces, kElementsPerTile / 2);
  s.ignored = attr_int(*d.node, kIgnore);
  s.none = reduction == "none";
  s.mean = reduction == "mean";
  s.weights = d.has_input(weights) ? weights : -1;
  p->tiles = ceil_div(s.pieces, s.per_tile);
  p->flops = work * static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

std::int64_t target_at(const KernelArgs& args, std::int64_t place) {
  return args.desc->inputs[1].dtype == DType::kInt64 ? args.in<std::int64_t>(1)[place] : args.in<std::int32_t>(1)[place];
}

// The target of a place, -1 where it is ignored, and its weight.
struct Target {
  std::int64_t of;
  float weight;
};
Target target_of(const KernelArgs& args, const LossState& s, std::int64_t place) {
  const std::int64_t target = target_at(args, place);
  if (target == s.ignored) return {-1, 0};
  if (target < 0 || target >= s.classes)
    fail(EVN_ERROR_INVALID_ARGUMENT, "target %lld is no class", static_cast<long long>(target));
  return {target, s.weights < 0 ? 1 : args.in<float>(s.weights)[target]};
}

// What Softmax needs of each place of a piece.
struct Sums {
  float top[kMostPlaces], sum[kMostPlaces];
};

// Adds what further classes have to the sums of some places.
void join(float* top, float* sum, const float* other_top, const float* other_sum, std::int64_t count) {
  const auto scale = [](float from, float to) { return from == to ? 1.0f : std::exp(from - to); };
  for (std::int64_t i = 0; i < count; ++i) {
    const float most = std::max(top[i], other_top[i]);
    sum[i] = sum[i] * scale(top[i], most) + other_sum[i] * scale(other_top[i], most);
    top[i] = most;
  }
}

// Returns false if the run is to stop.
bool sum_piece(const KernelArgs& args, const LossState& s, const Piece& piece, Sums* sums, CancelPoints* points) {
  const simd_loss::Loops& loops = simd_loss::loops(s.isa);
  const float* const x = args.in<float>(0) + piece.at;
  float top[kMostPlaces], sum[kMostPlaces];
  if (s.inner > 1) {
    return in_parts(points, s.classes, kClassesAtOnce, 2 * kFunction * piece.count, [&](std::int64_t c, std::int64_t end) {
      const bool is_first = c == 0;
      loops.column_sums(x + c * s.inner, end - c, s.inner, piece.count, is_first ? sums->top : top, is_first ? sums->sum : sum);
      if (!is_first) join(sums->top, sums->sum, top, sum, piece.count);
    });
  }
  for (std::int64_t i = 0; i < piece.count; ++i) {
    const float* const line = x + i * s.classes;
    const bool goes_on = in_parts(points, s.classes, kLongestLine, 2 * kFunction, [&](std::int64_t c, std::int64_t end) {
      const bool is_first = c == 0;
      loops.line_sum(line + c, end - c, is_first ? sums->top + i : top, is_first ? sums->sum + i : sum);
      if (!is_first) join(sums->top + i, sums->sum + i, top, sum, 1);
    });
    if (!goes_on) return false;
  }
  return true;
}

// Where class `target` of place i of a piece lies, from its begin.
std::int64_t offset_of(const LossState& s, std::int64_t i, std::int64_t target) {
  return s.inner == 1 ? i * s.classes + target : target * s.inner + i;
}

// ----------------------------------------------------------------------------------------------------------- losses --

// What each tile leaves in the scratch memory, behind the number of those that are done.
struct Partial {
  double sum, weights;
};
constexpr std::int64_t kHeader = sizeof(Partial);
Partial* partials_of(const KernelArgs& args) { return static_cast<Partial*>(args.scratch.address()) + 1; }

template <bool Softmax>
void loss_plan(const OpDesc& d, KernelPlan* p) {
  plan_places(d, 2, Softmax ? 16 : 1, p);
  p->scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(p->tiles + 1, kHeader));
  p->cleared_bytes = kDoneBytes;
}

float* output_of(const KernelArgs& args, std::size_t i) {
  const bool is_wanted = i < args.desc->outputs.size() && args.desc->outputs[i].dtype != DType::kUndefined;
  return is_wanted ? args.out<float>(static_cast<int>(i)) : nullptr;
}

// Calls of_columns(first element, classes) or of_line(place, first element, classes) for the parts of a piece. Returns false if the
// run is to stop.
template <typename Columns, typename Line>
bool for_each_class_part(const LossState& s, const Piece& piece, CancelPoints* points, Columns of_columns, Line of_line) {
  if (s.inner > 1) {
    return in_parts(points, s.classes, kClassesAtOnce, kFunction * piece.count,
                    [&](std::int64_t c, std::int64_t end) { of_columns(piece.at + c * s.inner, end - c); });
  }
  for (std::int64_t i = 0; i < piece.count; ++i) {
    const std::int64_t line = piece.at + i * s.classes;
    const bool goes_on = in_parts(points, s.classes, kLongestLine, kFunction,
                                  [&](std::int64_t c, std::int64_t end) { of_line(i, line + c, end - c); });
    if (!goes_on) return false;
  }
  return true;
}

// Writes the logarithms of Softmax where they are wanted.
bool put_logs(const KernelArgs& args, const LossState& s, const Piece& piece, const Sums& sums, CancelPoints* points) {
  float* const to = output_of(args, 1);
  if (to == nullptr) return true;
  const simd_loss::Loops& loops = simd_loss::loops(s.isa);
  const float* const x = args.in<float>(0);
  float logs[kMostPlaces];
  for (std::int64_t i = 0; i < piece.count; ++i) logs[i] = std::log(sums.sum[i]);
  return for_each_class_part(
      s, piece, points,
      [&](std::int64_t at, std::int64_t n) { loops.column_logs(x + at, sums.top, logs, to + at, n, s.inner, piece.count); },
      [&](std::int64_t i, std::int64_t at, std::int64_t n) { loops.line_logs(x + at, sums.top[i], logs[i], to + at, n); });
}

template <bool Softmax>
bool add_piece(const KernelArgs& args, const LossState& s, const Piece& piece, Partial* partial, CancelPoints* points) {
  Sums sums;
  if (Softmax && !sum_piece(args, s, piece, &sums, points)) return false;
  if (Softmax && !put_logs(args, s, piece, sums, points)) return false;
  const float* const x = args.in<float>(0) + piece.at;
  float* const loss = output_of(args, 0);
  if (stops(points, kFarElement * piece.count)) return false;
  for (std::int64_t i = 0; i < piece.count; ++i) {
    const Target target = target_of(args, s, piece.first + i);
    double value = 0;
    if (target.of >= 0) {
      const auto of_target = static_cast<double>(x[offset_of(s, i, target.of)]);
      const double shift = Softmax ? static_cast<double>(sums.top[i]) : 0;
      value = static_cast<double>(target.weight) * (shift - of_target + (Softmax ? std::log(static_cast<double>(sums.sum[i])) : 0));
    }
    partial->sum += value;
    partial->weights += static_cast<double>(target.weight);
    if (s.none && loss != nullptr) loss[piece.first + i] = static_cast<float>(value);
  }
  return true;
}

void finish_loss(const KernelArgs& args, const LossState& s) {
  Partial all = {};
  for (std::int64_t i = 0; i < args.plan->tiles; ++i) {
    all.sum += partials_of(args)[i].sum;
    all.weights += partials_of(args)[i].weights;
  }
  float* const loss = output_of(args, 0);
  if (loss != nullptr) *loss = static_cast<float>(s.mean ? all.sum / all.weights : all.sum);
}

template <bool Softmax>
void loss_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<LossState>();
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end; ++index) {
    if (cancel.stop()) return;
    Partial partial = {};
    const std::int64_t last = std::min((index + 1) * s.per_tile, s.pieces);
    for (std::int64_t piece = index * s.per_tile; piece < last; ++piece) {
      if (!add_piece<Softmax>(args, s, piece_of(s, piece), &partial, &points)) return;
    }
    partials_of(args)[index] = partial;
  }
  if (s.none) return;
  if (are_all_done(args, end - begin)) finish_loss(args, s);
}

// ------------------------------------------------------------------------------------------------------ derivatives --

constexpr int kDy = 2;

template <bool Softmax>
void gradient_plan(const OpDesc& d, KernelPlan* p) {
  plan_places(d, 3, Softmax ? 16 : 1, p);
}

// What dy is multiplied by where the loss is a mean. Each thread adds all weights up, in the same order. Returns false if the run
// is to stop.
bool mean_scale(const KernelArgs& args, const LossState& s, float* scale, CancelPoints* points) {
  *scale = 1;
  if (!s.mean) return true;
  double total = 0;
  const bool goes_on = by_parts(points, s.places, 64, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) total += static_cast<double>(target_of(args, s, i).weight);
  });
  *scale = static_cast<float>(1 / total);
  return goes_on;
}

bool put_softmax(const KernelArgs& args, const LossState& s, const Piece& piece, const Sums& sums, const float* factors,
                 CancelPoints* points) {
  const simd_loss::Loops& loops = simd_loss::loops(s.isa);
  const float* const x = args.in<float>(0);
  float* const dx = args.out<float>();
  return for_each_class_part(
      s, piece, points,
      [&](std::int64_t at, std::int64_t n) { loops.column_softmax(x + at, sums.top, factors, dx + at, n, s.inner, piece.count); },
      [&](std::int64_t i, std::int64_t at, std::int64_t n) { loops.line_softmax(x + at, sums.top[i], factors[i], dx + at, n); });
}

bool put_zeros(const KernelArgs& args, const LossState& s, const Piece& piece, CancelPoints* points) {
  float* const dx = args.out<float>() + piece.at;
  if (s.inner == 1) return fill_by_parts(points, dx, piece.count * s.classes, 0.0f);
  return in_parts(points, s.classes, 256, piece.count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) std::fill_n(dx + c * s.inner, piece.count, 0.0f);
  });
}

template <bool Softmax>
bool put_gradient(const KernelArgs& args, const LossState& s, const Piece& piece, float scale, CancelPoints* points) {
  Sums sums;
  if (Softmax && !sum_piece(args, s, piece, &sums, points)) return false;
  if (stops(points, kFarElement * piece.count)) return false;
  float dy[kMostPlaces], factors[kMostPlaces];
  std::int64_t targets[kMostPlaces];
  for (std::int64_t i = 0; i < piece.count; ++i) {
    const Target target = target_of(args, s, piece.first + i);
    targets[i] = target.of;
    dy[i] = target.of < 0 ? 0 : target.weight * scale * args.in<float>(kDy)[s.none ? piece.first + i : 0];
    if (Softmax) factors[i] = dy[i] / sums.sum[i];
  }
  if (!(Softmax ? put_softmax(args, s, piece, sums, factors, points) : put_zeros(args, s, piece, points))) return false;
  float* const dx = args.out<float>() + piece.at;
  for (std::int64_t i = 0; i < piece.count; ++i) {
    if (targets[i] >= 0) dx[offset_of(s, i, targets[i])] -= dy[i];
  }
  return true;
}

template <bool Softmax>
void gradient_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<LossState>();
  CancelPoints points = points_of(cancel);
  float scale;
  if (!mean_scale(args, s, &scale, &points)) return;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = std::min((index + 1) * s.per_tile, s.pieces);
    for (std::int64_t piece = index * s.per_tile; piece < last; ++piece) {
      if (!put_gradient<Softmax>(args, s, piece_of(s, piece), scale, &points)) return;
    }
  }
}

constexpr Kernel kKernels[] = {
    {.name = "cross_entropy_loss",
     .op = "SoftmaxCrossEntropyLoss",
     .rank = 10,
     .supports = loss_supports,
     .plan = loss_plan<true>,
     .run = loss_run<true>},
    {.name = "likelihood_loss",
     .op = "NegativeLogLikelihoodLoss",
     .rank = 10,
     .supports = loss_supports,
     .plan = loss_plan<false>,
     .run = loss_run<false>},
    {.name = "cross_entropy_gradient",
     .op = kCrossEntropyGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = gradient_supports,
     .plan = gradient_plan<true>,
     .run = gradient_run<true>},
    {.name = "loss_gradient",
     .op = kLossGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = gradient_supports,
     .plan = gradient_plan<false>,
     .run = gradient_run<false>},
};

}  // namespace

extern const KernelFamily loss_kernels;
const KernelFamily loss_kernels = {kKernels};

}  // namespace evn
