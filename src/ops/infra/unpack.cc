#include "ops/infra/unpack.h"

#include <algorithm>
#include <vector>

#include "ops/infra/small_types.h"

namespace evn {
namespace {

bool is_packed(const TensorDesc& desc) { return desc.dtype != DType::kUndefined && is_sub_byte(desc.dtype); }

using Bytes = std::vector<std::uint8_t>;

Bytes unpacked(const ConstTensor& t) {
  Bytes bytes(static_cast<std::size_t>(t.desc.shape.elements()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    cancellation_point();
    bytes[i] = small_bits(t.desc.dtype, t.data, static_cast<std::int64_t>(i));
  }
  return bytes;
}

void pack(const Bytes& bytes, const MutableTensor& t) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    cancellation_point();
    set_small_bits(t.desc.dtype, t.data, static_cast<std::int64_t>(i), bytes[i]);
  }
  clear_rest(t.desc.dtype, t.data, static_cast<std::int64_t>(bytes.size()));
}

}  // namespace

bool has_packed_elements(const ReferenceContext& c) {
  const auto packed = [](const auto& t) { return is_packed(t.desc); };
  return std::any_of(c.inputs.begin(), c.inputs.end(), packed) || std::any_of(c.outputs.begin(), c.outputs.end(), packed);
}

void run_unpacked(const ReferenceContext& c) {
  std::vector<ConstTensor> inputs(c.inputs.begin(), c.inputs.end());
  std::vector<MutableTensor> outputs(c.outputs.begin(), c.outputs.end());
  std::vector<Bytes> in(inputs.size()), out(outputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_packed(inputs[i].desc)) continue;
    in[i] = unpacked(inputs[i]);
    inputs[i] = {{DType::kUint8, inputs[i].desc.shape}, in[i].data()};
  }
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (!is_packed(outputs[k].desc)) continue;
    out[k].resize(static_cast<std::size_t>(outputs[k].desc.shape.elements()));
    outputs[k] = {{DType::kUint8, outputs[k].desc.shape}, out[k].data()};
  }
  ReferenceContext whole = c;
  whole.inputs = inputs;
  whole.outputs = outputs;
  c.node.op->reference(whole);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (is_packed(c.outputs[k].desc)) pack(out[k], c.outputs[k]);
  }
}

}  // namespace evn
