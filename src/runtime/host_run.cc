#include "runtime/host_run.h"

#include <cstring>

#include "base/error.h"
#include "runtime/session.h"

namespace evn {
namespace {

// Of two numbers a third that tells nothing of them (the finalizer of SplitMix64).
std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + 0x9e3779b97f4a7c15u * (b + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

BoxPtr box_of(const TensorPtr& tensor) {
  auto box = std::make_shared<Box>();
  box->desc = tensor->desc();
  box->data = std::shared_ptr<const void>(tensor, tensor->size_bytes() > 0 ? tensor->buffer().address() : nullptr);
  box->texts = tensor->texts();
  return box;
}

TensorPtr tensor_of(const std::shared_ptr<Runtime>& runtime, const BoxPtr& box) {
  auto holder = std::make_unique<BoxPtr>(box);
  auto tensor = std::make_shared<Tensor>(runtime, const_cast<void*>(box->data.get()), box->desc);
  tensor->set_read_only();
  tensor->set_texts(box->texts);
  tensor->adopt([](void* user, void*) { delete static_cast<BoxPtr*>(user); }, holder.release());
  if (box->borrowed) tensor->set_borrowed();
  return tensor;
}

void check_box(const Box& box) {
  if (box.is_tensor()) return;
  const auto refuse = [&](const char* what) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "a value of type %s %s", box.desc.type_string().c_str(), what);
  };
  const TensorDesc inside{box.desc.dtype, {}, box.desc.wraps.inside()};
  switch (box.desc.wraps.outer()) {
    case Wrap::kOptional:
      if (box.parts.size() > 1) refuse("has more than one element");
      [[fallthrough]];
    case Wrap::kSequence:
      for (const BoxPtr& part : box.parts) {
        if (part->desc.dtype != inside.dtype || part->desc.wraps != inside.wraps) refuse("has an element of another type");
      }
      return;
    default:
      if (box.parts.size() != 2 || !box.parts[0]->is_tensor() || !box.parts[1]->is_tensor()) refuse("has no keys and values");
      if (box.parts[0]->desc.dtype != (box.desc.wraps.outer() == Wrap::kMapOfInts ? DType::kInt64 : DType::kString) ||
          box.parts[1]->desc.dtype != box.desc.dtype) {
        refuse("has keys or values of another type");
      }
      if (box.parts[0]->desc.shape.rank() != 1 || box.parts[0]->desc.shape != box.parts[1]->desc.shape) {
        refuse("has unlike numbers of keys and values");
      }
  }
}

std::shared_ptr<Box> HostRun::make_tensor(const TensorDesc& desc, void** bytes) {
  const std::size_t size = desc.size_bytes();
  if (size > limits().tensor_bytes) {
    throw make_error(EVN_ERROR_LIMIT, "a tensor of shape %s has %zu bytes, above the limit tensor_bytes",
                     desc.shape.to_string().c_str(), size)
        .with_bytes(size, limits().tensor_bytes);
  }
  auto box = std::make_shared<Box>();
  box->desc = desc;
  *bytes = nullptr;
  if (size > 0) {
    std::shared_ptr<void> memory = allocate_charged(runtime_.cpu().ledger(), size, MemoryClass::kArenas);
    fill_in_pieces(memory.get(), 0, size);
    *bytes = memory.get();
    box->data = std::move(memory);
  }
  return box;
}

BoxPtr HostRun::keep(const BoxPtr& box) {
  if (!box->borrowed) return box;
  void* to = nullptr;
  std::shared_ptr<Box> kept = make_tensor(box->desc, &to);
  const std::size_t size = box->desc.size_bytes();
  if (box->desc.dtype == DType::kString) {
    auto texts = std::make_shared<TextPool>(runtime_.cpu().ledger());
    texts->copy(box->as<TextElement>(), static_cast<std::size_t>(box->desc.shape.elements()), static_cast<TextElement*>(to));
    kept->texts = std::move(texts);
  } else if (size > 0) {
    move_in_pieces(to, box->data.get(), size);
  }
  return kept;
}

std::vector<BoxPtr> HostRun::run_body(std::span<const BoxPtr> inputs, std::uint64_t iteration) {
  EVN_CHECK(body_ != nullptr);
  check_stop();
  return body_->run_boxes(inputs, deadline_ns_, mix(random_seed_, iteration));
}

void HostRun::check_stop() {
  Cancel cancel;
  cancel.deadline_ns = deadline_ns_;
  if (cancel.stop()) cancel.fail();
}

const Limits& HostRun::limits() const { return runtime_.config().limits; }

}  // namespace evn
