/* WebP by libwebp, lossy and lossless; alpha is dropped. Of an animation the first frame is taken, on a black canvas. */
#include <stdlib.h>

#include <webp/decode.h>
#include <webp/demux.h>

#include "modules/image/image.h"

static int fail_with(Job* job, VP8StatusCode code) {
  switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY: return image_fail(job, EVN_IMAGE_NO_MEMORY, "no memory");
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED: return image_truncated(job);
    case VP8_STATUS_UNSUPPORTED_FEATURE: return image_fail(job, EVN_IMAGE_UNSUPPORTED, "it has a feature that libwebp has not");
    default: return image_fail(job, EVN_IMAGE_BAD, "its bit stream is damaged");
  }
}

static int read_still(Job* job, WebPDecoderConfig* config) {
  const evn_image_call* call = job->call;
  const uint64_t stride = 3 * (uint64_t)call->width;
  const uint64_t bytes = stride * call->height;
  const int gray = call->pixels == EVN_IMAGE_GRAY;
  int status = EVN_IMAGE_OK;
  Byte* rgb = gray ? image_allocate(job, bytes, &status) : job->out;
  if (rgb == NULL) return status;
  config->output.colorspace = call->pixels == EVN_IMAGE_BGR ? MODE_BGR : MODE_RGB;
  config->output.is_external_memory = 1;
  config->output.u.RGBA.rgba = rgb;
  config->output.u.RGBA.stride = (int)stride; /* a side is below 2^14 */
  config->output.u.RGBA.size = (size_t)bytes;
  const VP8StatusCode code = WebPDecode(call->bytes, call->size, config);
  if (code != VP8_STATUS_OK) status = fail_with(job, code);
  for (uint32_t y = 0; gray && status == EVN_IMAGE_OK && y < call->height; ++y)
    image_put_rgb(job, 0, y, rgb + stride * y, call->width);
  WebPFreeDecBuffer(&config->output);
  if (gray) free(rgb);
  return status;
}

static int read_first_frame(Job* job) {
  const uint32_t width = job->call->width;
  WebPAnimDecoderOptions options;
  if (!WebPAnimDecoderOptionsInit(&options))
    return image_fail(job, EVN_IMAGE_UNSUPPORTED, "libwebp is another one than it was built for");
  options.color_mode = MODE_RGBA;
  options.use_threads = 0;
  const WebPData data = {job->call->bytes, job->call->size};
  WebPAnimDecoder* decoder = WebPAnimDecoderNew(&data, &options);
  if (decoder == NULL) return image_fail(job, EVN_IMAGE_BAD, "its frames are damaged, or there is no memory for them");
  WebPAnimInfo info;
  Byte* canvas = NULL;
  int time = 0;
  int status = EVN_IMAGE_OK;
  if (!WebPAnimDecoderGetInfo(decoder, &info) || info.canvas_width != width || info.canvas_height != job->call->height ||
      !WebPAnimDecoderGetNext(decoder, &canvas, &time)) {
    status = image_fail(job, EVN_IMAGE_BAD, "its first frame is damaged");
  }
  for (uint32_t y = 0; status == EVN_IMAGE_OK && y < info.canvas_height; ++y) {
    Byte* row = canvas + 4 * (size_t)width * y;
    for (size_t x = 0; x < width; ++x) { /* in place: what is written lies before what is still read */
      for (int k = 0; k < 3; ++k) row[3 * x + k] = row[4 * x + k];
    }
    image_put_rgb(job, 0, y, row, width);
  }
  WebPAnimDecoderDelete(decoder);
  return status;
}

int image_read_webp(Job* job) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config))
    return image_fail(job, EVN_IMAGE_UNSUPPORTED, "libwebp is another one than it was built for");
  const VP8StatusCode code = WebPGetFeatures(job->call->bytes, job->call->size, &config.input);
  if (code != VP8_STATUS_OK) return fail_with(job, code);
  if (config.input.width <= 0 || config.input.height <= 0) return image_fail(job, EVN_IMAGE_BAD, "the picture has no pixels");
  const uint64_t width = (uint64_t)config.input.width, height = (uint64_t)config.input.height;
  int status = image_size(job, width, height);
  if (status == EVN_IMAGE_OK) status = image_work(job, 12 * width * height); /* an animation's canvases, or 4 + 3 of a still */
  if (status != EVN_IMAGE_OK || job->out == NULL) return status;
  if (image_stopped(job)) return EVN_IMAGE_STOPPED;
  return config.input.has_animation ? read_first_frame(job) : read_still(job, &config);
}
