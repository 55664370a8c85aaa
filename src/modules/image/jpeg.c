/* JPEG by libjpeg-turbo with its defaults: accurate integer DCT, "fancy" chroma upsampling, as ONNX asks. Four components are taken
 * for Adobe's inverted CMYK. EXIF is not read. A file that ends too early is refused; damage that libjpeg can pass over is passed
 * over.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "modules/image/image.h"

enum { kMaxScans = 500 }; /* more have no use, and each goes over the whole picture */

typedef struct Reader {
  struct jpeg_decompress_struct jpeg; /* first: callbacks get its address */
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr source;
  struct jpeg_progress_mgr progress;
  Job* job;
  int status;
  jmp_buf back;
} Reader;

static void on_error(j_common_ptr jpeg) {
  Reader* r = (Reader*)jpeg;
  const int code = jpeg->err->msg_code;
  char text[JMSG_LENGTH_MAX];
  jpeg->err->format_message(jpeg, text);
  r->status = code == JERR_OUT_OF_MEMORY ? EVN_IMAGE_NO_MEMORY : code == JERR_NO_BACKING_STORE ? EVN_IMAGE_LIMIT : EVN_IMAGE_BAD;
  if (code == JERR_INPUT_EOF) {
    image_truncated(r->job);
  } else {
    image_fail(r->job, r->status, "%s", code == JERR_NO_BACKING_STORE ? "decoding needs more memory than is allowed" : text);
  }
  longjmp(r->back, 1);
}

static void on_message(j_common_ptr jpeg, int level) {
  if (level < 0) jpeg->err->num_warnings++;
}

static void on_output(j_common_ptr jpeg) { (void)jpeg; }

static void on_progress(j_common_ptr jpeg) {
  Reader* r = (Reader*)jpeg;
  r->status = EVN_IMAGE_OK;
  if (r->jpeg.input_scan_number > kMaxScans)
    r->status = image_fail(r->job, EVN_IMAGE_UNSUPPORTED, "it has more than %d scans", kMaxScans);
  if (image_stopped(r->job)) r->status = EVN_IMAGE_STOPPED;
  if (r->status != EVN_IMAGE_OK) longjmp(r->back, 1);
}

static void ignore_source(j_decompress_ptr jpeg) { (void)jpeg; }

static boolean at_end(j_decompress_ptr jpeg) {
  ERREXIT(jpeg, JERR_INPUT_EOF);
  return FALSE;
}

static void skip(j_decompress_ptr jpeg, long count) {
  if (count <= 0) return;
  if ((unsigned long)count > jpeg->src->bytes_in_buffer) ERREXIT(jpeg, JERR_INPUT_EOF);
  jpeg->src->next_input_byte += count;
  jpeg->src->bytes_in_buffer -= (size_t)count;
}

static void put_row(Reader* r, uint32_t y, Byte* row, Byte* rgb) {
  const uint32_t width = r->jpeg.output_width;
  if (r->jpeg.output_components == 1) {
    image_put_gray(r->job, 0, y, row, width);
  } else if (r->jpeg.output_components == 3) {
    image_put_rgb(r->job, 0, y, row, width);
  } else {
    for (size_t i = 0; i < (size_t)width; ++i) {
      for (int k = 0; k < 4; ++k) row[4 * i + k] = (Byte)(255 - row[4 * i + k]);
      image_cmyk_to_rgb(row + 4 * i, rgb + 3 * i);
    }
    image_put_rgb(r->job, 0, y, rgb, width);
  }
}

/* Errors come back here from inside the library. */
static int read_all(Reader* r) {
  struct jpeg_decompress_struct* jpeg = &r->jpeg;
  if (setjmp(r->back) != 0) return r->status;
  jpeg_create_decompress(jpeg);
  jpeg->src = &r->source;
  jpeg->progress = &r->progress;
  jpeg->mem->max_memory_to_use = r->job->call->work_bytes > LONG_MAX ? LONG_MAX : (long)r->job->call->work_bytes;
  jpeg_read_header(jpeg, TRUE);
  const int components = jpeg->num_components;
  if (components != 1 && components != 3 && components != 4) {
    return image_fail(r->job, EVN_IMAGE_UNSUPPORTED, "it has %d components", components);
  }
  int status = image_size(r->job, jpeg->image_width, jpeg->image_height);
  /* Huffman codes are a bit at least for 256 pixels, arithmetic ones less. */
  if (status == EVN_IMAGE_OK) status = image_plausible(r->job, (uint64_t)jpeg->image_width * jpeg->image_height, 65536);
  if (status != EVN_IMAGE_OK || r->job->out == NULL) return status;
  uint64_t blocks = 0; /* of coefficients, which libjpeg keeps from scan to scan */
  for (int i = 0; i < components && jpeg_has_multiple_scans(jpeg); ++i)
    blocks += (uint64_t)jpeg->comp_info[i].width_in_blocks * jpeg->comp_info[i].height_in_blocks;
  if (blocks != 0) status = image_charge(r->job, blocks * sizeof(JBLOCK));
  if (status != EVN_IMAGE_OK) return status;
  jpeg->out_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_start_decompress(jpeg);
  const JDIMENSION width = jpeg->output_width;
  JSAMPARRAY rows = jpeg->mem->alloc_sarray((j_common_ptr)jpeg, JPOOL_IMAGE, width * (JDIMENSION)jpeg->output_components, 1);
  JSAMPARRAY rgb = jpeg->mem->alloc_sarray((j_common_ptr)jpeg, JPOOL_IMAGE, width * 3, 1);
  while (jpeg->output_scanline < jpeg->output_height) {
    const uint32_t y = jpeg->output_scanline;
    jpeg_read_scanlines(jpeg, rows, 1);
    put_row(r, y, rows[0], rgb[0]);
  }
  return EVN_IMAGE_OK;
}

int image_read_jpeg(Job* job) {
  Reader r;
  memset(&r, 0, sizeof r);
  r.job = job;
  r.jpeg.err = jpeg_std_error(&r.errors);
  r.errors.error_exit = on_error;
  r.errors.emit_message = on_message;
  r.errors.output_message = on_output;
  r.source.next_input_byte = job->call->bytes;
  r.source.bytes_in_buffer = job->call->size;
  r.source.init_source = ignore_source;
  r.source.fill_input_buffer = at_end;
  r.source.skip_input_data = skip;
  r.source.resync_to_restart = jpeg_resync_to_restart;
  r.source.term_source = ignore_source;
  r.progress.progress_monitor = on_progress;
  const int status = read_all(&r);
  jpeg_destroy_decompress(&r.jpeg);
  return status;
}
