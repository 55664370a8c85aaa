/* libevener_openblas.so: Debian's serial OpenBLAS, linked statically and hidden, behind device/blas_module.h.
 *
 * OpenBLAS's own memory.o is not linked: what the archive's other members need of it is defined here. With it go the constructor
 * that runs at load time, the buffers that no ledger counts, the environment variables, and the loop that never ends when the
 * system has no memory. Calls work in the caller's buffer instead, so they are independent of each other.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cblas.h>

#include "device/blas_module.h"

#define EXPORT __attribute__((visibility("default")))

/* ------------------------------------------------------------------------------------------------- in memory.o's place -- */

void* gotoblas; /* the kernels of one core; gotoblas_dynamic_init sets it */
void* blas_memory_alloc(int position);
void blas_memory_free(void* buffer);
void gotoblas_dynamic_init(void);
char* gotoblas_corename(void);

static __thread void* t_buffer __attribute__((tls_model("initial-exec")));

void* blas_memory_alloc(int position) {
  (void)position;
  return t_buffer;
}

void blas_memory_free(void* buffer) { (void)buffer; }

/* Small products would go another way, on AVX-512 only, with sums in another order: then an element would depend on how many rows
 * there are beside it. The archive's members of these names are not linked either. */
int dgemm_small_matrix_permit_SKYLAKEX(int ta, int tb, long m, long n, long k, double alpha, double beta);
int dgemm_small_matrix_permit_COOPERLAKE(int ta, int tb, long m, long n, long k, double alpha, double beta);
int sgemm_small_matrix_permit_SKYLAKEX(int ta, int tb, long m, long n, long k, float alpha, float beta);
int sgemm_small_matrix_permit_COOPERLAKE(int ta, int tb, long m, long n, long k, float alpha, float beta);

int dgemm_small_matrix_permit_SKYLAKEX(int ta, int tb, long m, long n, long k, double alpha, double beta) {
  (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)beta;
  return 0;
}

int dgemm_small_matrix_permit_COOPERLAKE(int ta, int tb, long m, long n, long k, double alpha, double beta) {
  return dgemm_small_matrix_permit_SKYLAKEX(ta, tb, m, n, k, alpha, beta);
}

int sgemm_small_matrix_permit_SKYLAKEX(int ta, int tb, long m, long n, long k, float alpha, float beta) {
  return dgemm_small_matrix_permit_SKYLAKEX(ta, tb, m, n, k, alpha, beta);
}

int sgemm_small_matrix_permit_COOPERLAKE(int ta, int tb, long m, long n, long k, float alpha, float beta) {
  return dgemm_small_matrix_permit_SKYLAKEX(ta, tb, m, n, k, alpha, beta);
}

/* The linker sends OpenBLAS's getenv here (--wrap): the core is chosen by the caller, never by the environment. */
char* __wrap_getenv(const char* name);
static const char* g_core;

char* __wrap_getenv(const char* name) { return strcmp(name, "OPENBLAS_CORETYPE") == 0 ? (char*)(uintptr_t)g_core : NULL; }

/* -------------------------------------------------------------------------------------------------------------- module -- */

static void product(const evn_blas_product* p, const void* a, const void* b, void* c, void* buffer) {
  const enum CBLAS_TRANSPOSE ta = p->transpose_a ? CblasTrans : CblasNoTrans, tb = p->transpose_b ? CblasTrans : CblasNoTrans;
  t_buffer = buffer;
  if (p->single) {
    cblas_sgemm(CblasRowMajor, ta, tb, p->m, p->n, p->k, (float)p->alpha, a, p->lda, b, p->ldb, (float)p->beta, c, p->ldc);
  } else {
    cblas_dgemm(CblasRowMajor, ta, tb, p->m, p->n, p->k, p->alpha, a, p->lda, b, p->ldb, p->beta, c, p->ldc);
  }
  t_buffer = NULL;
}

enum {
  kProbeBytes = 128 << 20, /* address space; what OpenBLAS itself takes for a buffer, at most */
  kProbeDepth = 2048,      /* above all block sizes, so that a whole block of B is packed */
  kRounding = 64,          /* a block may be that much deeper than its size says */
};

/* How much of its buffer the largest products touch: block sizes are the core's secret. Packed A comes first, then packed B, which
 * has at most (block size + rounding) x 256 elements; so what the probe touches and the rounding bound every product. 0: no memory.
 */
static size_t measure_buffer(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t matrix = sizeof(double) * EVN_BLAS_MAX_COLUMNS * kProbeDepth;
  const size_t all = kProbeBytes + 3 * matrix;
  char* memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return 0;
  madvise(memory, all, MADV_NOHUGEPAGE);
  double* a = (double*)(memory + kProbeBytes);
  evn_blas_product p = {EVN_BLAS_MAX_ROWS,    EVN_BLAS_MAX_COLUMNS, kProbeDepth, 0,   0, kProbeDepth,
                        EVN_BLAS_MAX_COLUMNS, EVN_BLAS_MAX_COLUMNS, 1.0,         0.0, 0};
  for (; p.single < 2; ++p.single) product(&p, a, a + matrix / sizeof(double), a + 2 * (matrix / sizeof(double)), memory);
  size_t pages = kProbeBytes / page;
  static unsigned char resident[kProbeBytes / 4096];
  const int known = page >= 4096 && mincore(memory, kProbeBytes, resident) == 0;
  while (known && pages > 0 && (resident[pages - 1] & 1) == 0) --pages;
  munmap(memory, all);
  return pages * page + sizeof(double) * kRounding * (EVN_BLAS_MAX_ROWS + EVN_BLAS_MAX_COLUMNS);
}

enum { kProbeRows = EVN_BLAS_ROW_GROUP, kProbeColumns = 24, kProbeK = 3 * 768 + 101 };

/* Random values of both signs. */
static void fill_random(double* to, int count, int single, uint64_t* state) {
  for (int i = 0; i < count; ++i) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    const double x = (double)(int64_t)*state / 9.0e18;
    if (single) ((float*)to)[i] = (float)x;
    else to[i] = x;
  }
}

/* Whether a product split along k into calls of `depth` is bit-equal to one call. OpenBLAS does not tell its block sizes, so they
 * are probed with random values of both signs. */
static int is_depth(int depth, int single, void* buffer) {
  static double a[kProbeRows * kProbeK], b[kProbeK * kProbeColumns], whole[kProbeRows * kProbeColumns],
      cut[kProbeRows * kProbeColumns];
  const size_t size = single ? sizeof(float) : sizeof(double);
  uint64_t state = 88172645463325252u;
  fill_random(a, kProbeRows * kProbeK, single, &state);
  fill_random(b, kProbeK * kProbeColumns, single, &state);
  evn_blas_product p = {kProbeRows, kProbeColumns, kProbeK, 0, 0, kProbeK, kProbeColumns, kProbeColumns, 1.0, 0.0, single};
  product(&p, a, b, whole, buffer);
  for (int k = 0; k < kProbeK; k += p.k) {
    p.k = kProbeK - k < 2 * depth ? kProbeK - k : depth;
    p.beta = k == 0 ? 0.0 : 1.0;
    product(&p, (const char*)a + (size_t)k * size, (const char*)b + (size_t)(k * kProbeColumns) * size, cut, buffer);
  }
  return memcmp(whole, cut, kProbeRows * kProbeColumns * size) == 0;
}

static int find_depth(size_t buffer_bytes, int single) {
  static const int kDepths[] = {128, 192, 256, 320, 384, 448, 512, 640, 768};
  void* const buffer = mmap(NULL, buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer == MAP_FAILED) return 0;
  int depth = 0;
  for (size_t i = 0; i < sizeof kDepths / sizeof kDepths[0] && depth == 0; ++i)
    depth = is_depth(kDepths[i], single, buffer) ? kDepths[i] : 0;
  munmap(buffer, buffer_bytes);
  return depth;
}

enum { kGroupedRows = 56, kGroupedColumns = 67, kGroupedK = 101 };

/* Whether rows have the same bits by themselves, some at a time, as among others. The float32 kernels for AVX2 have not: they add
 * up a row in an order that depends on its place among all. */
static int has_row_groups(size_t buffer_bytes, int single) {
  static double a[kGroupedRows * kGroupedK], b[kGroupedK * kGroupedColumns], whole[kGroupedRows * kGroupedColumns],
      some[kGroupedRows * kGroupedColumns];
  const size_t size = single ? sizeof(float) : sizeof(double);
  void* const buffer = mmap(NULL, buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer == MAP_FAILED) return 0;
  uint64_t state = 88172645463325252u;
  fill_random(a, kGroupedRows * kGroupedK, single, &state);
  fill_random(b, kGroupedK * kGroupedColumns, single, &state);
  evn_blas_product p = {kGroupedRows,    kGroupedColumns, kGroupedK, 0,   0,     kGroupedK,
                        kGroupedColumns, kGroupedColumns, 1.0,       0.0, single};
  product(&p, a, b, whole, buffer);
  int same = 1;
  for (int count = EVN_BLAS_ROW_GROUP; count < kGroupedRows; count += EVN_BLAS_ROW_GROUP) {
    p.m = count;
    for (int first = 0; first + count <= kGroupedRows; ++first) {
      product(&p, (const char*)a + (size_t)(first * kGroupedK) * size, b, some, buffer);
      const char* const wanted = (const char*)whole + (size_t)(first * kGroupedColumns) * size;
      same = same && memcmp(some, wanted, (size_t)(count * kGroupedColumns) * size) == 0;
    }
  }
  munmap(buffer, buffer_bytes);
  return same;
}

EXPORT const evn_blas_module_table* evn_blas_module(const char* core);

const evn_blas_module_table* evn_blas_module(const char* core) {
  static evn_blas_module_table table = {EVN_BLAS_MODULE_ABI, NULL, 0, {0, 0}, {0, 0}, product};
  if (table.buffer_bytes != 0) return &table;
  g_core = core;
  gotoblas_dynamic_init();
  table.core = gotoblas_corename();
  table.buffer_bytes = measure_buffer();
  for (int single = 0; single < 2 && table.buffer_bytes != 0; ++single) {
    table.depth[single] = find_depth(table.buffer_bytes, single);
    table.row_groups[single] = has_row_groups(table.buffer_bytes, single);
  }
  return table.buffer_bytes == 0 ? NULL : &table;
}
