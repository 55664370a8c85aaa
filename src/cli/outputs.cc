#include "cli/outputs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/dtype.h"
#include "cli/host_access.h"
#include "cli/narrow.h"
#include "cli/npz.h"
#include "cli/values.h"

namespace evn::cli {
namespace {

constexpr std::size_t kShownTexts = 4, kShownBytes = 40, kShownPairs = 8;
constexpr std::uint32_t kShownParts = 3;

// The name, with a number behind it if it has been used.
std::string unused_name(const std::string& name, std::set<std::string>* used) {
  std::string unique = name;
  for (int i = 2; !used->insert(unique).second; ++i) unique = name + "-" + std::to_string(i);
  return unique;
}

// A file name for an output: letters, digits, '.', '_' and '-' stay, a leading '.' does not; told apart by a number.
std::string file_name(const std::string& output, std::set<std::string>* used) {
  std::string name;
  for (const char c : output.substr(0, 200)) {
    const bool fit = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
                     (c == '.' && !name.empty());
    name.push_back(fit ? c : '_');
  }
  if (name.empty()) name = "output";
  return unused_name(name, used) + ".npy";
}

// The name of an output in an archive: its own, unless unpacking that would write elsewhere.
std::string entry_name(const std::string& output) {
  const bool leaves = output.empty() || output[0] == '/' || output.find("..") != std::string::npos || printable(output) != output;
  std::set<std::string> none;
  const std::string name = file_name(output, &none);
  return leaves ? name.substr(0, name.size() - 4) : output;
}

// The front of a text in quotes; bytes that are no UTF-8 are escaped.
std::string shown(const std::string& text) {
  std::size_t end = std::min(text.size(), kShownBytes);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  const std::string front = text.substr(0, end);
  std::string escaped;
  if (characters_of(front)) {
    escaped = printable(front);
  } else {
    for (const char c : front) {
      char hex[8];
      std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      escaped += c >= 0x20 && c < 0x7f ? std::string(1, c) : hex;
    }
  }
  return '"' + escaped + (end < text.size() ? "...\"" : "\"");
}

void print_numbers(evn_dtype dtype, const void* data, std::size_t size) {
  const DTypeRow* const row = find_dtype(dtype);
  const bool is_ordered = row != nullptr && !is_complex(dtype);
  const std::size_t count = is_ordered ? size / row->size : 0;
  double least = std::numeric_limits<double>::infinity();
  double greatest = -least;
  double sum = 0;
  std::size_t numbers = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = element_at(dtype, data, i);
    if (std::isnan(value)) continue;
    ++numbers;
    least = std::min(least, value);
    greatest = std::max(greatest, value);
    sum += value;
  }
  if (numbers != 0) std::printf(", min %.6g, mean %.6g, max %.6g", least, sum / static_cast<double>(numbers), greatest);
  if (numbers != count) std::printf(", %zu NaN", count - numbers);
  std::printf("\n");
}

void print_texts(const std::vector<std::string>& texts) {
  for (std::size_t i = 0; i < std::min(texts.size(), kShownTexts); ++i) std::printf(", %s", shown(texts[i]).c_str());
  std::printf(texts.size() > kShownTexts ? ", ...\n" : "\n");
}

Tensor tensor_of_value(const Value& value) {
  Tensor tensor;
  Call call;
  call.check(evn_value_get_tensor(value.get(), tensor.out(), call));
  return tensor;
}

std::string type_of(const Value& value) {
  return read_text([&](char* buffer, std::size_t capacity, std::size_t* size, evn_error* error) {
    return evn_value_get_type(value.get(), buffer, capacity, size, error);
  });
}

std::uint32_t part_count(const Value& value) {
  std::uint32_t count = 0;
  Call call;
  call.check(evn_value_part_count(value.get(), &count, call));
  return count;
}

// Parts are handles, of which there is not one for each part of a long sequence.
Value part_of(const Value& value, std::uint32_t index) {
  Value part;
  Call call;
  call.check(evn_value_part_at(value.get(), index, part.out(), call));
  return part;
}

bool is_kind(const std::string& type, std::string_view kind) { return type.compare(0, kind.size(), kind) == 0; }

// The elements of a tensor as texts.
std::vector<std::string> elements_of(const Tensor& tensor) {
  const evn_tensor_info info = tensor_info(tensor);
  if (info.dtype == EVN_DTYPE_STRING) {
    std::vector<std::string> texts = strings_of(tensor);
    for (std::string& text : texts) text = shown(text);
    return texts;
  }
  std::vector<std::string> texts;
  const DTypeRow* const row = find_dtype(info.dtype);
  const Map map(tensor, EVN_MAP_READ);
  for (std::size_t i = 0; row != nullptr && !is_complex(info.dtype) && i < map.size() / row->size; ++i) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", element_at(info.dtype, map.data(), i));
    texts.emplace_back(text);
  }
  return texts;
}

// Where outputs are written to.
class Writer {
 public:
  Writer(const Arguments& arguments, const std::string& subfolder) {
    if (const char* const folder = arguments.get("--output-dir")) {
      folder_ = (std::filesystem::path(folder) / subfolder).string();
      std::error_code error;
      std::filesystem::create_directories(folder_, error);
      if (error) fail(kExitFailure, "%s: cannot make the folder: %s", folder_.c_str(), error.message().c_str());
    }
    if (const char* const path = arguments.get("--output")) archive_.emplace(path);
  }

  bool writes() const { return !folder_.empty() || archive_; }

  // `form`: of an array of this name.
  void add(const std::string& name, const NpyForm& form) {
    if (archive_) archive_->add(unused_name(entry_name(name), &entries_), form);
    if (folder_.empty()) return;
    const std::string path = path_of(name);
    write_npy(path, form);
    std::printf("  written to %s\n", path.c_str());
  }

  void add(const std::string& name, const Tensor& tensor) {
    if (!writes()) return;
    const evn_tensor_info info = tensor_info(tensor);
    const std::string path = !folder_.empty() ? folder_ : "--output";
    if (info.dtype == EVN_DTYPE_STRING) return add(name, npy_form(path, strings_of(tensor), dims_of(info)));
    const Map map(tensor, EVN_MAP_READ);
    add(name, npy_form(path, info.dtype, dims_of(info), map.data(), map.size()));
  }

  // The tensors in a value: those of a sequence by their numbers, those of a map as keys and values.
  void add(const std::string& name, const Value& value) {
    if (!writes()) return;
    const std::string type = type_of(value);
    if (is_kind(type, "tensor(")) return add(name, tensor_of_value(value));
    const bool is_map = is_kind(type, "map(");
    const std::uint32_t count = part_count(value);
    for (std::uint32_t i = 0; i < count; ++i)
      add(name + "." + (is_map ? std::string(i == 0 ? "keys" : "values") : std::to_string(i)), part_of(value, i));
  }

  void finish() {
    if (archive_) archive_->finish();
  }

 private:
  std::string path_of(const std::string& name) { return (std::filesystem::path(folder_) / file_name(name, &used_)).string(); }

  std::string folder_;  // "": none is given
  std::optional<NpzWriter> archive_;
  std::set<std::string> used_;     // file names
  std::set<std::string> entries_;  // names in the archive
};

void print_tensor(const Tensor& tensor) {
  const evn_tensor_info info = tensor_info(tensor);
  std::printf("%s %s", dtype_name(info.dtype), dims_text(dims_of(info)).c_str());
  if (info.dtype == EVN_DTYPE_STRING) return print_texts(strings_of(tensor));
  const Map map(tensor, EVN_MAP_READ);
  const NarrowType* const narrow = find_narrow(info.dtype);
  if (narrow == nullptr) return print_numbers(info.dtype, map.data(), map.size());
  const std::vector<unsigned char> wide = widened(*narrow, map.data(), element_count(dims_of(info)));
  print_numbers(narrow->wide, wide.data(), wide.size());
}

void print_value(const Value& value, const std::string& indent) {
  const std::string type = type_of(value);
  if (is_kind(type, "tensor(")) return print_tensor(tensor_of_value(value));
  const std::uint32_t count = part_count(value);
  if (is_kind(type, "map(") && count == 2) {
    const std::vector<std::string> keys = elements_of(tensor_of_value(part_of(value, 0)));
    const std::vector<std::string> values = elements_of(tensor_of_value(part_of(value, 1)));
    std::string text;
    for (std::size_t i = 0; i < std::min({keys.size(), values.size(), kShownPairs}); ++i)
      text += (i == 0 ? "" : ", ") + keys[i] + ": " + values[i];
    std::printf("{%s%s}\n", text.c_str(), keys.size() > kShownPairs ? ", ..." : "");
    return;
  }
  std::printf("%s, %u parts\n", type.c_str(), count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i == kShownParts) {
      std::printf("%s  ...\n", indent.c_str());
      return;
    }
    std::printf("%s  %u: ", indent.c_str(), i);
    print_value(part_of(value, i), indent + "  ");
  }
}

}  // namespace

RunArguments::RunArguments(evn_session session, const std::vector<Tensor>& inputs) : session_(session) {
  Call call;
  call.check(evn_session_output_count(session, &output_count_, call));
  for (std::uint32_t i = 0; i < output_count_; ++i) {
    evn_value_info info = EVN_VALUE_INFO_INIT;
    call.check(evn_session_get_output_info(session, i, &info, call));
    by_values_ = by_values_ || !is_kind(info.type, "tensor(");
  }
  for (const Tensor& input : inputs) {
    tensors_.push_back(input.get());
    if (!by_values_) continue;
    owned_.emplace_back();
    if (input.get() != nullptr) call.check(evn_value_from_tensor(input.get(), owned_.back().out(), call));
    values_.push_back(owned_.back().get());
  }
}

evn_status RunArguments::run(const evn_run_options& options, Outputs* outputs, evn_error* error) const {
  Outputs made;
  const auto count = static_cast<std::uint32_t>(tensors_.size());
  evn_status status = EVN_OK;
  if (by_values_) {
    std::vector<evn_value> out(output_count_, nullptr);
    status = evn_session_run_values(session_, values_.data(), count, out.data(), output_count_, &options, error);
    for (evn_value value : out) made.values.emplace_back(value);
  } else {
    std::vector<evn_tensor> out(output_count_, nullptr);
    status = evn_session_run(session_, tensors_.data(), count, out.data(), output_count_, &options, error);
    for (evn_tensor tensor : out) made.tensors.emplace_back(tensor);
  }
  if (status == EVN_OK && outputs != nullptr) *outputs = std::move(made);
  return status;
}

evn_status RunArguments::submit(const evn_run_options& options, const evn_submit_options& submit, evn_error* error) const {
  const auto count = static_cast<std::uint32_t>(tensors_.size());
  if (by_values_)
    return evn_session_submit_values(session_, values_.data(), count, nullptr, output_count_, &options, &submit, nullptr, error);
  return evn_session_submit(session_, tensors_.data(), count, nullptr, output_count_, &options, &submit, nullptr, error);
}

evn_status RunArguments::take(evn_request request, evn_error* error) const {
  const auto take_all = [&](auto take_outputs, auto release, auto none) {
    std::vector<decltype(none)> out(output_count_, none);
    const evn_status status = take_outputs(request, out.data(), output_count_, error);
    for (auto handle : out) release(handle);
    return status;
  };
  return by_values_ ? take_all(evn_request_take_values, evn_value_release, evn_value{})
                    : take_all(evn_request_take, evn_tensor_release, evn_tensor{});
}

Outputs run_once(const RunArguments& arguments, std::uint64_t timeout_ns) {
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.timeout_ns = timeout_ns;
  Outputs outputs;
  Call call;
  call.check(arguments.run(options, &outputs, call));
  return outputs;
}

Outputs run_once(const Session& session, const std::vector<Tensor>& inputs, std::uint64_t timeout_ns) {
  return run_once(RunArguments(session.get(), inputs), timeout_ns);
}

void report_outputs(const Arguments& arguments, const Session& session, const Outputs& outputs, const std::string& subfolder) {
  Writer writer(arguments, subfolder);
  const std::size_t count = std::max(outputs.tensors.size(), outputs.values.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    evn_value_info info = EVN_VALUE_INFO_INIT;
    Call call;
    call.check(evn_session_get_output_info(session.get(), i, &info, call));
    std::printf("output %s: ", printable(info.name).c_str());
    if (!outputs.tensors.empty()) {
      print_tensor(outputs.tensors[i]);
      writer.add(info.name, outputs.tensors[i]);
    } else {
      print_value(outputs.values[i], "");
      writer.add(info.name, outputs.values[i]);
    }
  }
  writer.finish();
}

}  // namespace evn::cli
