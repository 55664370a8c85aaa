// Operators that a host adds to a runtime: rows like those of ops/*.cc, found beside them.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/os/fork.h"
#include "ops/op.h"

namespace evn {

// One operator of a host. `def` points into it.
struct CustomOp {
  virtual ~CustomOp() = default;
  // Sets dtypes and shapes of the outputs at once. Inputs and outputs of unknown rank are as InferContext::set_unknown_rank leaves
  // them. What the host answers has been checked: dtypes that are stored, dims >= -1, sizes that do not overflow, and all dims
  // known when all that they may depend on is. Throws EVN_ERROR_INTERNAL when it is not so, else what the host returns.
  virtual void infer(const Node& node, std::span<const TensorDesc> inputs, std::span<const ConstTensor> values,
                     std::span<TensorDesc> outputs) const = 0;
  std::string domain;
  std::string name;
  OpDef def{};
  bool on_callers_thread = false;  // it runs on no thread of the library's (EVN_OPERATOR_CALLER_THREAD)
};

// Those of one runtime. What is in it stays until it goes.
class OperatorRegistry {
 public:
  // Throws EVN_ERROR_INVALID_ARGUMENT when the library, or an earlier one, has the operator (of that version).
  void add(std::unique_ptr<CustomOp> op);

  // The row of a host's operator that applies, or nullptr.
  const OpDef* find(const std::string& domain, const std::string& name, std::int64_t opset) const;

  // True if there is an operator that the text names (names_operator).
  bool has(std::string_view text) const;

 private:
  mutable std::mutex mutex_;
  const os::HeldOverForks held_{mutex_};
  std::vector<std::unique_ptr<CustomOp>> ops_;
};

// The library's own row that applies, else that of a host's operator, or nullptr. `registry` is nullable.
const OpDef* find_op(const OperatorRegistry* registry, const std::string& domain, const std::string& name, std::int64_t opset);

// True when some version of the operator is known.
bool op_known(const OperatorRegistry* registry, const std::string& domain, const std::string& name);

}  // namespace evn
