// Comes before every other source: the vector type, its loads and stores, and the epilogue.
//   EVN_LOCAL  work items of a group, in the first dimension
//   EVN_LANES  lanes of the vectors of register-blocked kernels: 4, 8 or 16
// A buffer argument is a pointer and the index of its first element, in floats.

#define EVN_KERNEL kernel __attribute__((reqd_work_group_size(EVN_LOCAL, 1, 1)))
#define EVN_CAT2(a, b) a##b
#define EVN_CAT(a, b) EVN_CAT2(a, b)
#define VF EVN_CAT(float, EVN_LANES)
#define VI EVN_CAT(int, EVN_LANES)
#define LOADV(p) EVN_CAT(vload, EVN_LANES)(0, (p))
#define STOREV(v, p) EVN_CAT(vstore, EVN_LANES)((v), 0, (p))
#if EVN_LANES == 16
#define EVN_IOTA ((int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#elif EVN_LANES == 8
#define EVN_IOTA ((int8)(0, 1, 2, 3, 4, 5, 6, 7))
#else
#define EVN_IOTA ((int4)(0, 1, 2, 3))
#endif

// The struct of core/epilogue.h, laid out as there.
typedef struct {
  int kind;
  float a;
  float b;
} EpilogueOp;
typedef struct {
  int count;
  EpilogueOp ops[8];
} Epilogue;
enum { kRelu, kClip, kLeakyRelu, kHardSigmoid, kHardSwish, kSigmoid, kTanh, kScale, kOffset, kGeluStep, kGeluTanhStep, kSwish };

// Drivers may divide with an error of 2.5 units; what is left is added until the quotient is the nearest float.
#define EVN_DEFINE_QUOTIENT(T)                                                 \
  __attribute__((overloadable)) static inline T quotient(T x, T y) {           \
    T q = x / y;                                                               \
    const T whole = q;                                                         \
    const T r = (T)1.0f / y;                                                   \
    q = fma(fma(-q, y, x), r, q);                                              \
    q = fma(fma(-q, y, x), r, q);                                              \
    return q - q == (T)0.0f ? q : whole; /* infinities and NaN have no rest */ \
  }
EVN_DEFINE_QUOTIENT(float)
EVN_DEFINE_QUOTIENT(VF)

// Drivers compute these by unlike code for scalars and vectors: always that for vectors, so that an element has the same bits wherever
// it lies.
__attribute__((overloadable)) static inline VF exp_of(VF x) { return exp(x); }
__attribute__((overloadable)) static inline float exp_of(float x) { return exp((VF)x).s0; }
__attribute__((overloadable)) static inline VF tanh_of(VF x) { return tanh(x); }
__attribute__((overloadable)) static inline float tanh_of(float x) { return tanh((VF)x).s0; }

// Odd polynomial below 1, 1 - exp(P(|x|)) with P fitted to log(erfc) from there to 4, where erf is 1 in float.
__attribute__((overloadable)) static inline VF erf_of(VF x) {
  const VF z = x * x;
  VF p = (VF)7.882497109e-05f;
  p = fma(p, z, (VF)-8.018854993e-04f);
  p = fma(p, z, (VF)5.189311943e-03f);
  p = fma(p, z, (VF)-2.685432880e-02f);
  p = fma(p, z, (VF)1.128359746e-01f);
  p = fma(p, z, (VF)-3.761262690e-01f);
  p = fma(p, z, (VF)1.128379166e+00f);
  const VF a = fabs(x) > (VF)4.0f ? (VF)4.0f : fabs(x);
  VF q = (VF)1.615045072e-06f;
  q = fma(q, a, (VF)-4.561102204e-05f);
  q = fma(q, a, (VF)5.929505390e-04f);
  q = fma(q, a, (VF)-4.741117974e-03f);
  q = fma(q, a, (VF)2.636741545e-02f);
  q = fma(q, a, (VF)-1.099833025e-01f);
  q = fma(q, a, (VF)-6.319313442e-01f);
  q = fma(q, a, (VF)-1.130170294e+00f);
  q = fma(q, a, (VF)3.041767961e-04f);
  return a < (VF)1.0f ? x * p : copysign(1.0f - exp(q), x);
}
__attribute__((overloadable)) static inline float erf_of(float x) { return erf_of((VF)x).s0; }

// x / 2 (1 + tanh(u)) is x / (1 + exp(-2u)). A driver's tanh can end just above -1, and x times that rest grows with -x.
#define EVN_DEFINE_GELU_TANH(T)                                                                    \
  __attribute__((overloadable)) static inline T gelu_tanh_of(T x) {                                \
    return x / (1.0f + exp_of(-x * fma((T)0.0713548162726f * x, x, (T)1.59576912160573f)));        \
  }
EVN_DEFINE_GELU_TANH(float)
EVN_DEFINE_GELU_TANH(VF)

// A comparison with NaN is false, and NaN then stays. 0 * x is a zero of the vector's shape.
#define EVN_DEFINE_STEP(T)                                                                       \
  __attribute__((overloadable)) static inline T clamp_to(T x, float a, float b) {                \
    x = x < (T)a ? (T)a : x;                                                                     \
    return x > (T)b ? (T)b : x;                                                                  \
  }                                                                                              \
  __attribute__((overloadable)) static inline T apply_epilogue_op(T x, EpilogueOp s) {                        \
    switch (s.kind) {                                                                            \
      case kRelu: return x < (T)0.0f ? (T)0.0f : x;                                              \
      case kClip: return clamp_to(x, s.a, s.b);                                                  \
      case kLeakyRelu: return x < (T)0.0f ? s.a * x : x;                                         \
      case kHardSigmoid: return clamp_to(fma((T)s.a, x, (T)s.b), 0.0f, 1.0f);                    \
      case kHardSwish: return x * clamp_to(fma((T)s.a, x, (T)s.b), 0.0f, 1.0f);                  \
      case kSigmoid: return 1.0f / (1.0f + exp_of(-x));                                          \
      case kTanh: return tanh_of(x);                                                             \
      case kScale: return s.a * x;                                                               \
      case kGeluStep: return 0.5f * x * (1.0f + erf_of(x * 0.70710678118654752f));               \
      case kGeluTanhStep: return gelu_tanh_of(x);                                                \
      case kSwish: return x / (1.0f + exp_of(-s.a * x));                                     \
      default: return x + s.a;                                                                   \
    }                                                                                            \
  }                                                                                              \
  __attribute__((overloadable)) static inline T apply_epilogue(T x, const Epilogue* e) {         \
    for (int i = 0; i < e->count; ++i) x = apply_epilogue_op(x, e->ops[i]);                           \
    return x;                                                                                    \
  }

EVN_DEFINE_STEP(float)
EVN_DEFINE_STEP(VF)

// What most epilogues are: nothing, a Relu or a Clip, which vectors that are in registers yet can be kept within. No number is beyond the
// infinities, and NaN stays.
typedef struct {
  bool all;  // no more is to be done
  float low, high;
} Bounds;

static inline Bounds bounds_of(const Epilogue* e) {
  const int kind = e->ops[0].kind;
  const bool one = e->count == 1;
  Bounds bounds;
  bounds.all = e->count == 0 || (one && (kind == kRelu || kind == kClip));
  bounds.low = !one ? -INFINITY : kind == kRelu ? 0.0f : e->ops[0].a;
  bounds.high = !one || kind == kRelu ? INFINITY : e->ops[0].b;
  return bounds;
}

// The epilogue over a block of vectors: one look at the kind of a step serves all of them, and the code of each kind stands once.
static inline void apply_to_block(VF* v, int count, const Epilogue* e) {
  for (int s = 0; s < e->count; ++s) {
    EpilogueOp step = e->ops[s];
#define EVN_EACH(K)                                                    \
  case K:                                                              \
    step.kind = K;                                                     \
    _Pragma("unroll 1") for (int i = 0; i < count; ++i) v[i] = apply_epilogue_op(v[i], step); \
    break;
    switch (step.kind) {
      EVN_EACH(kRelu)
      EVN_EACH(kClip)
      EVN_EACH(kLeakyRelu)
      EVN_EACH(kHardSigmoid)
      EVN_EACH(kHardSwish)
      EVN_EACH(kSigmoid)
      EVN_EACH(kTanh)
      EVN_EACH(kScale)
      EVN_EACH(kOffset)
      EVN_EACH(kGeluStep)
      EVN_EACH(kGeluTanhStep)
      EVN_EACH(kSwish)
    }
#undef EVN_EACH
  }
}

// Lanes `begin` to `end` of those that the vector has.
static inline void store_lanes(VF v, global float* y, int begin, int end) {
  if (begin <= 0 && end >= EVN_LANES) {
    STOREV(v, y);
    return;
  }
  float lane[EVN_LANES];
  STOREV(v, lane);
  for (int i = max(begin, 0); i < min(end, EVN_LANES); ++i) y[i] = lane[i];
}

// Where element number `index` of these dims, in row-major order, lies.
static inline long offset_of(long index, int rank, const long* dim, const long* stride) {
  long at = 0;
  for (int i = rank - 1; i >= 0; --i) {
    at += index % dim[i] * stride[i];
    index /= dim[i];
  }
  return at;
}
