// ImageDecoder: the pixels of a picture file, (height, width, channels) from the top left: three channels for pixel_format "RGB"
// and "BGR", one for "Grayscale" (0.299 R + 0.587 G + 0.114 B). The file's own format is found by its first bytes: BMP, JPEG, JPEG
// 2000, PNG, PNM, TIFF, WebP. Gray pictures become three equal channels, of 16 bits the upper eight are taken, alpha is dropped.
// dtypes: uint8. Failures: bytes that are no such file, or a damaged one; no libevener_image.so beside this library. Exact.
#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/heap.h"
#include "ops/host.h"
#include "ops/infra/check.h"
#include "ops/infra/image_decoders.h"
#include "ops/infra/runtime_values.h"

namespace evn {
namespace {

enum : int { kPixelFormat };

// What decoders may allocate beside the result: the buffers of a progressive JPEG or of JPEG 2000, which go with the number of
// pixels.
constexpr std::uint64_t kWorkBytes = 64 << 20;
constexpr std::uint64_t kWorkBytesPerPixel = 96;

int pixels_of(const Node& node) {
  const std::string& format = attr_string(node, kPixelFormat);
  if (format == "RGB") return EVN_IMAGE_RGB;
  if (format == "BGR") return EVN_IMAGE_BGR;
  if (format != "Grayscale") fail(EVN_ERROR_INVALID_MODEL, "pixel_format is \"%s\", not RGB, BGR or Grayscale", format.c_str());
  return EVN_IMAGE_GRAY;
}

const evn_image_module_table& require_module() {
  std::string why;
  const evn_image_module_table* module = image_module(&why);
  if (module == nullptr)
    fail(EVN_ERROR_UNSUPPORTED, "ImageDecoder needs libevener_image.so, which cannot be used: %s", why.c_str());
  return *module;
}

void infer_decoder(InferContext& c) {
  const int pixels = pixels_of(c.node);
  require_tensor(c, 0);
  require_dtype(c, 0, dtype_bit(DType::kUint8));
  if (!rank_unknown(c.inputs[0])) require_rank(c, 0, 1, 1);
  require_module();
  c.outputs[0].shape = Shape{-1, -1, pixels == EVN_IMAGE_GRAY ? 1 : 3};
}

// What a call asks of the run: whether it is to end, and memory for the decoders. Errors must not pass through C.
struct Stop {
  HostServices& services;
  std::optional<Error> error;
  HeapCharge memory;

  static int charge(void* user, std::uint64_t bytes) {
    auto& stop = *static_cast<Stop*>(user);
    Error why;
    if (!stop.memory.add(static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, INT64_MAX)), &why)) stop.error = why;
    return stop.error.has_value() ? 1 : 0;
  }

  static int ask(void* user) {
    auto& stop = *static_cast<Stop*>(user);
    try {
      stop.services.check_stop();
    } catch (const Error& error) {
      stop.error = error;
    }
    return stop.error.has_value() ? 1 : 0;
  }
};

void check(int status, const evn_image_call& call, const Stop& stop) {
  if (status == EVN_IMAGE_OK) return;
  if ((status == EVN_IMAGE_STOPPED || status == EVN_IMAGE_NO_MEMORY) && stop.error.has_value()) throw *stop.error;
  const evn_status code = status == EVN_IMAGE_UNSUPPORTED ? EVN_ERROR_UNSUPPORTED
                          : status == EVN_IMAGE_LIMIT     ? EVN_ERROR_LIMIT
                          : status == EVN_IMAGE_NO_MEMORY ? EVN_ERROR_OUT_OF_MEMORY
                                                          : EVN_ERROR_INVALID_ARGUMENT;
  fail(code, "ImageDecoder cannot decode the %zu bytes given%s%s: %s", call.size, call.format[0] == '\0' ? "" : " as ", call.format,
       call.why);
}

void host_decoder(HostContext& c) {
  const evn_image_module_table& module = require_module();
  const RuntimeValuePtr& encoded = c.inputs[0];
  if (encoded->desc.dtype != DType::kUint8 || encoded->desc.shape.rank() != 1)
    fail(EVN_ERROR_INVALID_ARGUMENT, "ImageDecoder needs bytes in one dimension");
  Stop stop{c.services, {}, {}};
  evn_image_call call{};
  call.bytes = encoded->as<unsigned char>();
  call.size = encoded->desc.size_bytes();
  call.pixels = pixels_of(c.node);
  call.work_bytes = c.services.limits().tensor_bytes;
  call.stop = Stop::ask;
  call.charge = Stop::charge;
  call.user = &stop;
  check(module.measure(&call), call, stop);
  EVN_CHECK(call.width > 0 && call.height > 0);
  const Shape shape{call.height, call.width, call.pixels == EVN_IMAGE_GRAY ? 1 : 3};
  void* pixels = nullptr;
  const std::shared_ptr<RuntimeValue> decoded = c.services.make_tensor({DType::kUint8, shape}, &pixels);
  const std::uint64_t count = static_cast<std::uint64_t>(call.height) * call.width;
  call.work_bytes = std::min(call.work_bytes, kWorkBytes + kWorkBytesPerPixel * count);
  check(module.decode(&call, static_cast<unsigned char*>(pixels)), call, stop);
  c.outputs[0] = decoded;
}

constexpr AttributeSpec kAttributes[] = {string_attribute("pixel_format", "RGB")};
constexpr OpDef kOps[] = {
    {.name = "ImageDecoder",
     .since = 20,
     .attributes = kAttributes,
     .dtypes = dtype_bit(DType::kUint8),
     .flags = kOpAnyRank,
     .infer = infer_decoder,
     .host = host_decoder},
};

}  // namespace

extern const OpFamily image_decoder_family;
const OpFamily image_decoder_family = {kOps};

}  // namespace evn
