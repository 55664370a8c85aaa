// Runs the nodes that stand between the subplans of a run, and makes tensors runtime values on the host and back.
#pragma once

#include "ops/host.h"
#include "runtime/tensor.h"

namespace evn {

class Session;

// What is handed to a run or comes from it: a tensor, or a box of anything else.
struct RunValue {
  TensorPtr tensor;
  BoxPtr box;
  explicit operator bool() const { return tensor != nullptr || box != nullptr; }
};

// A box over a tensor's bytes, which it keeps. The tensor lies on the host.
BoxPtr box_of(const TensorPtr& tensor);

// A tensor over a box's bytes, which it keeps; it must not be written.
TensorPtr tensor_of(const std::shared_ptr<Runtime>& runtime, const BoxPtr& box);

// Throws EVN_ERROR_INVALID_ARGUMENT when the parts of a box do not fit its type.
void check_box(const Box& box);

// What a run lends to a host node.
class HostRun final : public HostServices {
 public:
  // `body` (nullable) runs the node's body.
  HostRun(Runtime& runtime, Session* body, std::uint64_t deadline_ns, std::uint64_t random_seed)
      : runtime_(runtime), body_(body), deadline_ns_(deadline_ns), random_seed_(random_seed) {}

  std::shared_ptr<Box> make_tensor(const TensorDesc& desc, void** bytes) override;
  BoxPtr keep(const BoxPtr& box) override;
  std::vector<BoxPtr> run_body(std::span<const BoxPtr> inputs, std::uint64_t iteration) override;
  void check_stop() override;
  const Limits& limits() const override;

 private:
  Runtime& runtime_;
  Session* body_;
  std::uint64_t deadline_ns_;
  std::uint64_t random_seed_;
};

}  // namespace evn
