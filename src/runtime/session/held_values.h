// Inputs and outputs that something else than the caller of a run gives and takes: a state.
#pragma once

#include "device/paged.h"
#include "runtime/objects/tensor.h"

namespace evn {

class HeldValues {
 public:
  // A value whose rows lie in pages, which a run reads, and appends to, where they are.
  struct Pages {
    PageTable* table = nullptr;        // null: the value does not lie in pages
    int axis = 0;                      // of its rows
    const TensorDesc* desc = nullptr;  // as it is now
    explicit operator bool() const { return table != nullptr; }
  };
  virtual Pages pages_of_input(std::size_t input) const = 0;
  virtual Pages pages_of_output(std::size_t output) const = 0;
  // Returns the device slot of an output for which make_output makes the tensor; -1: it does not.
  virtual int tensor_slot(std::size_t output) const = 0;
  // Makes the tensor for such an output once its desc is known. Throws EVN_ERROR_LIMIT, EVN_ERROR_OUT_OF_MEMORY.
  virtual TensorPtr make_output(std::size_t output, const TensorDesc& desc) const = 0;

 protected:
  ~HeldValues() = default;
};

}  // namespace evn
