// Thin owners over the library's handles, and the steps that several commands share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/arguments.h"
#include "cli/failure.h"
#include "evener/evener.h"

namespace evn::cli {

template <typename T, evn_status (*Release)(T)>
class Owner {
 public:
  Owner() = default;
  explicit Owner(T handle) : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, T{})) {}
  Owner& operator=(Owner&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owner() { Release(handle_); }

  T get() const { return handle_; }
  T* out() { return &handle_; }

 private:
  T handle_{};
};

using Runtime = Owner<evn_runtime, evn_runtime_release>;
using Device = Owner<evn_device, evn_device_release>;
using Tensor = Owner<evn_tensor, evn_tensor_release>;
using Model = Owner<evn_model, evn_model_release>;
using Session = Owner<evn_session, evn_session_release>;

// Options of several commands.
inline constexpr Option kConfigOption = {"--config", "FILE", "the YAML configuration: devices, limits, what runs where"};
inline constexpr Option kThreadsOption = {"--threads", "N",
                                          "threads of the CPU device; 0, the default: from the configuration,\n"
                                          "else all cores that this process may use"};
inline constexpr Option kDeviceOption = {"--device", "DEVICE",
                                         "device of the nodes that no rule places: a name of the configuration,\n"
                                         "cpu, gpu, gpu:1, opencl:0"};
inline constexpr Option kPrecisionOption = {"--precision", "P",
                                            "fp32, bf16, fp16 or auto: the lowest precision to which products may\n"
                                            "round their operands. Without: as --config says, else fp32"};
inline constexpr Option kKeepFp32Option = {"--keep-fp32", "PATTERN",
                                           "nodes that stay float32 all the same: a glob of names, or type:Gemm;\n"
                                           "may be repeated",
                                           true};
inline constexpr Option kNumericsOption = {"--numerics", "N",
                                           "fast or strict: strict has no Winograd and keeps numbers below 2^-126.\n"
                                           "Without: as --config says, else fast"};
inline constexpr Option kProductsOption = {"--products", "L",
                                           "own, openblas, clblast, auto or measured: the library that multiplies\n"
                                           "matrices. Without: as --config says, else auto"};
inline constexpr Option kMemoryOption = {"--memory", "M",
                                         "fast or small: small has no Winograd and orders steps so that the\n"
                                         "fewest bytes live at a time. Without: as --config says, else fast"};
inline constexpr Option kDisablePassOption = {"--disable-pass", "NAME",
                                              "a pass of sessions that is left out (evener passes lists them); may be\n"
                                              "repeated",
                                              true};
inline constexpr Option kCacheOption = {"--cache", "FILE",
                                        "where packed weights are kept from one time to the next; a FILE that\n"
                                        "ends in / is a folder for several models. Without: as --config says"};
inline constexpr Option kMapCacheOption = {"--map-cache", nullptr, "use the weights where they lie in the --cache file"};
inline constexpr Option kShapeOption = {"--shape", "NAME=DIMS",
                                        "dimensions of an input, as in --shape x=1,3,224,224; may be repeated", true};
inline constexpr Option kInputOption = {"--input", "NAME=FILE",
                                        "values of an input from a .npy file; may be repeated. A FILE.npz\n"
                                        "without NAME= gives the inputs that it has by their names",
                                        true};
inline constexpr Option kJsonOption = {"--json", nullptr, "print JSON"};

// Options with which the library's warnings go to stderr.
evn_runtime_options default_options();

// A runtime as --config and --threads say, and otherwise `options`.
Runtime open_runtime(const Arguments& arguments, evn_runtime_options options = default_options());

Model load_model(const Runtime& runtime, const std::string& path);

// A word of --precision.
evn_precision parse_precision(std::string_view text);

// A session as --device, --precision, --keep-fp32, --numerics, --products, --memory, --disable-pass, --cache and --map-cache say.
Session open_session(const Arguments& arguments, const Runtime& runtime, const Model& model);

// The text that a function of the library gives: `call` takes buffer, capacity, size, error.
template <typename Call_>
std::string read_text(Call_ call) {
  std::string text;
  for (;;) {
    std::size_t size = 0;
    Call probe;
    probe.check(call(nullptr, 0, &size, probe));
    text.resize(size);
    Call fill;
    evn_error* error = fill;
    const evn_status status = call(text.data(), text.size(), &size, error);
    if (status == EVN_ERROR_BUFFER_TOO_SMALL) continue;  // it grew meanwhile
    fill.check(status);
    text.resize(size - 1);
    return text;
  }
}

// "1.234 ms"
std::string milliseconds(double ns);

evn_format text_format(const Arguments& arguments);

// Prints a text of the library, ending the last line.
void print_text(const std::string& text);

}  // namespace evn::cli
