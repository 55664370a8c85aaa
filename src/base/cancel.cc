#include "base/cancel.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/os/os.h"

namespace evn {
namespace {

constexpr std::uint64_t kPiece = static_cast<std::uint64_t>(kWorkPerLook / 4 * kBytesPerWork);

}  // namespace

[[gnu::tls_model("initial-exec")]] constinit thread_local WorkMeter t_work_meter;

constinit std::atomic<std::uint64_t (*)()> DeadlineClock::clock_{&os::now_ns};

void Cancel::fail() const {
  if (is_requested()) evn::fail(EVN_ERROR_CANCELLED, "%s", cancelled);
  evn::fail(EVN_ERROR_TIMEOUT, "%s", over);
}

// What a thread had left is left to the scope inside too: many short ones must not put off a look for ever.
CancelScope::CancelScope(const Cancel& cancel, std::int64_t limit) noexcept
    : cancel_(cancel),
      limit_(limit),
      outer_(t_work_meter.scope),
      outer_left_(t_work_meter.left),
      outer_granted_(t_work_meter.granted) {
  t_work_meter.scope = this;
  t_work_meter.left = t_work_meter.granted = std::clamp<std::int64_t>(outer_left_, 0, limit);
}

CancelScope::~CancelScope() {
  const std::int64_t done = work();
  std::int64_t left = std::clamp<std::int64_t>(t_work_meter.left, 0, std::max<std::int64_t>(outer_left_, 0));
  if (outer_ != nullptr) {
    outer_->work_ += outer_granted_ - outer_left_ + done;
    left = std::clamp<std::int64_t>(outer_->limit_ - outer_->work_, 0, left);
  }
  t_work_meter = {left, left, outer_};
}

const Cancel* CancelScope::current() noexcept { return t_work_meter.scope != nullptr ? &t_work_meter.scope->cancel_ : nullptr; }

std::int64_t CancelScope::work() const noexcept { return work_ + t_work_meter.granted - t_work_meter.left; }

void WorkMeter::look() {
  if (scope == nullptr) {
    left = granted = kWorkPerLook;
    return;
  }
  CancelScope& s = *scope;
  s.work_ += granted - left;
  s.longest_ = std::max(s.longest_, granted - left);
  left = granted = std::clamp<std::int64_t>(s.limit_ - s.work_, 0, kWorkPerLook);
  if (s.cancel_.stop()) s.cancel_.fail();
  if (s.work_ <= s.limit_) return;
  s.spent_ = true;
  evn::fail(EVN_ERROR_LIMIT, "more than %lld units of work", static_cast<long long>(s.limit_));
}

void move_in_pieces(void* to, const void* from, std::uint64_t size) {
  auto* const t = static_cast<char*>(to);
  const auto* const f = static_cast<const char*>(from);
  const auto move = [&](std::uint64_t at, std::uint64_t n) {
    cancellation_point(static_cast<std::int64_t>(n) / kBytesPerWork + 1);
    std::memmove(t + at, f + at, n);
  };
  if (t > f && t < f + size) {
    for (std::uint64_t end = size; end > 0; end -= std::min(end, kPiece)) move(end - std::min(end, kPiece), std::min(end, kPiece));
  } else {
    for (std::uint64_t at = 0; at < size; at += kPiece) move(at, std::min(size - at, kPiece));
  }
}

void fill_in_pieces(void* to, int byte, std::uint64_t size) {
  for (std::uint64_t at = 0; at < size; at += kPiece) {
    const std::uint64_t n = std::min(size - at, kPiece);
    cancellation_point(static_cast<std::int64_t>(n) / kBytesPerWork + 1);
    std::memset(static_cast<char*>(to) + at, byte, n);
  }
}

void copy_block(void* to, const void* from, std::int64_t size) {
  if (size > kBytesPerWork * kWorkPerLook / 4) return move_in_pieces(to, from, static_cast<std::uint64_t>(size));
  cancellation_point(size / kBytesPerWork + 1);
  if (size > 0) std::memcpy(to, from, static_cast<std::size_t>(size));
}

}  // namespace evn
