/* PBM, PGM and PPM, plain and raw, up to 16 bits: our own reader. Samples are scaled to 255 and rounded, ties to even. */
#include <stdlib.h>
#include <string.h>

#include "modules/image/image.h"

enum { kMaxNumber = 1 << 30 };

typedef struct Reader {
  Job* job;
  const Byte* at;
  const Byte* end;
  int kind; /* the digit of "P5" */
  uint32_t width, height, max;
} Reader;

static int is_space(Byte c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Skips blanks and comments, and fails if nothing is behind them. */
static int skip_space(Reader* r) {
  int in_comment = 0;
  for (; r->at < r->end && (in_comment || is_space(*r->at) || *r->at == '#'); ++r->at) {
    const int status = image_poll_stop(r->job, 1);
    if (status != EVN_IMAGE_OK) return status;
    in_comment = (in_comment || *r->at == '#') && *r->at != '\n' && *r->at != '\r';
  }
  return r->at == r->end ? image_truncated(r->job) : EVN_IMAGE_OK;
}

static int read_number(Reader* r, uint32_t* number) {
  int status = skip_space(r);
  if (status != EVN_IMAGE_OK) return status;
  const Byte* first = r->at;
  for (*number = 0; r->at < r->end && *r->at >= '0' && *r->at <= '9'; ++r->at) {
    status = image_poll_stop(r->job, 1); /* a number may begin with any number of zeros */
    if (status != EVN_IMAGE_OK) return status;
    const uint64_t longer = (uint64_t)*number * 10 + (uint64_t)(*r->at - '0');
    if (longer > kMaxNumber) return image_fail(r->job, EVN_IMAGE_LIMIT, "a number in it is too large");
    *number = (uint32_t)longer;
  }
  return r->at == first ? image_fail(r->job, EVN_IMAGE_BAD, "it has no number where one must be") : EVN_IMAGE_OK;
}

static Byte scaled(const Reader* r, uint32_t value) {
  if (r->max == 255) return (Byte)value;
  const uint32_t product = value * 255; /* both below 2^16 */
  const uint32_t twice_rest = 2 * (product % r->max);
  const uint32_t whole = product / r->max;
  return (Byte)(whole + (twice_rest > r->max || (twice_rest == r->max && (whole & 1) != 0)));
}

static int read_header(Reader* r) {
  if (r->at < r->end && !is_space(*r->at) && *r->at != '#')
    return image_fail(r->job, EVN_IMAGE_BAD, "there is no space behind its first two letters");
  int status = read_number(r, &r->width);
  if (status == EVN_IMAGE_OK) status = read_number(r, &r->height);
  r->max = 1;
  if (status == EVN_IMAGE_OK && r->kind % 3 != 1) status = read_number(r, &r->max);
  if (status != EVN_IMAGE_OK) return status;
  if (r->max == 0 || r->max > 65535) return image_fail(r->job, EVN_IMAGE_BAD, "its largest value is %u", r->max);
  if (r->kind <= 3) return EVN_IMAGE_OK;
  if (r->at == r->end) return image_truncated(r->job);
  if (!is_space(*r->at)) return image_fail(r->job, EVN_IMAGE_BAD, "there is no space behind its header");
  ++r->at;
  return EVN_IMAGE_OK;
}

static uint32_t channels_of(const Reader* r) { return r->kind % 3 == 0 ? 3 : 1; }

/* Whether there can be as many samples as the header says: before memory is taken. */
static int check_length(Reader* r) {
  const uint64_t samples = (uint64_t)r->width * channels_of(r);
  uint64_t row = samples;
  if (r->kind == 4) row = (samples + 7) / 8;
  if (r->kind > 4 && r->max > 255) row = 2 * samples;
  /* Below 2^31 * 2^3. Plain samples take a byte at least. */
  return row * r->height > (uint64_t)(r->end - r->at) ? image_truncated(r->job) : EVN_IMAGE_OK;
}

static int read_plain(Reader* r, Byte* to, uint32_t samples) {
  for (uint32_t i = 0; i < samples; ++i) {
    uint32_t value = 0;
    if (r->kind == 1) { /* digits need no space between them */
      const int status = skip_space(r);
      if (status != EVN_IMAGE_OK) return status;
      if (*r->at != '0' && *r->at != '1') return image_fail(r->job, EVN_IMAGE_BAD, "it has a bit that is neither 0 nor 1");
      to[i] = *r->at++ == '0' ? 255 : 0;
      continue;
    }
    const int status = read_number(r, &value);
    if (status != EVN_IMAGE_OK) return status;
    if (value > r->max) return image_fail(r->job, EVN_IMAGE_BAD, "a value is above its largest");
    to[i] = scaled(r, value);
  }
  return EVN_IMAGE_OK;
}

/* check_length has seen that the bytes are there. */
static void read_raw(Reader* r, Byte* to, uint32_t samples) {
  if (r->kind == 4) {
    for (uint32_t i = 0; i < samples; ++i) to[i] = (r->at[i / 8] >> (7 - i % 8) & 1) != 0 ? 0 : 255;
    r->at += (samples + 7) / 8;
    return;
  }
  const uint32_t bytes = r->max > 255 ? 2 : 1;
  for (uint32_t i = 0; i < samples; ++i, r->at += bytes) {
    const uint32_t value = bytes == 2 ? image_be16(r->at) : r->at[0];
    to[i] = scaled(r, value > r->max ? r->max : value);
  }
}

/* Reads the next `count` pixels of the file and writes them at (x, y). */
static int read_piece(Reader* r, Byte* samples, uint32_t x, uint32_t y, uint32_t count) {
  const uint32_t channels = channels_of(r);
  int status = EVN_IMAGE_OK;
  if (r->kind <= 3) {
    status = read_plain(r, samples, count * channels);
  } else {
    read_raw(r, samples, count * channels);
  }
  if (status != EVN_IMAGE_OK) return status;
  if (channels == 1) {
    image_put_gray(r->job, x, y, samples, count);
  } else {
    image_put_rgb(r->job, x, y, samples, count);
  }
  return EVN_IMAGE_OK;
}

int image_read_pnm(Job* job) {
  Reader r = {job, job->call->bytes + 2, job->call->bytes + job->call->size, job->call->bytes[1] - '0', 0, 0, 0};
  int status = read_header(&r);
  if (status == EVN_IMAGE_OK) status = image_size(job, r.width, r.height);
  if (status == EVN_IMAGE_OK) status = check_length(&r);
  if (status != EVN_IMAGE_OK || job->out == NULL) return status;
  Byte* samples = image_allocate(job, (uint64_t)image_piece(r.width) * channels_of(&r), &status);
  for (uint32_t y = 0; y < r.height && status == EVN_IMAGE_OK; ++y) {
    for (uint32_t x = 0; x < r.width && status == EVN_IMAGE_OK; x += image_piece(r.width - x)) {
      const uint32_t count = image_piece(r.width - x);
      status = image_poll_stop(job, count);
      if (status == EVN_IMAGE_OK) status = read_piece(&r, samples, x, y, count);
    }
  }
  free(samples);
  return status;
}
