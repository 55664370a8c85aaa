// Strings as elements of tensors. An element is the address of a text that never changes and that a TextPool keeps, so that what
// moves elements (Gather, Concat, Transpose, the planner) moves strings as it moves numbers of that size. docs/decisions/0014.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "base/ledger.h"

namespace evn {

struct Text {
  std::size_t size = 0;  // bytes, which follow; any values, NUL included
};

// An element of a string tensor. nullptr is "", so that zeroed memory is a tensor of empty strings.
using TextElement = const Text*;

inline std::string_view text_of(TextElement t) {
  return t == nullptr ? std::string_view() : std::string_view(reinterpret_cast<const char*>(t + 1), t->size);
}

// Compares as a.compare(b) does, with cancellation points between pieces.
int compare_texts(std::string_view a, std::string_view b);

// Keeps texts until it is cleared or goes. One thread at a time adds.
class TextPool {
 public:
  // `ledger` (nullable) is charged for the texts' memory.
  explicit TextPool(LedgerPtr ledger) : ledger_(std::move(ledger)) {}
  TextPool(const TextPool&) = delete;
  TextPool& operator=(const TextPool&) = delete;

  // Copies the bytes. Throws EVN_ERROR_OUT_OF_MEMORY.
  TextElement add(std::string_view bytes);
  // Copies `count` elements' texts from wherever they are kept.
  void copy(const TextElement* from, std::size_t count, TextElement* to);
  void clear();

 private:
  LedgerPtr ledger_;
  std::vector<std::shared_ptr<void>> chunks_;
  std::size_t used_ = 0;  // of the last chunk
  std::size_t size_ = 0;  // of the last chunk
};
using TextPoolPtr = std::shared_ptr<TextPool>;

}  // namespace evn
