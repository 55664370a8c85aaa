#include "core/text.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/cancel.h"
#include "base/checked.h"

namespace evn {
namespace {

constexpr std::size_t kChunk = 16 << 10;

}  // namespace

int compare_texts(std::string_view a, std::string_view b) {
  constexpr std::size_t kPiece = 4096;
  cancellation_point();
  for (std::size_t at = 0; at < std::min(a.size(), b.size()); at += kPiece) {
    const std::size_t count = std::min({kPiece, a.size() - at, b.size() - at});
    cancellation_point(static_cast<std::int64_t>(count) / kBytesPerWork);
    if (const int order = std::memcmp(a.data() + at, b.data() + at, count); order != 0) return order;
  }
  return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
}

TextElement TextPool::add(std::string_view bytes) {
  if (bytes.empty()) return nullptr;
  const std::size_t need = align_up(checked_add(sizeof(Text), bytes.size()), alignof(Text));
  if (chunks_.empty() || size_ - used_ < need) {
    const std::size_t size = std::max(need, std::min(kChunk, 2 * size_));
    chunks_.push_back(allocate_charged(ledger_, size, MemoryClass::kTensors));
    used_ = 0;
    size_ = size;
  }
  auto* text = new (static_cast<char*>(chunks_.back().get()) + used_) Text{bytes.size()};
  move_in_pieces(text + 1, bytes.data(), bytes.size());
  used_ += need;
  return text;
}

void TextPool::copy(const TextElement* from, std::size_t count, TextElement* to) {
  for (std::size_t i = 0; i < count; ++i) {
    cancellation_point();
    to[i] = add(text_of(from[i]));
  }
}

void TextPool::clear() {
  chunks_.clear();
  used_ = size_ = 0;
}

}  // namespace evn
