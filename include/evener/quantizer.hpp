// Quantization in C++: float32 models to int8, to smaller weights or to 16-bit floats; see quantize.h for the rules.
//
//   evener::Quantizer quantizer(runtime, "model.onnx");
//   for (...) quantizer.add_batch(inputs);
//   quantizer.guard(others);
//   quantizer.save("model.int8.onnx");
#ifndef EVENER_QUANTIZER_HPP
#define EVENER_QUANTIZER_HPP

#include "evener.hpp"
#include "quantize.h"

namespace evener {
inline namespace EVENER_SPANS {

enum class QuantizeMode : std::int32_t {
  kStatic = EVN_QUANTIZE_STATIC,
  kDynamic = EVN_QUANTIZE_DYNAMIC,
  kWeights = EVN_QUANTIZE_WEIGHTS,
  kFloat16 = EVN_QUANTIZE_FLOAT16,
  kBfloat16 = EVN_QUANTIZE_BFLOAT16
};

enum class Calibration : std::int32_t {
  kMinMax = EVN_CALIBRATION_MINMAX,
  kPercentile = EVN_CALIBRATION_PERCENTILE,
  kEntropy = EVN_CALIBRATION_ENTROPY,
  kMse = EVN_CALIBRATION_MSE
};

// Told how far a quantizer is (evn_quantize_progress); false cancels the call that is under way.
using QuantizeProgress = std::function<bool(std::string_view what, std::uint64_t done, std::uint64_t total)>;

struct QuantizerOptions {
  QuantizeMode mode = QuantizeMode::kStatic;
  Calibration calibration = Calibration::kMinMax;
  DType activation = DType::kUndefined;  // of kStatic and kDynamic: kUint8 (also kUndefined) or kInt8
  double percentile = 0;             // of kPercentile; 0: 99.99
  std::uint32_t flags = 0;           // EVN_QUANTIZE_...
  std::vector<std::string> keep;     // nodes that stay float32: globs of names, or "type:Softmax"
  std::uint32_t weight_bits = 0;     // of kWeights: 8 or 4; 0: 8
  std::uint32_t block_size = 0;      // of kWeights: elements that share a scale; 0: 32
  std::string external_dir;          // of a model that comes from a buffer; "": none is allowed
  QuantizeProgress progress;         // empty: nobody is told. An exception that it throws cancels
  const Cancel* cancel = nullptr;    // ends calls of the quantizer once it is requested
  std::uint64_t deadline_ns = 0;     // of CLOCK_MONOTONIC; 0: none
};

struct GuardOptions {
  bool error = true, speed = true;  // what is looked at
  double min_cosine = 0;            // of each output; 0: 0.99
  double min_layer_sqnr_db = 0;     // 0: 10
};

class Quantizer : public detail::Object<evn_quantizer, evn_quantizer_release> {
 public:
  Quantizer() noexcept = default;
  Quantizer(const Runtime& runtime, const std::string& path, const QuantizerOptions& options = {}) {
    create(runtime, path.c_str(), {}, options);
  }
  // Quantizes a model's bytes, which are copied.
  Quantizer(const Runtime& runtime, const void* data, std::size_t size, const QuantizerOptions& options = {}) {
    create(runtime, nullptr, Span<const std::byte>(static_cast<const std::byte*>(data), size), options);
  }

  std::size_t input_count() const { return detail::count(get(), evn_quantizer_input_count); }
  // Throws EVN_ERROR_INVALID_ARGUMENT when there is none of that name.
  std::size_t find_input(const std::string& name) const {
    std::uint32_t index = 0;
    detail::check([&](evn_error* e) { return evn_quantizer_find_input(get(), name.c_str(), &index, e); });
    return index;
  }
  // Runs the float32 model over one calibration batch: inputs in the model's order.
  void add_batch(Span<const Tensor> inputs) const {
    const std::vector<evn_tensor> in = handles(inputs);
    detail::check(
        [&](evn_error* e) { return evn_quantizer_add_batch(get(), in.data(), static_cast<std::uint32_t>(in.size()), e); });
  }
  // Takes back layers that are not worth it, over these inputs.
  void guard(Span<const Tensor> inputs, const GuardOptions& options = {}) const {
    if (!options.error && !options.speed) throw Error(EVN_ERROR_INVALID_ARGUMENT, "the guard is to look at nothing");
    const std::vector<evn_tensor> in = handles(inputs);
    evn_guard_options o = EVN_GUARD_OPTIONS_INIT;
    if (options.error) o.flags |= EVN_GUARD_ERROR;
    if (options.speed) o.flags |= EVN_GUARD_SPEED;
    o.min_cosine = options.min_cosine;
    o.min_layer_sqnr_db = options.min_layer_sqnr_db;
    detail::check(
        [&](evn_error* e) { return evn_quantizer_guard(get(), in.data(), static_cast<std::uint32_t>(in.size()), &o, e); });
  }
  Model finish() const {
    Model model;
    detail::check([&](evn_error* e) { return evn_quantizer_finish(get(), model.handle_.out(), e); });
    return model;
  }
  // Writes an ONNX file in one step.
  void save(const std::string& path) const {
    detail::check([&](evn_error* e) { return evn_quantizer_save(get(), path.c_str(), e); });
  }
  // Adds to the report how far the outputs are from the float32 model's, and how long both take.
  void verify(Span<const Tensor> inputs) const {
    const std::vector<evn_tensor> in = handles(inputs);
    detail::check([&](evn_error* e) { return evn_quantizer_verify(get(), in.data(), static_cast<std::uint32_t>(in.size()), e); });
  }
  std::string report(Format format = Format::kText) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_quantizer_report(get(), static_cast<evn_format>(format), b, c, s, e);
    });
  }

 private:
  static std::int32_t on_progress(void* user, const char* what, std::uint64_t done, std::uint64_t total) noexcept {
    try {
      return (*static_cast<QuantizeProgress*>(user))(what, done, total) ? 0 : 1;
    } catch (...) {
      return 1;
    }
  }
  static std::vector<evn_tensor> handles(Span<const Tensor> tensors) {
    std::vector<evn_tensor> all;
    all.reserve(tensors.size());
    for (const Tensor& t : tensors) all.push_back(t.get());
    return all;
  }
  void create(const Runtime& runtime, const char* path, Span<const std::byte> bytes, const QuantizerOptions& options) {
    std::vector<const char*> keep;
    for (const std::string& k : options.keep) keep.push_back(k.c_str());
    evn_quantizer_options o = EVN_QUANTIZER_OPTIONS_INIT;
    o.mode = static_cast<evn_quantize_mode>(options.mode);
    o.calibration = static_cast<evn_calibration>(options.calibration);
    o.activation = static_cast<evn_dtype>(options.activation);
    o.percentile = options.percentile;
    o.flags = options.flags;
    o.keep = keep.data();
    o.keep_count = static_cast<std::uint32_t>(keep.size());
    o.weight_bits = options.weight_bits;
    o.block_size = options.block_size;
    o.data = bytes.data();
    o.size = bytes.size();
    o.external_dir = detail::c_str_or_null(options.external_dir);
    o.cancel = options.cancel != nullptr ? options.cancel->get() : nullptr;
    o.deadline_ns = options.deadline_ns;
    std::unique_ptr<QuantizeProgress> progress;
    if (options.progress) {
      progress = std::make_unique<QuantizeProgress>(options.progress);
      o.progress = on_progress;
      o.progress_user = progress.get();
      o.progress_release = [](void* user) { delete static_cast<QuantizeProgress*>(user); };
    }
    detail::check([&](evn_error* e) { return evn_quantizer_create(runtime.get(), path, &o, handle_.out(), e); });
    static_cast<void>(progress.release());  // the quantizer has it now
  }
};

}  // inline namespace
}  // namespace evener
#endif
