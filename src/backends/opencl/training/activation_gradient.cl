// The derivatives of activations: dx of dy, element by element, at the activation's result (Relu, Sigmoid, Tanh) or input (the others).

enum { kReluSlope, kSigmoidSlope, kTanhSlope, kHardSwishSlope, kErfSlope, kGeluSlope, kGeluTanhSlope };

static inline VF times_slope(VF v, VF dy, int kind) {
  switch (kind) {
    case kReluSlope: return v > (VF)0.0f ? dy : (VF)0.0f;
    case kSigmoidSlope: return dy * fma(-v, v, v);
    case kTanhSlope: return dy * fma(-v, v, (VF)1.0f);
    case kHardSwishSlope: {
      const VF inside = dy * fma(v, (VF)(1.0f / 3.0f), (VF)0.5f);
      return v >= (VF)3.0f ? dy : v > (VF)-3.0f ? inside : (VF)0.0f;
    }
    case kErfSlope: return dy * 1.1283791670955126f * exp(-v * v);
    case kGeluSlope: {
      const VF density = exp(-0.5f * v * v) * 0.3989422804014327f;
      return dy * fma(v, density, 0.5f * (1.0f + erf_of(v * 0.70710678118654752f)));
    }
    default: {
      // (1 + tanh(u)) / 2 is sigmoid(2u), whose complement has no rounding of 1 far from 0.
      // Beyond 16 below * above is 0 already, and the other factors of `along` would overflow.
      v = clamp_to(v, -16.0f, 16.0f);
      const VF u = 1.5957691216057308f * (v + 0.044715f * v * v * v);
      const VF below = 1.0f / (1.0f + exp(-u)), above = 1.0f / (1.0f + exp(u));
      const VF along = v * below * above * 1.5957691216057308f * fma((VF)0.134145f * v, v, (VF)1.0f);
      return dy * (below + along);
    }
  }
}

// Grid: pieces of `chunk` elements, a multiple of EVN_LANES. dx may be either input.
EVN_KERNEL void activation_gradient(global const float* v, ulong v0, global const float* dy, ulong dy0, global float* dx, ulong dx0, long n,
                                    long chunk, int kind) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  v += v0;
  dy += dy0;
  dx += dx0;
  long i = begin;
  for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(times_slope(LOADV(v + i), LOADV(dy + i), kind), dx + i);
  for (; i < end; ++i) dx[i] = times_slope((VF)v[i], (VF)dy[i], kind).s0;
}
