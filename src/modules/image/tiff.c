/* TIFF by libtiff: the first picture of a file, turned as Orientation says. Gray, palettes, RGB, CMYK and YCbCr of 1, 2, 4, 8 and
 * (upper eight bits) 16 bits, in strips or tiles, planes together or apart; of the codecs those in `kCodecs`, whose memory is
 * known. Floats, CIE L*a*b* and the rest are refused.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

#include "modules/image/image.h"

enum { kMaxPlanes = 4, kMaxSamples = 16 };

static const uint16_t kCodecs[] = {COMPRESSION_NONE,          COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX3,
                                   COMPRESSION_CCITTFAX4,     COMPRESSION_LZW,      COMPRESSION_JPEG,
                                   COMPRESSION_ADOBE_DEFLATE, COMPRESSION_DEFLATE,  COMPRESSION_PACKBITS};

typedef struct Reader {
  Job* job;
  uint64_t at;
  TIFF* tiff;
  uint32_t width, height;
  uint16_t bits, samples, photometric, planar, codec, orientation;
  uint32_t colours;           /* samples that make the colour: 1, 3 or 4 */
  int as_rgba;                /* libtiff converts blocks to RGBA */
  int premultiplied;          /* colours are multiplied by the sample behind them */
  const uint16_t* palette[3]; /* libtiff's */
  uint32_t block_width, block_height;
  Byte* memory; /* blocks of all planes, or one of RGBA; then `piece` */
  Byte* piece;  /* converted pixels of a row */
} Reader;

/* ------------------------------------------------------------------------------------------------- what libtiff calls -- */

static tmsize_t give_bytes(thandle_t handle, void* to, tmsize_t count) {
  Reader* r = handle;
  const uint64_t size = r->job->call->size;
  const uint64_t left = r->at < size ? size - r->at : 0;
  const uint64_t given = count < 0 ? 0 : (uint64_t)count < left ? (uint64_t)count : left;
  if (given > 0) memcpy(to, r->job->call->bytes + r->at, (size_t)given);
  r->at += given;
  return (tmsize_t)given;
}

static tmsize_t take_bytes(thandle_t handle, void* from, tmsize_t count) {
  (void)handle, (void)from, (void)count;
  return 0;
}

static toff_t seek(thandle_t handle, toff_t offset, int whence) {
  Reader* r = handle;
  r->at = whence == SEEK_CUR ? r->at + offset : whence == SEEK_END ? r->job->call->size + offset : offset;
  return r->at;
}

static int close_nothing(thandle_t handle) { return (void)handle, 0; }

static toff_t size_of(thandle_t handle) { return ((Reader*)handle)->job->call->size; }

static int on_error(TIFF* tiff, void* user, const char* module, const char* format, va_list arguments) {
  (void)tiff, (void)module;
  char text[sizeof((evn_image_call*)0)->why];
  vsnprintf(text, sizeof text, format, arguments);
  image_fail(((Reader*)user)->job, EVN_IMAGE_BAD, "%s", text);
  return 1; /* no other handler is asked */
}

static int on_warning(TIFF* tiff, void* user, const char* module, const char* format, va_list arguments) {
  (void)tiff, (void)user, (void)module, (void)format, (void)arguments;
  return 1;
}

static TIFF* open_tiff(Reader* r) {
  TIFFOpenOptions* options = TIFFOpenOptionsAlloc();
  if (options == NULL) return NULL;
  const uint64_t work = r->job->call->work_bytes;
  TIFFOpenOptionsSetMaxSingleMemAlloc(options, work > PTRDIFF_MAX ? PTRDIFF_MAX : (tmsize_t)work);
#if TIFFLIB_VERSION >= 20240911
  TIFFOpenOptionsSetMaxCumulatedMemAlloc(options, work > PTRDIFF_MAX ? PTRDIFF_MAX : (tmsize_t)work);
#endif
  TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, r);
  TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, r);
  TIFF* tiff = TIFFClientOpenExt("image", "rm", r, give_bytes, take_bytes, seek, close_nothing, size_of, NULL, NULL, options);
  TIFFOpenOptionsFree(options);
  return tiff;
}

/* ------------------------------------------------------------------------------------------------------------- header -- */

static int refuse(Reader* r, const char* what, unsigned value) {
  return image_fail(r->job, EVN_IMAGE_UNSUPPORTED, "%s %u is not decoded", what, value);
}

static int check_codec(Reader* r) {
  for (size_t i = 0; i < sizeof kCodecs / sizeof kCodecs[0]; ++i) {
    if (kCodecs[i] == r->codec) return TIFFIsCODECConfigured(r->codec) ? EVN_IMAGE_OK : refuse(r, "compression", r->codec);
  }
  return refuse(r, "compression", r->codec);
}

static int check_colours(Reader* r) {
  uint16_t format = SAMPLEFORMAT_UINT, ink = INKSET_CMYK;
  TIFFGetFieldDefaulted(r->tiff, TIFFTAG_SAMPLEFORMAT, &format);
  if (format != SAMPLEFORMAT_UINT && format != SAMPLEFORMAT_VOID) return refuse(r, "sample format", format);
  const int few_bits = r->bits == 1 || r->bits == 2 || r->bits == 4;
  if (!few_bits && r->bits != 8 && r->bits != 16) return refuse(r, "a sample's number of bits", r->bits);
  r->colours = 1;
  switch (r->photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK: break;
    case PHOTOMETRIC_PALETTE:
      if (r->bits == 16 || !TIFFGetField(r->tiff, TIFFTAG_COLORMAP, &r->palette[0], &r->palette[1], &r->palette[2])) {
        return image_fail(r->job, EVN_IMAGE_BAD, "it has no palette for %u bits", r->bits);
      }
      break;
    case PHOTOMETRIC_RGB: r->colours = 3; break;
    case PHOTOMETRIC_YCBCR:
      r->colours = 3;
      r->as_rgba = r->codec != COMPRESSION_JPEG;
      break;
    case PHOTOMETRIC_SEPARATED:
      r->colours = 4;
      TIFFGetFieldDefaulted(r->tiff, TIFFTAG_INKSET, &ink);
      if (ink != INKSET_CMYK) return refuse(r, "ink set", ink);
      break;
    default: return refuse(r, "photometric interpretation", r->photometric);
  }
  if (r->samples < r->colours || r->samples > kMaxSamples) return refuse(r, "samples per pixel", r->samples);
  if (few_bits && r->samples != 1) return refuse(r, "samples of few bits, per pixel", r->samples);
  if (r->photometric == PHOTOMETRIC_YCBCR && (r->bits != 8 || r->samples != 3 || r->planar != PLANARCONFIG_CONTIG)) {
    return refuse(r, "YCbCr other than three samples of 8 bits side by side, with samples", r->samples);
  }
  return EVN_IMAGE_OK;
}

static int read_header(Reader* r) {
  TIFF* tiff = r->tiff;
  uint16_t extra_count = 0;
  uint16_t* extra = NULL;
  if (!TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &r->width) || !TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &r->height) ||
      !TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &r->photometric)) {
    return image_fail(r->job, EVN_IMAGE_BAD, "a tag that it must have is missing");
  }
  TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &r->bits);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &r->samples);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &r->planar);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &r->codec);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_ORIENTATION, &r->orientation);
  int status = check_codec(r);
  if (status == EVN_IMAGE_OK) status = check_colours(r);
  if (status != EVN_IMAGE_OK) return status;
  if (r->samples == 1) r->planar = PLANARCONFIG_CONTIG;
  if (r->colours == 3 && r->samples > 3 && TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &extra_count, &extra) && extra_count > 0) {
    r->premultiplied = extra[0] == EXTRASAMPLE_ASSOCALPHA;
  }
  status = image_size_oriented(r->job, r->width, r->height, r->orientation);
  const int fax = r->codec == COMPRESSION_CCITTRLE || r->codec == COMPRESSION_CCITTFAX3 || r->codec == COMPRESSION_CCITTFAX4;
  /* LZW makes at most some 2500 bytes of one, and strips may be shared. A fax makes a row of a bit. */
  return status != EVN_IMAGE_OK || fax ? status : image_plausible(r->job, (uint64_t)r->width * r->height, 65536);
}

/* ------------------------------------------------------------------------------------------------------------- pixels -- */

static Byte sample(const Reader* r, const Byte* row, size_t i) {
  if (r->bits == 8) return row[i];
  if (r->bits == 16) {
    uint16_t value; /* in the host's order */
    memcpy(&value, row + 2 * i, 2);
    return (Byte)(value >> 8);
  }
  const unsigned per_byte = 8u / r->bits;
  const unsigned value = row[i / per_byte] >> (8 - r->bits * (i % per_byte + 1)) & ((1u << r->bits) - 1);
  return (Byte)(r->photometric == PHOTOMETRIC_PALETTE ? value : value * 255 / ((1u << r->bits) - 1));
}

static void undo_alpha(Byte* rgb, unsigned alpha) {
  for (int k = 0; k < 3; ++k) {
    const unsigned value = alpha == 0 ? 0 : 255u * rgb[k] / alpha;
    rgb[k] = (Byte)(value > 255 ? 255 : value);
  }
}

/* Writes `count` pixels at (x, y), from pixel number `first` on of the rows of one block, one row for each plane. */
static void put_piece(Reader* r, const Byte* const* rows, size_t first, uint32_t x, uint32_t y, uint32_t count) {
  const int apart = r->planar == PLANARCONFIG_SEPARATE;
  for (size_t i = 0; i < count; ++i) {
    Byte colour[kMaxPlanes];
    const uint32_t wanted = r->colours + (uint32_t)r->premultiplied;
    for (uint32_t k = 0; k < wanted; ++k) {
      colour[k] = apart ? sample(r, rows[k], first + i) : sample(r, rows[0], (first + i) * r->samples + k);
    }
    Byte* to = r->piece + (r->colours == 1 && r->photometric != PHOTOMETRIC_PALETTE ? i : 3 * i);
    if (r->photometric == PHOTOMETRIC_PALETTE) {
      for (int k = 0; k < 3; ++k) to[k] = (Byte)(r->palette[k][colour[0]] >> 8);
    } else if (r->colours == 1) {
      to[0] = r->photometric == PHOTOMETRIC_MINISWHITE ? (Byte)(255 - colour[0]) : colour[0];
    } else if (r->colours == 3) {
      memcpy(to, colour, 3);
      if (r->premultiplied) undo_alpha(to, colour[3]);
    } else {
      image_cmyk_to_rgb(colour, to);
    }
  }
  if (r->colours == 1 && r->photometric != PHOTOMETRIC_PALETTE) {
    image_put_gray(r->job, x, y, r->piece, count);
  } else {
    image_put_rgb(r->job, x, y, r->piece, count);
  }
}

static int put_row(Reader* r, const Byte* const* rows, uint32_t x, uint32_t y, uint32_t columns) {
  for (uint32_t i = 0; i < columns; i += image_piece(columns - i)) {
    const uint32_t count = image_piece(columns - i);
    const int status = image_poll_stop(r->job, count);
    if (status != EVN_IMAGE_OK) return status;
    put_piece(r, rows, i, x + i, y, count);
  }
  return EVN_IMAGE_OK;
}

/* The block whose first pixel is (x, y), of a plane; `rows` are those inside the picture. */
static int read_block(Reader* r, Byte* to, uint64_t bytes, uint64_t row_bytes, uint32_t x, uint32_t y, uint32_t rows,
                      uint16_t plane) {
  const int tiled = TIFFIsTiled(r->tiff);
  const tmsize_t got = tiled ? TIFFReadEncodedTile(r->tiff, TIFFComputeTile(r->tiff, x, y, 0, plane), to, (tmsize_t)bytes)
                             : TIFFReadEncodedStrip(r->tiff, TIFFComputeStrip(r->tiff, y, plane), to, (tmsize_t)(row_bytes * rows));
  if (got < 0) return image_fail(r->job, EVN_IMAGE_BAD, "a strip or tile is damaged");
  return (uint64_t)got < row_bytes * rows ? image_truncated(r->job) : EVN_IMAGE_OK;
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Asks the stop condition before each block and plane, because libtiff may read megabytes of the file for one pixel. */
static int read_blocks(Reader* r, uint64_t bytes, uint64_t row_bytes) {
  const int apart = r->planar == PLANARCONFIG_SEPARATE;
  const uint32_t planes = apart ? r->colours + (uint32_t)r->premultiplied : 1;
  for (uint32_t y = 0; y < r->height; y += least(r->block_height, r->height - y)) {
    for (uint32_t x = 0; x < r->width; x += least(r->block_width, r->width - x)) {
      const uint32_t rows = least(r->block_height, r->height - y), columns = least(r->block_width, r->width - x);
      for (uint32_t k = 0; k < planes; ++k) {
        if (image_stopped(r->job)) return EVN_IMAGE_STOPPED;
        const int status = read_block(r, r->memory + bytes * k, bytes, row_bytes, x, y, rows, (uint16_t)k);
        if (status != EVN_IMAGE_OK) return status;
      }
      for (uint32_t i = 0; i < rows; ++i) {
        const Byte* from[kMaxPlanes];
        for (uint32_t k = 0; k < planes; ++k) from[k] = r->memory + bytes * k + row_bytes * i;
        const int status = put_row(r, from, x, y + i, columns);
        if (status != EVN_IMAGE_OK) return status;
      }
    }
  }
  return EVN_IMAGE_OK;
}

static int find_block_size(Reader* r) {
  r->block_width = r->width;
  r->block_height = r->height;
  if (TIFFIsTiled(r->tiff)) {
    TIFFGetField(r->tiff, TIFFTAG_TILEWIDTH, &r->block_width);
    TIFFGetField(r->tiff, TIFFTAG_TILELENGTH, &r->block_height);
  } else {
    TIFFGetFieldDefaulted(r->tiff, TIFFTAG_ROWSPERSTRIP, &r->block_height);
    r->block_height = least(r->block_height, r->height);
  }
  const int has_pixels = r->block_width != 0 && r->block_height != 0;
  return has_pixels ? EVN_IMAGE_OK : image_fail(r->job, EVN_IMAGE_BAD, "a strip or tile has no pixels");
}

static int decode_blocks(Reader* r) {
  TIFF* tiff = r->tiff;
  if (r->photometric == PHOTOMETRIC_YCBCR) TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
  int status = find_block_size(r);
  if (status != EVN_IMAGE_OK) return status;
  const uint64_t row_bytes = TIFFIsTiled(tiff) ? TIFFTileRowSize64(tiff) : TIFFScanlineSize64(tiff);
  const uint64_t per_pixel = r->planar == PLANARCONFIG_SEPARATE ? 1 : r->samples;
  if (row_bytes == 0 || row_bytes > (uint64_t)1 << 40 || row_bytes < (r->block_width * per_pixel * r->bits + 7) / 8) {
    return image_fail(r->job, EVN_IMAGE_BAD, "the size of its rows is wrong");
  }
  if (row_bytes > r->job->call->work_bytes / r->block_height) return image_work(r->job, UINT64_MAX);
  const uint64_t bytes = row_bytes * r->block_height;
  r->memory = image_allocate(r->job, bytes * kMaxPlanes + 3 * (uint64_t)image_piece(r->block_width), &status);
  if (r->memory == NULL) return status;
  r->piece = r->memory + bytes * kMaxPlanes;
  return read_blocks(r, bytes, row_bytes);
}

static int put_rgba_row(Reader* r, const uint32_t* from, uint32_t x, uint32_t y, uint32_t columns) {
  for (uint32_t i = 0; i < columns; i += image_piece(columns - i)) {
    const uint32_t count = image_piece(columns - i);
    const int status = image_poll_stop(r->job, count);
    if (status != EVN_IMAGE_OK) return status;
    for (size_t k = 0; k < count; ++k) {
      const uint32_t pixel = from[i + k];
      const Byte rgb[3] = {(Byte)TIFFGetR(pixel), (Byte)TIFFGetG(pixel), (Byte)TIFFGetB(pixel)};
      memcpy(r->piece + 3 * k, rgb, 3);
    }
    image_put_rgb(r->job, x + i, y, r->piece, count);
  }
  return EVN_IMAGE_OK;
}

/* Writes the block whose first pixel is (x, y). libtiff gives its rows from the last to the first. */
static int put_rgba_block(Reader* r, uint32_t* pixels, uint32_t x, uint32_t y) {
  const int tiled = TIFFIsTiled(r->tiff);
  const uint32_t rows = least(r->block_height, r->height - y), columns = least(r->block_width, r->width - x);
  if (image_stopped(r->job)) return EVN_IMAGE_STOPPED;
  if (!(tiled ? TIFFReadRGBATileExt(r->tiff, x, y, pixels, 1) : TIFFReadRGBAStripExt(r->tiff, y, pixels, 1))) {
    return image_fail(r->job, EVN_IMAGE_BAD, "a strip or tile is damaged");
  }
  const uint32_t given = tiled ? r->block_height : rows; /* a tile comes with its rows outside the picture */
  int status = EVN_IMAGE_OK;
  for (uint32_t i = 0; i < rows && status == EVN_IMAGE_OK; ++i) {
    status = put_rgba_row(r, pixels + (size_t)r->block_width * (given - 1 - i), x, y + i, columns);
  }
  return status;
}

/* YCbCr whose chroma libtiff has to spread. */
static int decode_rgba_blocks(Reader* r) {
  int status = find_block_size(r);
  if (status != EVN_IMAGE_OK) return status;
  const uint64_t pixels = (uint64_t)r->block_width * r->block_height;
  if (pixels > r->job->call->work_bytes / 4) return image_work(r->job, UINT64_MAX);
  r->memory = image_allocate(r->job, 4 * pixels + 3 * (uint64_t)image_piece(r->block_width), &status);
  if (r->memory == NULL) return status;
  r->piece = r->memory + 4 * pixels;
  TIFFSetField(r->tiff, TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT); /* image_size_oriented has taken care of it */
  for (uint32_t y = 0; y < r->height; y += least(r->block_height, r->height - y)) {
    for (uint32_t x = 0; x < r->width; x += least(r->block_width, r->width - x)) {
      status = put_rgba_block(r, (uint32_t*)(void*)r->memory, x, y);
      if (status != EVN_IMAGE_OK) return status;
    }
  }
  return EVN_IMAGE_OK;
}

int image_read_tiff(Job* job) {
  Reader r;
  memset(&r, 0, sizeof r);
  r.job = job;
  r.tiff = open_tiff(&r);
  if (r.tiff == NULL) return image_fail(job, EVN_IMAGE_BAD, "its directory cannot be read");
  int status = read_header(&r);
  if (status == EVN_IMAGE_OK && job->out != NULL) status = r.as_rgba ? decode_rgba_blocks(&r) : decode_blocks(&r);
  TIFFClose(r.tiff);
  free(r.memory);
  return status;
}
