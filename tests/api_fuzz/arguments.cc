#include "tests/api_fuzz/arguments.h"

#include <sys/mman.h>

#include <atomic>
#include <cfenv>
#include <cstdio>
#include <cstdlib>

namespace evn::fuzz {
namespace {

std::atomic<std::uint64_t> g_complaints{0};

constexpr std::size_t kPage = 4096, kBlock = 64 * kPage, kBlocks = 64;

// Blocks of one thread, each in front of a page that nothing may touch.
class Blocks {
 public:
  Blocks()
      : at_(static_cast<char*>(mmap(nullptr, kBlocks * (kBlock + kPage), PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (at_ == MAP_FAILED) abort();
    for (std::size_t i = 0; i < kBlocks; ++i) mprotect(end_of(i), kPage, PROT_NONE);
  }
  ~Blocks() { munmap(at_, kBlocks * (kBlock + kPage)); }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  char* take(std::size_t size) {
    if (size > kBlock) abort();
    next_ = (next_ + 1) % kBlocks;
    char* const from = end_of(next_) - size;
    std::memset(from, 0, size);
    return from;
  }

 private:
  char* end_of(std::size_t i) const { return at_ + i * (kBlock + kPage) + kBlock; }

  char* const at_;
  std::size_t next_ = 0;
};

}  // namespace

std::uint64_t Random::odd() {
  static constexpr std::uint64_t kEdges[] = {0,          1,          2,          8,          9,          255,        256,
                                             65535,      65536,      0x7fffffff, 0x80000000, 0xffffffff, 1ull << 32, 1ull << 40,
                                             1ull << 62, 1ull << 63, ~0ull,      ~0ull >> 1, ~0ull - 1,  1'000'000};
  return chance(75) ? one_of(kEdges) : next();
}

char* guarded(std::size_t size) {
  static thread_local Blocks blocks;
  return blocks.take(size);
}

void* guarded_copy(const void* data, std::size_t size) {
  char* const to = guarded(size);
  if (size > 0) std::memcpy(to, data, size);
  return to;
}

const char* guarded_text(const std::string& text) { return static_cast<const char*>(guarded_copy(text.c_str(), text.size() + 1)); }

void complain(const char* what, const char* function, evn_status status) {
  if (g_complaints.fetch_add(1) < 40) std::fprintf(stderr, "%s: %s (%s)\n", function, what, evn_status_name(status));
}

std::uint64_t complaint_count() { return g_complaints.load(); }

SomeEnvironment::SomeEnvironment(Random& random, const char* function) : function_(function) {
  static constexpr int kRoundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  static constexpr int kTraps[] = {0, FE_INVALID, FE_DIVBYZERO, FE_OVERFLOW | FE_UNDERFLOW, FE_INEXACT, FE_ALL_EXCEPT};
  rounding_ = random.one_of(kRoundings);
  traps_ = random.chance(50) ? 0 : random.one_of(kTraps);
  std::feclearexcept(FE_ALL_EXCEPT);
  std::fesetround(rounding_);
  ::feenableexcept(traps_);
}

SomeEnvironment::~SomeEnvironment() {
  const bool is_kept = std::fegetround() == rounding_ && ::fegetexcept() == traps_ && std::fetestexcept(FE_ALL_EXCEPT) == 0;
  std::fesetenv(FE_DFL_ENV);
  if (!is_kept) complain("the floating-point environment was changed", function_, EVN_OK);
}

std::size_t some_struct_size(Random& random, std::size_t right) {
  if (random.chance(85)) return right;
  return random.chance(60) ? random.below(right) : right + random.below(200);
}

ErrorArgument::ErrorArgument(Random& random) {
  if (random.chance(20)) return;
  size_ = some_struct_size(random, sizeof(evn_error));
  given_ = reinterpret_cast<evn_error*>(guarded(size_ < 8 ? 8 : (size_ + 7) / 8 * 8));
  given_->struct_size = static_cast<std::uint32_t>(size_);
  if (size_ == sizeof(evn_error)) std::memcpy(before_, given_, sizeof before_);
}

void ErrorArgument::check(const char* function, evn_status status) const {
  if (status < EVN_OK || status > EVN_ERROR_FORKED) complain("a status that the header does not have", function, status);
  const bool is_whole = size_ == sizeof(evn_error);
  if (status == EVN_ERROR_INTERNAL) complain(is_whole ? given_->message : "an internal error", function, status);
  if (!is_whole) return;
  if (status == EVN_OK && std::memcmp(given_, before_, sizeof before_) != 0) complain("success wrote an error", function, status);
  if (status == EVN_OK) return;
  if (given_->status != status) complain("the error has another status", function, status);
  if (std::memchr(given_->message, 0, sizeof given_->message) == nullptr)
    return complain("the message has no end", function, status);
  if (given_->message[0] == '\0') complain("the error has no message", function, status);
}

TextArgument::TextArgument(Random& random) : asks_size_(random.chance(95)) {
  static constexpr std::size_t kMost[] = {0, 9, 16, 2000, 200'000, 200'000};
  const std::uint64_t way = random.below(6);
  capacity_ = way >= 4 ? kMost[way] : random.below(kMost[way]);
  if (way >= 2) buffer_ = guarded(capacity_);
}

void TextArgument::check(const char* function, evn_status status) const {
  if (!asks_size_) return;
  const bool is_set = size_ != kUntouched;
  if (status != EVN_OK && is_set) complain("a call that failed set a size", function, status);
  if (status == EVN_OK && !is_set) complain("no size was set", function, status);
  if (status == EVN_OK && buffer_ != nullptr && size_ > capacity_) complain("the size is above the capacity", function, status);
}

Dims::Dims(Random& random) {
  rank = static_cast<std::uint32_t>(random.chance(80) ? random.below(4) : random.chance(70) ? random.below(9) : random.odd());
  for (std::int64_t& d : values) {
    d = static_cast<std::int64_t>(random.chance(85) ? random.below(6) : random.chance(50) ? random.odd() : random.below(2000));
  }
}

}  // namespace evn::fuzz
