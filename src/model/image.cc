// Finds the gaps of a FileImage by walking over the fields of the messages in which tensors stand, a window of the file at a time.
// What it does not understand it leaves to the reader of the model, which then finds the bytes in memory and says what is wrong.
#include "model/image.h"

#include <algorithm>

#include "base/cancel.h"
#include "base/error.h"
#include "model/wire.h"

namespace evn {
namespace {

constexpr std::size_t kWindow = 64 << 10;
constexpr std::size_t kLeastWindow = 4 << 10;
constexpr int kDeepest = 32;
constexpr std::uint64_t kFieldsPerLook = 4096;

enum class Message : std::uint8_t { kNone, kModel, kGraph, kNode, kAttribute, kTensor };

// What a field of a message holds, where tensors may stand in it.
Message inside(Message message, std::uint64_t field) {
  switch (message) {
    case Message::kModel: return field == 7 ? Message::kGraph : Message::kNone;
    case Message::kGraph: return field == 1 ? Message::kNode : field == 5 ? Message::kTensor : Message::kNone;
    case Message::kNode: return field == 5 ? Message::kAttribute : Message::kNone;
    case Message::kAttribute: return field == 5 ? Message::kTensor : field == 6 ? Message::kGraph : Message::kNone;
    default: return Message::kNone;
  }
}

constexpr std::uint64_t kRawData = 9;  // of a TensorProto

class Scanner {
 public:
  Scanner(const os::File& file, std::uint64_t deadline_ns)
      : file_(file), deadline_ns_(deadline_ns), window_(std::min<std::uint64_t>(kWindow, file.size())) {}

  std::vector<Gap> run() {
    scan(Message::kModel, 0, file_.size(), 0);
    return std::move(gaps_);
  }

 private:
  const os::File& file_;
  const std::uint64_t deadline_ns_;
  std::vector<std::uint8_t> window_;
  std::uint64_t window_at_ = 0;
  std::size_t window_size_ = 0;
  std::size_t ahead_ = kWindow;  // bytes that the next window is to have
  std::uint64_t fields_ = 0;
  std::vector<Gap> gaps_;

  bool read_varint(std::uint64_t* at, std::uint64_t end, std::uint64_t* value) {
    constexpr std::uint64_t kLongest = 10;
    const std::uint64_t want = std::min(kLongest, end - *at);
    if (*at < window_at_ || *at + want > window_at_ + window_size_) {
      // Behind a large tensor there is the head of another, most often; what is read on and on is many nodes.
      ahead_ = *at > window_at_ + window_size_ ? kLeastWindow : std::min(2 * ahead_, kWindow);
      window_at_ = *at;
      window_size_ = static_cast<std::size_t>(std::min<std::uint64_t>({ahead_, window_.size(), file_.size() - *at}));
      file_.read(window_at_, window_.data(), window_size_);
    }
    const std::uint8_t* const begin = window_.data() + (*at - window_at_);
    const std::uint8_t* p = begin;
    if (!wire::read_varint(&p, begin + want, static_cast<int>(kLongest), value)) return false;
    *at += static_cast<std::uint64_t>(p - begin);
    return true;
  }

  // False: malformed, nothing behind it is looked at.
  bool scan(Message message, std::uint64_t at, std::uint64_t end, int depth) {
    while (at < end) {
      cancellation_point();
      if (++fields_ % kFieldsPerLook == 0 && deadline_clock_ns() > deadline_ns_)
        fail(EVN_ERROR_TIMEOUT, "loading the model took too long");
      std::uint64_t tag = 0, size = 0;
      if (!read_varint(&at, end, &tag)) return false;
      switch (tag & 7) {
        case 0:
          if (!read_varint(&at, end, &size)) return false;
          continue;
        case 1: size = 8; break;
        case 5: size = 4; break;
        case 2:
          if (!read_varint(&at, end, &size)) return false;
          break;
        default: return false;
      }
      if (size > end - at) return false;
      if ((tag & 7) == 2 && !look_into(message, tag >> 3, at, size, depth)) return false;
      at += size;
    }
    return true;
  }

  bool look_into(Message message, std::uint64_t field, std::uint64_t at, std::uint64_t size, int depth) {
    if (message == Message::kTensor && field == kRawData) {
      if (size >= kLeastGap) gaps_.push_back({at, size});
      return true;
    }
    const Message child = inside(message, field);
    if (child == Message::kNone || size < kLeastGap || depth == kDeepest) return true;
    return scan(child, at, at + size, depth + 1);
  }
};

// Untouched pages of the gaps take no memory, and are not charged.
struct Region {
  LedgerPtr ledger;
  std::size_t charged = 0;
  void* memory = nullptr;
  std::size_t size = 0;

  Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() {
    if (memory != nullptr) os::unmap_pages(memory, size);
    if (charged != 0 && ledger != nullptr) ledger->discharge(charged, MemoryClass::kWeights);
  }
};

std::shared_ptr<void> reserve_region(std::size_t size, std::size_t present, const LedgerPtr& ledger) {
  auto region = std::make_shared<Region>();
  region->ledger = ledger;
  if (ledger != nullptr) ledger->charge(present, MemoryClass::kWeights);
  region->charged = present;
  region->size = size;
  region->memory = os::map_pages(size, os::Touch::kSparse);
  if (region->memory == nullptr) {
    throw make_error(EVN_ERROR_OUT_OF_MEMORY, "the system has no memory for %zu bytes", size).with_bytes(size, 0);
  }
  void* const memory = region->memory;
  return std::shared_ptr<void>(std::move(region), memory);
}

}  // namespace

FileImage read_image(std::shared_ptr<const os::File> file, const LedgerPtr& ledger, std::uint64_t deadline_ns) {
  FileImage image;
  if (file->size() > 0) image.gaps = Scanner(*file, deadline_ns).run();
  const auto size = static_cast<std::size_t>(file->size());
  std::uint64_t missing = 0;
  for (const Gap& gap : image.gaps) missing += gap.size;
  const auto present = static_cast<std::size_t>(file->size() - missing);
  const std::shared_ptr<void> bytes =
      missing == 0 ? allocate_charged(ledger, size, MemoryClass::kWeights) : reserve_region(size, present, ledger);
  std::uint64_t at = 0;
  const auto read_to = [&](std::uint64_t end) {
    if (end > at) file->read(at, static_cast<char*>(bytes.get()) + at, static_cast<std::size_t>(end - at));
  };
  for (const Gap& gap : image.gaps) {
    read_to(gap.offset);
    at = gap.offset + gap.size;
  }
  read_to(file->size());
  image.bytes = bytes;
  image.file = std::move(file);
  return image;
}

}  // namespace evn
