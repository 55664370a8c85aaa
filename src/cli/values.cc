#include "cli/values.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>

#include "cli/dtype.h"
#include "cli/host_access.h"
#include "cli/narrow.h"
#include "cli/npz.h"

namespace evn::cli {
namespace {

evn_value_info input_info(const Session& session, std::uint32_t index) {
  evn_value_info info = EVN_VALUE_INFO_INIT;
  Call call;
  call.check(evn_session_get_input_info(session.get(), index, &info, call));
  return info;
}

// `--input FILE.npz` names all inputs at once.
bool is_archive(const char* option, const std::string& text) {
  return std::string_view(option) == "--input" && text.find('=') == std::string::npos && is_npz(text);
}

// NAME=VALUE options by the index of the input that they name.
std::map<std::uint32_t, std::pair<std::string, std::string>> by_input(const Arguments& arguments, const char* option,
                                                                      const Session& session) {
  std::map<std::uint32_t, std::pair<std::string, std::string>> found;
  for (const std::string& text : arguments.all(option)) {
    if (is_archive(option, text)) continue;
    auto assignment = parse_assignment(option, text);
    std::uint32_t index = 0;
    Call call(kExitUsage);
    call.check(evn_session_find_input(session.get(), assignment.first.c_str(), &index, call));
    if (!found.emplace(index, assignment).second) fail_usage("%s is given twice for input %s", option, assignment.first.c_str());
  }
  return found;
}

// What the model says about an input: "float32 [batch,3,-1,-1]".
std::string declared_text(const evn_value_info& info) {
  std::string text = std::string(dtype_name(info.dtype)) + " ";
  if (info.rank == UINT32_MAX) return text + "of unknown rank";
  text += "[";
  for (std::uint32_t i = 0; i < info.rank; ++i) {
    const bool symbol = info.dims[i] < 0 && info.symbols[i][0] != '\0';
    text += (i != 0 ? "," : "") + (symbol ? printable(info.symbols[i]) : std::to_string(info.dims[i]));
  }
  return text + "]";
}

std::vector<std::int64_t> known_dims(const evn_value_info& info) {
  const std::vector<std::int64_t> dims = info.rank == UINT32_MAX ? std::vector<std::int64_t>{-1} : dims_of(info);
  if (std::all_of(dims.begin(), dims.end(), [](std::int64_t dim) { return dim >= 0; })) return dims;
  fail_usage("input %s is %s: give its dimensions, as in --shape %s=1,3,224,224, or a file with --input",
             printable(info.name).c_str(), declared_text(info).c_str(), printable(info.name).c_str());
}

Tensor make_tensor(const Runtime& runtime, evn_dtype dtype, const std::vector<std::int64_t>& dims) {
  Device cpu;
  Call find;
  find.check(evn_runtime_device_at(runtime.get(), 0, cpu.out(), find));
  Tensor tensor;
  Call create;
  create.check(evn_tensor_create(cpu.get(), dtype, dims.data(), static_cast<std::uint32_t>(dims.size()), 0, tensor.out(), create));
  return tensor;
}

// SplitMix64 of the element's number: the same bytes on every machine. Integers are 0 and 1, which any index or mask takes.
void fill_pattern(evn_dtype dtype, std::uint32_t input, void* data, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t z = (static_cast<std::uint64_t>(input) << 40) + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    set_element(dtype, data, i, is_floating(dtype) ? static_cast<double>(z >> 43) * 0x1p-21 : static_cast<double>(z >> 63));
  }
}

Tensor pattern_input(const Runtime& runtime, const evn_value_info& info, std::uint32_t index,
                     const std::vector<std::int64_t>& dims) {
  Tensor tensor = make_tensor(runtime, info.dtype, dims);
  if (info.dtype == EVN_DTYPE_STRING) return tensor;  // of empty strings
  const Map map(tensor, EVN_MAP_WRITE);
  const evn_dtype part = info.dtype == EVN_DTYPE_COMPLEX64    ? EVN_DTYPE_FLOAT32
                         : info.dtype == EVN_DTYPE_COMPLEX128 ? EVN_DTYPE_FLOAT64
                                                              : info.dtype;
  const DTypeRow* const row = find_dtype(part);
  if (row != nullptr) fill_pattern(part, index, map.data(), map.size() / row->size);
  return tensor;
}

// Makes an array one of the input's element type if NumPy lacks that type: elements are wider numbers or raw bits.
NpyArray fit_to_input(NpyArray array, const evn_value_info& info, const std::string& path) {
  const NarrowType* const type = find_narrow(info.dtype);
  const std::size_t count = element_count(array.dims);
  const bool is_raw = array.dtype == EVN_DTYPE_UNDEFINED;
  if (is_raw && (type == nullptr || array.bytes.size() != count * (type->bits > 8 ? 2 : 1))) {
    fail(kExitFailure, "%s: raw elements as of ml_dtypes do not fit input %s, which is %s", path.c_str(),
         printable(info.name).c_str(), declared_text(info).c_str());
  }
  const bool is_integer = array.dtype == EVN_DTYPE_INT8 || array.dtype == EVN_DTYPE_UINT8;
  if (type == nullptr || !(is_raw || (type->wide == EVN_DTYPE_FLOAT32 ? array.dtype == EVN_DTYPE_FLOAT32 : is_integer)))
    return array;
  std::vector<unsigned char> packed(narrow_size(*type, count));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t mask = (1u << type->bits) - 1;
    const std::uint32_t raw = !is_raw ? 0 : type->bits > 8 ? narrow_at(*type, array.bytes.data(), i) : array.bytes[i] & mask;
    const std::optional<std::uint32_t> bits =
        is_raw ? std::optional(raw) : narrow_bits(*type, element_at(array.dtype, array.bytes.data(), i));
    if (!bits) {
      fail(kExitFailure, "%s: element %zu (%g) is out of the range of input %s, which is %s", path.c_str(), i,
           element_at(array.dtype, array.bytes.data(), i), printable(info.name).c_str(), declared_text(info).c_str());
    }
    set_narrow(*type, packed.data(), i, *bits);
  }
  array.dtype = info.dtype;
  array.bytes = std::move(packed);
  return array;
}

struct ArchiveInput {
  std::string path;
  NpyArray array;
};
using ArchiveInputs = std::map<std::uint32_t, ArchiveInput>;

// Adds what an archive gives, by the index of the input.
void add_archive(const std::string& path, const Session& session, ArchiveInputs* found) {
  for (auto& [name, array] : read_npz(path)) {
    std::uint32_t index = 0;
    Call call(kExitUsage);
    call.check(evn_session_find_input(session.get(), name.c_str(), &index, call));
    if (!found->emplace(index, ArchiveInput{path, std::move(array)}).second)
      fail_usage("--input is given twice for input %s", printable(name).c_str());
  }
}

// Returns the numbers of required inputs and of inputs with a default.
std::pair<std::uint32_t, std::uint32_t> input_counts(const Session& session) {
  std::uint32_t required = 0, defaults = 0;
  Call call;
  call.check(evn_session_input_count(session.get(), &required, call));
  Call default_call;
  default_call.check(evn_session_default_count(session.get(), &defaults, default_call));
  return {required, defaults};
}

}  // namespace

std::string printable(const std::string& name) {
  std::string text;
  for (const char c : name) {
    const auto u = static_cast<unsigned char>(c);
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\x%02x", u);
    text += u < 0x20 || u == 0x7f ? std::string(escape) : std::string(1, c);
  }
  return text;
}

Tensor tensor_of(const Runtime& runtime, const NpyArray& array) {
  Tensor tensor = make_tensor(runtime, array.dtype, array.dims);
  if (array.dtype == EVN_DTYPE_STRING) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string& text : array.texts) {
      texts.push_back(text.data());
      sizes.push_back(text.size());
    }
    Call call;
    call.check(evn_tensor_set_strings(tensor.get(), texts.data(), sizes.data(), texts.size(), call));
    return tensor;
  }
  const Map map(tensor, EVN_MAP_WRITE);
  if (!array.bytes.empty()) std::memcpy(map.data(), array.bytes.data(), std::min(map.size(), array.bytes.size()));
  return tensor;
}

std::vector<std::int64_t> parse_dims(const std::string& name, const std::string& text) {
  std::vector<std::int64_t> dims;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int64_t dim = 0;
    const auto [next, error] = std::from_chars(at, end, dim);
    if (error != std::errc{} || dim < 0 || (next != end && *next != ',' && *next != 'x') || dims.size() == EVN_MAX_RANK) {
      fail_usage("--shape %s=%s: dimensions are at most %d whole numbers split by commas or x, as in 1,3,224,224", name.c_str(),
                 text.c_str(), EVN_MAX_RANK);
    }
    dims.push_back(dim);
    if (next == end) return dims;
    at = next + 1;
  }
}

std::vector<Tensor> read_inputs(const std::string& archive, const Runtime& runtime, const Session& session) {
  ArchiveInputs given;
  add_archive(archive, session, &given);
  const auto [count, defaults] = input_counts(session);
  std::vector<Tensor> inputs;
  for (std::uint32_t i = 0; i < count + defaults; ++i) {
    const auto entry = given.find(i);
    const evn_value_info info = input_info(session, i);
    if (entry != given.end()) inputs.push_back(tensor_of(runtime, fit_to_input(std::move(entry->second.array), info, archive)));
    else if (i < count) fail(kExitFailure, "%s: it has no input %s", archive.c_str(), printable(info.name).c_str());
    else inputs.emplace_back();  // its default counts
  }
  while (inputs.size() > count && inputs.back().get() == nullptr) inputs.pop_back();
  return inputs;
}

std::vector<Tensor> make_inputs(const Arguments& arguments, const Runtime& runtime, const Session& session, bool say) {
  const auto files = by_input(arguments, "--input", session);
  const auto shapes = by_input(arguments, "--shape", session);
  ArchiveInputs archived;
  for (const std::string& text : arguments.all("--input")) {
    if (is_archive("--input", text)) add_archive(text, session, &archived);
  }
  const auto [count, defaults] = input_counts(session);
  std::vector<Tensor> inputs;
  for (std::uint32_t i = 0; i < count + defaults; ++i) {
    const auto file = files.find(i);
    const auto shape = shapes.find(i);
    const auto entry = archived.find(i);
    const bool is_given = file != files.end() || shape != shapes.end() || entry != archived.end();
    if (i >= count && !is_given) {
      inputs.emplace_back();  // its default counts
      continue;
    }
    const evn_value_info info = input_info(session, i);
    if (file != files.end() && entry != archived.end())
      fail_usage("--input is given twice for input %s", printable(info.name).c_str());
    if ((file != files.end() || entry != archived.end()) && shape != shapes.end())
      fail_usage("input %s has both --input and --shape", printable(info.name).c_str());
    std::string origin;
    if (file != files.end()) {
      const std::string& path = file->second.second;
      inputs.push_back(tensor_of(runtime, fit_to_input(read_npy(path), info, path)));
      origin = "from " + file->second.second;
    } else if (entry != archived.end()) {
      inputs.push_back(tensor_of(runtime, fit_to_input(std::move(entry->second.array), info, entry->second.path)));
      origin = "from " + entry->second.path;
    } else {
      const auto dims = shape != shapes.end() ? parse_dims(shape->second.first, shape->second.second) : known_dims(info);
      inputs.push_back(pattern_input(runtime, info, i, dims));
      origin = info.dtype == EVN_DTYPE_STRING                      ? "empty strings"
               : find_dtype(info.dtype) == nullptr                 ? "filled with zeros"
               : is_floating(info.dtype) || is_complex(info.dtype) ? "filled with a fixed pseudo-random pattern in [0, 1)"
                                                                   : "filled with a fixed pseudo-random pattern of 0 and 1";
    }
    if (!say) continue;
    const evn_tensor_info made = tensor_info(inputs.back());
    std::printf("input %s: %s %s, %s\n", printable(info.name).c_str(), dtype_name(made.dtype), dims_text(dims_of(made)).c_str(),
                origin.c_str());
  }
  while (inputs.size() > count && inputs.back().get() == nullptr) inputs.pop_back();
  return inputs;
}

}  // namespace evn::cli
