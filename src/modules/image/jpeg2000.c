/* JPEG 2000 by OpenJPEG, as a file (JP2) or a bare code stream: gray, RGB, sYCC, CMYK and palettes, up to 16 bits a sample; alpha
 * is dropped. OpenJPEG bounds none of its memory, so the code stream's headers are read here first, and what would make it allocate
 * much more than the picture is worth is refused: components, tiles, precincts, layers. Headers that OpenJPEG would read in another
 * way than this check are refused as well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openjpeg.h>

#include "modules/image/image.h"

enum {
  kMaxComponents = 4,
  kSoc = 0xff4f,
  kCap = 0xff50,
  kSiz = 0xff51,
  kCod = 0xff52,
  kCoc = 0xff53,
  kCpf = 0xff59,
  kSot = 0xff90,
  kSod = 0xff93,
  kEoc = 0xffd9
};
enum { kTileBytes = 8 << 10, kPrecinctBytes = 512, kSampleBytes = 20 }; /* what OpenJPEG takes for each, with what belongs to it */
enum { kPacketBytes = 2, kMaxResolutions = 33 };

typedef struct Reader {
  Job* job;
  const Byte* bytes;
  uint64_t size;
  uint64_t at;    /* of the stream that OpenJPEG reads */
  uint64_t begin; /* of the code stream */
  uint32_t width, height, tile_width, tile_height;
  uint32_t components;
  uint32_t layers;      /* the most that a coding style has */
  uint64_t style_bytes; /* of the precincts and packets of the coding style that has the most */
} Reader;

/* ------------------------------------------------------------------------------------------------------------ headers -- */

static int damaged(Reader* r, const char* what) { return image_fail(r->job, EVN_IMAGE_BAD, "%s", what); }

/* A box of [at, end): its type, and where its contents begin and end. 0 when there is none. */
static int read_box(const Reader* r, uint64_t at, uint64_t end, uint32_t* type, uint64_t* first, uint64_t* last) {
  if (end - at < 8) return 0;
  uint64_t length = image_be32(r->bytes + at);
  *type = image_be32(r->bytes + at + 4);
  *first = at + 8;
  if (length == 1) {
    if (end - at < 16) return 0;
    length = (uint64_t)image_be32(r->bytes + at + 8) << 32 | image_be32(r->bytes + at + 12);
    *first = at + 16;
  }
  if (length == 0) length = end - at;
  if (length < *first - at || length > end - at) return 0;
  *last = at + length;
  return 1;
}

/* A palette may make as many components of one as a picture may have. [first, last) are the contents of a box. */
static int check_palette(Reader* r, uint32_t type, uint64_t first, uint64_t last) {
  if (type != 0x70636c72 || last - first < 3 || r->bytes[first + 2] <= kMaxComponents) return EVN_IMAGE_OK; /* pclr */
  return image_fail(r->job, EVN_IMAGE_UNSUPPORTED, "its palette has %u components", r->bytes[first + 2]);
}

/* Finds the code stream of a JP2 file. OpenJPEG reads palettes of the header box and beside it. */
static int find_stream(Reader* r) {
  if (image_be16(r->bytes) == kSoc) return EVN_IMAGE_OK;
  uint32_t type = 0;
  uint64_t first = 0, last = 0;
  for (uint64_t at = 0; read_box(r, at, r->size, &type, &first, &last); at = last) {
    if (type == 0x6a703263) { /* jp2c */
      r->begin = first;
      return EVN_IMAGE_OK;
    }
    int status = check_palette(r, type, first, last);
    if (status != EVN_IMAGE_OK) return status;
    if (type != 0x6a703268) continue; /* jp2h */
    uint64_t inner_first = 0, inner_last = 0;
    for (uint64_t inner = first; read_box(r, inner, last, &type, &inner_first, &inner_last); inner = inner_last) {
      status = check_palette(r, type, inner_first, inner_last);
      if (status != EVN_IMAGE_OK) return status;
    }
  }
  return damaged(r, "it has no whole code stream");
}

static uint64_t rounded_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

static int read_siz(Reader* r, const Byte* p, uint32_t length) {
  if (r->components != 0) return damaged(r, "it has two sizes");
  if (length < 36) return damaged(r, "the size in its header is too short");
  const uint32_t right = image_be32(p + 2), below = image_be32(p + 6), left = image_be32(p + 10), top = image_be32(p + 14);
  if (right <= left || below <= top) return damaged(r, "the picture has no pixels");
  r->width = right - left;
  r->height = below - top;
  r->tile_width = image_be32(p + 18);
  r->tile_height = image_be32(p + 22);
  r->components = image_be16(p + 34);
  if (r->components == 0 || r->components > kMaxComponents) {
    return image_fail(r->job, EVN_IMAGE_UNSUPPORTED, "it has %u components", r->components);
  }
  if (r->tile_width == 0 || r->tile_height == 0) return damaged(r, "its tiles have no pixels");
  const int status = image_size(r->job, r->width, r->height);
  if (status != EVN_IMAGE_OK) return status;
  /* With the tiles that an offset of the grid adds. */
  const uint64_t tiles = (rounded_up(r->width, r->tile_width) + 1) * (rounded_up(r->height, r->tile_height) + 1);
  const uint64_t samples = (uint64_t)r->width * r->height * r->components; /* below 2^64 */
  if (tiles > UINT32_MAX || samples > r->job->call->work_bytes / kSampleBytes) return image_work(r->job, UINT64_MAX);
  return image_work(r->job, kSampleBytes * samples + kTileBytes * tiles * (1 + r->components));
}

/* The coding style of components: how many precincts it makes of the picture. `p` is at the number of decomposition levels.
 * OpenJPEG marks packets in an array of all layers, resolutions, components and the most precincts of a resolution.
 */
static int check_style(Reader* r, const Byte* p, uint32_t length, int has_precincts) {
  if (length < 5) return damaged(r, "a coding style in its header is too short");
  const uint32_t levels = p[0];
  if (levels > 32 || (has_precincts && length < 5 + levels + 1)) return damaged(r, "a coding style in its header is damaged");
  const uint64_t tiles = rounded_up(r->width, r->tile_width) * rounded_up(r->height, r->tile_height);
  uint64_t count = 0, most = 0;
  for (uint32_t i = 0; i <= levels; ++i) {
    const uint32_t size = has_precincts ? p[5 + i] : 0xff;
    const uint64_t scale = (uint64_t)1 << (levels - i);
    const uint64_t across = rounded_up(rounded_up(r->width, scale), (uint64_t)1 << (size & 15)) + 1;
    const uint64_t down = rounded_up(rounded_up(r->height, scale), (uint64_t)1 << (size >> 4)) + 1;
    count += across * down; /* below 2^63 */
    if (count > UINT32_MAX) return image_work(r->job, UINT64_MAX);
    if (across * down > most) most = across * down;
  }
  count += tiles * (levels + 1);
  const uint64_t packets = most * kMaxResolutions * (r->layers + 1); /* below 2^55 */
  const uint64_t bytes = (count * kPrecinctBytes + packets * kPacketBytes) * r->components;
  if (count > UINT32_MAX || bytes > r->job->call->work_bytes) return image_work(r->job, UINT64_MAX);
  if (bytes <= r->style_bytes) return EVN_IMAGE_OK;
  const uint64_t more = bytes - r->style_bytes; /* each component has one style of those in the headers */
  r->style_bytes = bytes;
  return image_work(r->job, more);
}

static int read_cod(Reader* r, const Byte* p, uint32_t length) {
  if (length < 5) return damaged(r, "a coding style is too short");
  const uint32_t layers = image_be16(p + 2);
  if (layers > r->layers) r->layers = layers;
  return check_style(r, p + 5, length - 5, p[0] & 1);
}

static int read_coc(Reader* r, const Byte* p, uint32_t length) {
  return length < 2 ? damaged(r, "a coding style is too short") : check_style(r, p + 2, length - 2, p[1] & 1);
}

/* Markers that OpenJPEG reads in the main header, CAP and CPF from version 2.5 on. Behind another marker it looks for the next one
 * of these in all bytes, whatever length the other marker has.
 */
static int is_of_main_header(uint32_t marker) {
  static const Byte kRead[] = {0x51, 0x52, 0x53, 0x55, 0x57, 0x5c, 0x5d, 0x5e,        /* SIZ COD COC TLM PLM QCD QCC RGN */
                               0x5f, 0x60, 0x63, 0x64, 0x74, 0x75, 0x77, 0x78, 0x90}; /* POC PPM CRG COM MCT MCC MCO CBD SOT */
  if (memchr(kRead, (int)(marker & 0xff), sizeof kRead) != NULL) return 1;
  unsigned major = 0, minor = 0;
  if ((marker != kCap && marker != kCpf) || sscanf(opj_version(), "%u.%u", &major, &minor) != 2) return 0;
  return major > 2 || (major == 2 && minor >= 5);
}

/* Walks over the headers of the picture and of all its tile parts: as OpenJPEG does, to the end of the file, not of the box. */
static int check_headers(Reader* r) {
  uint64_t at = r->begin;
  const uint64_t end = r->size;
  if (end - at < 4 || image_be16(r->bytes + at) != kSoc || image_be16(r->bytes + at + 2) != kSiz)
    return damaged(r, "its code stream has no size");
  enum { kMainHeader, kPartHeader, kBehindPart } place = kMainHeader;
  uint64_t part_end = 0; /* 0: the last tile part, which takes the rest of the file */
  for (at += 2; end - at >= 4;) {
    const uint32_t marker = image_be16(r->bytes + at);
    if (place == kMainHeader && marker >= 0xff00 && !is_of_main_header(marker)) {
      return image_fail(r->job, EVN_IMAGE_UNSUPPORTED, "the marker %04x in its main header is not read", marker);
    }
    if (place == kBehindPart && marker == kEoc) return EVN_IMAGE_OK;
    if (place == kBehindPart && marker != kSot) return damaged(r, "it has no tile part where one must be");
    if (marker == kSod) {
      if (part_end == 0 || part_end > end) return EVN_IMAGE_OK; /* the last part; or a truncated one, which OpenJPEG finds out */
      if (part_end != at && part_end < at + 2) return damaged(r, "a tile part is shorter than its header");
      at = part_end == at ? at + 2 : part_end; /* OpenJPEG accepts a part without data whose length leaves the marker out */
      place = kBehindPart;
      continue;
    }
    const uint64_t length = image_be16(r->bytes + at + 2);
    if (marker < 0xff00 || length < 2 || length + 2 > end - at) return damaged(r, "a marker of its code stream is damaged");
    const Byte* p = r->bytes + at + 4;
    const uint32_t left = (uint32_t)length - 2;
    int status = EVN_IMAGE_OK;
    if (marker == kSiz) status = read_siz(r, p, left);
    if (marker == kCod) status = read_cod(r, p, left);
    if (marker == kCoc) status = read_coc(r, p, left);
    if (marker == kSot) {
      if (left != 8) return damaged(r, "the header of a tile part has a wrong length");
      part_end = image_be32(p + 2) == 0 ? 0 : at + image_be32(p + 2);
      place = kPartHeader;
    }
    if (status != EVN_IMAGE_OK) return status;
    at += 2 + length;
  }
  return r->components == 0 ? image_truncated(r->job) : EVN_IMAGE_OK;
}

/* ----------------------------------------------------------------------------------------------- what OpenJPEG calls -- */

static OPJ_SIZE_T give_bytes(void* to, OPJ_SIZE_T count, void* user) {
  Reader* r = user;
  const uint64_t left = r->size - r->at;
  const OPJ_SIZE_T given = count < left ? count : (OPJ_SIZE_T)left;
  if (given == 0) return (OPJ_SIZE_T)-1;
  memcpy(to, r->bytes + r->at, given);
  r->at += given;
  return given;
}

static OPJ_OFF_T skip(OPJ_OFF_T count, void* user) {
  Reader* r = user;
  if (count < 0) return -1;
  const uint64_t left = r->size - r->at;
  if (left == 0 && count > 0) return -1;
  const uint64_t skipped = (uint64_t)count < left ? (uint64_t)count : left;
  r->at += skipped;
  return (OPJ_OFF_T)skipped;
}

static OPJ_BOOL seek(OPJ_OFF_T place, void* user) {
  Reader* r = user;
  if (place < 0 || (uint64_t)place > r->size) return OPJ_FALSE;
  r->at = (uint64_t)place;
  return OPJ_TRUE;
}

static void on_error(const char* text, void* user) {
  Reader* r = user;
  size_t length = strlen(text);
  while (length > 0 && text[length - 1] == '\n') --length;
  image_fail(r->job, EVN_IMAGE_BAD, "%.*s", (int)(length > 150 ? 150 : length), text);
}

static void on_message(const char* text, void* user) { (void)text, (void)user; }

/* ------------------------------------------------------------------------------------------------------------- pixels -- */

static Byte sample(const opj_image_comp_t* c, uint32_t x, uint32_t y, uint32_t width, uint32_t height) {
  const uint64_t cx = c->w == width ? x : (uint64_t)x * c->w / width;
  const uint64_t cy = c->h == height ? y : (uint64_t)y * c->h / height;
  const int64_t most = ((int64_t)1 << c->prec) - 1;
  int64_t value = (int64_t)c->data[cy * c->w + cx] + (c->sgnd ? (int64_t)1 << (c->prec - 1) : 0);
  value = value < 0 ? 0 : value > most ? most : value;
  return (Byte)(c->prec == 8 ? value : c->prec > 8 ? value >> (c->prec - 8) : value * 255 / most);
}

static Byte clamped(double v) { return (Byte)(v <= 0 ? 0 : v >= 255 ? 255 : v + 0.5); }

static void ycc_to_rgb(Byte* p) {
  const double y = p[0], cb = p[1] - 128.0, cr = p[2] - 128.0;
  p[0] = clamped(y + 1.402 * cr);
  p[1] = clamped(y - 0.344136 * cb - 0.714136 * cr);
  p[2] = clamped(y + 1.772 * cb);
}

static int check_image(Reader* r, const opj_image_t* image) {
  if (image->x1 - image->x0 != r->width || image->y1 - image->y0 != r->height || image->numcomps == 0 ||
      image->numcomps > kMaxComponents) {
    return damaged(r, "it has another size than its header says");
  }
  for (uint32_t k = 0; k < image->numcomps; ++k) {
    const opj_image_comp_t* c = &image->comps[k];
    if (c->data == NULL || c->w == 0 || c->h == 0 || c->w > r->width || c->h > r->height)
      return damaged(r, "a component has no samples");
    if (c->prec < 1 || c->prec > 16)
      return image_fail(r->job, EVN_IMAGE_UNSUPPORTED, "samples of %u bits are not decoded", c->prec);
  }
  return EVN_IMAGE_OK;
}

static int put_image(Reader* r, const opj_image_t* image) {
  int status = check_image(r, image);
  if (status != EVN_IMAGE_OK) return status;
  const int cmyk = image->color_space == OPJ_CLRSPC_CMYK && image->numcomps == 4;
  const int ycc = (image->color_space == OPJ_CLRSPC_SYCC || image->color_space == OPJ_CLRSPC_EYCC) && image->numcomps >= 3;
  const uint32_t colours = cmyk ? 4 : image->numcomps >= 3 ? 3 : 1;
  Byte* row = image_allocate(r->job, 3 * (uint64_t)r->width, &status);
  if (row == NULL) return status;
  for (uint32_t y = 0; y < r->height; ++y) {
    for (uint32_t x = 0; x < r->width; ++x) {
      Byte p[4];
      for (uint32_t k = 0; k < colours; ++k) p[k] = sample(&image->comps[k], x, y, r->width, r->height);
      Byte* to = row + (colours == 1 ? x : 3 * (size_t)x);
      if (cmyk) {
        image_cmyk_to_rgb(p, to);
        continue;
      }
      if (ycc) ycc_to_rgb(p);
      memcpy(to, p, colours);
    }
    if (colours == 1) {
      image_put_gray(r->job, 0, y, row, r->width);
    } else {
      image_put_rgb(r->job, 0, y, row, r->width);
    }
  }
  free(row);
  return EVN_IMAGE_OK;
}

static int decode_with(Reader* r, opj_codec_t* codec, opj_stream_t* stream) {
  opj_dparameters_t parameters;
  opj_set_default_decoder_parameters(&parameters);
  opj_set_error_handler(codec, on_error, r);
  opj_set_warning_handler(codec, on_message, r);
  opj_set_info_handler(codec, on_message, r);
  opj_image_t* image = NULL;
  int status = EVN_IMAGE_OK;
  /* No threads, whatever OPJ_NUM_THREADS says. */
  if (!opj_setup_decoder(codec, &parameters) || !opj_codec_set_threads(codec, 0) || !opj_read_header(stream, codec, &image) ||
      !opj_decode(codec, stream, image)) {
    status = damaged(r, "its code stream is damaged");
  }
  if (status == EVN_IMAGE_OK) status = put_image(r, image);
  opj_image_destroy(image);
  return status;
}

int image_read_jpeg2000(Job* job) {
  Reader r;
  memset(&r, 0, sizeof r);
  r.job = job;
  r.bytes = job->call->bytes;
  r.size = job->call->size;
  int status = find_stream(&r);
  if (status == EVN_IMAGE_OK) status = check_headers(&r);
  if (status != EVN_IMAGE_OK || job->out == NULL) return status;
  if (image_stopped(job)) return EVN_IMAGE_STOPPED;
  opj_codec_t* codec = opj_create_decompress(r.begin == 0 ? OPJ_CODEC_J2K : OPJ_CODEC_JP2);
  opj_stream_t* stream = opj_stream_default_create(OPJ_TRUE);
  if (codec == NULL || stream == NULL) {
    status = image_fail(job, EVN_IMAGE_NO_MEMORY, "no memory");
  } else {
    opj_stream_set_user_data(stream, &r, NULL);
    opj_stream_set_user_data_length(stream, r.size);
    opj_stream_set_read_function(stream, give_bytes);
    opj_stream_set_skip_function(stream, skip);
    opj_stream_set_seek_function(stream, seek);
    status = decode_with(&r, codec, stream);
  }
  if (stream != NULL) opj_stream_destroy(stream);
  if (codec != NULL) opj_destroy_codec(codec);
  return status;
}
