#include "runtime/run/host_run.h"

#include <cstring>

#include "base/error.h"
#include "base/run_scheduler.h"
#include "runtime/objects/runtime.h"

namespace evn {
namespace {

constexpr std::size_t kSmallBytes = 1024;

// Makes of two numbers a third that tells nothing of them (the finalizer of SplitMix64).
std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + 0x9e3779b97f4a7c15u * (b + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

RuntimeValuePtr runtime_value_of(const TensorPtr& tensor) {
  auto runtime_value = std::make_shared<RuntimeValue>();
  runtime_value->desc = tensor->desc();
  runtime_value->data = std::shared_ptr<const void>(tensor, tensor->size_bytes() > 0 ? tensor->buffer().address() : nullptr);
  runtime_value->texts = tensor->texts();
  return runtime_value;
}

TensorPtr tensor_of(const std::shared_ptr<Runtime>& runtime, const RuntimeValuePtr& runtime_value) {
  auto holder = std::make_unique<RuntimeValuePtr>(runtime_value);
  auto tensor = std::make_shared<Tensor>(runtime, const_cast<void*>(runtime_value->data.get()), runtime_value->desc);
  tensor->set_read_only();
  tensor->set_texts(runtime_value->texts);
  tensor->adopt([](void* user, void*) { delete static_cast<RuntimeValuePtr*>(user); }, holder.release());
  if (runtime_value->borrowed) tensor->set_borrowed();
  return tensor;
}

void check_runtime_value(const RuntimeValue& runtime_value) {
  if (runtime_value.is_tensor()) return;
  const auto refuse = [&](const char* what) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "a value of type %s %s", runtime_value.desc.type_string().c_str(), what);
  };
  const TensorDesc inside{runtime_value.desc.dtype, {}, runtime_value.desc.wraps.inside()};
  switch (runtime_value.desc.wraps.outer()) {
    case Wrap::kOptional:
      if (runtime_value.parts.size() > 1) refuse("has more than one element");
      [[fallthrough]];
    case Wrap::kSequence:
      for (const RuntimeValuePtr& part : runtime_value.parts) {
        if (part->desc.dtype != inside.dtype || part->desc.wraps != inside.wraps) refuse("has an element of another type");
      }
      return;
    default:
      if (runtime_value.parts.size() != 2 || !runtime_value.parts[0]->is_tensor() || !runtime_value.parts[1]->is_tensor())
        refuse("has no keys and values");
      if (runtime_value.parts[0]->desc.dtype !=
              (runtime_value.desc.wraps.outer() == Wrap::kMapOfInts ? DType::kInt64 : DType::kString) ||
          runtime_value.parts[1]->desc.dtype != runtime_value.desc.dtype) {
        refuse("has keys or values of another type");
      }
      if (runtime_value.parts[0]->desc.shape.rank() != 1 ||
          runtime_value.parts[0]->desc.shape != runtime_value.parts[1]->desc.shape) {
        refuse("has unlike numbers of keys and values");
      }
  }
}

std::shared_ptr<RuntimeValue> HostRun::make_tensor(const TensorDesc& desc, void** bytes) {
  const std::size_t size = desc.size_bytes();
  if (size > limits().tensor_bytes) {
    throw make_error(EVN_ERROR_LIMIT, "a tensor of shape %s has %zu bytes, above the limit tensor_bytes",
                     desc.shape.to_string().c_str(), size)
        .with_bytes(size, limits().tensor_bytes);
  }
  auto runtime_value = std::make_shared<RuntimeValue>();
  runtime_value->desc = desc;
  *bytes = nullptr;
  if (size > 0) {
    // A small block is counted by the heap, which knows all that it takes: its bytes are the lesser part of that.
    std::shared_ptr<void> memory =
        allocate_charged(size < kSmallBytes ? nullptr : runtime_.cpu().ledger(), size, MemoryClass::kArenas);
    fill_in_pieces(memory.get(), 0, size);
    *bytes = memory.get();
    runtime_value->data = std::move(memory);
  }
  return runtime_value;
}

RuntimeValuePtr HostRun::keep(const RuntimeValuePtr& runtime_value) {
  if (!runtime_value->borrowed) return runtime_value;
  void* to = nullptr;
  std::shared_ptr<RuntimeValue> kept = make_tensor(runtime_value->desc, &to);
  const std::size_t size = runtime_value->desc.size_bytes();
  if (runtime_value->desc.dtype == DType::kString) {
    auto texts = std::make_shared<TextPool>(runtime_.cpu().ledger());
    texts->copy(runtime_value->as<TextElement>(), static_cast<std::size_t>(runtime_value->desc.shape.elements()),
                static_cast<TextElement*>(to));
    kept->texts = std::move(texts);
  } else if (size > 0) {
    move_in_pieces(to, runtime_value->data.get(), size);
  }
  return kept;
}

std::vector<RuntimeValuePtr> HostRun::run_body(std::span<const RuntimeValuePtr> inputs, std::uint64_t iteration) {
  EVN_CHECK(body_ != nullptr);
  check_stop();
  return body_->run_values(inputs, stop_, mix(random_seed_, iteration), run_, run_number_);
}

void HostRun::check_stop() {
  const Cancel cancel{stop_};
  if (cancel.stop()) cancel.fail();
}

}  // namespace evn
