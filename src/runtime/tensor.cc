#include "runtime/tensor.h"

#include <cstring>
#include <vector>

#include "base/error.h"

namespace evn {
namespace {

Location location(const Tensor& t) { return {t.on_host() ? nullptr : t.device(), t.buffer()}; }

// A copy that may be left to the device; what it reads and writes is then held.
struct Leaving {
  const Cancel& cancel;
  const TensorPtr& from;
  const TensorPtr& to;
};

// `staging`: what else the copy uses.
void copy_and_wait(Device* device, const Location& from, const Location& to, const Leaving* leaving = nullptr,
                   const std::shared_ptr<void>& staging = nullptr) {
  static const Cancel never;
  if (from.buffer.size == 0) return;
  if (!device->settle(leaving != nullptr ? leaving->cancel : never)) leaving->cancel.fail();
  const Event event = device->copy(from, to, {});
  if (leaving == nullptr) return device->wait(event);
  struct Held {
    TensorPtr from, to;
    std::shared_ptr<void> staging;
    Tensor::Use from_use, to_use;
  };
  if (device->wait_or_stop(event, leaving->cancel)) return;
  std::shared_ptr<Held> held;
  try {
    held = std::make_shared<Held>(
        Held{leaving->from, leaving->to, staging, {*leaving->from, "the source"}, {*leaving->to, "the target"}});
  } catch (...) {
    device->wait(event);
    throw;
  }
  device->hold_until(event, std::move(held));
  leaving->cancel.fail();
}

}  // namespace

TensorDesc checked_desc(const Limits& limits, evn_dtype dtype, const std::int64_t* dims, std::uint32_t rank) {
  const auto type = static_cast<DType>(dtype);
  if (dtype <= EVN_DTYPE_UNDEFINED || dtype >= kDTypeCount)
    fail(EVN_ERROR_INVALID_ARGUMENT, "dtype %d is no type", static_cast<int>(dtype));
  if (!is_stored(type)) fail(EVN_ERROR_UNSUPPORTED, "tensors of dtype %s are not supported", dtype_name(type));
  if (rank > EVN_MAX_RANK) fail(EVN_ERROR_LIMIT, "rank %u is above the limit of %d", static_cast<unsigned>(rank), EVN_MAX_RANK);
  if (rank > 0 && dims == nullptr) fail(EVN_ERROR_INVALID_ARGUMENT, "dims is NULL for rank %u", static_cast<unsigned>(rank));
  TensorDesc desc;
  desc.dtype = type;
  for (std::uint32_t i = 0; i < rank; ++i) {
    if (dims[i] < 0)
      fail(EVN_ERROR_INVALID_ARGUMENT, "dims[%u] is %lld", static_cast<unsigned>(i), static_cast<long long>(dims[i]));
    desc.shape.push_back(dims[i]);
  }
  if (const std::size_t bytes = desc.size_bytes(); bytes > limits.tensor_bytes) {
    throw make_error(EVN_ERROR_LIMIT, "a tensor of %zu bytes is above the limit tensor_bytes of %llu", bytes,
                     static_cast<unsigned long long>(limits.tensor_bytes))
        .with_bytes(bytes, limits.tensor_bytes);
  }
  return desc;
}

Tensor::Tensor(std::shared_ptr<Runtime> runtime, Device* device, const TensorDesc& desc, bool pinned, Fill fill)
    : runtime_(std::move(runtime)), device_(device), desc_(desc), pinned_(pinned) {
  const std::size_t bytes = desc.size_bytes();
  if (desc.dtype == DType::kString && !on_host()) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "string tensors lie on the CPU device").with_device(device->name().c_str());
  }
  memory_ = device->allocate(bytes, MemoryClass::kTensors, pinned);
  buffer_ = {memory_.memory(), 0, bytes};
  if (bytes > 0 && (fill == Fill::kZero || desc.dtype == DType::kString)) clear();
}

void Tensor::clear() {
  const std::size_t bytes = buffer_.size;
  if (on_host()) {
    std::memset(buffer_.address(), 0, bytes);
  } else if (void* address = pinned_ ? device_->map(buffer_, false, true) : nullptr) {
    std::memset(address, 0, bytes);
    device_->unmap(buffer_, address);
  } else {
    const std::shared_ptr<void> zeros = allocate_charged(nullptr, bytes, MemoryClass::kTensors);
    std::memset(zeros.get(), 0, bytes);
    copy_and_wait(device_, {nullptr, {zeros.get(), 0, bytes}}, {device_, buffer_});
  }
}

Tensor::Tensor(std::shared_ptr<Runtime> runtime, void* data, const TensorDesc& desc)
    : runtime_(std::move(runtime)), device_(&runtime_->cpu()), desc_(desc), borrowed_(true), buffer_{data, 0, desc.size_bytes()} {}

Tensor::Tensor(std::shared_ptr<Tensor> whole, std::size_t offset, const TensorDesc& desc)
    : runtime_(whole->runtime_),
      device_(whole->device_),
      desc_(desc),
      read_only_(whole->read_only_),
      borrowed_(whole->borrowed_),
      whole_(std::move(whole)) {
  const std::size_t bytes = desc.size_bytes();
  EVN_CHECK(on_host() && offset <= whole_->size_bytes() && bytes <= whole_->size_bytes() - offset);
  auto* const begin = static_cast<unsigned char*>(whole_->buffer_.address());
  buffer_ = {bytes > 0 ? begin + offset : nullptr, 0, bytes};
}

void Tensor::adopt(evn_deleter deleter, void* user) {
  borrowed_ = deleter == nullptr;
  deleter_ = deleter;
  user_ = user;
}

Tensor::~Tensor() {
  if (pinned_address_ != nullptr) {
    try {
      device_->unmap(buffer_, pinned_address_);
    } catch (const Error&) {  // the device undoes it when it maps the memory again
    }
  }
  if (deleter_ != nullptr) deleter_(user_, buffer_.memory);
}

bool Tensor::begin_use(const char* what) const {
  if (on_host()) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (map_flags_ != 0) fail(EVN_ERROR_WRONG_STATE, "%s is mapped", what);
  ++uses_;
  return true;
}

void Tensor::end_use() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--uses_ == 0) unused_.notify_all();
}

void Tensor::require_writable(const char* what) const {
  if (read_only_) fail(EVN_ERROR_INVALID_ARGUMENT, "%s is read-only", what);
}

std::shared_ptr<const void> Tensor::texts() const {
  if (desc_.dtype != DType::kString) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  return texts_;
}

void Tensor::set_texts(std::shared_ptr<const void> texts) {
  const std::lock_guard<std::mutex> lock(mutex_);
  texts_ = std::move(texts);
}

void Tensor::set_strings(std::span<const std::string_view> strings) {
  if (desc_.dtype != DType::kString) fail(EVN_ERROR_INVALID_ARGUMENT, "the tensor has elements of %s", dtype_name(desc_.dtype));
  require_writable("the tensor");
  const auto count = static_cast<std::size_t>(desc_.shape.elements());
  if (strings.size() != count)
    fail(EVN_ERROR_INVALID_ARGUMENT, "%zu strings are given, the tensor has %zu elements", strings.size(), count);
  auto texts = std::make_shared<TextPool>(device_->ledger());
  std::vector<TextElement> elements;
  elements.reserve(count);
  for (const std::string_view s : strings) elements.push_back(texts->add(s));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (count > 0) std::memcpy(buffer_.address(), elements.data(), count * sizeof(TextElement));
  texts_ = std::move(texts);
}

std::string Tensor::string_at(std::size_t index) const {
  if (desc_.dtype != DType::kString) fail(EVN_ERROR_INVALID_ARGUMENT, "the tensor has elements of %s", dtype_name(desc_.dtype));
  const auto count = static_cast<std::size_t>(desc_.shape.elements());
  if (index >= count) fail(EVN_ERROR_INVALID_ARGUMENT, "index is %zu, the tensor has %zu elements", index, count);
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::string(text_of(static_cast<const TextElement*>(buffer_.address())[index]));
}

void Tensor::copy_strings_to(Tensor& to) const {
  std::vector<TextElement> elements(static_cast<std::size_t>(desc_.shape.elements()));
  const std::size_t bytes = elements.size() * sizeof(TextElement);
  std::shared_ptr<const void> texts;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > 0) std::memcpy(elements.data(), buffer_.address(), bytes);
    texts = texts_;
  }
  const std::lock_guard<std::mutex> lock(to.mutex_);
  if (bytes > 0) std::memcpy(to.buffer_.address(), elements.data(), bytes);
  to.texts_ = std::move(texts);
}

void* Tensor::map(std::uint32_t flags) {
  if (desc_.dtype == DType::kString)
    fail(EVN_ERROR_UNSUPPORTED, "strings are no bytes to map: evn_tensor_get_string, evn_tensor_set_strings");
  if ((flags & EVN_MAP_WRITE) != 0) require_writable("the tensor");
  std::unique_lock<std::mutex> lock(mutex_);
  const auto require_not_mapped = [&] {
    if (map_flags_ != 0) fail(EVN_ERROR_WRONG_STATE, "the tensor is mapped already");
  };
  require_not_mapped();
  unused_.wait(lock, [&] { return uses_ == 0; });
  require_not_mapped();
  const bool read = (flags & EVN_MAP_READ) != 0;
  void* data = nullptr;
  if (on_host()) {
    data = buffer_.size > 0 ? buffer_.address() : nullptr;
  } else if (buffer_.size > 0 && pinned_) {
    data = pinned_address_ = device_->map(buffer_, read, (flags & EVN_MAP_WRITE) != 0);
  }
  if (!on_host() && buffer_.size > 0 && data == nullptr) {
    std::shared_ptr<void> staging = allocate_charged(device_->ledger(), buffer_.size, MemoryClass::kTensors);
    std::memset(staging.get(), 0, buffer_.size);
    if (read) copy_and_wait(device_, {device_, buffer_}, {nullptr, {staging.get(), 0, buffer_.size}});
    staging_ = std::move(staging);
    data = staging_.get();
  }
  map_flags_ = flags;
  return data;
}

void Tensor::unmap() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (map_flags_ == 0) fail(EVN_ERROR_WRONG_STATE, "the tensor is not mapped");
  if (pinned_address_ != nullptr) {
    device_->unmap(buffer_, pinned_address_);
    pinned_address_ = nullptr;
  } else if (!on_host() && (map_flags_ & EVN_MAP_WRITE) != 0 && staging_ != nullptr) {
    copy_and_wait(device_, {nullptr, {staging_.get(), 0, buffer_.size}}, {device_, buffer_});
  }
  staging_.reset();
  map_flags_ = 0;
}

namespace {

void copy_bytes(const Tensor& from, Tensor& to, const Leaving* leaving) {
  if (!(from.desc() == to.desc())) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "cannot copy %s%s into %s%s", dtype_name(from.desc().dtype),
         from.desc().shape.to_string().c_str(), dtype_name(to.desc().dtype), to.desc().shape.to_string().c_str());
  }
  const Tensor::Use from_use(from, "the source"), to_use(to, "the target");
  to.require_writable("the target");
  if (from.desc().dtype == DType::kString) {
    if (&from != &to) from.copy_strings_to(to);
    return;
  }
  const bool both_elsewhere = !from.on_host() && !to.on_host();
  if (both_elsewhere && from.device() != to.device()) {
    const std::size_t bytes = from.size_bytes();
    const std::shared_ptr<void> staging = allocate_charged(from.runtime()->cpu().ledger(), bytes, MemoryClass::kTensors);
    const Location host{nullptr, {staging.get(), 0, bytes}};
    copy_and_wait(from.device(), location(from), host, leaving, staging);
    copy_and_wait(to.device(), host, location(to), leaving, staging);
    return;
  }
  copy_and_wait(from.on_host() ? to.device() : from.device(), location(from), location(to), leaving);
}

}  // namespace

void copy_tensor(const Tensor& from, Tensor& to) { copy_bytes(from, to, nullptr); }

void copy_tensor_or_stop(const TensorPtr& from, const TensorPtr& to, const Cancel& cancel) {
  const Leaving leaving{cancel, from, to};
  copy_bytes(*from, *to, &leaving);
}

}  // namespace evn
