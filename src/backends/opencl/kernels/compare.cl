// Comparisons and logic, which give bools, and Where.

typedef struct {
  int op;
  int rank;         // outer axes
  long inner;       // elements of the innermost axis
  long rows;        // product of the outer axes
  long row_chunk;   // rows of one work item
  long chunk;       // elements of a row of one work item
  int step[4];      // of the inputs, 0 or 1, along the innermost axis; [3]: which infinities count
  long dim[8];      // outer axes, the first varies slowest
  long stride[3][8];
} Select;

static inline void locate(const Select* p, long row, long* at) {
  at[0] = at[1] = at[2] = 0;
  for (int i = p->rank - 1; i >= 0; --i) {
    const long position = row % p->dim[i];
    row /= p->dim[i];
    for (int k = 0; k < 3; ++k) at[k] += position * p->stride[k][i];
  }
}

// Grid of all: pieces of rows, groups of rows.
#define EVN_DEFINE_COMPARE(NAME, T)                                                                                              \
  EVN_KERNEL void NAME(global const float* a, ulong a0, global const float* b, ulong b0, global float* y, ulong y0, Select p) {  \
    const long begin = (long)get_global_id(0) * p.chunk;                                                                         \
    const long end = min(begin + p.chunk, p.inner);                                                                              \
    const long first = (long)get_global_id(1) * p.row_chunk;                                                                     \
    const long last = min(first + p.row_chunk, p.rows);                                                                          \
    for (long row = first; row < last; ++row) {                                                                                  \
      long at[3];                                                                                                                \
      locate(&p, row, at);                                                                                                       \
      global const T* from = (global const T*)(a + a0) + at[0];                                                                  \
      global const T* with = (global const T*)(b + b0) + at[1];                                                                  \
      global uchar* to = (global uchar*)(y + y0) + row * p.inner;                                                                \
      for (long i = begin; i < end; ++i) {                                                                                       \
        const T u = from[i * p.step[0]], v = with[i * p.step[1]];                                                                \
        bool r;                                                                                                                  \
        switch (p.op) {                                                                                                          \
          case 0: r = u == v; break;                                                                                             \
          case 1: r = u < v; break;                                                                                              \
          case 2: r = u > v; break;                                                                                              \
          case 3: r = u <= v; break;                                                                                             \
          case 4: r = u >= v; break;                                                                                             \
          case 5: r = u != 0 && v != 0; break;                                                                                   \
          case 6: r = u != 0 || v != 0; break;                                                                                   \
          case 7: r = (u != 0) != (v != 0); break;                                                                               \
          case 8: r = (u != 0) == (v != 0); break;                                                                               \
          case 9: r = u == 0; break;                                                                                             \
          case 10: r = u != u; break;                                                                                            \
          default: r = u - u != 0 && u == u && (p.step[3] & (u < 0 ? 1 : 2)) != 0; break;                                        \
        }                                                                                                                        \
        to[i] = r ? 1 : 0;                                                                                                       \
      }                                                                                                                          \
    }                                                                                                                            \
  }
EVN_DEFINE_COMPARE(compare_float, float)
EVN_DEFINE_COMPARE(compare_int, int)
EVN_DEFINE_COMPARE(compare_long, long)
EVN_DEFINE_COMPARE(compare_ulong, ulong)
EVN_DEFINE_COMPARE(compare_uint, uint)
EVN_DEFINE_COMPARE(compare_short, short)
EVN_DEFINE_COMPARE(compare_ushort, ushort)
EVN_DEFINE_COMPARE(compare_char, char)
EVN_DEFINE_COMPARE(compare_bool, uchar)

#define EVN_DEFINE_WHERE(NAME, T)                                                                                                 \
  EVN_KERNEL void NAME(global const float* c, ulong c0, global const float* a, ulong a0, global const float* b, ulong b0,         \
                       global float* y, ulong y0, Select p) {                                                                     \
    const long begin = (long)get_global_id(0) * p.chunk;                                                                          \
    const long end = min(begin + p.chunk, p.inner);                                                                               \
    const long first = (long)get_global_id(1) * p.row_chunk;                                                                      \
    const long last = min(first + p.row_chunk, p.rows);                                                                           \
    for (long row = first; row < last; ++row) {                                                                                   \
      long at[3];                                                                                                                 \
      locate(&p, row, at);                                                                                                        \
      global const uchar* condition = (global const uchar*)(c + c0) + at[0];                                                      \
      global const T* from = (global const T*)(a + a0) + at[1];                                                                   \
      global const T* other = (global const T*)(b + b0) + at[2];                                                                  \
      global T* to = (global T*)(y + y0) + row * p.inner;                                                                         \
      for (long i = begin; i < end; ++i) to[i] = condition[i * p.step[0]] != 0 ? from[i * p.step[1]] : other[i * p.step[2]];      \
    }                                                                                                                             \
  }
EVN_DEFINE_WHERE(where_1, uchar)
EVN_DEFINE_WHERE(where_2, ushort)
EVN_DEFINE_WHERE(where_8, ulong)

static inline VF load_step(global const float* x, long i, int step) { return step ? LOADV(x + i) : (VF)x[0]; }

EVN_KERNEL void where_4(global const float* c, ulong c0, global const float* a, ulong a0, global const float* b, ulong b0,
                        global float* y, ulong y0, Select p, Epilogue e) {
  const long begin = (long)get_global_id(0) * p.chunk;
  const long end = min(begin + p.chunk, p.inner);
  const long first = (long)get_global_id(1) * p.row_chunk;
  const long last = min(first + p.row_chunk, p.rows);
  for (long row = first; row < last; ++row) {
    long at[3];
    locate(&p, row, at);
    global const uchar* condition = (global const uchar*)(c + c0) + at[0];
    global const float* from = a + (a0 + at[1]);
    global const float* other = b + (b0 + at[2]);
    global float* to = y + y0 + row * p.inner;
    long i = begin;
    for (; i + EVN_LANES <= end; i += EVN_LANES) {
      const VI taken = p.step[0] ? EVN_CAT(convert_int, EVN_LANES)(EVN_CAT(vload, EVN_LANES)(0, condition + i)) : (VI)condition[0];
      const VF v = taken != 0 ? load_step(from, i, p.step[1]) : load_step(other, i, p.step[2]);
      STOREV(apply_epilogue(v, &e), to + i);
    }
    for (; i < end; ++i) {
      const float v = condition[i * p.step[0]] != 0 ? from[i * p.step[1]] : other[i * p.step[2]];
      to[i] = apply_epilogue(v, &e);
    }
  }
}
