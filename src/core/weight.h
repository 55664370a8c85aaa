// Constant tensors of a model. A weight has an id and a version: packed copies are keyed by them, so that new values need no
// new session.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/ledger.h"
#include "base/os/os.h"
#include "core/shape.h"
#include "core/text.h"

namespace evn {

// Where the bytes of a constant stand in the model's file, or in one of its external data.
struct WeightSource {
  std::shared_ptr<const os::File> file;
  std::uint64_t offset = 0;
  LedgerPtr ledger;
  std::string tensor;                        // its name in the model
  std::shared_ptr<const void> mapping = {};  // of the whole file; null: bytes are read
  bool is_external = false;                  // the file is not the model's own

  // Reads `size` bytes from byte `at` of the constant on. Throws EVN_ERROR_IO naming the file and the tensor.
  void read(std::uint64_t at, void* to, std::size_t size) const;
  // Throws EVN_ERROR_IO, as read does, when the file is not as it was when it was opened.
  void check_unchanged() const;
};

struct Weight;

// Where a constant that is a part of another one lies in it: some elements along one axis, and all along the others.
struct WeightSlice {
  std::shared_ptr<const Weight> whole;
  int axis = 0;
  std::int64_t begin = 0;  // how many there are, the part's shape says
};

struct Weight {
  std::uint64_t id = 0;       // unique in the process
  std::uint64_t version = 1;  // grows when the values change
  TensorDesc desc;
  std::shared_ptr<const void> data;  // row-major bytes; shares ownership of whatever holds them. Null where they are still in the
                                     // file, or a session has let go of them for packed copies (runtime/loaded/plain_weights.h)
  std::size_t size_bytes = 0;
  bool aligned = true;                         // data is aligned for its dtype
  std::shared_ptr<const WeightSource> source;  // null: the bytes are no part of a file
  std::shared_ptr<const WeightSlice> slice;    // null: it is whole

  // For those who have the model to themselves, while it is loaded: bytes that are still in the file are read and stay. Where
  // others may use the model, runtime/loaded/plain_weights.h does that. Throws EVN_ERROR_IO, EVN_ERROR_OUT_OF_MEMORY.
  const void* bytes() const {
    if (data == nullptr && source != nullptr) fetch();
    return data.get();
  }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(bytes());
  }

 private:
  void fetch() const;
};

using WeightPtr = std::shared_ptr<const Weight>;

// A fresh weight with zeroed bytes of its own, aligned to 64 and charged to `ledger` (nullable). `*bytes` receives where to write.
std::shared_ptr<Weight> make_weight(const TensorDesc& desc, const LedgerPtr& ledger, void** bytes);

// The same, of whatever is in the memory.
std::shared_ptr<Weight> make_unfilled_weight(const TensorDesc& desc, const LedgerPtr& ledger, void** bytes);

// Makes the weight's bytes keep `texts`, whose addresses they are.
void keep_texts(Weight& weight, TextPoolPtr texts);

// A weight whose bytes are in a file.
std::shared_ptr<Weight> make_weight_in_file(const TensorDesc& desc, std::shared_ptr<const WeightSource> source);

// `count` elements along `axis` of a weight whose elements have whole bytes. No bytes are there yet: where they lie one after the
// other in the whole one's file they are in that, else copy_slice makes them.
std::shared_ptr<Weight> make_weight_slice(const std::shared_ptr<const Weight>& whole, int axis, std::int64_t begin,
                                          std::int64_t count);

// The bytes of a slice in fresh memory. Those of the whole weight are there.
std::shared_ptr<const void> copy_slice(const Weight& part, const LedgerPtr& ledger);

// The bytes of a weight in a file in fresh memory, or where they lie in a mapped file if they are aligned there for their dtype.
std::shared_ptr<const void> read_weight(const Weight& weight);

// The bytes where they lie in a mapped file, charged until the last owner lets go; null where they do not lie well, or the file is
// not mapped. Throws EVN_ERROR_OUT_OF_MEMORY at the ledger's cap.
std::shared_ptr<const void> map_weight(const Weight& weight);

// A matrix of elements of one byte, transposed.
std::shared_ptr<Weight> transposed_bytes(const Weight& matrix, const LedgerPtr& ledger);

// A weight over bytes that `data` keeps alive.
std::shared_ptr<Weight> make_weight_over(const TensorDesc& desc, std::shared_ptr<const void> data);

}  // namespace evn
