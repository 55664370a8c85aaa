// A tensor of the caller: dtype, shape and storage on one device, wrapped host memory, or a part of another tensor's memory.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "runtime/objects/runtime.h"

namespace evn {

class Tensor {
  class PartKey {  // who has it may call the constructor of parts
    friend class Tensor;
    PartKey() = default;
  };

 public:
  // Memory of the device's pool: zeroed, or as it comes, for who writes all of it before anybody reads.
  enum class Fill { kZero, kNone };
  Tensor(std::shared_ptr<Runtime> runtime, Device* device, const TensorDesc& desc, bool pinned, Fill fill = Fill::kZero,
         MemoryClass cls = MemoryClass::kTensors);
  // Host memory of the caller, on the CPU device.
  Tensor(std::shared_ptr<Runtime> runtime, void* data, const TensorDesc& desc);
  // Memory of the host's driver, which the device has wrapped.
  Tensor(std::shared_ptr<Runtime> runtime, Device* device, NativeSharing::Wrapped wrapped, const TensorDesc& desc);
  // See part().
  Tensor(PartKey, std::shared_ptr<Tensor> whole, const Buffer& buffer, const TensorDesc& desc, bool apart);
  ~Tensor();
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  // A tensor over the memory of `whole` from byte `offset_bytes` on, which it keeps. Who uses or maps one of the two uses or maps
  // the other. Throws EVN_ERROR_INVALID_ARGUMENT (beyond the end), EVN_ERROR_UNSUPPORTED (strings; not at the device's alignment).
  // `apart`: memory of the host that only this part is used for, so that nobody who uses or maps the rest is concerned.
  static std::shared_ptr<Tensor> part(const std::shared_ptr<Tensor>& whole, std::size_t offset_bytes, const TensorDesc& desc,
                                      bool apart = false);

  // From now on wrapped memory is the tensor's to delete; until then a failure leaves it with the caller.
  void adopt(evn_deleter deleter, void* user);
  // Adopts memory of the driver's, for which `deleter` is given `memory`.
  void adopt_native(evn_deleter deleter, void* user, void* memory);
  void set_read_only() { read_only_ = true; }
  // The memory may go while this tensor is still there.
  void set_borrowed() { borrowed_ = true; }

  const TensorDesc& desc() const { return desc_; }
  Device* device() const { return device_; }
  bool pinned() const { return pinned_; }
  bool read_only() const { return read_only_ || owner().read_only_; }
  // Whether the bytes are there as long as the tensor is: not those of wrapped memory without a deleter.
  bool keeps_memory() const { return !owner().borrowed_; }
  std::size_t size_bytes() const { return buffer_.size; }
  const Buffer& buffer() const { return buffer_; }
  const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  bool on_host() const { return device_->traits().host_addressable; }

  // What keeps the texts of a string tensor, whose elements are their addresses; null where all are empty. The texts never change:
  // new elements come with a new keeper.
  std::shared_ptr<const void> texts() const;
  void set_texts(std::shared_ptr<const void> texts);
  // Replaces all elements of a string tensor, and gives the one at `index`. Throws EVN_ERROR_INVALID_ARGUMENT (dtype, count,
  // index).
  void set_strings(std::span<const std::string_view> strings);
  std::string string_at(std::size_t index) const;
  // Writes all elements, each with a NUL behind it, into `to` (null: nothing), and where each begins, and the last ends, into
  // `offsets` (nullable). Returns the bytes of all; throws EVN_ERROR_INVALID_ARGUMENT (dtype, count), EVN_ERROR_BUFFER_TOO_SMALL
  // before it writes.
  std::size_t get_strings(std::size_t count, char* to, std::size_t capacity, std::size_t* offsets) const;
  // Copies the elements of a string tensor and what keeps them, as they are at one moment.
  void copy_strings_to(Tensor& to) const;

  // A run or a copy that uses the tensor on a device that does not share the host's memory: no map begins while it lives. Throws
  // EVN_ERROR_WRONG_STATE while the tensor is mapped. The tensor must stay longer.
  class Use {
   public:
    Use() = default;
    Use(const Tensor& tensor, const char* what) : tensor_(tensor.begin_use(what) ? &tensor : nullptr) {}
    Use(Use&& o) noexcept : tensor_(std::exchange(o.tensor_, nullptr)) {}
    Use& operator=(Use&& o) noexcept {
      std::swap(tensor_, o.tensor_);
      return *this;
    }
    ~Use() {
      if (tensor_ != nullptr) tensor_->end_use();
    }

   private:
    const Tensor* tensor_ = nullptr;
  };

  // Throws EVN_ERROR_INVALID_ARGUMENT for a read-only tensor.
  void require_writable(const char* what) const;

  // The memory as a buffer of a device that uses it where it lies; kept by the tensor, or the one of which it is a part. nullptr:
  // the device does not share it, as it is not the host's, or lies otherwise.
  HostSharePtr share_on(Device& device) const;

  // Waits for the uses of the tensor to end. Maps to read share one address; one to write is alone.
  void* map(std::uint32_t flags);
  void unmap();

  // Handles of the API. When the last one goes nobody can end maps that were made by them: they end then.
  void begin_handle() { handles_.fetch_add(1, std::memory_order_relaxed); }
  void end_handle() noexcept;

 private:
  // Which has the memory, and all that is known of its uses and maps.
  const Tensor& owner() const { return whole_ != nullptr ? *whole_ : *this; }
  // Who counts uses and maps.
  const Tensor& counter() const { return apart_ ? *this : owner(); }
  void require_strings(std::size_t count) const;
  void require_not_mapped(bool to_write) const;
  void* map_bytes(bool read, bool write);
  void* map_pinned(bool read, bool write) const;
  void unmap_pinned() const;
  bool begin_use(const char* what) const;  // false: nothing to end
  void end_use() const;
  void clear();
  // Ends the maps of this object; what was written in them is lost.
  void end_maps() noexcept;

  std::shared_ptr<Runtime> runtime_;
  Device* device_;
  TensorDesc desc_;
  bool pinned_ = false;
  bool read_only_ = false;
  bool borrowed_ = false;
  PooledMemory memory_;
  std::shared_ptr<void> native_;  // what keeps memory of the driver's
  Buffer buffer_;
  void* given_ = nullptr;  // what the deleter gets
  evn_deleter deleter_ = nullptr;
  void* user_ = nullptr;
  std::shared_ptr<const void> texts_;
  const std::shared_ptr<Tensor> whole_;  // of a part: whose memory it is; null: its own
  const bool apart_ = false;             // of a part: nobody else uses its bytes
  // Used only in the owner of the memory, for itself and its parts.
  mutable Mutex mutex_;  // guards all below, and the elements and texts of strings
  mutable Condition unused_;
  mutable std::uint32_t uses_ = 0;
  mutable std::uint32_t maps_ = 0;
  mutable bool written_ = false;  // the map, the only one, is to write
  struct DeviceShare {
    Device* device;
    const void* address;
    std::size_t bytes;
    HostSharePtr share;
  };
  static constexpr std::size_t kMostShares = 8;
  mutable std::vector<DeviceShare> shares_;
  mutable void* pinned_address_ = nullptr;  // while mapped: of the owner's memory, or of the part that is written
  // Each one's own.
  std::uint32_t own_maps_ = 0;
  std::atomic<std::uint32_t> handles_{0};
  std::shared_ptr<void> staging_;  // host copy while mapped, of memory that is not pinned
};
using TensorPtr = std::shared_ptr<Tensor>;

// A copy of all bytes that is left to devices; the descs must be equal. It begins behind `waits`. The event is that of its end, and
// until then both tensors stay, and those on devices that do not share the host's memory are in use. Between two places of the host
// it is done here, and the caller waits.
Event copy_tensor_behind(const TensorPtr& from, const TensorPtr& to, std::span<const Event> waits);

// Address range of a tensor's bytes. Ranges are ordered by device, then memory, then begin.
struct TensorRange {
  std::uintptr_t device = 0;
  std::uintptr_t memory = 0;  // memory object of the device, of which there may be several handles; 0 on the host
  std::uintptr_t begin = 0, end = 0;

  bool is_empty() const { return begin == end; }
  friend auto operator<=>(const TensorRange&, const TensorRange&) = default;
};
TensorRange range_of(const Tensor& tensor);

// Whether two tensors have bytes in common: all of both, or some.
enum class Overlap : std::uint8_t { kNone, kSome, kAll };
Overlap overlap_of(const TensorRange& a, const TensorRange& b);
inline Overlap overlap_of(const Tensor& a, const Tensor& b) { return overlap_of(range_of(a), range_of(b)); }

// Copies all bytes; the descs must be equal. Blocks.
void copy_tensor(const Tensor& from, Tensor& to);
// Copies within a run: throws EVN_ERROR_TIMEOUT when `cancel` says stop. Devices may then still read and write, and the tensors
// stay until they have done so; both must keep their memory.
void copy_tensor_or_stop(const TensorPtr& from, const TensorPtr& to, const Cancel& cancel);

// Checks dtype, rank and dims of a tensor that the caller asks for.
TensorDesc checked_desc(const Limits& limits, evn_dtype dtype, const std::int64_t* dims, std::uint32_t rank);

}  // namespace evn
