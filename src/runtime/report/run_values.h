// Values of runs as numbers to compare.
#pragma once

#include "quant/closeness.h"
#include "runtime/session/session.h"

namespace evn {

// On the CPU, whatever precision the configuration allows.
inline SessionRequest in_float32() {
  SessionRequest request("cpu");
  request.keep_fp32 = {"*"};
  request.role.listed = false;
  return request;
}

inline std::vector<RunValue> run_once(Session& session, std::span<const RunValue> inputs) {
  std::vector<RunValue> outputs(session.graph().outputs.size());
  RunRequest request;
  request.allow_copies = true;
  session.run(inputs, outputs, request);
  return outputs;
}

inline std::span<const float> floats_of(const Tensor& tensor) {
  return {static_cast<const float*>(tensor.buffer().address()), static_cast<std::size_t>(tensor.desc().shape.elements())};
}

inline bool is_float_on_host(const RunValue& value) {
  return value.tensor != nullptr && value.tensor->on_host() && value.tensor->desc().dtype == DType::kFloat32;
}

// Elements of float32 tensors. A row is what the last axis has. Throws EVN_ERROR_INTERNAL if the shapes differ.
inline void add_closeness(const ConstTensor& expected, const ConstTensor& got, Closeness* closeness) {
  const Shape& shape = expected.desc.shape;
  if (shape != got.desc.shape) fail(EVN_ERROR_INTERNAL, "two models give outputs of different shapes");
  const std::size_t row = shape.rank() == 0 ? 1 : static_cast<std::size_t>(shape[shape.rank() - 1]);
  const auto count = static_cast<std::size_t>(shape.elements());
  closeness->add({expected.as<float>(), count}, {got.as<float>(), count}, row);
}

// Adds nothing unless both are float32 tensors on the host.
inline void add_closeness(const RunValue& expected, const RunValue& got, Closeness* closeness) {
  if (!is_float_on_host(expected) || !is_float_on_host(got)) return;
  add_closeness({expected.tensor->desc(), expected.tensor->buffer().address()},
                {got.tensor->desc(), got.tensor->buffer().address()}, closeness);
}

}  // namespace evn
