#include "cli/quantize.h"

#include <algorithm>
#include <filesystem>

#include "cli/npz.h"
#include "cli/values.h"
#include "evener/quantize.h"

namespace evn::cli {
namespace {

using Quantizer = Owner<evn_quantizer, evn_quantizer_release>;

evn_calibration method_of(const Arguments& arguments) {
  constexpr std::string_view kMethods[] = {"minmax", "percentile", "entropy", "mse"};
  const char* const text = arguments.get("--method");
  if (text == nullptr) return arguments.has("--percentile") ? EVN_CALIBRATION_PERCENTILE : EVN_CALIBRATION_MINMAX;
  const auto it = std::find(std::begin(kMethods), std::end(kMethods), std::string_view(text));
  if (it == std::end(kMethods)) fail_usage("--method is minmax, percentile, entropy or mse, not \"%s\"", text);
  return static_cast<evn_calibration>(it - std::begin(kMethods));
}

evn_guard_options guard_of(const Arguments& arguments) {
  evn_guard_options options = EVN_GUARD_OPTIONS_INIT;
  const std::string_view only = arguments.get("--guard-only") == nullptr ? "" : arguments.get("--guard-only");
  if (only == "error") options.flags = EVN_GUARD_ERROR;
  if (only == "speed") options.flags = EVN_GUARD_SPEED;
  if (!only.empty() && options.flags == 0) fail_usage("--guard-only is error or speed, not \"%s\"", arguments.get("--guard-only"));
  options.min_cosine = number_of(arguments, "--min-cosine", 0, 1);
  options.min_layer_sqnr_db = number_of(arguments, "--min-layer-sqnr", 0, 1000);
  return options;
}

// The archives that an option names, those of a folder in the order of their names.
std::vector<std::string> archives(const Arguments& arguments, const char* option) {
  std::vector<std::string> files;
  for (const std::string& text : arguments.all(option)) {
    std::error_code error;
    if (!std::filesystem::is_directory(text, error)) {
      if (!is_npz(text)) fail_usage("%s takes files that end in .npz, and folders, not \"%s\"", option, text.c_str());
      files.push_back(text);
      continue;
    }
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(text, error)) {
      if (is_npz(entry.path().string())) found.push_back(entry.path().string());
    }
    if (error) fail(kExitFailure, "cannot read the folder %s: %s", text.c_str(), error.message().c_str());
    if (found.empty()) fail(kExitFailure, "the folder %s has no .npz files", text.c_str());
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

// The inputs of a batch, in the order of the model's.
std::vector<Tensor> batch_of(const Runtime& runtime, const Quantizer& quantizer, const std::string& path) {
  std::uint32_t count = 0;
  Call ask;
  ask.check(evn_quantizer_input_count(quantizer.get(), &count, ask));
  std::vector<Tensor> inputs(count);
  for (const auto& [name, array] : read_npz(path)) {
    std::uint32_t index = 0;
    evn_error error = EVN_ERROR_INIT;
    if (evn_quantizer_find_input(quantizer.get(), name.c_str(), &index, &error) != EVN_OK) {
      fail(kExitFailure, "%s: %s", path.c_str(), describe(error).c_str());
    }
    if (array.dtype == EVN_DTYPE_UNDEFINED)
      fail(kExitFailure, "%s: \"%s\" has raw elements, not numbers", path.c_str(), name.c_str());
    inputs[index] = tensor_of(runtime, array);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (inputs[i].get() == nullptr) fail(kExitFailure, "%s has nothing for input %u of the model", path.c_str(), i);
  }
  return inputs;
}

// Calls function(quantizer, inputs, count, error) with each batch.
template <typename F>
void feed(const Runtime& runtime, const Quantizer& quantizer, const std::vector<std::string>& files, F&& function) {
  for (const std::string& path : files) {
    const std::vector<Tensor> inputs = batch_of(runtime, quantizer, path);
    std::vector<evn_tensor> handles;
    for (const Tensor& t : inputs) handles.push_back(t.get());
    evn_error error = EVN_ERROR_INIT;
    const evn_status status = function(quantizer.get(), handles.data(), static_cast<std::uint32_t>(handles.size()), &error);
    if (status != EVN_OK) fail(kExitFailure, "%s: %s", path.c_str(), describe(error).c_str());
  }
}

evn_quantize_mode mode_of(const Arguments& arguments) {
  constexpr std::string_view kModes[] = {"static", "dynamic", "weights", "float16", "bfloat16"};
  const char* const text = arguments.get("--mode");
  if (text != nullptr && arguments.has("--dynamic")) fail_usage("--mode and --dynamic are both given");
  if (text == nullptr) return arguments.has("--dynamic") ? EVN_QUANTIZE_DYNAMIC : EVN_QUANTIZE_STATIC;
  const auto it = std::find(std::begin(kModes), std::end(kModes), std::string_view(text));
  if (it == std::end(kModes)) fail_usage("--mode is static, dynamic, weights, float16 or bfloat16, not \"%s\"", text);
  return static_cast<evn_quantize_mode>(it - std::begin(kModes));
}

}  // namespace

int run_quantize(const Arguments& arguments) {
  const char* const to = arguments.get("-o");
  if (to == nullptr) fail_usage("quantize needs -o FILE");
  const evn_quantize_mode mode = mode_of(arguments);
  const bool is_static = mode == EVN_QUANTIZE_STATIC;
  if (!is_static && arguments.has("--calibration")) fail_usage("only static quantization takes --calibration");
  if (is_static && !arguments.has("--calibration")) fail_usage("quantize needs --calibration, or another --mode");
  const std::vector<std::string> calibration = archives(arguments, "--calibration"), verification = archives(arguments, "--verify");
  std::vector<std::string> held = archives(arguments, "--guard");
  if (!held.empty() && arguments.has("--no-guard")) fail_usage("--guard and --no-guard are both given");
  if (held.empty() && !verification.empty()) held.push_back(verification.front());
  if (held.empty() && !calibration.empty()) held.push_back(calibration.back());
  if (mode > EVN_QUANTIZE_DYNAMIC && arguments.has("--guard")) fail_usage("--guard is for static and dynamic quantization");
  if (mode > EVN_QUANTIZE_DYNAMIC || arguments.has("--no-guard")) held.clear();
  const evn_guard_options guard = guard_of(arguments);
  evn_quantizer_options options = EVN_QUANTIZER_OPTIONS_INIT;
  options.mode = mode;
  options.calibration = method_of(arguments);
  options.percentile = number_of(arguments, "--percentile", 50, 100);
  options.activation = arguments.has("--int8") ? EVN_DTYPE_INT8 : 0;
  constexpr std::pair<const char*, std::uint32_t> kFlags[] = {
      {"--per-tensor", EVN_QUANTIZE_PER_TENSOR}, {"--equalize", EVN_QUANTIZE_EQUALIZE},
      {"--smooth", EVN_QUANTIZE_SMOOTH},         {"--correct-bias", EVN_QUANTIZE_CORRECT_BIAS},
      {"--contrib", EVN_QUANTIZE_CONTRIB},       {"--external-data", EVN_QUANTIZE_EXTERNAL_DATA},
      {"--qoperator", EVN_QUANTIZE_QOPERATOR}};
  for (const auto& [option, flag] : kFlags) options.flags |= arguments.has(option) ? flag : 0;
  options.weight_bits = static_cast<std::uint32_t>(number_of(arguments, "--bits", 1, 64));
  options.block_size = static_cast<std::uint32_t>(number_of(arguments, "--block", 1, 65536));
  const std::vector<std::string> keep = arguments.all("--keep");
  std::vector<const char*> patterns;
  for (const std::string& k : keep) patterns.push_back(k.c_str());
  options.keep = patterns.data();
  options.keep_count = static_cast<std::uint32_t>(patterns.size());

  const Runtime runtime = open_runtime(arguments);
  Quantizer quantizer;
  Call create(kExitModel);
  create.check(evn_quantizer_create(runtime.get(), arguments.operand(0).c_str(), &options, quantizer.out(), create));
  feed(runtime, quantizer, calibration, evn_quantizer_add_batch);
  feed(runtime, quantizer, held, [&](evn_quantizer q, const evn_tensor* inputs, std::uint32_t count, evn_error* error) {
    return evn_quantizer_guard(q, inputs, count, &guard, error);
  });
  Call save;
  save.check(evn_quantizer_save(quantizer.get(), to, save));
  feed(runtime, quantizer, verification, evn_quantizer_verify);
  print_text(read_text([&](char* buffer, std::size_t capacity, std::size_t* size, evn_error* error) {
    return evn_quantizer_report(quantizer.get(), text_format(arguments), buffer, capacity, size, error);
  }));
  return kExitOk;
}

}  // namespace evn::cli
