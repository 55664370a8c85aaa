// Quantization of a model: runs it over calibration inputs, chooses scales from what they show, writes the model with 8-bit
// nodes, and holds it against the float32 one. The numbers are made in quant/, the file in model/save.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "base/mutex.h"
#include "base/user_data.h"
#include "evener/quantize.h"
#include "model/save.h"
#include "quant/closeness.h"
#include "quant/convert_half.h"
#include "quant/rewrite.h"
#include "quant/rewrite_weights.h"
#include "runtime/run/watch.h"
#include "runtime/session/session.h"

namespace evn {

class JsonWriter;

enum class QuantMode : std::uint8_t { kStatic, kDynamic, kWeights, kFloat16, kBfloat16 };  // as evn_quantize_mode counts them

struct QuantizerRequest {
  ModelSource source;
  QuantMode mode = QuantMode::kStatic;
  int weight_bits = 8;  // of kWeights
  std::int64_t block_size = 32;
  bool contrib = false;
  bool external = false;   // constants of a file that is saved go into a file beside it
  bool operators = false;  // QOperator form, of kStatic
  Calibration calibration = Calibration::kMinMax;
  double percentile = 99.99;
  bool per_tensor = false;
  bool equalize = false, smooth = false, correct_bias = false;
  DType activation = DType::kUint8;
  std::vector<std::string> keep;
  evn_quantize_progress progress = nullptr;
  void* user = nullptr;
  std::shared_ptr<CancelToken> token;  // of all calls, as is the deadline
  std::uint64_t deadline_ns = 0;

  bool dynamic() const { return mode == QuantMode::kDynamic; }
};

// What the quantized model may lose and must gain.
struct GuardBudget {
  double min_cosine = 0.99;         // of each output with the float32 model's
  double min_layer_sqnr_db = 10;    // of each layer alone
  bool error = true, speed = true;  // what is looked at
};

// One thread at a time: the others wait.
class Quantizer {
 public:
  Quantizer(std::shared_ptr<Runtime> runtime, QuantizerRequest request);

  const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  const QuantizerRequest& request() const { return request_; }
  // For the host's data of `progress`, once nothing can fail any more.
  UserData& user() { return user_; }
  const Graph& graph() const { return model_.graph; }  // float32; it does not change
  // Returns true for an input that has a default in the model; batches cannot give it.
  bool has_default(std::string_view name) const;

  // A calibration batch: the model's inputs in order. Throws EVN_ERROR_WRONG_STATE after finish, EVN_ERROR_INVALID_ARGUMENT
  // (which input or value, NaN or infinite ones included), what a run throws, EVN_ERROR_CANCELLED. A batch that fails has
  // no effect.
  void add_batch(std::span<const RunValue> inputs);

  // Takes back layers that lose too much over these inputs, which should be others than those of calibration, or that are slower in
  // 8 bits on this machine; all of them where the whole is. Throws EVN_ERROR_WRONG_STATE after finish and without a batch where one
  // is needed, and what add_batch throws.
  void guard(std::span<const RunValue> inputs, const GuardBudget& budget);

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
    Closeness closeness;
  };
  // Figures of one product, from guard.
  struct LayerFigures {
    Closeness closeness;                           // alone: with float32 inputs
    std::uint64_t float_ns = 0, quantized_ns = 0;  // of a run, with a share of the conversions around it; 0: not measured
  };
  // What a batch adds, if it runs to its end.
  struct Pending {
    std::vector<Observer> observers;
    std::map<ValueId, ColumnRanges> columns;
    std::vector<bool> seen;
  };
  // What a scheme comes to.
  struct Candidate {
    QuantScheme scheme;
    Model flat;  // branches and bodies among the other nodes
    SavedModel saved;
    ModelPtr model;
  };

  std::shared_ptr<Runtime> runtime_;
  UserData user_;  // behind all else but the runtime
  QuantizerRequest request_;
  mutable Mutex mutex_;
  std::vector<DefaultReads> default_reads_;
  Model model_;  // float32; branches and bodies among the other nodes (graph/subgraphs.h)
  QuantScheme scheme_;
  QuantScheme calibrated_;  // the first one, to which observers belong
  std::vector<ValueId> observed_;
  std::vector<Observer> observers_;                        // by position in observed_
  std::map<ValueId, ColumnRanges> columns_;                // of values that could be smoothed
  int equalized_ = 0;                                      // pairs of layers
  std::size_t smoothed_ = 0;                               // inputs, of the model that was made
  std::map<std::size_t, std::vector<float>> bias_shifts_;  // by node
  bool refined_ = false;                                   // biases have been corrected
  std::vector<RunValue> last_batch_;                       // copies, for that
  // By position in observed_: output of the observing session; -1 - its graph input; kWatched: it is in a branch or body.
  static constexpr std::int32_t kWatched = INT32_MIN;
  std::vector<std::int32_t> output_of_;
  std::unique_ptr<Watching> watching_;  // of these, by position, and behind them by region of whether it runs
  std::shared_ptr<Session> observing_;  // until finish
  std::vector<RunValue> observed_outputs_;
  std::vector<TensorDesc> observed_shapes_;  // of the inputs for which these are
  std::vector<bool> seen_;                   // by region: a batch went there
  Pending* pending_ = nullptr;               // what the batch that is being run adds
  std::uint64_t batches_ = 0;
  std::optional<SavedModel> saved_;
  Model flat_;  // of which it is
  ModelPtr quantized_;
  std::uint64_t float_bytes_ = 0;
  std::vector<std::string> unmatched_;  // patterns of `keep` that match no node
  std::vector<std::string> refused_;    // by node, why the guard has taken it back
  std::vector<LayerFigures> layers_;    // by node; empty before guard
  std::uint64_t guarded_batches_ = 0;
  GuardBudget budget_;                                          // of the latest call
  std::shared_ptr<Session> float_session_, quantized_session_;  // of verify
  std::vector<OutputFigures> outputs_;
  std::vector<std::uint64_t> float_ns_, quantized_ns_;

  void check_model() const;
  void find_unmatched(const std::vector<RemovedNode>& removed);
  void raise_to_needed_opset();
  void watch_regions(Graph& graph);
  void observe(Pending& pending, std::size_t k, const Shape& shape, std::span<const float> elements) const;
  WeightOptions weight_options() const {
    return {request_.weight_bits, request_.block_size, request_.contrib, runtime_->cpu().ledger()};
  }
  bool is_half() const { return request_.mode == QuantMode::kFloat16 || request_.mode == QuantMode::kBfloat16; }
  DType half_type() const { return request_.mode == QuantMode::kFloat16 ? DType::kFloat16 : DType::kBfloat16; }
  static SavedModel save_flat(const Model& model, const std::string& external = "");
  void open_observing();
  ModelPtr load_saved(const SavedModel& saved) const;
  void progress(const char* what, std::uint64_t done, std::uint64_t total) const;
  std::vector<QuantParams> params(const QuantScheme& scheme) const;
  QuantScheme scheme_without(const std::vector<std::string>& refused) const;
  Candidate build(QuantScheme scheme) const;
  const ModelPtr& finish_locked();
  Session& float_session();
  RewriteOptions options_of(const QuantScheme& scheme) const;

  // quantizer_refine.cc
  void keep_batch(std::span<const RunValue> inputs);
  void observe_columns(std::map<ValueId, ColumnRanges>& columns, ValueId v, const Shape& shape,
                       std::span<const float> elements) const;
  void refine();

  // quantizer_report.cc
  void write_guard(JsonWriter& json, std::string& text) const;
  void write_layers(JsonWriter& json, std::string& text) const;

  // quantizer_guard.cc
  std::vector<std::size_t> products() const, quantized_layers() const;
  void take_back(std::span<const std::size_t> nodes, const std::string& reason);
  using ProbeVisit =
      std::function<void(std::size_t node, const Shape& shape, std::span<const float> expected, std::span<const float> got)>;
  void run_probe(std::span<const RunValue> inputs, const ProbeVisit& visit) const;
  void probe_layers(std::span<const RunValue> inputs);
  double worst_cosine(const Candidate& candidate, std::span<const RunValue> inputs, std::span<const RunValue> expected) const;
  void guard_error(std::span<const RunValue> inputs);
  void time_layers(Session& in_float, Session& quantized, std::span<const RunValue> inputs);
  bool take_back_slower(std::span<const RunValue> inputs);
  void guard_speed(std::span<const RunValue> inputs);
};

}  // namespace evn
