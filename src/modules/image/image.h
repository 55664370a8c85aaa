/* What the readers of libevener_image.so share. Each format has a file; a reader runs twice, to measure and to decode, and finds
 * out which by job->out. All bytes come from outside: every length is checked before it is used.
 */
#ifndef EVN_MODULES_IMAGE_IMAGE_H
#define EVN_MODULES_IMAGE_IMAGE_H

#include <stdint.h>

#include "ops/infra/image_module.h"

typedef unsigned char Byte;

typedef struct Job {
  evn_image_call* call;
  Byte* out; /* NULL: only measure */
  /* Where pixel (x, y) of the stored picture goes: out + x * step_x + y * step_y. image_size sets them. */
  ptrdiff_t step_x, step_y;
  uint64_t pixels_to_poll; /* pixels of work before image_poll_stop asks again; 0: the next call asks */
} Job;

/* Sets `why`, with what is not printable replaced, and returns the status. The first reason of a call is kept. */
int image_fail(Job* job, int status, const char* format, ...) __attribute__((format(printf, 3, 4)));
int image_truncated(Job* job);

/* Measuring: notes the size. Decoding: checks that it is the one that was measured, and sets the steps. EVN_IMAGE_OK or a failure.
 */
int image_size(Job* job, uint64_t width, uint64_t height);

/* The same for a picture whose stored rows and columns go elsewhere, as TIFF's Orientation (1 to 8) says. */
int image_size_oriented(Job* job, uint64_t width, uint64_t height, int orientation);

/* EVN_IMAGE_LIMIT with a reason when `bytes` are more than the call may allocate. */
int image_work(Job* job, uint64_t bytes);
/* Tells the memory limit of bytes that a library takes; other than EVN_IMAGE_OK: they are refused. */
int image_charge(Job* job, uint64_t bytes);

/* Refuses a file that is shorter than a byte for `most` pixels: before memory is taken for it. */
int image_plausible(Job* job, uint64_t pixels, uint64_t most);

int image_stopped(const Job* job);

enum { kPixelsPerPoll = 8192 }; /* a multiple of 8: pieces of one bit per pixel begin with a whole byte */

/* Polls the stop condition before work on so many pixels, or bytes of text: on the first call of a job, then once per some thousand
 * of them. One call stands for at most a piece of a row (image_piece), except before libpng decodes a whole row. Returns
 * EVN_IMAGE_OK or EVN_IMAGE_STOPPED.
 */
static inline int image_poll_stop(Job* job, uint64_t pixels) {
  if (pixels < job->pixels_to_poll) {
    job->pixels_to_poll -= pixels;
    return EVN_IMAGE_OK;
  }
  job->pixels_to_poll = kPixelsPerPoll;
  return image_stopped(job) ? EVN_IMAGE_STOPPED : EVN_IMAGE_OK;
}

/* Number of pixels in the next piece of a row that has `left` pixels left. */
static inline uint32_t image_piece(uint32_t left) { return left < kPixelsPerPoll ? left : kPixelsPerPoll; }

/* malloc for at most work_bytes; NULL, with *status and the reason set, when they are refused. */
void* image_allocate(Job* job, uint64_t bytes, int* status);

/* `count` pixels of a row, beginning at x. They must lie inside the picture. */
void image_put_gray(Job* job, uint32_t x, uint32_t y, const Byte* gray, uint32_t count);
void image_put_rgb(Job* job, uint32_t x, uint32_t y, const Byte* rgb, uint32_t count);

/* One pixel of ink on paper as light. */
void image_cmyk_to_rgb(const Byte* cmyk, Byte* rgb);

int image_read_bmp(Job* job);
int image_read_jpeg(Job* job);
int image_read_jpeg2000(Job* job);
int image_read_png(Job* job);
int image_read_pnm(Job* job);
int image_read_tiff(Job* job);
int image_read_webp(Job* job);

static inline uint32_t image_le16(const Byte* p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static inline uint32_t image_le32(const Byte* p) { return image_le16(p) | image_le16(p + 2) << 16; }
static inline uint32_t image_be16(const Byte* p) { return (uint32_t)p[0] << 8 | (uint32_t)p[1]; }
static inline uint32_t image_be32(const Byte* p) { return image_be16(p) << 16 | image_be16(p + 2); }

#endif
