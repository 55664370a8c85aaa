// Constant tensors of a model. A weight has an id and a version: packed copies are keyed by them, so that new values need no
// new session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/ledger.h"
#include "core/shape.h"
#include "core/text.h"

namespace evn {

struct Weight {
  std::uint64_t id = 0;       // unique in the process
  std::uint64_t version = 1;  // grows when the values change
  TensorDesc desc;
  std::shared_ptr<const void> data;  // row-major bytes; shares ownership of whatever holds them. Null only where a session has let
                                     // go of them for packed copies (runtime/plain_weights.h)
  std::size_t size_bytes = 0;
  bool aligned = true;               // data is aligned for its dtype

  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data.get());
  }
};

using WeightPtr = std::shared_ptr<const Weight>;

// A fresh weight with zeroed bytes of its own, aligned to 64 and charged to `ledger` (nullable). `*bytes` receives where to write.
std::shared_ptr<Weight> make_weight(const TensorDesc& desc, const LedgerPtr& ledger, void** bytes);

// The same, of whatever is in the memory.
std::shared_ptr<Weight> make_unfilled_weight(const TensorDesc& desc, const LedgerPtr& ledger, void** bytes);

// Makes the weight's bytes keep `texts`, whose addresses they are.
void keep_texts(Weight& weight, TextPoolPtr texts);

// A weight over bytes that `data` keeps alive.
std::shared_ptr<Weight> make_weight_over(const TensorDesc& desc, std::shared_ptr<const void> data);

}  // namespace evn
