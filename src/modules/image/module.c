/* libevener_image.so: pictures of seven formats, behind ops/infra/image_module.h. JPEG, PNG, TIFF, WebP and JPEG 2000 are read by
 * the system's libraries, BMP and PNM here. Nothing in it prints, ends the process, or keeps anything between calls.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "modules/image/image.h"

int image_fail(Job* job, int status, const char* format, ...) {
  char* why = job->call->why;
  if (why[0] != '\0') return status;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why, sizeof job->call->why, format, arguments);
  va_end(arguments);
  for (char* c = why; *c != '\0'; ++c) {
    if (*c < ' ' || *c > '~') *c = '?';
  }
  return status;
}

int image_truncated(Job* job) { return image_fail(job, EVN_IMAGE_BAD, "the file is truncated"); }

int image_size_oriented(Job* job, uint64_t width, uint64_t height, int orientation) {
  evn_image_call* call = job->call;
  if (width == 0 || height == 0) return image_fail(job, EVN_IMAGE_BAD, "the picture has no pixels");
  if (width > INT32_MAX || height > INT32_MAX) return image_fail(job, EVN_IMAGE_LIMIT, "the picture is too large");
  const int turned = orientation >= 5 && orientation <= 8;
  const uint32_t shown_width = (uint32_t)(turned ? height : width);
  const uint32_t shown_height = (uint32_t)(turned ? width : height);
  if (job->out == NULL) {
    call->width = shown_width;
    call->height = shown_height;
    return EVN_IMAGE_OK;
  }
  if (call->width != shown_width || call->height != shown_height)
    return image_fail(job, EVN_IMAGE_BAD, "the file changed while it was read");
  const ptrdiff_t pixel = call->pixels == EVN_IMAGE_GRAY ? 1 : 3;
  const ptrdiff_t row = pixel * (ptrdiff_t)shown_width;
  job->step_x = pixel;
  job->step_y = row;
  if (turned) {
    job->step_x = orientation == 7 || orientation == 8 ? -row : row;
    job->step_y = orientation == 6 || orientation == 7 ? -pixel : pixel;
    if (orientation == 7 || orientation == 8) job->out += row * (ptrdiff_t)(shown_height - 1);
    if (orientation == 6 || orientation == 7) job->out += pixel * (ptrdiff_t)(shown_width - 1);
    return EVN_IMAGE_OK;
  }
  if (orientation == 2 || orientation == 3) {
    job->step_x = -pixel;
    job->out += pixel * (ptrdiff_t)(shown_width - 1);
  }
  if (orientation == 3 || orientation == 4) {
    job->step_y = -row;
    job->out += row * (ptrdiff_t)(shown_height - 1);
  }
  return EVN_IMAGE_OK;
}

int image_size(Job* job, uint64_t width, uint64_t height) { return image_size_oriented(job, width, height, 1); }

int image_charge(Job* job, uint64_t bytes) {
  if (job->call->charge == NULL || job->call->charge(job->call->user, bytes) == 0) return EVN_IMAGE_OK;
  return image_fail(job, EVN_IMAGE_NO_MEMORY, "no memory");
}

int image_work(Job* job, uint64_t bytes) {
  const uint64_t most = job->call->work_bytes;
  if (bytes <= most) return job->out == NULL ? EVN_IMAGE_OK : image_charge(job, bytes);
  return image_fail(job, EVN_IMAGE_LIMIT, "decoding needs %llu bytes, %llu are allowed", (unsigned long long)bytes,
                    (unsigned long long)most);
}

int image_plausible(Job* job, uint64_t pixels, uint64_t most) {
  return pixels / most > job->call->size ? image_truncated(job) : EVN_IMAGE_OK;
}

int image_stopped(const Job* job) { return job->call->stop != NULL && job->call->stop(job->call->user) != 0; }

void* image_allocate(Job* job, uint64_t bytes, int* status) {
  *status = image_work(job, bytes);
  if (*status != EVN_IMAGE_OK) return NULL;
  void* memory = bytes > SIZE_MAX ? NULL : malloc(bytes == 0 ? 1 : (size_t)bytes);
  if (memory == NULL) *status = image_fail(job, EVN_IMAGE_NO_MEMORY, "no memory");
  return memory;
}

/* ------------------------------------------------------------------------------------------------------------- pixels -- */

void image_put_gray(Job* job, uint32_t x, uint32_t y, const Byte* gray, uint32_t count) {
  Byte* to = job->out + (ptrdiff_t)x * job->step_x + (ptrdiff_t)y * job->step_y;
  const ptrdiff_t step = job->step_x;
  if (job->call->pixels == EVN_IMAGE_GRAY) {
    for (uint32_t i = 0; i < count; ++i, to += step) to[0] = gray[i];
    return;
  }
  for (uint32_t i = 0; i < count; ++i, to += step) to[0] = to[1] = to[2] = gray[i];
}

void image_put_rgb(Job* job, uint32_t x, uint32_t y, const Byte* rgb, uint32_t count) {
  Byte* to = job->out + (ptrdiff_t)x * job->step_x + (ptrdiff_t)y * job->step_y;
  const ptrdiff_t step = job->step_x;
  if (job->call->pixels == EVN_IMAGE_GRAY) { /* ITU-R 601-2, in 16 bits behind the point */
    for (uint32_t i = 0; i < count; ++i, rgb += 3, to += step) {
      to[0] = (Byte)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
    }
    return;
  }
  const int red = job->call->pixels == EVN_IMAGE_BGR ? 2 : 0;
  for (uint32_t i = 0; i < count; ++i, rgb += 3, to += step) {
    to[red] = rgb[0];
    to[1] = rgb[1];
    to[2 - red] = rgb[2];
  }
}

void image_cmyk_to_rgb(const Byte* cmyk, Byte* rgb) {
  const unsigned paper = 255u - cmyk[3];
  for (int i = 0; i < 3; ++i) {
    const unsigned t = cmyk[i] * paper + 128u;
    rgb[i] = (Byte)(paper - ((t + (t >> 8)) >> 8)); /* paper - cmyk[i] * paper / 255, rounded */
  }
}

/* ------------------------------------------------------------------------------------------------------------- module -- */

typedef struct Format {
  const char* name;
  const char* magic; /* "." stands for any byte */
  size_t length;
  int (*read)(Job* job);
} Format;

static const Format kFormats[] = {
    {"JPEG", "\xff\xd8\xff", 3, image_read_jpeg},
    {"PNG", "\x89PNG\r\n\x1a\n", 8, image_read_png},
    {"WebP", "RIFF....WEBP", 12, image_read_webp},
    {"TIFF", "II*\0", 4, image_read_tiff},
    {"TIFF", "MM\0*", 4, image_read_tiff},
    {"TIFF", "II+\0", 4, image_read_tiff},
    {"TIFF", "MM\0+", 4, image_read_tiff},
    {"JPEG 2000", "\0\0\0\x0cjP  \r\n\x87\n", 12, image_read_jpeg2000},
    {"JPEG 2000", "\xff\x4f\xff\x51", 4, image_read_jpeg2000},
    {"BMP", "BM", 2, image_read_bmp},
    {"PNM", "P1", 2, image_read_pnm},
    {"PNM", "P2", 2, image_read_pnm},
    {"PNM", "P3", 2, image_read_pnm},
    {"PNM", "P4", 2, image_read_pnm},
    {"PNM", "P5", 2, image_read_pnm},
    {"PNM", "P6", 2, image_read_pnm},
};

static int is_format(const Format* format, const Byte* bytes, size_t size) {
  if (size < format->length) return 0;
  for (size_t i = 0; i < format->length; ++i) {
    if (format->magic[i] != '.' && (Byte)format->magic[i] != bytes[i]) return 0;
  }
  return 1;
}

static int run(evn_image_call* call, Byte* out) {
  Job job = {call, out, 0, 0, 0};
  call->format = "";
  call->why[0] = '\0';
  if (call->size == 0) return image_fail(&job, EVN_IMAGE_BAD, "there are no bytes");
  for (size_t i = 0; i < sizeof kFormats / sizeof kFormats[0]; ++i) {
    if (!is_format(&kFormats[i], call->bytes, call->size)) continue;
    call->format = kFormats[i].name;
    const int status = kFormats[i].read(&job);
    return status == EVN_IMAGE_OK || status == EVN_IMAGE_STOPPED ? status : image_fail(&job, status, "the file is damaged");
  }
  return image_fail(&job, EVN_IMAGE_BAD, "it is no BMP, JPEG, JPEG 2000, PNG, PNM, TIFF or WebP file");
}

static int measure(evn_image_call* call) { return run(call, NULL); }

static int decode(evn_image_call* call, unsigned char* out) { return out == NULL ? EVN_IMAGE_BAD : run(call, out); }

__attribute__((visibility("default"))) const evn_image_module_table* evn_image_module(void);

const evn_image_module_table* evn_image_module(void) {
  static const evn_image_module_table table = {EVN_IMAGE_MODULE_ABI, measure, decode};
  return &table;
}
