/* What libevener_openblas.so exports: matrix products of OpenBLAS, for the CPU device. The library links none of it; it opens the
 * module, which lies beside it, when a model first needs it (backends/cpu/gemm/blas.h). C, because the module has no C++ in it.
 */
#ifndef EVN_DEVICE_BLAS_MODULE_H
#define EVN_DEVICE_BLAS_MODULE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with this file; a module of another number is not used. */
#define EVN_BLAS_MODULE_ABI 3u
#define EVN_BLAS_MODULE_SYMBOL "evn_blas_module"

/* The largest product of one call; k is free. They bound what a call writes into its buffer. */
#define EVN_BLAS_MAX_ROWS 256
#define EVN_BLAS_MAX_COLUMNS 256

/* Where evn_blas_module_table::row_groups says so, a row of C has the same bits in all products whose m is a multiple of this,
 * whatever the other rows are. */
#define EVN_BLAS_ROW_GROUP 8

/* C = alpha * A' * B' + beta * C, row-major; A' is A or, with transpose_a, its transpose (A is then k x m), likewise B'. */
typedef struct evn_blas_product {
  int m, n, k;
  int transpose_a, transpose_b;
  int lda, ldb, ldc; /* elements from one row to the next, of the matrices as they are stored */
  double alpha, beta;
  int single; /* the matrices are of floats; 0: of doubles */
} evn_blas_product;

typedef struct evn_blas_module_table {
  uint32_t abi;
  const char* core;    /* OpenBLAS's name of the kernels that it uses: "SkylakeX" */
  size_t buffer_bytes; /* that each call needs to itself, aligned to 4096. OpenBLAS allocates nothing else */
  /* Where OpenBLAS cuts k itself: a product may be made in calls of so many k, or a multiple, the later ones of which add to C
   * (beta 1), to the same bits; the last one has at least as many. Of doubles, then of floats. 0: it is not known. */
  int depth[2];
  int row_groups[2]; /* of doubles, then of floats: see EVN_BLAS_ROW_GROUP. 0: a row depends on how many there are, and on its place
                      */
  void (*product)(const evn_blas_product* p, const void* a, const void* b, void* c, void* buffer);
} evn_blas_module_table;

/* `core`: whose kernels to use; NULL: OpenBLAS looks at the CPU itself. The first call decides; not thread-safe. NULL when the
 * system refuses memory.
 */
typedef const evn_blas_module_table* (*evn_blas_module_function)(const char* core);

#ifdef __cplusplus
}
#endif

#endif
