#include "runtime/session/run_tensors.h"

#include "base/error.h"

namespace evn {
namespace {

// Returns whether the bytes lack the natural alignment of the dtype, which kernels need.
bool misaligned(const Tensor& t) {
  return t.on_host() && reinterpret_cast<std::uintptr_t>(t.buffer().memory) % dtype_alignment(t.desc().dtype) != 0;
}

}  // namespace

RunTensors::~RunTensors() = default;

void check_counts(const Graph& graph, std::size_t inputs, std::size_t outputs) {
  const std::size_t in = graph.inputs.size();
  const std::size_t out = graph.outputs.size();
  if (inputs == in && outputs == out) return;
  fail(EVN_ERROR_INVALID_ARGUMENT, "the model has %zu inputs and %zu outputs, %zu and %zu are given", in, out, inputs, outputs);
}

bool RunTensors::fits_declared_shape(std::size_t index) const {
  const RunValue& given = inputs[index];
  const Value& want = graph().values[graph().inputs[index]];
  const TensorDesc& have = given.tensor != nullptr ? given.tensor->desc() : given.runtime_value->desc;
  if (want.wraps || have.wraps || have.dtype != want.dtype || !want.has_shape) return false;
  bool fits = have.shape.rank() == want.shape.rank();
  for (int i = 0; fits && i < want.shape.rank(); ++i) fits = want.shape[i] < 0 || want.shape[i] == have.shape[i];
  return fits;
}

void RunTensors::check_input(std::size_t index) const {
  const RunValue& given = inputs[index];
  const Value& want = graph().values[graph().inputs[index]];
  const TensorDesc& have = given.tensor != nullptr ? given.tensor->desc() : given.runtime_value->desc;
  if (want.wraps || have.wraps) {
    if (have.dtype == want.dtype && have.wraps == want.wraps) return;  // evn_value_create has checked the parts
    fail(EVN_ERROR_INVALID_ARGUMENT, "input %zu \"%s\" is of type %s, the model wants %s", index, want.name.c_str(),
         have.type_string().c_str(), TensorDesc{want.dtype, {}, want.wraps}.type_string().c_str());
  }
  if (have.dtype != want.dtype) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "input %zu \"%s\" has dtype %s, the model wants %s", index, want.name.c_str(),
         dtype_name(have.dtype), dtype_name(want.dtype));
  }
  if (want.has_shape && !fits_declared_shape(index)) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "input %zu \"%s\" has shape %s, the model wants %s", index, want.name.c_str(),
         have.shape.to_string().c_str(), want.shape.to_string().c_str());
  }
}

void RunTensors::refuse_output(std::size_t index, const TensorDesc& want, const Tensor& have) const {
  const Value& value = graph().values[graph().outputs[index]];
  if (value.wraps) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu \"%s\" is of type %s, a tensor is given for it", index, value.name.c_str(),
         TensorDesc{value.dtype, {}, value.wraps}.type_string().c_str());
  }
  fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu \"%s\" is %s%s, the given tensor is %s%s", index, value.name.c_str(),
       dtype_name(want.dtype), want.shape.to_string().c_str(), dtype_name(have.desc().dtype),
       have.desc().shape.to_string().c_str());
}

void RunTensors::refuse_copy(bool output, std::size_t index, const Device& given, const char* why, const char* what) const {
  const std::string& value = graph().values[(output ? graph().outputs : graph().inputs)[index]].name;
  throw make_error(EVN_ERROR_INVALID_ARGUMENT, "%s %zu \"%s\" lies on device %s, %s%s; allow_copies is 0",
                   output ? "output" : "input", index, value.c_str(), given.name().c_str(), why, what)
      .with_device(given.name().c_str());
}

void RunTensors::refuse_foreign(bool output, std::size_t index, const Device& given) const {
  std::string names;
  for (const Device* device : compiled.devices) names += (names.empty() ? "" : ", ") + device->name();
  refuse_copy(output, index, given, "which the session does not use (it uses ", (names + ")").c_str());
}

// The device slot of a tensor, or UINT8_MAX when it lies outside the session's devices.
std::uint8_t RunTensors::slot_for(const Tensor& tensor, bool output, std::size_t index) const {
  for (std::size_t s = 0; s < compiled.devices.size(); ++s) {
    if (compiled.devices[s] == tensor.device()) return static_cast<std::uint8_t>(s);
  }
  if (!allow_copies) refuse_foreign(output, index, *tensor.device());
  return UINT8_MAX;
}

// Throws where the plan copies what the caller said may not be copied.
void RunTensors::check_copies(const Plan& plan) const {
  if (allow_copies || plan.given_copies.empty()) return;
  const GivenCopy& c = plan.given_copies.front();
  refuse_copy(c.is_output, static_cast<std::size_t>(c.index), *compiled.devices[c.given_slot],
              c.is_output ? "the plan makes it on " : "the plan reads it on ", compiled.devices[c.plan_slot]->name().c_str());
}

TensorPtr RunTensors::stage(const TensorDesc& desc, std::uint8_t slot) const {
  return std::make_shared<Tensor>(compiled.model->runtime, compiled.devices[slot], desc, false, Tensor::Fill::kNone);
}

// Returns whether the run may end while devices still work for it. Devices then use only host memory that the library can keep
// alive, and no tensors given for outputs, which others could read and write at once.
bool RunTensors::may_leave() const {
  return cancel.exists() && std::any_of(compiled.devices.begin(), compiled.devices.end(),
                                        [](const Device* d) { return !d->traits().host_addressable; });
}

void RunTensors::take_inputs() {
  const bool keep = may_leave();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (const HeldValues::Pages pages = input_pages(i)) {
      input_slots[i] = static_cast<std::uint8_t>(kPagedSlot + pages.axis);
      continue;
    }
    if (!fits_declared_shape(i)) check_input(i);
    if (inputs[i].tensor == nullptr) {
      runtime_values[graph().inputs[i]] = inputs[i].runtime_value;
      borrows_inputs |= !keep;  // else they are staged
      continue;
    }
    const Tensor& given = *inputs[i].tensor;
    input_uses[i] = Tensor::Use(given, "an input");
    from[i] = inputs[i].tensor;
    input_slots[i] = slot_for(given, false, i);
    const bool needs_host = is_key(compiled, i, given.desc());
    if (needs_host && !given.on_host() && given.size_bytes() > 0 && !allow_copies) {
      refuse_copy(false, i, *given.device(), "shapes depend on it and it is read on ", compiled.devices[0]->name().c_str());
    }
    // Strings are taken as they are now: a caller may replace them during the run.
    const bool strings = given.desc().dtype == DType::kString;
    const bool may_go = keep && given.on_host() && !given.keeps_memory();
    if (input_slots[i] == UINT8_MAX || strings || may_go || misaligned(given) || (needs_host && !given.on_host())) {
      from[i] = stage(given.desc(), 0);
      copy_tensor_or_stop(inputs[i].tensor, from[i], cancel);
      input_slots[i] = 0;
    } else {
      borrows_inputs |= given.on_host() && !given.keeps_memory();
    }
  }
}

// Chooses where the plan writes each output: where the caller's tensor lies, else where the plan makes it, or on the CPU.
void RunTensors::choose_output_slots() {
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    const TensorPtr& given = outputs[j].tensor;
    if (given == nullptr) {
      if (outputs_on_device && !is_skipped(skipped, j)) output_slots[j] = kAnySlot;
      if (output_pages(j)) output_slots[j] = kPagedSlot;
      if (const int slot = held != nullptr ? held->tensor_slot(j) : -1; slot >= 0)
        output_slots[j] = static_cast<std::uint8_t>(slot);
      continue;
    }
    if (graph().values[graph().outputs[j]].wraps) refuse_output(j, {}, *given);
    output_uses[j] = Tensor::Use(*given, "an output");
    given->require_writable("an output");
    const std::uint8_t slot = slot_for(*given, true, j);
    output_slots[j] = slot == UINT8_MAX ? 0 : slot;
  }
  check_overlap(inputs, outputs, overwrite_inputs, spare);
}

// Takes or makes the tensors of the outputs whose descriptions the plan knows.
void RunTensors::take_outputs(const Plan& plan) {
  const bool keep = may_leave();
  std::optional<OverwriteCheck> overwrites;
  if (overwrite_inputs) overwrites.emplace(compiled, plan, from.span(), outputs, spare);
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    const TensorDesc& desc = plan.outputs[j];
    if (to[j] != nullptr || desc.dtype == DType::kUndefined || desc.wraps || output_pages(j)) continue;
    if (held != nullptr && held->tensor_slot(j) >= 0) {
      to[j] = held->make_output(j, desc);
      continue;
    }
    const TensorPtr& given = outputs[j].tensor;
    if (given != nullptr && !(given->desc() == desc)) refuse_output(j, desc, *given);
    const std::uint8_t slot = plan.output_slots[j];
    const bool there = given != nullptr && (given->device() == compiled.devices[slot] || shared_output(j, slot) != nullptr);
    const bool direct = there && desc.dtype != DType::kString && !misaligned(*given) && !(keep && given->on_host()) &&
                        !(overwrites && overwrites->must_stage(j));
    to[j] = direct ? given : stage(desc, slot);
    uses_callers |= direct && given->on_host();
  }
}

// Copies the texts of string outputs, whose memory otherwise belongs to this run's steps and inputs.
void RunTensors::own_strings() {
  for (std::size_t j = 0; j < to.size(); ++j) {
    if (to[j] == nullptr || to[j]->desc().dtype != DType::kString) continue;
    Tensor& t = *to[j];
    auto texts = std::make_shared<TextPool>(compiled.devices[0]->ledger());
    auto* elements = static_cast<TextElement*>(t.buffer().address());
    texts->copy(elements, static_cast<std::size_t>(t.desc().shape.elements()), elements);
    t.set_texts(std::move(texts));
  }
}

}  // namespace evn
