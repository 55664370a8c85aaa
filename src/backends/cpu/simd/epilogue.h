// Epilogue chains for one cluster. Included by simd/*.cc only.
#pragma once

#include "backends/cpu/simd/cancel_points.h"
#include "backends/cpu/simd/epilogue_ops_loops.h"
#include "backends/cpu/simd/vec.h"
#include "core/epilogue.h"

namespace evn::EVN_ISA {

static inline Vec apply_epilogue_op(const EpilogueOp& s, Vec x) {
  switch (s.kind) {
    case EpilogueOpKind::kRelu: return max_of(zero(), x);
    case EpilogueOpKind::kClip: return min_of(splat(s.b), max_of(splat(s.a), x));
    case EpilogueOpKind::kLeakyRelu: return x < zero() ? splat(s.a) * x : x;
    case EpilogueOpKind::kHardSigmoid: return min_of(splat(1.0f), max_of(zero(), fma(splat(s.a), x, splat(s.b))));
    case EpilogueOpKind::kHardSwish: return x * min_of(splat(1.0f), max_of(zero(), fma(splat(s.a), x, splat(s.b))));
    case EpilogueOpKind::kSigmoid: return sigmoid_of(x);
    case EpilogueOpKind::kTanh: return tanh_of(x);
    case EpilogueOpKind::kScale: return splat(s.a) * x;
    case EpilogueOpKind::kOffset: return x + splat(s.a);
    case EpilogueOpKind::kGelu: return gelu_of(x);
    case EpilogueOpKind::kGeluTanh: return gelu_tanh_of(x);
    case EpilogueOpKind::kSwish: return swish_of(splat(s.a), x);
  }
  return x;
}

// HardSwish and then a * x + b, as mobile networks have it. Where it is all that is left of a chain, it is computed in registers
// too.
struct Gate {
  bool is_rest = false;
  float slope, shift;  // of HardSwish
  float a = 1, b = 0;
};

static inline Gate gate_of(const EpilogueOp* steps, int count) {
  Gate g;
  if (count == 0 || steps[0].kind != EpilogueOpKind::kHardSwish) return g;
  g.slope = steps[0].a;
  g.shift = steps[0].b;
  int used = 1;
  if (used < count && steps[used].kind == EpilogueOpKind::kScale) g.a = steps[used++].a;
  if (used < count && steps[used].kind == EpilogueOpKind::kOffset) g.b = steps[used++].a;
  g.is_rest = used == count;
  return g;
}

static inline Vec gated(const Gate& g, Vec x) {
  const Vec gate = min_of(splat(1.0f), max_of(zero(), fma(splat(g.slope), x, splat(g.shift))));
  return fma(x * gate, splat(g.a), splat(g.b));
}

// A chain split into what costs nothing in registers (one pair of bounds) and the rest. bounds() is the identity when there is
// none.
struct Chain {
  float low = -__builtin_inff();
  float high = __builtin_inff();
  const EpilogueOp* rest = nullptr;
  int rest_count = 0;
  Gate gate;  // what rest is, if it is one
};

static inline Chain split_chain(const Epilogue* e) {
  Chain c;
  if (e == nullptr || e->count == 0) return c;
  int used = 0;
  if (e->ops[0].kind == EpilogueOpKind::kRelu) {
    c.low = 0;
    used = 1;
  } else if (e->ops[0].kind == EpilogueOpKind::kClip) {
    c.low = e->ops[0].a;
    c.high = e->ops[0].b;
    used = 1;
  }
  c.rest = e->ops + used;
  c.rest_count = e->count - used;
  c.gate = gate_of(c.rest, c.rest_count);
  return c;
}

static inline Vec bounded(const Chain& c, Vec x) { return min_of(splat(c.high), max_of(splat(c.low), x)); }

#if defined(EVN_CLUSTER)
// An extension has the steps of its cluster.
}  // namespace evn::EVN_ISA
namespace evn::EVN_CLUSTER {
extern const simd_epilogue_ops::Loops loops_epilogue_ops;
}
namespace evn::EVN_ISA {
using EVN_CLUSTER::loops_epilogue_ops;
#else
extern const simd_epilogue_ops::Loops loops_epilogue_ops;
#endif

// The rest of the chain over rows of n floats that were just written, `ld` apart.
static inline void apply_rest(const Chain& c, float* p, std::int64_t rows, std::int64_t ld, std::int64_t n) {
  if (c.rest_count > 0) loops_epilogue_ops.apply(c.rest, c.rest_count, p, rows, ld, n);
}
static inline void apply_rest(const Chain& c, float* p, std::int64_t n) { apply_rest(c, p, 1, 0, n); }

// apply_rest in parts of kPart floats, with a cancellation point before each.
static inline void apply_rest(const Chain& c, float* p, std::int64_t rows, std::int64_t ld, std::int64_t n, CancelPoints* points) {
  constexpr std::int64_t kPart = 1 << 14;  // floats
  if (c.rest_count == 0 || n == 0) return;
  const std::int64_t at_once = n < kPart ? kPart / n : 1;
  for (std::int64_t row = 0; row < rows; row += at_once) {
    const std::int64_t some = rows - row < at_once ? rows - row : at_once;
    for (std::int64_t i = 0; i < n; i += kPart) {
      const std::int64_t count = n - i < kPart ? n - i : kPart;
      if (stops(points, some * count * kFunction)) return;
      apply_rest(c, p + row * ld + i, some, ld, count);
    }
  }
}

}  // namespace evn::EVN_ISA
