/* What libevener_image.so exports: decoders of pictures, for ImageDecoder. The library links none of it; it opens the module, which
 * lies beside it, when a model has the operator (ops/infra/image_decoders.h). C, because the module has no C++ in it.
 */
#ifndef EVN_OPS_INFRA_IMAGE_MODULE_H
#define EVN_OPS_INFRA_IMAGE_MODULE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with this file; a module of another number is not used. */
#define EVN_IMAGE_MODULE_ABI 2u
#define EVN_IMAGE_MODULE_SYMBOL "evn_image_module"

/* What a pixel of the result is: three bytes, or one. */
enum { EVN_IMAGE_RGB = 0, EVN_IMAGE_BGR = 1, EVN_IMAGE_GRAY = 2 };

/* What a call returns. `why` says more for all but the first and the last. */
enum {
  EVN_IMAGE_OK = 0,
  EVN_IMAGE_BAD = 1,         /* no picture, or a damaged one */
  EVN_IMAGE_UNSUPPORTED = 2, /* a picture of a kind that is not decoded */
  EVN_IMAGE_LIMIT = 3,       /* decoding it would take more than work_bytes */
  EVN_IMAGE_NO_MEMORY = 4,
  EVN_IMAGE_STOPPED = 5 /* `stop` said so */
};

typedef struct evn_image_call {
  const unsigned char* bytes; /* the file */
  size_t size;
  int pixels;
  uint64_t work_bytes;                       /* that decoding may allocate, as far as the libraries can be held to it */
  int (*stop)(void* user);                   /* asked now and then by both functions; other than 0: give up */
  int (*charge)(void* user, uint64_t bytes); /* nullable; told of memory before it is taken, which is free when the call has ended;
                                                other than 0: it is refused */
  void* user;
  uint32_t width, height; /* set by `measure`; `decode` refuses a file of another size */
  const char* format;     /* set by both: "PNG", or "" */
  char why[160];          /* printable, set on failure */
} evn_image_call;

typedef struct evn_image_module_table {
  uint32_t abi;
  /* Reads the header: how large the picture is, before any memory is taken that grows with it. */
  int (*measure)(evn_image_call* call);
  /* Writes width * height pixels, row by row from the top. On failure some of them may be written. */
  int (*decode)(evn_image_call* call, unsigned char* out);
} evn_image_module_table;

/* Both functions of the table may run in any number of threads at a time. */
typedef const evn_image_module_table* (*evn_image_module_function)(void);

#ifdef __cplusplus
}
#endif

#endif
