// Functions of one input that networks seldom have; elementwise.cl has the others.

enum { kAsin, kAcos, kAtan, kSinh, kCosh, kAsinh, kAcosh, kAtanh, kCelu, kSwishFunction, kThresholdedRelu, kShrink };

static inline VF seldom(VF x, EpilogueOp s) {
  switch (s.kind) {
    case kAsin: return asin(x);
    case kAcos: return acos(x);
    case kAtan: return atan(x);
    case kSinh: return sinh(x);
    case kCosh: return cosh(x);
    case kAsinh: return asinh(x);
    case kAcosh: return acosh(x);
    case kAtanh: return atanh(x);
    case kCelu: return x > (VF)0.0f ? x : s.a * expm1(x / s.a);
    case kSwishFunction: return x / (1.0f + exp(-s.a * x));
    case kThresholdedRelu: return x > (VF)s.a ? x : (VF)0.0f;
    default: return x < (VF)-s.b ? x + s.a : x > (VF)s.b ? x - s.a : (VF)0.0f;
  }
}

// One function over n contiguous floats, and the epilogue. A work item has `chunk` of them. y may be x. The last elements are computed as
// a vector too, so that an element has the same bits wherever it lies.
EVN_KERNEL void seldom_unary(global const float* x, ulong x0, global float* y, ulong y0, long n, long chunk, EpilogueOp step, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  x += x0;
  y += y0;
  long i = begin;
  for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(apply_epilogue(seldom(LOADV(x + i), step), &e), y + i);
  for (; i < end; ++i) y[i] = apply_epilogue(seldom((VF)x[i], step).s0, &e);
}
