// The derivatives of LSTM, GRU and RNN (ops/training/recurrent_gradient.h). Steps count from where the direction begins: `place` says which row
// of x that is; the launches go back through them. The derivative by the state behind a step is the product of what the step after it
// gave, rows of d, with R, and what the state keeps. R is packed as [row][padded], so that vectors run along hidden units. On GPUs a work
// group shares the depth of its products by slices, whose sums are added up in their order.

#include "lanes.cl"
#include "recurrent_steps.cl"
#include "sums.cl"

typedef struct {
  int gates, directions, index;
  int backwards, batch_first, own;
  int has_lengths, has_dy, has_dh, has_dc, has_c, has_peepholes;
  float clip;  // bound of the activations' inputs, or infinity
  Activation f[3];
  long steps, batch, hidden, padded;
} Back;

// Slope at x, where the activation is y. At a corner it is that of the left side; HardSigmoid has 0 at both of its corners.
static inline VF slope_of(VF x, VF y, Activation f) {
  const VF none = (VF)0.0f, one = (VF)1.0f, a = (VF)f.a;
  switch (f.kind) {
    case kSigmoidFn: return y - y * y;
    case kTanhFn: return 1.0f - y * y;
    case kReluFn: return x > none ? one : none;
    case kAffineFn: return a;
    case kLeakyReluFn: return x > none ? one : a;
    case kThresholdedReluFn: return x > a ? one : none;
    case kScaledTanhFn: {
      const VF t = tanh_of(f.b * x);
      return f.a * f.b * (1.0f - t * t);
    }
    case kHardSigmoidFn: {
      const VF inside = f.a * x + f.b;
      const VF above = inside > none ? a : none;
      return inside < one ? above : none;
    }
    case kEluFn: return x > none ? one : f.a * exp_of(x);
    case kSoftsignFn: return 1.0f / ((1.0f + fabs(x)) * (1.0f + fabs(x)));
    default: return 1.0f / (1.0f + exp_of(-x));
  }
}

static inline VF gate_of(const Back* p, int function, VF x) { return activation_of(clamp_to(x, -p->clip, p->clip), p->f[function]); }

// A gate, and its slope, which is 0 beyond the clip.
typedef struct {
  VF y, slope;
} Gate;

static inline Gate gate_at(const Back* p, int function, VF x) {
  const VF bounded = clamp_to(x, -p->clip, p->clip);
  Gate g;
  g.y = activation_of(bounded, p->f[function]);
  const VF slope = slope_of(bounded, g.y, p->f[function]);
  g.slope = fabs(x) > (VF)p->clip ? (VF)0.0f : slope;
  return g;
}

// Where step t of sequence n stands among the rows, and in y; where the sequence's state does.
static inline long row_of(const Back* p, long t, long n) { return p->batch_first ? n * p->steps + t : t * p->batch + n; }
static inline long y_at(const Back* p, long t, long n) {
  const long d = p->index;
  return (p->batch_first ? (n * p->steps + t) * p->directions + d : (t * p->directions + d) * p->batch + n) * p->hidden;
}
static inline long state_at(const Back* p, long n) {
  const long d = p->index;
  return (p->batch_first ? n * p->directions + d : d * p->batch + n) * p->hidden;
}

// The state before each step, 0 behind the end of a sequence. Grid: vectors of units, steps, sequences.
EVN_KERNEL void states_before(global const float* y, ulong y0, global const int* lengths, ulong lengths0, global const float* initial,
                              ulong initial0, global float* to, ulong to0, Back p) {
  const long j = (long)get_global_id(0) * EVN_LANES, left = p.hidden - j;
  if (left <= 0) return;
  const long t = get_global_id(1), n = get_global_id(2), length = length_of(p.has_lengths, lengths + lengths0, n, p.steps);
  const long earlier = p.backwards ? t + 1 : t - 1;
  VF v = (VF)0.0f;
  if (t < length && earlier >= 0 && earlier < length) v = load_some(y + y0 + y_at(&p, earlier, n) + j, left);
  else if (t < length && p.has_dh) v = load_some(initial + initial0 + state_at(&p, n) + j, left);
  store_some(v, to + to0 + row_of(&p, t, n) * p.hidden + j, left);
}

// Rows of a part of R, or its columns. Grid: vectors of a row, rows.
EVN_KERNEL void pack_rows(global const float* r, ulong r0, global float* y, ulong y0, long hidden, long padded, int across) {
  const long j = (long)get_global_id(0) * EVN_LANES, k = get_global_id(1);
  if (j >= padded) return;
  float lane[EVN_LANES];
  for (int i = 0; i < EVN_LANES; ++i) {
    lane[i] = j + i < hidden ? r[r0 + (across ? (j + i) * hidden + k : k * hidden + j + i)] : 0.0f;
  }
  STOREV(LOADV(lane), y + y0 + k * padded + j);
}

// A step's work items have EVN_LANES units of EVN_SEQUENCES sequences, from `first` on. On GPUs each group has EVN_VECTORS such vectors and
// EVN_SLICES items for each. EVN_PRODUCTS adds the products of the first `depth` elements of rows with rows of R to sums. Behind it only
// the items of slice 0 go on.
#if EVN_LOCAL == 1
#define EVN_SEQUENCES 4
#define EVN_FIRST_UNIT ((long)get_global_id(0) * EVN_LANES)
#define EVN_LEAVE_BEYOND \
  if (EVN_FIRST_UNIT >= p.padded) return;
#define EVN_PRODUCTS(sums, rows, r, depth)                                             \
  for (long k = 0; k < (depth); ++k) {                                                 \
    const VF v = LOADV((r) + k * p.padded);                                            \
    _Pragma("unroll") for (int i = 0; i < EVN_SEQUENCES; ++i) {                        \
      (sums)[i] = fma((VF)rows[i][k], v, (sums)[i]);                                 \
    }                                                                                  \
  }
#else
#define EVN_SEQUENCES 1
#define EVN_SLICES 16
#define EVN_VECTORS (EVN_LOCAL / EVN_SLICES)
#define EVN_FIRST_UNIT (((long)get_group_id(0) * EVN_VECTORS + get_local_id(0) % EVN_VECTORS) * EVN_LANES)
#define EVN_LEAVE_BEYOND  // `padded` is a multiple of the units of a group
#define EVN_PRODUCTS(sums, rows, r, depth)                                                                         \
  local VF parts[EVN_LOCAL];                                                                                       \
  {                                                                                                                \
    const int item = get_local_id(0);                                                                              \
    VF mine = (VF)0.0f;                                                                                            \
    _Pragma("unroll 4") for (long k = item / EVN_VECTORS; k < (depth); k += EVN_SLICES) {                          \
      mine = fma((VF)rows[0][k], LOADV((r) + k * p.padded), mine);                                               \
    }                                                                                                              \
    parts[item] = mine;                                                                                            \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    if (item >= EVN_VECTORS) return;                                                                               \
    _Pragma("unroll") for (int i = 0; i < EVN_SLICES; ++i) (sums)[0] += parts[i * EVN_VECTORS + item];             \
  }
#endif

// The products that step s waits for: of the rows of d, `width` wide, that the step after it gave.
#define EVN_BACK_UNITS                                                                                                            \
  EVN_LEAVE_BEYOND                                                                                                                \
  const long j = EVN_FIRST_UNIT, left = p.hidden - j, first = (long)get_global_id(1) * EVN_SEQUENCES;                             \
  lengths += lengths0;                                                                                                            \
  VF sum[EVN_SEQUENCES];                                                                                                          \
  global const float* from[EVN_SEQUENCES];                                                                                        \
  for (int i = 0; i < EVN_SEQUENCES; ++i) {                                                                                       \
    const long n = min(first + i, p.batch - 1), t = max(min(s + 1, p.steps - 1), 0L);                                             \
    from[i] = d + d0 + row_of(&p, place(p.backwards, t, length_of(p.has_lengths, lengths, n, p.steps)), n) * width;                   \
    sum[i] = (VF)0.0f;                                                                                                            \
  }                                                                                                                               \
  const long behind = s + 1 < p.steps ? depth : 0;                                                                                \
  EVN_PRODUCTS(sum, from, r + r0 + j, behind)
#define EVN_EACH_SEQUENCE for (int i = 0; i < EVN_SEQUENCES && first + i < p.batch; ++i)

// The derivative by the state behind step s, but for dy: what the steps after it give, or what was given for the last state.
static inline VF behind_step(const Back* p, VF found, long s, long length, global const float* dh, long n, long j) {
  if (s + 1 < length) return found;
  return p->has_dh ? load_some(dh + state_at(p, n) + j, p->hidden - j) : (VF)0.0f;
}

static inline VF with_dy(const Back* p, VF dh, global const float* dy, long t, long n, long j) {
  return p->has_dy ? dh + load_some(dy + y_at(p, t, n) + j, p->hidden - j) : dh;
}

static inline void clear_gates(const Back* p, int gates, global float* to, long j) {
  for (int g = 0; g < gates; ++g) store_some((VF)0.0f, to + g * p->hidden + j, p->hidden - j);
}

#define EVN_BACK_ARGUMENTS                                                                                                              \
  global const float *sums, ulong sums0, global const float *r, ulong r0, global const int *lengths, ulong lengths0,                    \
      global const float *dy, ulong dy0, global const float *dh, ulong dh0, global float *d, ulong d0

// ---- RNN ----

// One step. Grid, of this and the others of a step: vectors of units, groups of sequences.
EVN_KERNEL void rnn_back(EVN_BACK_ARGUMENTS, Back p, long s) {
  const long width = p.hidden, depth = p.hidden;
  EVN_BACK_UNITS
  EVN_EACH_SEQUENCE {
    const long n = first + i, length = length_of(p.has_lengths, lengths, n, p.steps);
    const long t = place(p.backwards, s, length), at = row_of(&p, t, n) * width + j;
    VF by = (VF)0.0f;
    if (s < length) {
      by = with_dy(&p, behind_step(&p, sum[i], s, length, dh + dh0, n, j), dy + dy0, t, n, j);
      by *= gate_at(&p, 0, load_some(sums + sums0 + at, left)).slope;
    }
    store_some(by, d + d0 + at, left);
  }
}

// ---- LSTM ----

enum { kI, kO, kF, kC };

// What goes into i, o or f, of which the cells c are seen.
static inline VF lstm_sum(const Back* p, global const float* sums, int gate, global const float* peepholes, VF c, long j) {
  const VF sum = load_some(sums + gate * p->hidden + j, p->hidden - j);
  if (!p->has_peepholes) return sum;
  return fma(load_some(peepholes + ((long)p->index * 3 + gate) * p->hidden + j, p->hidden - j), c, sum);
}

// The cells before the first step and behind each, [sequence][step][padded], and the derivative by the last of them. Grid: vectors of
// units, sequences.
EVN_KERNEL void lstm_cells(global const float* sums, ulong sums0, global const int* lengths, ulong lengths0, global const float* initial,
                           ulong initial0, global const float* peepholes, ulong peepholes0, global const float* dc, ulong dc0,
                           global float* cells, ulong cells0, global float* to, ulong to0, Back p) {
  const long j = (long)get_global_id(0) * EVN_LANES, n = get_global_id(1), left = p.hidden - j;
  if (j >= p.padded) return;
  STOREV(p.has_dc ? load_some(dc + dc0 + state_at(&p, n) + j, left) : (VF)0.0f, to + to0 + n * p.padded + j);
  VF c = p.has_c ? load_some(initial + initial0 + state_at(&p, n) + j, left) : (VF)0.0f;
  global float* cell = cells + cells0 + n * (p.steps + 1) * p.padded + j;
  STOREV(c, cell);
  const long length = length_of(p.has_lengths, lengths + lengths0, n, p.steps);
  for (long s = 0; s < length; ++s) {
    global const float* from = sums + sums0 + row_of(&p, place(p.backwards, s, length), n) * 4 * p.hidden;
    const VF in = gate_of(&p, 0, lstm_sum(&p, from, kI, peepholes + peepholes0, c, j));
    const VF forget = p.own ? 1.0f - in : gate_of(&p, 0, lstm_sum(&p, from, kF, peepholes + peepholes0, c, j));
    c = fma(forget, c, in * gate_of(&p, 1, load_some(from + kC * p.hidden + j, left)));
    STOREV(c, cell + (s + 1) * p.padded);
  }
}

EVN_KERNEL void lstm_back(EVN_BACK_ARGUMENTS, global const float* cells, ulong cells0, global const float* peepholes, ulong peepholes0,
                          global float* dc, ulong dc0, Back p, long s) {
  const long width = 4 * p.hidden, depth = width;
  EVN_BACK_UNITS
  peepholes += peepholes0;
  EVN_EACH_SEQUENCE {
    const long n = first + i, length = length_of(p.has_lengths, lengths, n, p.steps);
    const long t = place(p.backwards, s, length), row = row_of(&p, t, n) * width;
    global float* to = d + d0 + row;
    if (s >= length) {
      clear_gates(&p, 4, to, j);
      continue;
    }
    const VF by = with_dy(&p, behind_step(&p, sum[i], s, length, dh + dh0, n, j), dy + dy0, t, n, j);
    global const float* in = sums + sums0 + row;
    global const float* cell = cells + cells0 + (n * (p.steps + 1) + s) * p.padded + j;
    global float* state = dc + dc0 + n * p.padded + j;
    const VF before = LOADV(cell), now = LOADV(cell + p.padded);
    const Gate gi = gate_at(&p, 0, lstm_sum(&p, in, kI, peepholes, before, j));
    const Gate go = gate_at(&p, 0, lstm_sum(&p, in, kO, peepholes, now, j));
    const Gate gc = gate_at(&p, 1, load_some(in + kC * p.hidden + j, left));
    Gate gf = {1.0f - gi.y, (VF)0.0f};
    if (!p.own) gf = gate_at(&p, 0, lstm_sum(&p, in, kF, peepholes, before, j));
    VF weight[3];
    for (int g = 0; g < 3; ++g) {
      weight[g] = p.has_peepholes ? load_some(peepholes + ((long)p.index * 3 + g) * p.hidden + j, left) : (VF)0.0f;
    }
    const VF h = activation_of(now, p.f[2]);
    const VF by_o = by * h * go.slope;
    const VF by_cell = fma(by_o, weight[kO], fma(by * go.y, slope_of(now, h, p.f[2]), LOADV(state)));
    const VF by_i = by_cell * (p.own ? gc.y - before : gc.y) * gi.slope;
    const VF by_f = by_cell * before * gf.slope;
    STOREV(fma(by_f, weight[kF], fma(by_i, weight[kI], by_cell * gf.y)), state);
    store_some(by_i, to + kI * p.hidden + j, left);
    store_some(by_o, to + kO * p.hidden + j, left);
    store_some(by_f, to + kF * p.hidden + j, left);
    store_some(by_cell * gi.y * gc.slope, to + kC * p.hidden + j, left);
  }
}

// What P gets: sums over the steps of a sequence, and those over the sequences. Grid: vectors of units, gates.
EVN_KERNEL void lstm_peepholes(global const float* d, ulong d0, global const int* lengths, ulong lengths0, global const float* cells,
                               ulong cells0, global float* to, ulong to0, Back p) {
  const long j = (long)get_global_id(0) * EVN_LANES, gate = get_global_id(1), left = p.hidden - j;
  if (left <= 0) return;
  Sums sum;
  start(&sum);
  for (long n = 0; n < p.batch; ++n) {
    const long length = length_of(p.has_lengths, lengths + lengths0, n, p.steps);
    for (long s = 0; s < length; ++s) {
      const VF by = load_some(d + d0 + (row_of(&p, place(p.backwards, s, length), n) * 4 + gate) * p.hidden + j, left);
      add_product(&sum, by, LOADV(cells + cells0 + (n * (p.steps + 1) + s + (gate == kO ? 1 : 0)) * p.padded + j));
    }
  }
  store_some(total(&sum), to + to0 + gate * p.hidden + j, left);
}

// ---- GRU ----

enum { kZ, kReset, kNew };

// `recurrent` stands behind the rows of `sums`; `kept` is z times the derivative by the state, which goes on to the step before.
#define EVN_GRU_ARGUMENTS \
  EVN_BACK_ARGUMENTS, global const float *recurrent, ulong recurrent0, global const float *before, ulong before0, global float *kept, ulong kept0

// With linear_before_reset: d are the rows of `recurrent`'s derivative.
EVN_KERNEL void gru_back(EVN_GRU_ARGUMENTS, global float* dsums, ulong dsums0, Back p, long s) {
  const long width = 3 * p.hidden, depth = width;
  EVN_BACK_UNITS
  EVN_EACH_SEQUENCE {
    const long n = first + i, length = length_of(p.has_lengths, lengths, n, p.steps);
    const long t = place(p.backwards, s, length), at = row_of(&p, t, n);
    global float *to = dsums + dsums0 + at * width, *to_recurrent = d + d0 + at * width;
    if (s >= length) {
      clear_gates(&p, 3, to, j);
      clear_gates(&p, 3, to_recurrent, j);
      continue;
    }
    global float* state = kept + kept0 + n * p.padded + j;
    const VF found = s + 1 < length ? sum[i] + LOADV(state) : sum[i];
    const VF by = with_dy(&p, behind_step(&p, found, s, length, dh + dh0, n, j), dy + dy0, t, n, j);
    VF in[3], again[3];
    for (int g = 0; g < 3; ++g) {
      in[g] = load_some(sums + sums0 + at * width + g * p.hidden + j, left);
      again[g] = load_some(recurrent + recurrent0 + at * width + g * p.hidden + j, left);
    }
    const Gate z = gate_at(&p, 0, in[kZ] + again[kZ]), reset = gate_at(&p, 0, in[kReset] + again[kReset]);
    const Gate candidate = gate_at(&p, 1, fma(reset.y, again[kNew], in[kNew]));
    const VF by_z = by * (load_some(before + before0 + at * p.hidden + j, left) - candidate.y) * z.slope;
    const VF by_new = by * (1.0f - z.y) * candidate.slope;
    const VF by_reset = by_new * again[kNew] * reset.slope;
    STOREV(by * z.y, state);
    store_some(by_z, to + kZ * p.hidden + j, left);
    store_some(by_reset, to + kReset * p.hidden + j, left);
    store_some(by_new, to + kNew * p.hidden + j, left);
    store_some(by_z, to_recurrent + kZ * p.hidden + j, left);
    store_some(by_reset, to_recurrent + kReset * p.hidden + j, left);
    store_some(by_new * reset.y, to_recurrent + kNew * p.hidden + j, left);
  }
}

// Without it, first: r . h of all steps, 0 behind the end of a sequence. Grid: vectors of units, steps, sequences.
EVN_KERNEL void gru_reset(global const float* sums, ulong sums0, global const float* recurrent, ulong recurrent0,
                          global const int* lengths, ulong lengths0, global const float* before, ulong before0, global float* to, ulong to0,
                          Back p) {
  const long j = (long)get_global_id(0) * EVN_LANES, left = p.hidden - j;
  if (left <= 0) return;
  const long t = get_global_id(1), n = get_global_id(2), at = row_of(&p, t, n);
  VF kept = (VF)0.0f;
  if (t < length_of(p.has_lengths, lengths + lengths0, n, p.steps)) {
    const VF in = load_some(sums + sums0 + (at * 3 + kReset) * p.hidden + j, left);
    kept = gate_of(&p, 0, in + load_some(recurrent + recurrent0 + (at * 2 + 1) * p.hidden + j, left));
    kept *= load_some(before + before0 + at * p.hidden + j, left);
  }
  store_some(kept, to + to0 + at * p.hidden + j, left);
}

#define EVN_ROWS 8  // of a work item

// Then what goes into the candidates: sums and the products of r . h with R, whose third part comes packed by columns. [row][padded].
// Grid: vectors of units, groups of rows.
EVN_KERNEL void gru_candidates(global const float* kept, ulong kept0, global const float* r, ulong r0, global const float* sums, ulong sums0,
                               global float* to, ulong to0, Back p, long rows) {
  const long j = (long)get_global_id(0) * EVN_LANES, first = (long)get_global_id(1) * EVN_ROWS;
  if (j >= p.padded) return;
  global const float* from[EVN_ROWS];
  VF sum[EVN_ROWS];
  for (int i = 0; i < EVN_ROWS; ++i) {
    const long row = min(first + i, rows - 1);
    from[i] = kept + kept0 + row * p.hidden;
    sum[i] = load_some(sums + sums0 + (row * 3 + kNew) * p.hidden + j, p.hidden - j);
  }
  for (long k = 0; k < p.hidden; ++k) {
    const VF v = LOADV(r + r0 + k * p.padded + j);
    for (int i = 0; i < EVN_ROWS; ++i) sum[i] = fma((VF)from[i][k], v, sum[i]);
  }
  for (int i = 0; i < EVN_ROWS && first + i < rows; ++i) STOREV(sum[i], to + to0 + (first + i) * p.padded + j);
}

// Then for each step what z and the candidate get, of the rows of d, which are those of sums ...
EVN_KERNEL void gru_new_back(EVN_GRU_ARGUMENTS, global const float* candidates, ulong candidates0, Back p, long s) {
  const long width = 3 * p.hidden, depth = 2 * p.hidden;
  EVN_BACK_UNITS
  EVN_EACH_SEQUENCE {
    const long n = first + i, length = length_of(p.has_lengths, lengths, n, p.steps);
    const long t = place(p.backwards, s, length), at = row_of(&p, t, n);
    global float* to = d + d0 + at * width;
    if (s >= length) {
      clear_gates(&p, 3, to, j);
      continue;
    }
    global float* state = kept + kept0 + n * p.padded + j;
    const VF found = s + 1 < length ? sum[i] + LOADV(state) : sum[i];
    const VF by = with_dy(&p, behind_step(&p, found, s, length, dh + dh0, n, j), dy + dy0, t, n, j);
    const VF in = load_some(sums + sums0 + (at * 3 + kZ) * p.hidden + j, left);
    const Gate z = gate_at(&p, 0, in + load_some(recurrent + recurrent0 + at * 2 * p.hidden + j, left));
    const Gate candidate = gate_at(&p, 1, LOADV(candidates + candidates0 + at * p.padded + j));
    store_some(by * (load_some(before + before0 + at * p.hidden + j, left) - candidate.y) * z.slope, to + kZ * p.hidden + j, left);
    store_some(by * (1.0f - z.y) * candidate.slope, to + kNew * p.hidden + j, left);
    STOREV(by * z.y, state);
  }
}

// ... and what r gets by it: r are the rows of R's third part.
EVN_KERNEL void gru_reset_back(global const float* sums, ulong sums0, global const float* r, ulong r0, global const int* lengths, ulong lengths0,
                               global const float* recurrent, ulong recurrent0, global const float* before, ulong before0, global float* kept,
                               ulong kept0, global float* d, ulong d0, Back p, long s) {
  EVN_LEAVE_BEYOND
  const long j = EVN_FIRST_UNIT, left = p.hidden - j, first = (long)get_global_id(1) * EVN_SEQUENCES;
  lengths += lengths0;
  VF sum[EVN_SEQUENCES];
  global const float* from[EVN_SEQUENCES];
  for (int i = 0; i < EVN_SEQUENCES; ++i) {
    const long n = min(first + i, p.batch - 1);
    from[i] = d + d0 + (row_of(&p, place(p.backwards, s, length_of(p.has_lengths, lengths, n, p.steps)), n) * 3 + kNew) * p.hidden;
    sum[i] = (VF)0.0f;
  }
  EVN_PRODUCTS(sum, from, r + r0 + j, p.hidden)
  EVN_EACH_SEQUENCE {
    const long n = first + i, length = length_of(p.has_lengths, lengths, n, p.steps);
    if (s >= length) continue;
    const long at = row_of(&p, place(p.backwards, s, length), n);
    const VF in = load_some(sums + sums0 + (at * 3 + kReset) * p.hidden + j, left);
    const Gate reset = gate_at(&p, 0, in + load_some(recurrent + recurrent0 + (at * 2 + 1) * p.hidden + j, left));
    global float* state = kept + kept0 + n * p.padded + j;
    store_some(sum[i] * load_some(before + before0 + at * p.hidden + j, left) * reset.slope, d + d0 + (at * 3 + kReset) * p.hidden + j, left);
    STOREV(fma(sum[i], reset.y, LOADV(state)), state);
  }
}

// ---- all ----

// The derivatives by the initial states, [sequence][hidden]: what step 0 and `kept` give, and the derivative by cells. Grid as of a step.
EVN_KERNEL void finish_back(EVN_BACK_ARGUMENTS, global const float* kept, ulong kept0, global const float* cells, ulong cells0,
                            global float* to, ulong to0, global float* to_cells, ulong to_cells0, Back p, long width, long depth,
                            int has_h, int has_kept, int has_cells) {
  const long s = -1;
  EVN_BACK_UNITS
  EVN_EACH_SEQUENCE {
    const long n = first + i;
    const VF found = has_kept ? sum[i] + LOADV(kept + kept0 + n * p.padded + j) : sum[i];
    const VF by = behind_step(&p, found, s, length_of(p.has_lengths, lengths, n, p.steps), dh + dh0, n, j);
    if (has_h) store_some(by, to + to0 + n * p.hidden + j, left);
    if (has_cells) store_some(LOADV(cells + cells0 + n * p.padded + j), to_cells + to_cells0 + n * p.hidden + j, left);
  }
}
