#include "cli/train_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cli/dtype.h"
#include "cli/failure.h"
#include "cli/values.h"

namespace evn::cli {
namespace {

using Info = evn_value_info;

TrainModel::Input input_of(const Info& info) {
  TrainModel::Input input;
  input.name = info.name;
  input.dtype = info.dtype;
  input.has_rank = info.rank != UINT32_MAX;
  if (input.has_rank) input.dims.assign(info.dims, info.dims + std::min<std::uint32_t>(info.rank, EVN_MAX_RANK));
  return input;
}

bool is_whole_number(evn_dtype dtype) {
  constexpr evn_dtype kWhole[] = {EVN_DTYPE_INT8,  EVN_DTYPE_INT16,  EVN_DTYPE_INT32,  EVN_DTYPE_INT64,
                                  EVN_DTYPE_UINT8, EVN_DTYPE_UINT16, EVN_DTYPE_UINT32, EVN_DTYPE_UINT64};
  return std::find(std::begin(kWhole), std::end(kWhole), dtype) != std::end(kWhole);
}

// Without rounding, unlike element_at: what no int64 has becomes -1, which no class is.
std::int64_t whole_at(evn_dtype dtype, const void* data, std::size_t index) {
  if (dtype == EVN_DTYPE_INT64 || dtype == EVN_DTYPE_UINT64) {
    std::int64_t value;
    std::memcpy(&value, static_cast<const unsigned char*>(data) + index * sizeof value, sizeof value);
    return dtype == EVN_DTYPE_UINT64 && value < 0 ? -1 : value;
  }
  return static_cast<std::int64_t>(element_at(dtype, data, index));
}

std::string keys_of(const NpzFile& file) {
  std::string keys;
  for (const NpzEntry& entry : file.entries()) keys += (keys.empty() ? "" : ", ") + printable(entry.name);
  return keys;
}

const NpzEntry& entry_of(NpzFile& file, const std::string& path, const std::string& key, const char* what) {
  const NpzEntry* const entry = file.find(key);
  if (entry == nullptr)
    fail(kExitFailure, "%s: there is no key \"%s\" for the %s; there are: %s", path.c_str(), printable(key).c_str(), what,
         keys_of(file).c_str());
  if (entry->dims.empty()) fail(kExitFailure, "%s: it has no dim of samples", entry->label.c_str());
  if (find_dtype(entry->dtype) == nullptr)
    fail(kExitFailure, "%s: it has strings or raw bytes, which no model learns from", entry->label.c_str());
  file.hold(*entry);
  return *entry;
}

evn_status report(evn_error* error, evn_status status, const std::string& text) {
  std::snprintf(error->message, sizeof error->message, "%s", text.c_str());
  return status;
}

}  // namespace

TrainModel read_train_model(const Runtime& runtime, const std::string& path, const char* output) {
  const Model model = load_model(runtime, path);
  TrainModel read;
  std::uint32_t inputs = 0, outputs = 0;
  Call count(kExitModel);
  count.check(evn_model_input_count(model.get(), &inputs, count));
  count.check(evn_model_output_count(model.get(), &outputs, count));
  for (std::uint32_t i = 0; i < inputs; ++i) {
    Info info = EVN_VALUE_INFO_INIT;
    Call call(kExitModel);
    call.check(evn_model_get_input_info(model.get(), i, &info, call));
    read.inputs.push_back(input_of(info));
  }
  for (std::uint32_t i = 0; i < outputs; ++i) {
    Info info = EVN_VALUE_INFO_INIT;
    Call call(kExitModel);
    call.check(evn_model_get_output_info(model.get(), i, &info, call));
    if (output != nullptr && std::string_view(output) != info.name) continue;
    if (info.rank != UINT32_MAX && info.rank >= 2) read.classes = info.dims[1];
    break;
  }
  return read;
}

TrainData::TrainData(const std::string& path, const TrainModel& model, const std::string& labels, evn_loss loss)
    : path_(path), file_(path), classes_(model.classes) {
  for (const TrainModel::Input& input : model.inputs) add_input(input);
  if (!labels.empty()) add_labels(labels, loss);
  samples_ = columns_.empty() ? 0 : static_cast<std::uint64_t>(columns_[0].entry.dims[0]);
  for (const Column& column : columns_) {
    if (static_cast<std::uint64_t>(column.entry.dims[0]) != samples_) {
      fail(kExitFailure, "%s has %lld samples, %s has %llu", column.entry.label.c_str(),
           static_cast<long long>(column.entry.dims[0]), columns_[0].entry.label.c_str(), wide(samples_));
    }
  }
  if (samples_ == 0) fail(kExitFailure, "%s has no samples", path_.c_str());
}

void TrainData::add_input(const TrainModel::Input& input) {
  const NpzEntry& entry = entry_of(file_, path_, input.name, "model's input of this name");
  if (entry.dtype != input.dtype) {
    fail(kExitFailure, "%s is %s, the model's input is %s", entry.label.c_str(), dtype_name(entry.dtype), dtype_name(input.dtype));
  }
  bool fits = !input.has_rank || input.dims.size() == entry.dims.size();
  for (std::size_t i = 1; fits && input.has_rank && i < input.dims.size(); ++i)
    fits = input.dims[i] < 0 || input.dims[i] == entry.dims[i];
  if (!fits) {
    std::string want;
    for (const std::int64_t dim : input.dims) want += (want.empty() ? "[N" : dim < 0 ? ",?" : "," + std::to_string(dim));
    fail(kExitFailure, "%s has the dims %s, the model's input has %s]", entry.label.c_str(), dims_text(entry.dims).c_str(),
         want.c_str());
  }
  add(entry, entry.dtype, false);
}

void TrainData::add_labels(const std::string& key, evn_loss loss) {
  const NpzEntry& entry = entry_of(file_, path_, key, "labels (--labels)");
  const bool is_classes = loss == EVN_LOSS_SOFTMAX_CROSS_ENTROPY && is_whole_number(entry.dtype);
  if (!is_classes && entry.dtype != EVN_DTYPE_FLOAT32) {
    fail(kExitFailure, "%s is %s, this loss takes labels that are %s", entry.label.c_str(), dtype_name(entry.dtype),
         loss == EVN_LOSS_SOFTMAX_CROSS_ENTROPY ? "classes (whole numbers) or float32 probabilities" : "float32");
  }
  has_labels_ = true;
  add(entry, is_classes ? EVN_DTYPE_INT64 : entry.dtype, is_classes);
}

void TrainData::add(const NpzEntry& entry, evn_dtype dtype, bool is_classes) {
  Column column;
  column.entry = entry;
  column.dtype = dtype;
  column.is_classes = is_classes;
  column.dims.assign(entry.dims.begin() + 1, entry.dims.end());
  for (const std::int64_t dim : column.dims) column.elements *= static_cast<std::size_t>(dim);
  if (entry.dims[0] > 0 && column.elements == 0)
    fail(kExitFailure, "%s has the dims %s: a sample is empty", entry.label.c_str(), dims_text(entry.dims).c_str());
  column.sample_bytes = column.elements * find_dtype(entry.dtype)->size;
  columns_.push_back(std::move(column));
}

Loader TrainData::open(const Runtime& runtime, evn_loader_options options) {
  std::vector<evn_loader_array> arrays;
  for (const Column& c : columns_)
    arrays.push_back({c.entry.name.c_str(), c.dims.data(), nullptr, c.dtype, static_cast<std::uint32_t>(c.dims.size())});
  options.arrays = arrays.data();
  options.array_count = static_cast<std::uint32_t>(arrays.size());
  options.sample_count = samples_;
  options.produce = produce;
  options.produce_context = this;
  Loader loader;
  Call call;
  call.check(evn_loader_create(runtime.get(), &options, loader.out(), call));
  return loader;
}

evn_status TrainData::produce(void* self, const std::uint64_t* samples, std::uint32_t count, void* const* buffers, std::uint32_t*,
                              evn_error* error) {
  try {
    return static_cast<TrainData*>(self)->read(samples, count, buffers, error);
  } catch (const std::bad_alloc&) {
    return report(error, EVN_ERROR_OUT_OF_MEMORY, "there is no memory for a batch");
  }
}

evn_status TrainData::read(const std::uint64_t* samples, std::uint32_t count, void* const* buffers, evn_error* error) {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    evn_status status = read_column(column, samples, count, buffers[i], error);
    if (status == EVN_OK) status = check(column, samples, count, buffers[i], error);
    if (status != EVN_OK) return status;
  }
  return EVN_OK;
}

evn_status TrainData::read_column(const Column& column, const std::uint64_t* samples, std::uint32_t count, void* buffer,
                                  evn_error* error) {
  const bool converts = column.dtype != column.entry.dtype;
  if (converts) raw_.resize(std::max(raw_.size(), count * column.sample_bytes));
  auto* const to = converts ? raw_.data() : static_cast<unsigned char*>(buffer);
  for (std::uint32_t i = 0; i < count;) {
    std::uint32_t run = 1;  // samples that stand one behind the other in the file too
    while (i + run < count && samples[i + run] == samples[i] + run) ++run;
    if (!file_.read(column.entry, samples[i] * column.sample_bytes, to + i * column.sample_bytes, run * column.sample_bytes)) {
      return report(error, EVN_ERROR_IO,
                    column.entry.label + ": samples from " + std::to_string(samples[i]) +
                        " on cannot be read: the file has been cut off meanwhile, or its disk fails");
    }
    i += run;
  }
  if (!converts) return EVN_OK;
  for (std::size_t i = 0; i < count * column.elements; ++i) {
    const std::int64_t value = whole_at(column.entry.dtype, raw_.data(), i);
    std::memcpy(static_cast<unsigned char*>(buffer) + i * sizeof value, &value, sizeof value);
  }
  return EVN_OK;
}

// Classes that there are not, and numbers that are none, would show as an error without a place, or as a step that is skipped.
evn_status TrainData::check(const Column& column, const std::uint64_t* samples, std::uint32_t count, const void* buffer,
                            evn_error* error) const {
  const std::size_t all = count * column.elements;
  const auto at = [&](std::size_t i) { return column.entry.label + ": sample " + std::to_string(samples[i / column.elements]); };
  if (column.is_classes) {
    for (std::size_t i = 0; i < all; ++i) {
      const std::int64_t value = whole_at(EVN_DTYPE_INT64, buffer, i);
      if (value >= 0 && (classes_ < 0 || value < classes_)) continue;
      const std::string range = classes_ < 0 ? "" : "; the model has " + std::to_string(classes_) + " classes, from 0 on";
      return report(error, EVN_ERROR_INVALID_ARGUMENT, at(i) + " has the class " + std::to_string(value) + range);
    }
    return EVN_OK;
  }
  if (!is_floating(column.dtype)) return EVN_OK;
  const auto* const floats = static_cast<const float*>(buffer);
  for (std::size_t i = 0; i < all; ++i) {
    if (column.dtype == EVN_DTYPE_FLOAT32 ? std::isfinite(floats[i]) : std::isfinite(element_at(column.dtype, buffer, i))) continue;
    return report(error, EVN_ERROR_INVALID_ARGUMENT, at(i) + " has a value that is not finite (NaN or infinity)");
  }
  return EVN_OK;
}

bool TrainBatch::next(const Loader& loader) {
  Call call;
  call.check(evn_loader_next(loader.get(), tensors_.data(), static_cast<std::uint32_t>(tensors_.size()), &samples_, call));
  return samples_ > 0;
}

}  // namespace evn::cli
