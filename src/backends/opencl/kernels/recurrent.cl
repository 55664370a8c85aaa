// LSTM, GRU and RNN. The inputs' products with W are made for many steps at once; then one launch for each step (two for GRU) makes
// the products with R and the new states. Packed matrices are [direction][k][gate][padded], so that vectors run along hidden units.
// Steps count from where a direction begins: `place` says which row of x and y that is. On GPUs a work group shares the depth of its
// products with R by slices, whose sums are added up in their order.

#include "lanes.cl"
#include "recurrent_steps.cl"

typedef struct {
  int gates, directions;
  int reverse;       // direction 0 runs backwards; direction 1 always does
  int batch_first, own, has_lengths, has_bias, has_peepholes;
  float clip;        // bound of the activations' inputs, or infinity
  int padding;
  Activation f[2][3];
  long steps, batch, inputs, hidden, padded;
} Recurrent;

static inline VF gate_of(const Recurrent* p, int direction, int function, VF x) {
  return activation_of(clamp_to(x, -p->clip, p->clip), p->f[direction][function]);
}

static inline bool is_backwards(const Recurrent* p, int direction) { return direction == 1 || p->reverse; }

// Packs a matrix [direction][gate * hidden][depth] that is computed. Grid: columns, depth, directions.
EVN_KERNEL void pack(global const float* w, ulong w0, global float* y, ulong y0, Recurrent p, long depth) {
  const long column = get_global_id(0), width = p.gates * p.padded;
  if (column >= width) return;
  const long k = get_global_id(1), d = get_global_id(2), gate = column / p.padded, j = column % p.padded;
  const long row = (d * p.gates + gate) * p.hidden + j;
  y[y0 + (d * depth + k) * width + column] = j < p.hidden ? w[w0 + row * depth + k] : 0.0f;
}

// The biases that are added to the inputs' products; those of a GRU's third gate may have to wait for the reset.
static inline VF bias_of(const Recurrent* p, global const float* bias, int d, int gate, long j) {
  global const float* own = bias + ((long)d * 2 * p->gates + gate) * p->hidden + j;
  const VF w = load_some(own, p->hidden - j);
  if (p->gates == 3 && gate == 2 && p->own) return w;
  return w + load_some(own + p->gates * p->hidden, p->hidden - j);
}

#define EVN_PROJECTED 8  // rows of a work item
#define EVN_CHAIN 512    // products that are added up by themselves, as long chains round more

// Steps [first, first + count) of all sequences: y [direction][step][sequence][gate][padded]. Grid: vectors of columns, groups of
// rows, directions.
EVN_KERNEL void project(global const float* x, ulong x0, global const float* w, ulong w0, global const float* bias, ulong bias0,
                        global const int* lengths, ulong lengths0, global float* y, ulong y0, Recurrent p, long first, long count) {
  const long column = (long)get_global_id(0) * EVN_LANES, width = p.gates * p.padded;
  if (column >= width) return;
  const int d = get_global_id(2);
  const long row = (long)get_global_id(1) * EVN_PROJECTED;
  const long rows = min(count * p.batch - row, (long)EVN_PROJECTED);
  global const float* from[EVN_PROJECTED];
  VF sum[EVN_PROJECTED];
  const VF start = p.has_bias ? bias_of(&p, bias + bias0, d, column / p.padded, column % p.padded) : (VF)0.0f;
  for (int i = 0; i < EVN_PROJECTED; ++i) {
    const long r = i < rows ? row + i : row, n = r % p.batch;
    const long t = place(is_backwards(&p, d), first + r / p.batch, length_of(p.has_lengths, lengths + lengths0, n, p.steps));
    from[i] = x + x0 + (p.batch_first ? n * p.steps + t : t * p.batch + n) * p.inputs;
    sum[i] = start;
  }
  global const float* weights = w + w0 + d * p.inputs * width + column;
  VF all[EVN_PROJECTED];  // of chains of EVN_CHAIN inputs
  for (int i = 0; i < EVN_PROJECTED; ++i) all[i] = (VF)0.0f;
  for (long begin = 0; begin < p.inputs; begin += EVN_CHAIN) {
    for (long k = begin; k < min(p.inputs, begin + EVN_CHAIN); ++k) {
      const VF v = LOADV(weights + k * width);
#pragma unroll
      for (int i = 0; i < EVN_PROJECTED; ++i) sum[i] = fma((VF)from[i][k], v, sum[i]);
    }
    if (begin + EVN_CHAIN >= p.inputs) break;
    for (int i = 0; i < EVN_PROJECTED; ++i) {
      all[i] += sum[i];
      sum[i] = (VF)0.0f;
    }
  }
  if (p.inputs > EVN_CHAIN) {
    for (int i = 0; i < EVN_PROJECTED; ++i) sum[i] += all[i];
  }
  for (int i = 0; i < rows; ++i) STOREV(sum[i], y + y0 + (d * count * p.batch + row + i) * width + column);
}

// The states [direction][sequence][padded] before the first step. Grid: vectors of units, sequences, directions.
EVN_KERNEL void start(global const float* x, ulong x0, global float* y, ulong y0, Recurrent p, int given) {
  const long j = (long)get_global_id(0) * EVN_LANES;
  if (j >= p.padded) return;
  const long n = get_global_id(1), d = get_global_id(2);
  const long from = (p.batch_first ? n * p.directions + d : d * p.batch + n) * p.hidden + j;
  STOREV(given ? load_some(x + x0 + from, p.hidden - j) : (VF)0.0f, y + y0 + (d * p.batch + n) * p.padded + j);
}

// The states after the last step, as the model wants them. Grid as of `start`.
EVN_KERNEL void finish(global const float* x, ulong x0, global float* y, ulong y0, Recurrent p) {
  const long j = (long)get_global_id(0) * EVN_LANES;
  if (j >= p.hidden) return;
  const long n = get_global_id(1), d = get_global_id(2);
  const long to = (p.batch_first ? n * p.directions + d : d * p.batch + n) * p.hidden + j;
  store_some(LOADV(x + x0 + (d * p.batch + n) * p.padded + j), y + y0 + to, p.hidden - j);
}

// A step's work items: on CPU devices one for EVN_LANES units; on GPUs each group has EVN_VECTORS such vectors and EVN_SLICES items for each.
// EVN_PRODUCTS adds the products of `states` with `count` gates of R, from `gate` on, to sums. Behind it only the items of slice 0 go on.
#if EVN_LOCAL == 1
#define EVN_SLICES 1
#define EVN_FIRST_UNIT ((long)get_global_id(0) * EVN_LANES)
#define EVN_LEAVE_BEYOND \
  if (EVN_FIRST_UNIT >= p.padded) return;
#define EVN_PRODUCTS(sums, count, states, gate)                                                       \
  for (long k = 0; k < p.hidden; ++k) {                                                               \
    const VF v = (VF)states[k];                                                                       \
    _Pragma("unroll") for (int g = 0; g < (count); ++g) {                                             \
      (sums)[g] = fma(v, LOADV(u.r + k * width + ((gate) + g) * p.padded), (sums)[g]);                \
    }                                                                                                 \
  }
#else
#define EVN_SLICES 16
#define EVN_VECTORS (EVN_LOCAL / EVN_SLICES)
#define EVN_LEAVE_BEYOND  // `padded` is a multiple of the units of a group
#define EVN_FIRST_UNIT (((long)get_group_id(0) * EVN_VECTORS + get_local_id(0) % EVN_VECTORS) * EVN_LANES)
#define EVN_PRODUCTS(sums, count, states, gate)                                                                         \
  local VF parts[count][EVN_LOCAL];                                                                                     \
  {                                                                                                                     \
    const int item = get_local_id(0), vector = item % EVN_VECTORS;                                                      \
    VF mine[count];                                                                                                     \
    _Pragma("unroll") for (int g = 0; g < (count); ++g) mine[g] = (VF)0.0f;                                             \
    _Pragma("unroll 4") for (long k = item / EVN_VECTORS; k < p.hidden; k += EVN_SLICES) {                              \
      const VF v = (VF)states[k];                                                                                       \
      _Pragma("unroll") for (int g = 0; g < (count); ++g) {                                                             \
        mine[g] = fma(v, LOADV(u.r + k * width + ((gate) + g) * p.padded), mine[g]);                                    \
      }                                                                                                                 \
    }                                                                                                                   \
    _Pragma("unroll") for (int g = 0; g < (count); ++g) parts[g][item] = mine[g];                                       \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                       \
    if (item < (count) * EVN_VECTORS) {                                                                                 \
      local VF* part = &parts[item / EVN_VECTORS][vector];                                                              \
      VF total = part[0];                                                                                               \
      _Pragma("unroll") for (int i = 1; i < EVN_SLICES; ++i) total += part[i * EVN_VECTORS];                            \
      part[0] = total;                                                                                                  \
    }                                                                                                                   \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                       \
    if (item >= EVN_VECTORS) return;                                                                                    \
    _Pragma("unroll") for (int g = 0; g < (count); ++g) (sums)[g] += parts[g][vector];                                  \
  }
#endif

// What one work item of a step has: EVN_LANES units of one sequence in one direction.
typedef struct {
  long j, n, state;             // state: where the sequence's states begin
  int d;
  bool over;                    // the sequence has ended: its states stay
  global const float* gates;    // W x and biases
  global const float* r;        // row 0 of R
  global float* y;              // where h goes, or null
} Unit;

static inline Unit unit_of(const Recurrent* p, long s, long first, long count, global const float* projected, global const float* r,
                           global const int* lengths, global float* y, int has_y) {
  Unit u;
  u.j = EVN_FIRST_UNIT;
  u.n = get_global_id(1);
  u.d = get_global_id(2);
  const long width = p->gates * p->padded, length = length_of(p->has_lengths, lengths, u.n, p->steps), d = u.d;
  const long t = place(is_backwards(p, u.d), s, length);
  u.state = (d * p->batch + u.n) * p->padded;
  u.over = s >= length;
  u.gates = projected + ((d * count + s - first) * p->batch + u.n) * width + u.j;
  u.r = r + d * p->hidden * width + u.j;
  const long row = p->batch_first ? (u.n * p->steps + t) * p->directions + d : (t * p->directions + d) * p->batch + u.n;
  u.y = has_y ? y + row * p->hidden + u.j : 0;
  return u;
}

// Keeps h, and hands it on.
static inline void put(const Recurrent* p, const Unit* u, VF h, global float* next, const Epilogue* e) {
  STOREV(h, next + u->state + u->j);
  if (u->y != 0) store_some(apply_epilogue(u->over ? (VF)0.0f : h, e), u->y, p->hidden - u->j);
}

#define EVN_STEP_ARGUMENTS                                                                                                         \
  global const float *projected, ulong projected0, global const float *r, ulong r0, global const int *lengths, ulong lengths0, \
      global const float *h, ulong h0, global float *next, ulong next0, global float *y, ulong y0
#define EVN_STEP_UNIT                                                                                                             \
EVN_LEAVE_BEYOND                                                                                                                  \
  const Unit u = unit_of(&p, s, first, count, projected + projected0, r + r0, lengths + lengths0, y + y0, has_y);                 \
  global const float* before = h + h0 + u.state;                                                                                  \
  const long width = p.gates * p.padded;

// One step. Grid: vectors of units, sequences, directions.
EVN_KERNEL void rnn_step(EVN_STEP_ARGUMENTS, Recurrent p, long s, long first, long count, int has_y, Epilogue e) {
  EVN_STEP_UNIT
  VF sum[1] = {LOADV(u.gates)};
  EVN_PRODUCTS(sum, 1, before, 0)
  put(&p, &u, u.over ? LOADV(before + u.j) : gate_of(&p, u.d, 0, sum[0]), next + next0, &e);
}

EVN_KERNEL void lstm_step(EVN_STEP_ARGUMENTS, global float* c, ulong c0, global const float* peepholes, ulong peepholes0, Recurrent p,
                          long s, long first, long count, int has_y, Epilogue e) {
  EVN_STEP_UNIT
  VF sum[4];
  for (int g = 0; g < 4; ++g) sum[g] = LOADV(u.gates + g * p.padded);
  EVN_PRODUCTS(sum, 4, before, 0)
  global float* cell = c + c0 + u.state + u.j;
  if (u.over) {
    put(&p, &u, LOADV(before + u.j), next + next0, &e);
    return;
  }
  VF of[3];
  for (int g = 0; g < 3; ++g) {
    global const float* from = peepholes + peepholes0 + ((long)u.d * 3 + g) * p.hidden + u.j;
    of[g] = p.has_peepholes ? load_some(from, p.hidden - u.j) : (VF)0.0f;
  }
  const VF old = LOADV(cell);
  const VF in = gate_of(&p, u.d, 0, fma(of[0], old, sum[0]));
  const VF forget = p.own ? 1.0f - in : gate_of(&p, u.d, 0, fma(of[2], old, sum[2]));
  const VF now = fma(forget, old, in * gate_of(&p, u.d, 1, sum[3]));
  const VF out = gate_of(&p, u.d, 0, fma(of[1], now, sum[1]));
  STOREV(now, cell);
  put(&p, &u, out * activation_of(now, p.f[u.d][2]), next + next0, &e);
}

static inline VF blend(VF z, VF candidate, VF old) { return fma(z, old, (1.0f - z) * candidate); }

// The first half of a GRU's step: z, and r . h, which the third gate waits for (gru_new). gru_step is all of it, with linear_before_reset.
EVN_KERNEL void gru_gates(EVN_STEP_ARGUMENTS, global const float* bias, ulong bias0, global float* update, ulong update0,
                          global float* kept, ulong kept0, Recurrent p, long s, long first, long count, int has_y, Epilogue e) {
  EVN_STEP_UNIT
  VF sum[2];
  for (int g = 0; g < 2; ++g) sum[g] = LOADV(u.gates + g * p.padded);
  EVN_PRODUCTS(sum, 2, before, 0)
  const VF old = LOADV(before + u.j);
  STOREV(gate_of(&p, u.d, 0, sum[0]), update + update0 + u.state + u.j);
  STOREV(gate_of(&p, u.d, 0, sum[1]) * old, kept + kept0 + u.state + u.j);
}

EVN_KERNEL void gru_step(EVN_STEP_ARGUMENTS, global const float* bias, ulong bias0, global float* update, ulong update0,
                         global float* kept, ulong kept0, Recurrent p, long s, long first, long count, int has_y, Epilogue e) {
  EVN_STEP_UNIT
  VF sum[3];
  for (int g = 0; g < 2; ++g) sum[g] = LOADV(u.gates + g * p.padded);
  global const float* last = bias + bias0 + ((long)u.d * 6 + 5) * p.hidden + u.j;
  sum[2] = p.has_bias ? load_some(last, p.hidden - u.j) : (VF)0.0f;
  EVN_PRODUCTS(sum, 3, before, 0)
  const VF old = LOADV(before + u.j);
  const VF z = gate_of(&p, u.d, 0, sum[0]), reset = gate_of(&p, u.d, 0, sum[1]);
  const VF candidate = gate_of(&p, u.d, 1, fma(reset, sum[2], LOADV(u.gates + 2 * p.padded)));
  put(&p, &u, u.over ? old : blend(z, candidate, old), next + next0, &e);
}

EVN_KERNEL void gru_new(EVN_STEP_ARGUMENTS, global const float* update, ulong update0, global const float* kept, ulong kept0,
                        Recurrent p, long s, long first, long count, int has_y, Epilogue e) {
  EVN_STEP_UNIT
  global const float* from = kept + kept0 + u.state;
  VF sum[1] = {LOADV(u.gates + 2 * p.padded)};
  EVN_PRODUCTS(sum, 1, from, 2)
  const VF old = LOADV(before + u.j), z = LOADV(update + update0 + u.state + u.j);
  put(&p, &u, u.over ? old : blend(z, gate_of(&p, u.d, 1, sum[0]), old), next + next0, &e);
}
