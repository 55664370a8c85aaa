// The data of evener train: .npz archives of which rows are read when a batch needs them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/library.h"
#include "cli/npz.h"
#include "evener/train.h"

namespace evn::cli {

using Loader = Owner<evn_loader, evn_loader_release>;

// What a model says of its inputs, in the order of a trainer, and of the output that is trained.
struct TrainModel {
  struct Input {
    std::string name;
    evn_dtype dtype = EVN_DTYPE_UNDEFINED;
    std::vector<std::int64_t> dims;  // with that of the batch; negative: not known
    bool has_rank = true;
  };
  std::vector<Input> inputs;
  std::int64_t classes = -1;  // dim 1 of the output; negative: not known
};

// `output` may be nullptr: the first.
TrainModel read_train_model(const Runtime& runtime, const std::string& path, const char* output);

class TrainData {
 public:
  // Opens an archive, and checks what can be without reading all of it. `labels`: the key of the labels; empty: there are none.
  // Throws a Failure that names the file and the key.
  TrainData(const std::string& path, const TrainModel& model, const std::string& labels, evn_loss loss);
  TrainData(const TrainData&) = delete;
  TrainData& operator=(const TrainData&) = delete;

  std::uint64_t samples() const { return samples_; }
  const std::string& path() const { return path_; }
  // `options` has what arrays, sample_count and produce are not. The data outlives the loader.
  Loader open(const Runtime& runtime, evn_loader_options options);
  // How many tensors a batch has; with labels they are the last one.
  std::uint32_t tensor_count() const { return static_cast<std::uint32_t>(columns_.size()); }
  bool has_labels() const { return has_labels_; }

 private:
  struct Column {
    NpzEntry entry;
    evn_dtype dtype = EVN_DTYPE_UNDEFINED;  // of the batches
    std::vector<std::int64_t> dims;         // of a sample
    std::size_t elements = 1;               // of a sample
    std::size_t sample_bytes = 0;           // in the file
    bool is_classes = false;
  };
  void add_input(const TrainModel::Input& input);
  void add_labels(const std::string& key, evn_loss loss);
  void add(const NpzEntry& entry, evn_dtype dtype, bool is_classes);
  evn_status read(const std::uint64_t* samples, std::uint32_t count, void* const* buffers, evn_error* error);
  evn_status read_column(const Column& column, const std::uint64_t* samples, std::uint32_t count, void* buffer, evn_error* error);
  evn_status check(const Column& column, const std::uint64_t* samples, std::uint32_t count, const void* buffer,
                   evn_error* error) const;
  static evn_status produce(void* self, const std::uint64_t* samples, std::uint32_t count, void* const* buffers,
                            std::uint32_t* made, evn_error* error);

  const std::string path_;
  NpzFile file_;
  const std::int64_t classes_;
  std::uint64_t samples_ = 0;
  bool has_labels_ = false;
  std::vector<Column> columns_;
  std::vector<unsigned char> raw_;  // rows that are converted; of the loader's thread
};

// The next batch, and how much of it there is.
class TrainBatch {
 public:
  explicit TrainBatch(const TrainData& data) : tensors_(data.tensor_count()), has_labels_(data.has_labels()) {}
  // False at the end of the epoch.
  bool next(const Loader& loader);
  const evn_tensor* inputs() const { return tensors_.data(); }
  std::uint32_t input_count() const { return static_cast<std::uint32_t>(tensors_.size()) - (has_labels_ ? 1 : 0); }
  evn_tensor labels() const { return has_labels_ ? tensors_.back() : nullptr; }
  std::uint32_t samples() const { return samples_; }

 private:
  std::vector<evn_tensor> tensors_;
  const bool has_labels_;
  std::uint32_t samples_ = 0;
};

}  // namespace evn::cli
