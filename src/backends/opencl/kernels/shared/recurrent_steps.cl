// Activations of LSTM, GRU and RNN, and which step of a sequence a direction meets when. The struct of ops/recurrent.h, laid out as there.

enum { kSigmoidFn, kTanhFn, kReluFn, kAffineFn, kLeakyReluFn, kThresholdedReluFn, kScaledTanhFn, kHardSigmoidFn, kEluFn, kSoftsignFn,
       kSoftplusFn };

typedef struct {
  int kind;
  float a, b;
} Activation;

static inline VF activation_of(VF x, Activation f) {
  switch (f.kind) {
    case kSigmoidFn: return 1.0f / (1.0f + exp_of(-x));
    case kTanhFn: return tanh_of(x);
    case kReluFn: return x < (VF)0.0f ? (VF)0.0f : x;
    case kAffineFn: return f.a * x + f.b;
    case kLeakyReluFn: return x < (VF)0.0f ? f.a * x : x;
    case kThresholdedReluFn: return x > (VF)f.a ? x : (VF)0.0f;
    case kScaledTanhFn: return f.a * tanh_of(f.b * x);
    case kHardSigmoidFn: return clamp_to(f.a * x + f.b, 0.0f, 1.0f);
    case kEluFn: return x < (VF)0.0f ? f.a * expm1(x) : x;
    case kSoftsignFn: return x / (1.0f + fabs(x));
    default: return (x > (VF)0.0f ? x : (VF)0.0f) + log1p(exp_of(-fabs(x)));
  }
}

static inline long length_of(int has_lengths, global const int* lengths, long n, long steps) {
  return has_lengths ? clamp((long)lengths[n], 0L, steps) : steps;
}

// The step of the sequence that a direction meets at its step s; beyond the sequence's end, s itself.
static inline long place(bool backwards, long s, long length) { return s < length && backwards ? length - 1 - s : s; }
