/* BMP: our own reader. Headers of OS/2 1 and of Windows; 1, 4, 8, 16, 24 and 32 bits, RLE4 and RLE8, bit fields, bottom-up and
 * top-down. Alpha is dropped; pixels that a run-length file skips have colour 0. Embedded JPEG and PNG are refused.
 */
#include <stdlib.h>
#include <string.h>

#include "modules/image/image.h"

enum { kRgb = 0, kRle8 = 1, kRle4 = 2, kFields = 3, kAlphaFields = 6 };
enum { kFileHeader = 14, kCoreHeader = 12, kInfoHeader = 40 };

typedef struct Field {
  uint32_t mask, shift, max;
} Field;

typedef struct Reader {
  Job* job;
  const Byte* bytes;
  uint64_t size;
  uint64_t header; /* bytes of the header behind the file's */
  uint64_t data;   /* where pixels begin */
  uint32_t width, height;
  int top_down;
  uint32_t bits, packing;
  uint32_t colours;
  Byte palette[256][3];
  Field fields[3];
  Byte* row; /* of indices, if there is a palette */
  Byte* rgb; /* a piece of a row */
} Reader;

static int set_field(Reader* r, int i, uint32_t mask) {
  Field* f = &r->fields[i];
  *f = (Field){mask, 0, mask};
  if (mask == 0) return EVN_IMAGE_OK;
  for (; (f->max & 1) == 0; f->max >>= 1) ++f->shift;
  return (f->max & (f->max + 1)) != 0 ? image_fail(r->job, EVN_IMAGE_BAD, "the bits of a colour are not side by side")
                                      : EVN_IMAGE_OK;
}

static int read_fields(Reader* r) {
  if (r->bits != 16 && r->bits != 32) return EVN_IMAGE_OK;
  uint32_t masks[3] = {r->bits == 16 ? 0x7c00u : 0xff0000u, r->bits == 16 ? 0x3e0u : 0xff00u, r->bits == 16 ? 0x1fu : 0xffu};
  if (r->packing != kRgb) { /* behind the header of 40 bytes, and at the same place in larger ones */
    if (r->size < kFileHeader + kInfoHeader + 12) return image_truncated(r->job);
    for (int i = 0; i < 3; ++i) masks[i] = image_le32(r->bytes + kFileHeader + kInfoHeader + 4 * i);
  }
  int status = EVN_IMAGE_OK;
  for (int i = 0; i < 3 && status == EVN_IMAGE_OK; ++i) status = set_field(r, i, masks[i]);
  return status;
}

static int read_palette(Reader* r, uint32_t used) {
  if (r->bits > 8) return EVN_IMAGE_OK;
  const uint64_t entry = r->header == kCoreHeader ? 3 : 4;
  r->colours = used == 0 || used > 1u << r->bits ? 1u << r->bits : used;
  const uint64_t begin = kFileHeader + r->header;
  if (r->size < begin + entry * r->colours) return image_truncated(r->job);
  for (uint32_t i = 0; i < r->colours; ++i) {
    for (int k = 0; k < 3; ++k) r->palette[i][k] = r->bytes[begin + entry * i + (uint64_t)(2 - k)];
  }
  return EVN_IMAGE_OK;
}

static int check_kind(Reader* r) {
  const uint32_t b = r->bits;
  const int fits = r->packing == kRgb    ? b == 1 || b == 4 || b == 8 || b == 16 || b == 24 || b == 32
                   : r->packing == kRle8 ? b == 8 && !r->top_down
                   : r->packing == kRle4 ? b == 4 && !r->top_down
                   : r->packing == kFields || r->packing == kAlphaFields ? b == 16 || b == 32
                                                                         : 0;
  return fits ? EVN_IMAGE_OK
              : image_fail(r->job, EVN_IMAGE_UNSUPPORTED, "%u bits of compression %u are not decoded", b, r->packing);
}

static int read_header(Reader* r) {
  const Byte* b = r->bytes;
  if (r->size < kFileHeader + kCoreHeader) return image_truncated(r->job);
  r->data = image_le32(b + 10);
  r->header = image_le32(b + kFileHeader);
  if (r->header != kCoreHeader && (r->header < kInfoHeader || r->header > 124)) {
    return image_fail(r->job, EVN_IMAGE_UNSUPPORTED, "a header of %u bytes is not read", image_le32(b + kFileHeader));
  }
  if (r->size < kFileHeader + r->header) return image_truncated(r->job);
  uint32_t used = 0;
  if (r->header == kCoreHeader) {
    r->width = image_le16(b + 18);
    r->height = image_le16(b + 20);
    r->bits = image_le16(b + 24);
  } else {
    r->width = image_le32(b + 18);
    r->height = image_le32(b + 22);
    r->top_down = r->height > INT32_MAX;
    if (r->top_down) r->height = 0u - r->height;
    r->bits = image_le16(b + 28);
    r->packing = image_le32(b + 30);
    used = image_le32(b + 46);
  }
  int status = check_kind(r);
  if (status == EVN_IMAGE_OK) status = image_size(r->job, r->width, r->height);
  if (status == EVN_IMAGE_OK) status = read_fields(r);
  if (status == EVN_IMAGE_OK) status = read_palette(r, used);
  return status;
}

static uint64_t stride_of(const Reader* r) { return ((uint64_t)r->width * r->bits + 31) / 32 * 4; }

/* Whether the pixels are there: before memory is taken. */
static int check_length(Reader* r) {
  if (r->data > r->size) return image_truncated(r->job);
  /* A run of two bytes is 255 pixels at most; the rest is for what a file skips. */
  if (r->packing == kRle8 || r->packing == kRle4) return image_plausible(r->job, (uint64_t)r->width * r->height, 1024);
  return stride_of(r) > (r->size - r->data) / r->height ? image_truncated(r->job) : EVN_IMAGE_OK;
}

static Byte field_of(const Field* f, uint32_t pixel) {
  return f->max == 0 ? 0 : (Byte)((uint64_t)((pixel & f->mask) >> f->shift) * 255 / f->max);
}

/* Reads `count` pixels, from pixel number `first` on, of the row at `from`. */
static void unpack_piece(Reader* r, const Byte* from, size_t first, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const size_t x = first + i;
    if (r->bits <= 8) {
      const unsigned per_byte = 8 / r->bits;
      r->row[x] = (Byte)(from[x / per_byte] >> (8 - r->bits * (x % per_byte + 1)) & ((1u << r->bits) - 1));
    } else if (r->bits == 24) {
      for (int k = 0; k < 3; ++k) r->rgb[3 * i + k] = from[3 * x + 2 - k];
    } else {
      const uint32_t pixel = r->bits == 16 ? image_le16(from + 2 * x) : image_le32(from + 4 * x);
      for (int k = 0; k < 3; ++k) r->rgb[3 * i + k] = field_of(&r->fields[k], pixel);
    }
  }
}

/* Writes row number `y` of the file, which lies at `from`. If `from` is NULL, r->row has the row's indices. */
static int put_row(Reader* r, uint32_t y, const Byte* from) {
  const uint32_t shown = r->top_down ? y : r->height - 1 - y;
  for (uint32_t x = 0; x < r->width; x += image_piece(r->width - x)) {
    const uint32_t count = image_piece(r->width - x);
    const int status = image_poll_stop(r->job, count);
    if (status != EVN_IMAGE_OK) return status;
    if (from != NULL) unpack_piece(r, from, x, count);
    if (r->bits <= 8) {
      for (size_t i = 0; i < count; ++i) memcpy(r->rgb + 3 * i, r->palette[r->row[x + i]], 3);
    }
    image_put_rgb(r->job, x, shown, r->rgb, count);
  }
  return EVN_IMAGE_OK;
}

static int read_plain(Reader* r) {
  const uint64_t stride = stride_of(r);
  int status = EVN_IMAGE_OK;
  for (uint32_t y = 0; y < r->height && status == EVN_IMAGE_OK; ++y) {
    status = put_row(r, y, r->bytes + r->data + stride * y);
  }
  return status;
}

/* The place that a run-length file writes at. What does not fit into a row is dropped. */
typedef struct Pen {
  uint32_t x, y;
} Pen;

static void draw(Reader* r, Pen* pen, Byte index) {
  if (pen->x < r->width) r->row[pen->x++] = index;
}

static int clear_row(Reader* r) {
  for (uint32_t x = 0; x < r->width; x += image_piece(r->width - x)) {
    const uint32_t count = image_piece(r->width - x);
    const int status = image_poll_stop(r->job, count);
    if (status != EVN_IMAGE_OK) return status;
    memset(r->row + x, 0, count);
  }
  return EVN_IMAGE_OK;
}

static int next_row(Reader* r, Pen* pen) {
  const int status = put_row(r, pen->y++, NULL);
  pen->x = 0;
  return status == EVN_IMAGE_OK ? clear_row(r) : status;
}

static Byte nibble(Byte pair, uint32_t i) { return i % 2 == 0 ? pair >> 4 : pair & 15; }

/* `count` indices one by one, from whole 16-bit words. Returns how many bytes they take, or 0 when these are not there. */
static uint64_t draw_literal(Reader* r, Pen* pen, const Byte* from, uint64_t left, uint32_t count) {
  const uint64_t bytes = r->packing == kRle8 ? count : (count + 1) / 2;
  if (bytes > left) return 0;
  for (uint32_t i = 0; i < count; ++i) draw(r, pen, r->packing == kRle8 ? from[i] : nibble(from[i / 2], i));
  return bytes + (bytes & 1);
}

static int read_runs(Reader* r) {
  Pen pen = {0, 0};
  uint64_t at = r->data;
  int status = clear_row(r);
  while (pen.y < r->height && status == EVN_IMAGE_OK) {
    if (at > r->size || r->size - at < 2) return image_truncated(r->job);
    const Byte count = r->bytes[at], what = r->bytes[at + 1];
    at += 2;
    status = image_poll_stop(r->job, count != 0 ? count : what);
    if (status != EVN_IMAGE_OK) return status;
    for (uint32_t i = 0; i < count; ++i) draw(r, &pen, r->packing == kRle8 ? what : nibble(what, i));
    if (count != 0) continue;
    if (what == 0) {
      status = next_row(r, &pen);
    } else if (what == 1) {
      while (pen.y < r->height && status == EVN_IMAGE_OK) status = next_row(r, &pen);
    } else if (what == 2) {
      if (r->size - at < 2) return image_truncated(r->job);
      const uint32_t x = pen.x + r->bytes[at], rows = r->bytes[at + 1];
      for (uint32_t i = 0; i < rows && pen.y < r->height && status == EVN_IMAGE_OK; ++i) status = next_row(r, &pen);
      pen.x = x < r->width ? x : r->width;
      at += 2;
    } else {
      const uint64_t used = draw_literal(r, &pen, r->bytes + at, r->size - at, what);
      if (used == 0) return image_truncated(r->job);
      at += used;
    }
  }
  return status;
}

int image_read_bmp(Job* job) {
  Reader r;
  memset(&r, 0, sizeof r);
  r.job = job;
  r.bytes = job->call->bytes;
  r.size = job->call->size;
  int status = read_header(&r);
  if (status == EVN_IMAGE_OK) status = check_length(&r);
  if (status != EVN_IMAGE_OK || job->out == NULL) return status;
  r.row = image_allocate(job, r.width + 3 * (uint64_t)image_piece(r.width), &status);
  if (r.row == NULL) return status;
  r.rgb = r.row + r.width;
  status = r.packing == kRle8 || r.packing == kRle4 ? read_runs(&r) : read_plain(&r);
  free(r.row);
  return status;
}
