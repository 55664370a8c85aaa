/* PNG by libpng. Palettes and few bits become eight, of sixteen the upper eight are taken, alpha and what chunks beside the picture
 * say (gamma, profiles, text) are dropped.
 */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "modules/image/image.h"

typedef struct Reader {
  Job* job;
  size_t at;
  png_structp png;
  png_infop info;
  Byte* pixels; /* a row, or all of an interlaced picture */
  int status;
} Reader;

static void on_error(png_structp png, png_const_charp text) {
  Reader* r = png_get_error_ptr(png);
  r->status = image_fail(r->job, EVN_IMAGE_BAD, "%s", text);
  png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text) { (void)png, (void)text; }

/* Asks the stop condition: libpng skips a chunk, or data behind the last row, within one call, and reads at most 8 KiB at once. */
static void give_bytes(png_structp png, png_bytep to, size_t count) {
  Reader* r = png_get_io_ptr(png);
  if (image_stopped(r->job)) {
    r->status = EVN_IMAGE_STOPPED;
    png_longjmp(png, 1);
  }
  if (count > r->job->call->size - r->at) {
    image_truncated(r->job);
    png_error(png, "truncated");
  }
  memcpy(to, r->job->call->bytes + r->at, count);
  r->at += count;
}

/* Deflate makes at most 1032 bytes of one. */
static int check_length(Reader* r, uint64_t width, uint64_t height) {
  const unsigned bits = (unsigned)png_get_bit_depth(r->png, r->info) * png_get_channels(r->png, r->info); /* at most 64 */
  return image_plausible(r->job, width * height, 1032 * 8 / bits);
}

static int prepare(Reader* r) {
  png_structp png = r->png;
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
  png_set_user_limits(png, INT32_MAX, INT32_MAX);
  png_set_read_fn(png, r, give_bytes);
  png_read_info(png, r->info);
  const uint64_t width = png_get_image_width(png, r->info), height = png_get_image_height(png, r->info);
  int status = image_size(r->job, width, height);
  if (status == EVN_IMAGE_OK) status = check_length(r, width, height);
  if (status == EVN_IMAGE_OK) status = image_work(r->job, 4 * 8 * width); /* rows at their widest, which libpng keeps */
  return status;
}

static int put_row(Reader* r, uint32_t y, const Byte* row, uint32_t width, int channels) {
  for (uint32_t x = 0; x < width; x += image_piece(width - x)) {
    const uint32_t count = image_piece(width - x);
    const int status = image_poll_stop(r->job, count);
    if (status != EVN_IMAGE_OK) return status;
    if (channels == 1) {
      image_put_gray(r->job, x, y, row + x, count);
    } else {
      image_put_rgb(r->job, x, y, row + 3 * (size_t)x, count);
    }
  }
  return EVN_IMAGE_OK;
}

static int read_rows(Reader* r) {
  png_structp png = r->png;
  png_set_palette_to_rgb(png); /* also widens grays of few bits, and makes alpha, which goes again */
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, r->info);
  const uint64_t row_bytes = png_get_rowbytes(png, r->info);
  const uint32_t width = png_get_image_width(png, r->info), height = png_get_image_height(png, r->info);
  const int channels = png_get_channels(png, r->info);
  if (channels != 1 && channels != 3) return image_fail(r->job, EVN_IMAGE_UNSUPPORTED, "it has %d channels", channels);
  r->pixels = image_allocate(r->job, row_bytes * (passes > 1 ? height : 1), &r->status);
  if (r->pixels == NULL) return r->status;
  if (passes > 1) memset(r->pixels, 0, row_bytes * height);
  for (int pass = 0; pass < passes; ++pass) {
    for (uint32_t y = 0; y < height; ++y) {
      int status = image_poll_stop(r->job, width);
      if (status != EVN_IMAGE_OK) return status;
      Byte* row = r->pixels + (passes > 1 ? row_bytes * y : 0);
      png_read_row(png, row, NULL);
      if (pass + 1 < passes) continue;
      status = put_row(r, y, row, width, channels);
      if (status != EVN_IMAGE_OK) return status;
    }
  }
  png_read_end(png, NULL);
  return EVN_IMAGE_OK;
}

/* Errors come back here from inside the library. */
static int read_all(Reader* r) {
  if (setjmp(png_jmpbuf(r->png)) != 0) return r->status;
  const int status = prepare(r);
  return status != EVN_IMAGE_OK || r->job->out == NULL ? status : read_rows(r);
}

int image_read_png(Job* job) {
  Reader r = {job, 0, NULL, NULL, NULL, EVN_IMAGE_BAD};
  r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
  if (r.png != NULL) r.info = png_create_info_struct(r.png);
  const int status = r.info == NULL
                         ? image_fail(job, EVN_IMAGE_NO_MEMORY, "no memory for libpng, or another one than it was built for")
                         : read_all(&r);
  png_destroy_read_struct(&r.png, &r.info, NULL);
  free(r.pixels);
  return status;
}
