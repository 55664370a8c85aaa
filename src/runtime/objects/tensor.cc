#include "runtime/objects/tensor.h"

#include <cstring>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "base/float_environment.h"

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
  device->require_ready(leaving != nullptr ? leaving->cancel : never);
  struct Bounded {
    Quarantine* quarantine;
    ~Bounded() {
      if (quarantine != nullptr) quarantine->end_bounded();
    }
  };
  const Bounded bounded{leaving != nullptr && leaving->cancel.exists() ? &device->quarantine() : nullptr};
  if (bounded.quarantine != nullptr) bounded.quarantine->begin_bounded();
  const Event event = device->copy(from, to, {});
  if (leaving == nullptr) return device->wait(event);
  struct Held {
    TensorPtr from, to;
    std::shared_ptr<void> staging;
    Tensor::Use from_use, to_use;
  };
  Device::Waited waited = device->wait_bounded(event, leaving->cancel);
  if (waited == Device::Waited::kQuarantined && !(leaving->from->keeps_memory() && leaving->to->keeps_memory())) {
    device->wait(event);  // the memory may go when this returns
    waited = Device::Waited::kEnded;
  }
  if (waited == Device::Waited::kEnded) return;
  std::shared_ptr<Held> held;
  try {
    held = std::make_shared<Held>(
        Held{leaving->from, leaving->to, staging, {*leaving->from, "the source"}, {*leaving->to, "the target"}});
  } catch (...) {
    device->wait(event);
    throw;
  }
  device->leave_until(event, std::move(held));
  if (waited == Device::Waited::kStopped) leaving->cancel.fail();
  device->fail_quarantined();
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

Tensor::Tensor(std::shared_ptr<Runtime> runtime, Device* device, const TensorDesc& desc, bool pinned, Fill fill, MemoryClass cls)
    : runtime_(std::move(runtime)), device_(device), desc_(desc), pinned_(pinned) {
  const std::size_t bytes = desc.size_bytes();
  if (desc.dtype == DType::kString && !on_host()) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "string tensors lie on the CPU device").with_device(device->name().c_str());
  }
  Runtime::require_not_forked(*device);
  memory_ = device->allocate(bytes, cls, pinned);
  buffer_ = {memory_.memory(), 0, bytes};
  if (bytes > 0 && !memory_.is_zero() && (fill == Fill::kZero || desc.dtype == DType::kString)) clear();
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

Tensor::Tensor(std::shared_ptr<Runtime> runtime, Device* device, NativeSharing::Wrapped wrapped, const TensorDesc& desc)
    : runtime_(std::move(runtime)), device_(device), desc_(desc), native_(std::move(wrapped.keeper)), buffer_(wrapped.buffer) {}

void Tensor::adopt(evn_deleter deleter, void* user) {
  borrowed_ = deleter == nullptr;
  deleter_ = deleter;
  user_ = user;
  given_ = buffer_.memory;
}

void Tensor::adopt_native(evn_deleter deleter, void* user, void* memory) {
  deleter_ = deleter;
  user_ = user;
  given_ = memory;
}

Tensor::Tensor(PartKey, std::shared_ptr<Tensor> whole, const Buffer& buffer, const TensorDesc& desc, bool apart)
    : runtime_(whole->runtime_),
      device_(whole->device_),
      desc_(desc),
      pinned_(whole->pinned_),
      buffer_(buffer),
      whole_(whole->whole_ != nullptr ? whole->whole_ : std::move(whole)),
      apart_(apart) {}

TensorPtr Tensor::part(const TensorPtr& whole, std::size_t offset_bytes, const TensorDesc& desc, bool apart) {
  const std::size_t bytes = desc.size_bytes(), all = whole->size_bytes();
  if (whole->desc_.dtype == DType::kString || desc.dtype == DType::kString)
    fail(EVN_ERROR_UNSUPPORTED, "string tensors have no views");
  if (offset_bytes > all || bytes > all - offset_bytes) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "a view of %zu bytes from byte %zu on ends beyond the tensor, which has %zu bytes", bytes,
         offset_bytes, all);
  }
  Buffer buffer = whole->buffer_;
  buffer.size = bytes;
  if (whole->on_host()) {
    if (offset_bytes > 0) buffer.memory = static_cast<char*>(buffer.memory) + offset_bytes;
  } else if (const std::size_t alignment = whole->device_->traits().alignment; bytes > 0 && offset_bytes % alignment != 0) {
    throw make_error(EVN_ERROR_UNSUPPORTED,
                     "a view begins at byte %zu, which is no multiple of the device's alignment of %zu bytes", offset_bytes,
                     alignment)
        .with_device(whole->device_->name().c_str());
  } else {
    buffer.offset += offset_bytes;
  }
  return std::make_shared<Tensor>(PartKey(), whole, buffer, desc, apart && whole->on_host());
}

void Tensor::end_handle() noexcept {
  if (handles_.fetch_sub(1, std::memory_order_acq_rel) == 1) end_maps();
}

void Tensor::end_maps() noexcept {
  const Tensor& all = counter();
  const LockIfAlive lock(all.mutex_);
  if (own_maps_ == 0) return;
  all.maps_ -= std::exchange(own_maps_, 0u);
  staging_.reset();
  if (all.maps_ != 0) return;
  try {
    Runtime::require_not_forked(*device_);
    unmap_pinned();
  } catch (const Error&) {  // the device undoes it when it maps the memory again
    all.pinned_address_ = nullptr;
  }
  all.written_ = false;
}

Tensor::~Tensor() {
  end_maps();
  shares_.clear();  // before the memory
  native_.reset();
  if (deleter_ == nullptr) return;
  const HostFloatEnvironment hosts;
  deleter_(user_, given_);
}

bool Tensor::begin_use(const char* what) const {
  if (on_host()) return false;
  const Tensor& all = counter();
  const std::lock_guard<Mutex> lock(all.mutex_);
  if (all.maps_ != 0) fail(EVN_ERROR_WRONG_STATE, "%s is mapped", what);
  ++all.uses_;
  return true;
}

void Tensor::end_use() const {
  const Tensor& all = counter();
  const std::lock_guard<Mutex> lock(all.mutex_);
  if (--all.uses_ == 0) all.unused_.notify_all();
}

HostSharePtr Tensor::share_on(Device& device) const {
  if (!on_host() || desc_.dtype == DType::kString) return nullptr;
  const auto* const mine = static_cast<const char*>(buffer_.address());
  if (!device.host_sharing().fits(mine, buffer_.size)) return nullptr;
  const Tensor& all = owner();
  const std::lock_guard<Mutex> lock(all.mutex_);
  for (const DeviceShare& s : all.shares_) {
    if (s.device == &device && s.address == mine && s.bytes == buffer_.size) return s.share;
  }
  // Other parts of the memory, of earlier runs, make room.
  std::erase_if(all.shares_, [&](const DeviceShare& s) {
    const auto* const theirs = static_cast<const char*>(s.address);
    return s.device == &device && theirs < mine + buffer_.size && mine < theirs + s.bytes;
  });
  if (all.shares_.size() >= kMostShares) all.shares_.erase(all.shares_.begin());
  all.shares_.reserve(kMostShares);
  HostSharePtr share = device.share_host(buffer_.address(), buffer_.size);
  if (share != nullptr) all.shares_.push_back({&device, mine, buffer_.size, share});
  return share;
}

void Tensor::require_writable(const char* what) const {
  if (read_only()) fail(EVN_ERROR_INVALID_ARGUMENT, "%s is read-only", what);
}

std::shared_ptr<const void> Tensor::texts() const {
  if (desc_.dtype != DType::kString) return nullptr;
  const std::lock_guard<Mutex> lock(mutex_);
  return texts_;
}

void Tensor::set_texts(std::shared_ptr<const void> texts) {
  const std::lock_guard<Mutex> lock(mutex_);
  texts_ = std::move(texts);
}

void Tensor::require_strings(std::size_t count) const {
  const auto have = static_cast<std::size_t>(desc_.shape.elements());
  if (desc_.dtype != DType::kString) fail(EVN_ERROR_INVALID_ARGUMENT, "the tensor has elements of %s", dtype_name(desc_.dtype));
  if (count != have)
    fail(EVN_ERROR_INVALID_ARGUMENT, "%zu strings are given or asked for, the tensor has %zu elements", count, have);
}

void Tensor::set_strings(std::span<const std::string_view> strings) {
  const std::size_t count = strings.size();
  require_strings(count);
  require_writable("the tensor");
  auto texts = std::make_shared<TextPool>(device_->ledger());
  std::vector<TextElement> elements;
  elements.reserve(count);
  for (const std::string_view s : strings) elements.push_back(texts->add(s));
  const std::lock_guard<Mutex> lock(mutex_);
  if (count > 0) std::memcpy(buffer_.address(), elements.data(), count * sizeof(TextElement));
  texts_ = std::move(texts);
}

std::string Tensor::string_at(std::size_t index) const {
  const auto count = static_cast<std::size_t>(desc_.shape.elements());
  require_strings(count);
  if (index >= count) fail(EVN_ERROR_INVALID_ARGUMENT, "index is %zu, the tensor has %zu elements", index, count);
  const std::lock_guard<Mutex> lock(mutex_);
  return std::string(text_of(static_cast<const TextElement*>(buffer_.address())[index]));
}

std::size_t Tensor::get_strings(std::size_t count, char* to, std::size_t capacity, std::size_t* offsets) const {
  require_strings(count);
  const std::lock_guard<Mutex> lock(mutex_);
  const auto* elements = static_cast<const TextElement*>(buffer_.address());
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes = checked_add(bytes, text_of(elements[i]).size() + 1);
  if (to != nullptr && capacity < bytes) {
    throw make_error(EVN_ERROR_BUFFER_TOO_SMALL, "the strings need %zu bytes, capacity is %zu", bytes, capacity)
        .with_bytes(bytes, capacity);
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < count && (to != nullptr || offsets != nullptr); ++i) {
    const std::string_view text = text_of(elements[i]);
    if (offsets != nullptr) offsets[i] = at;
    if (to != nullptr) {
      if (!text.empty()) std::memcpy(to + at, text.data(), text.size());
      to[at + text.size()] = '\0';
    }
    at += text.size() + 1;
  }
  if (offsets != nullptr) offsets[count] = bytes;
  return bytes;
}

void Tensor::copy_strings_to(Tensor& to) const {
  std::vector<TextElement> elements(static_cast<std::size_t>(desc_.shape.elements()));
  const std::size_t bytes = elements.size() * sizeof(TextElement);
  std::shared_ptr<const void> texts;
  {
    const std::lock_guard<Mutex> lock(mutex_);
    if (bytes > 0) std::memcpy(elements.data(), buffer_.address(), bytes);
    texts = texts_;
  }
  const std::lock_guard<Mutex> lock(to.mutex_);
  if (bytes > 0) std::memcpy(to.buffer_.address(), elements.data(), bytes);
  to.texts_ = std::move(texts);
}

void Tensor::require_not_mapped(bool to_write) const {
  if (written_ || (to_write && maps_ != 0)) fail(EVN_ERROR_WRONG_STATE, "the tensor is mapped already");
}

void* Tensor::map(std::uint32_t flags) {
  const bool read = (flags & EVN_MAP_READ) != 0, write = (flags & EVN_MAP_WRITE) != 0;
  if (desc_.dtype == DType::kString)
    fail(EVN_ERROR_UNSUPPORTED, "strings are no bytes to map: evn_tensor_get_strings, evn_tensor_set_strings");
  if (write) require_writable("the tensor");
  Runtime::require_not_forked(*device_);
  const Tensor& all = counter();
  std::unique_lock<Mutex> lock(all.mutex_);
  all.require_not_mapped(write);
  all.unused_.wait(lock, [&] { return all.uses_ == 0; });
  all.require_not_mapped(write);
  void* const data = map_bytes(read, write);
  ++own_maps_;
  ++all.maps_;
  all.written_ = write;
  return data;
}

void* Tensor::map_bytes(bool read, bool write) {
  if (buffer_.size == 0) return nullptr;
  if (on_host()) return buffer_.address();
  if (staging_ != nullptr) return staging_.get();
  if (void* const address = map_pinned(read, write)) return address;
  std::shared_ptr<void> staging = allocate_charged(device_->ledger(), buffer_.size, MemoryClass::kTensors);
  std::memset(staging.get(), 0, buffer_.size);
  if (read) copy_and_wait(device_, {device_, buffer_}, {nullptr, {staging.get(), 0, buffer_.size}});
  staging_ = std::move(staging);
  return staging_.get();
}

// A device maps memory once at a time: those who read share the owner's. What is not read of a map to write is undefined: only the
// part is mapped.
void* Tensor::map_pinned(bool read, bool write) const {
  const Tensor& all = counter();
  static const Cancel never;
  if (all.pinned_address_ == nullptr) device_->require_ready(never);
  if (all.pinned_address_ == nullptr) all.pinned_address_ = device_->map(write ? buffer_ : all.buffer_, read, write);
  if (all.pinned_address_ == nullptr || write) return all.pinned_address_;
  return static_cast<char*>(all.pinned_address_) + (buffer_.offset - all.buffer_.offset);
}

void Tensor::unmap_pinned() const {
  const Tensor& all = counter();
  if (all.pinned_address_ == nullptr) return;
  static const Cancel never;
  device_->require_ready(never);
  device_->unmap(all.written_ ? buffer_ : all.buffer_, all.pinned_address_);
  all.pinned_address_ = nullptr;
}

void Tensor::unmap() {
  const Tensor& all = counter();
  const std::lock_guard<Mutex> lock(all.mutex_);
  if (own_maps_ == 0) fail(EVN_ERROR_WRONG_STATE, "the tensor is not mapped");
  if (all.written_ && staging_ != nullptr) copy_and_wait(device_, {nullptr, {staging_.get(), 0, buffer_.size}}, {device_, buffer_});
  if (all.maps_ == 1) unmap_pinned();
  if (--own_maps_ == 0) staging_.reset();
  --all.maps_;
  all.written_ = false;
}

TensorRange range_of(const Tensor& tensor) {
  const Buffer& buffer = tensor.buffer();
  TensorRange range;
  range.device = reinterpret_cast<std::uintptr_t>(tensor.device());
  range.begin = buffer.offset;
  const void* memory = buffer.memory;
  if (tensor.on_host()) {
    range.begin += reinterpret_cast<std::uintptr_t>(memory);
  } else {
    NativeSharing* const native = tensor.device()->native();
    if (native != nullptr && tensor.size_bytes() != 0) memory = native->memory_of(buffer);
    range.memory = reinterpret_cast<std::uintptr_t>(memory);
  }
  range.end = range.begin + tensor.size_bytes();
  return range;
}

Overlap overlap_of(const TensorRange& a, const TensorRange& b) {
  if (a.device != b.device || a.memory != b.memory || a.is_empty() || b.is_empty()) return Overlap::kNone;
  if (a.begin == b.begin && a.end == b.end) return Overlap::kAll;
  return a.begin < b.end && b.begin < a.end ? Overlap::kSome : Overlap::kNone;
}

namespace {

void check_descs(const Tensor& from, const Tensor& to) {
  if (!(from.desc() == to.desc())) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "cannot copy %s%s into %s%s", dtype_name(from.desc().dtype),
         from.desc().shape.to_string().c_str(), dtype_name(to.desc().dtype), to.desc().shape.to_string().c_str());
  }
}

void copy_bytes(const Tensor& from, Tensor& to, const Leaving* leaving) {
  check_descs(from, to);
  const Tensor::Use from_use(from, "the source"), to_use(to, "the target");
  to.require_writable("the target");
  if (from.desc().dtype == DType::kString) {
    if (&from != &to) from.copy_strings_to(to);
    return;
  }
  const Overlap overlap = overlap_of(from, to);
  if (overlap == Overlap::kAll) return;
  const bool both_elsewhere = !from.on_host() && !to.on_host();
  if (both_elsewhere && (from.device() != to.device() || overlap != Overlap::kNone)) {
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

// Between two devices, and within one where the two overlap, it goes through memory of the host, in two copies of which the second
// waits for the first.
Event copy_tensor_behind(const TensorPtr& from, const TensorPtr& to, std::span<const Event> waits) {
  check_descs(*from, *to);
  to->require_writable("the target");
  const Overlap overlap = overlap_of(*from, *to);
  if ((from->on_host() && to->on_host()) || overlap == Overlap::kAll || from->size_bytes() == 0) {
    for (const Event& event : waits) {
      if (event.device != nullptr) event.device->wait(event);
    }
    copy_tensor(*from, *to);
    return {};
  }
  struct Held {
    TensorPtr from, to;
    std::shared_ptr<void> staging;
    Tensor::Use from_use, to_use;
  };
  const auto held = std::make_shared<Held>(Held{from, to, nullptr, {*from, "the source"}, {*to, "the target"}});
  Device* const device = to->on_host() ? from->device() : to->device();
  const bool twice = !from->on_host() && !to->on_host() && (from->device() != to->device() || overlap != Overlap::kNone);
  if (twice) {
    held->staging = allocate_charged(from->runtime()->cpu().ledger(), from->size_bytes(), MemoryClass::kTensors);
  }
  static const Cancel never;
  device->require_ready(never);
  if (!from->on_host()) from->device()->require_ready(never);
  Event first, second;
  try {
    Location source = location(*from);
    if (twice) {
      const Location host{nullptr, {held->staging.get(), 0, from->size_bytes()}};
      first = from->device()->copy(source, host, waits);
      from->device()->submit();
      source = host;
      waits = {&first, 1};
    }
    second = device->copy(source, location(*to), waits);
    device->submit();
  } catch (...) {  // what was enqueued goes on
    for (const Event& event : {first, second}) {
      if (event.device != nullptr) event.device->keep_until(event, held);
    }
    throw;
  }
  device->keep_until(second, held);
  return second;
}

}  // namespace evn
