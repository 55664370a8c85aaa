// Quantization of a model: runs it over calibration inputs, chooses scales from what they show, writes the model with 8-bit
// nodes, and holds it against the float32 one. The numbers are made in quant/, the file in model/save.
#pragma once

#include <mutex>
#include <optional>

#include "evener/quantize.h"
#include "model/save.h"
#include "quant/rewrite.h"
#include "runtime/session.h"

namespace evn {

struct QuantizerRequest {
  ModelSource source;
  bool dynamic = false;
  Calibration calibration = Calibration::kMinMax;
  double percentile = 99.99;
  bool per_tensor = false;
  DType activation = DType::kUint8;
  std::vector<std::string> keep;
  evn_quantize_progress progress = nullptr;
  void* user = nullptr;
};

// One thread at a time: the others wait.
class Quantizer {
 public:
  Quantizer(std::shared_ptr<Runtime> runtime, QuantizerRequest request);

  const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  const Graph& graph() const { return model_.graph; }  // float32; it does not change

  // A calibration batch: the model's inputs in order. Throws EVN_ERROR_WRONG_STATE after finish, EVN_ERROR_INVALID_ARGUMENT
  // (which input or value, NaN or infinite ones included), what a run throws, EVN_ERROR_CANCELLED. A batch that fails has
  // no effect.
  void add_batch(std::span<const RunValue> inputs);

  // The quantized model. Throws EVN_ERROR_WRONG_STATE without a batch where one is needed. Later calls give the same.
  ModelPtr finish();
  // Writes it, finishing first.
  void save(const std::string& path);

  // Runs both models over the inputs and adds to the report how far apart they are and how long each took.
  void verify(std::span<const RunValue> inputs);

  std::string report(evn_format format) const;

 private:
  struct OutputFigures {
    std::string name;
    double dot = 0, float_square = 0, quantized_square = 0, error_square = 0, largest_error = 0;
    std::uint64_t rows = 0, agreeing = 0, elements = 0;
  };

  std::shared_ptr<Runtime> runtime_;
  QuantizerRequest request_;
  mutable std::mutex mutex_;
  Model model_;                        // float32
  QuantScheme scheme_;
  std::vector<ValueId> observed_;
  std::vector<Observer> observers_;    // by position in observed_
  std::vector<std::int32_t> output_of_;  // by position in observed_: output of the observing session; -1: -1 - its graph input
  std::unique_ptr<Session> observing_;  // until finish
  std::vector<RunValue> observed_outputs_;
  std::vector<TensorDesc> observed_shapes_;  // of the inputs for which these are
  std::uint64_t batches_ = 0;
  std::optional<SavedModel> saved_;
  ModelPtr quantized_;
  RewriteFigures figures_;
  std::uint64_t float_bytes_ = 0;
  std::unique_ptr<Session> float_session_, quantized_session_;  // of verify
  std::vector<OutputFigures> outputs_;
  std::vector<std::uint64_t> float_ns_, quantized_ns_;

  void check_model() const;
  void open_observing();
  ModelPtr load_saved(const SavedModel& saved) const;
  void progress(const char* what, std::uint64_t done, std::uint64_t total) const;
  std::vector<QuantParams> params() const;
  const ModelPtr& finish_locked();
  void compare(std::size_t output, const Tensor& expected, const Tensor& got);
};

}  // namespace evn
