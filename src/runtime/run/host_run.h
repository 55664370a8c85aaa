// Runs the nodes that stand between the subplans of a run, and makes tensors runtime values on the host and back.
#pragma once

#include "ops/host.h"
#include "runtime/objects/tensor.h"

namespace evn {

// What is handed to a run or comes from it: a tensor, or a runtime value of anything else.
struct RunValue {
  TensorPtr tensor;
  RuntimeValuePtr runtime_value;
  explicit operator bool() const { return tensor != nullptr || runtime_value != nullptr; }
};

// A runtime value over a tensor's bytes, which it keeps. The tensor lies on the host.
RuntimeValuePtr runtime_value_of(const TensorPtr& tensor);

// A tensor over a runtime value's bytes, which it keeps; it must not be written.
TensorPtr tensor_of(const std::shared_ptr<Runtime>& runtime, const RuntimeValuePtr& runtime_value);

// Throws EVN_ERROR_INVALID_ARGUMENT when the parts of a runtime value do not fit its type.
void check_runtime_value(const RuntimeValue& runtime_value);

// Runs the body of a node: a session of it.
class BodyRunner {
 public:
  // Runs the body once; `scheduled`: the run that this is a part of.
  virtual std::vector<RuntimeValuePtr> run_values(std::span<const RuntimeValuePtr> inputs, const StopCondition& stop,
                                                  std::uint64_t random_seed, ScheduledRun* scheduled, std::uint64_t run_number) = 0;

 protected:
  ~BodyRunner() = default;
};

// What a run lends to a host node.
class HostRun final : public HostServices {
 public:
  // `body` (nullable) runs the node's body.
  HostRun(Runtime& runtime, const Limits& limits, BodyRunner* body, const StopCondition& stop, std::uint64_t random_seed,
          ScheduledRun* run, std::uint64_t run_number)
      : runtime_(runtime),
        limits_(limits),
        body_(body),
        stop_(stop),
        random_seed_(random_seed),
        run_(run),
        run_number_(run_number) {}

  std::shared_ptr<RuntimeValue> make_tensor(const TensorDesc& desc, void** bytes) override;
  RuntimeValuePtr keep(const RuntimeValuePtr& runtime_value) override;
  std::vector<RuntimeValuePtr> run_body(std::span<const RuntimeValuePtr> inputs, std::uint64_t iteration) override;
  void check_stop() override;
  const Limits& limits() const override { return limits_; }

 private:
  Runtime& runtime_;
  const Limits& limits_;
  BodyRunner* body_;
  const StopCondition stop_;
  std::uint64_t random_seed_;
  ScheduledRun* run_;
  std::uint64_t run_number_;
};

}  // namespace evn
