// A tensor of the caller: dtype, shape and storage on one device, or wrapped host memory.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/runtime.h"

namespace evn {

class Tensor {
 public:
  // Memory of the device's pool: zeroed, or as it comes, for who writes all of it before anybody reads.
  enum class Fill { kZero, kNone };
  Tensor(std::shared_ptr<Runtime> runtime, Device* device, const TensorDesc& desc, bool pinned, Fill fill = Fill::kZero);
  // Host memory of the caller, on the CPU device.
  Tensor(std::shared_ptr<Runtime> runtime, void* data, const TensorDesc& desc);
  // Some of the bytes of another tensor on the host, which is kept.
  Tensor(std::shared_ptr<Tensor> whole, std::size_t offset, const TensorDesc& desc);
  ~Tensor();
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  static std::shared_ptr<Tensor> part_of(std::shared_ptr<Tensor> whole, std::size_t offset, const TensorDesc& desc) {
    return std::make_shared<Tensor>(std::move(whole), offset, desc);
  }

  // From now on wrapped memory is the tensor's to delete; until then a failure leaves it with the caller.
  void adopt(evn_deleter deleter, void* user);
  void set_read_only() { read_only_ = true; }
  // The memory may go while this tensor is still there.
  void set_borrowed() { borrowed_ = true; }

  const TensorDesc& desc() const { return desc_; }
  Device* device() const { return device_; }
  bool pinned() const { return pinned_; }
  bool read_only() const { return read_only_; }
  // Whether the bytes are there as long as the tensor is: not those of wrapped memory without a deleter.
  bool keeps_memory() const { return !borrowed_; }
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

  // Waits for the uses of the tensor to end.
  void* map(std::uint32_t flags);
  void unmap();

 private:
  bool begin_use(const char* what) const;  // false: nothing to end
  void end_use() const;
  void clear();

  std::shared_ptr<Runtime> runtime_;
  Device* device_;
  TensorDesc desc_;
  bool pinned_ = false;
  bool read_only_ = false;
  bool borrowed_ = false;
  std::shared_ptr<Tensor> whole_;  // of which this one is a part
  PooledMemory memory_;
  Buffer buffer_;
  evn_deleter deleter_ = nullptr;
  void* user_ = nullptr;
  mutable std::mutex mutex_;  // guards the map, the uses, and the elements and texts of strings
  mutable std::condition_variable unused_;
  mutable std::uint32_t uses_ = 0;
  std::shared_ptr<const void> texts_;
  std::uint32_t map_flags_ = 0;
  std::shared_ptr<void> staging_;   // host copy while mapped, of memory that is not pinned
  void* pinned_address_ = nullptr;  // while mapped
};
using TensorPtr = std::shared_ptr<Tensor>;

// Copies all bytes; the descs must be equal. Blocks.
void copy_tensor(const Tensor& from, Tensor& to);
// Copies within a run: throws EVN_ERROR_TIMEOUT when `cancel` says stop. Devices may then still read and write, and the tensors
// stay until they have done so; both must keep their memory.
void copy_tensor_or_stop(const TensorPtr& from, const TensorPtr& to, const Cancel& cancel);

// Checks dtype, rank and dims of a tensor that the caller asks for.
TensorDesc checked_desc(const Limits& limits, evn_dtype dtype, const std::int64_t* dims, std::uint32_t rank);

}  // namespace evn
