// Sums of many terms. Chains of EVN_CHAIN terms are added up plainly. What rounding takes when a chain is added to the sum is the first term
// of the next chain, so that the error does not grow with the number of terms. A sum of no more than one chain is a plain one.

#define EVN_CHAIN 64

#define EVN_DEFINE_SUM(NAME, T)                                                                            \
  typedef struct {                                                                                         \
    T part, sum; /* the chain, and all before it */                                                        \
    int left; /* terms that the chain may yet have */                                                      \
  } NAME;                                                                                                  \
  __attribute__((overloadable, always_inline)) static inline void start(NAME* s) {                         \
    s->part = s->sum = (T)0.0f;                                                                            \
    s->left = EVN_CHAIN;                                                                                   \
  }                                                                                                        \
  /* Adds the chain to the sum. Infinities and NaN have no rest. */                                        \
  __attribute__((overloadable, always_inline)) static inline void end_chain(NAME* s) {                     \
    const T next = s->sum + s->part, taken = next - s->sum;                                                \
    const T lost = (s->sum - (next - taken)) + (s->part - taken);                                          \
    s->part = fabs(lost) < (T)INFINITY ? lost : (T)0.0f;                                                   \
    s->sum = next;                                                                                         \
    s->left = EVN_CHAIN;                                                                                   \
  }                                                                                                        \
  __attribute__((overloadable, always_inline)) static inline void add(NAME* s, T x) {                      \
    s->part += x;                                                                                          \
    if (--s->left == 0) end_chain(s);                                                                      \
  }                                                                                                        \
  __attribute__((overloadable, always_inline)) static inline void add_product(NAME* s, T x, T y) {         \
    s->part = fma(x, y, s->part);                                                                          \
    if (--s->left == 0) end_chain(s);                                                                      \
  }                                                                                                        \
  __attribute__((overloadable, always_inline)) static inline T total(NAME* s) {                            \
    end_chain(s);                                                                                          \
    return s->sum + s->part;                                                                               \
  }
EVN_DEFINE_SUM(Sum, float)
EVN_DEFINE_SUM(Sums, VF)

// The lanes in their order.
static inline float sum_of_lanes(VF v) {
  float lane[EVN_LANES];
  STOREV(v, lane);
  float sum = lane[0];
  for (int i = 1; i < EVN_LANES; ++i) sum += lane[i];
  return sum;
}
