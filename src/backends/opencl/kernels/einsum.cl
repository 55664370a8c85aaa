// Sums of products of two strided operands: Einsum, FusedMatMul. Products are added in the order of the summed axes.

#include "sums.cl"

typedef struct {
  int kept, summed;        // outer axes: the innermost of each stand apart
  float factor;
  int padding;
  long rows, inner;        // product of the outer kept axes; the innermost
  long runs, length;       // the same of the summed ones
  long chunk;              // rows of one work item
  long inner_step[2], length_step[2];
  long kept_dim[7], summed_dim[7];
  long kept_step[2][7], summed_step[2][7];
} Contract;

static inline VF load_stepped(global const float* x, long step) {
  if (step == 1) return LOADV(x);
  if (step == 0) return (VF)x[0];
  float lane[EVN_LANES];
  for (int i = 0; i < EVN_LANES; ++i) lane[i] = x[i * step];
  return LOADV(lane);
}

// Grid: vectors of the innermost kept axis, groups of rows.
EVN_KERNEL void einsum(global const float* a, ulong a0, global const float* b, ulong b0, global float* y, ulong y0, Contract p,
                         Epilogue e) {
  const long column = (long)get_global_id(0) * EVN_LANES;
  if (column >= p.inner) return;
  const int count = (int)min(p.inner - column, (long)EVN_LANES);
  const long first = (long)get_global_id(1) * p.chunk;
  const long last = min(first + p.chunk, p.rows);
  for (long row = first; row < last; ++row) {
    global const float* from_a = a + a0 + offset_of(row, p.kept, p.kept_dim, p.kept_step[0]) + column * p.inner_step[0];
    global const float* from_b = b + b0 + offset_of(row, p.kept, p.kept_dim, p.kept_step[1]) + column * p.inner_step[1];
    float lane[EVN_LANES], other[EVN_LANES];
    Sums sum;
    start(&sum);
    for (int l = 0; l < EVN_LANES; ++l) lane[l] = other[l] = 0.0f;
    for (long run = 0; run < p.runs; ++run) {
      global const float* run_a = from_a + offset_of(run, p.summed, p.summed_dim, p.summed_step[0]);
      global const float* run_b = from_b + offset_of(run, p.summed, p.summed_dim, p.summed_step[1]);
      for (long k = 0; k < p.length; ++k) {
        global const float* at_a = run_a + k * p.length_step[0];
        global const float* at_b = run_b + k * p.length_step[1];
        if (count == EVN_LANES) {
          add_product(&sum, load_stepped(at_a, p.inner_step[0]), load_stepped(at_b, p.inner_step[1]));
        } else {
          for (int l = 0; l < count; ++l) {
            lane[l] = at_a[l * p.inner_step[0]];
            other[l] = at_b[l * p.inner_step[1]];
          }
          add_product(&sum, LOADV(lane), LOADV(other));
        }
      }
    }
    STOREV(apply_epilogue(total(&sum) * p.factor, &e), lane);
    for (int l = 0; l < count; ++l) y[y0 + row * p.inner + column + l] = lane[l];
  }
}

// One operand: sums along its axes. Grid as above.
EVN_KERNEL void einsum_one(global const float* a, ulong a0, global float* y, ulong y0, Contract p, Epilogue e) {
  const long column = (long)get_global_id(0) * EVN_LANES;
  if (column >= p.inner) return;
  const long end = min(column + EVN_LANES, p.inner);
  const long first = (long)get_global_id(1) * p.chunk;
  const long last = min(first + p.chunk, p.rows);
  for (long row = first; row < last; ++row) {
    for (long c = column; c < end; ++c) {
      global const float* from = a + a0 + offset_of(row, p.kept, p.kept_dim, p.kept_step[0]) + c * p.inner_step[0];
      Sum sum;
      start(&sum);
      for (long run = 0; run < p.runs; ++run) {
        const long at = offset_of(run, p.summed, p.summed_dim, p.summed_step[0]);
        for (long k = 0; k < p.length; ++k) add(&sum, from[at + k * p.length_step[0]]);
      }
      y[y0 + row * p.inner + c] = apply_epilogue(total(&sum) * p.factor, &e);
    }
  }
}
