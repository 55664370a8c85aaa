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

static void skip_space(Reader* r) {
  for (; r->at < r->end && (is_space(*r->at) || *r->at == '#'); ++r->at) {
    if (*r->at != '#') continue;
    while (r->at < r->end && *r->at != '\n' && *r->at != '\r') ++r->at;
    if (r->at == r->end) return;
  }
}

static int read_number(Reader* r, uint32_t* number) {
  skip_space(r);
  if (r->at == r->end) return image_truncated(r->job);
  const Byte* first = r->at;
  for (*number = 0; r->at < r->end && *r->at >= '0' && *r->at <= '9'; ++r->at) {
    *number = *number * 10 + (uint32_t)(*r->at - '0');
    if (*number > kMaxNumber) return image_fail(r->job, EVN_IMAGE_LIMIT, "a number in it is too large");
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

static int read_plain_row(Reader* r, Byte* row, uint32_t samples) {
  for (uint32_t i = 0; i < samples; ++i) {
    uint32_t value = 0;
    if (r->kind == 1) { /* digits need no space between them */
      skip_space(r);
      if (r->at == r->end) return image_truncated(r->job);
      if (*r->at != '0' && *r->at != '1') return image_fail(r->job, EVN_IMAGE_BAD, "it has a bit that is neither 0 nor 1");
      row[i] = *r->at++ == '0' ? 255 : 0;
      continue;
    }
    const int status = read_number(r, &value);
    if (status != EVN_IMAGE_OK) return status;
    if (value > r->max) return image_fail(r->job, EVN_IMAGE_BAD, "a value is above its largest");
    row[i] = scaled(r, value);
  }
  return EVN_IMAGE_OK;
}

/* check_length has seen that the bytes are there. */
static void read_raw_row(Reader* r, Byte* row, uint32_t samples) {
  if (r->kind == 4) {
    for (uint32_t i = 0; i < samples; ++i) row[i] = (r->at[i / 8] >> (7 - i % 8) & 1) != 0 ? 0 : 255;
    r->at += (samples + 7) / 8;
    return;
  }
  const uint32_t bytes = r->max > 255 ? 2 : 1;
  for (uint32_t i = 0; i < samples; ++i, r->at += bytes) {
    const uint32_t value = bytes == 2 ? image_be16(r->at) : r->at[0];
    row[i] = scaled(r, value > r->max ? r->max : value);
  }
}

int image_read_pnm(Job* job) {
  Reader r = {job, job->call->bytes + 2, job->call->bytes + job->call->size, job->call->bytes[1] - '0', 0, 0, 0};
  int status = read_header(&r);
  if (status == EVN_IMAGE_OK) status = image_size(job, r.width, r.height);
  if (status == EVN_IMAGE_OK) status = check_length(&r);
  if (status != EVN_IMAGE_OK || job->out == NULL) return status;
  const uint32_t samples = r.width * channels_of(&r); /* at most 3 * 2^30 */
  Byte* row = image_allocate(job, samples, &status);
  for (uint32_t y = 0; row != NULL && y < r.height && status == EVN_IMAGE_OK; ++y) {
    if (y % 64 == 0 && image_stopped(job)) status = EVN_IMAGE_STOPPED;
    if (status == EVN_IMAGE_OK && r.kind <= 3) status = read_plain_row(&r, row, samples);
    if (status != EVN_IMAGE_OK) break;
    if (r.kind > 3) read_raw_row(&r, row, samples);
    if (samples == r.width) {
      image_put_gray(job, 0, y, row, r.width);
    } else {
      image_put_rgb(job, 0, y, row, r.width);
    }
  }
  free(row);
  return status;
}
