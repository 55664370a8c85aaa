// Where the values of a plan lie in memory: a root for each representation that a value has.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "base/checked.h"
#include "base/error.h"
#include "core/graph.h"
#include "device/kernel.h"
#include "runtime/lower/shared_vector.h"

namespace evn {

// A representation of a value: on one of the session's devices in plain order; or, on the host alone, channels last, where the
// value may be a channel view; or channels last and copied out of the wider value; or in the pages of a state.
class Representation {
 public:
  static constexpr Representation plain(int slot) { return Representation(kFirstPlain + slot); }
  static constexpr Representation channels_last() { return Representation(kChannelsLast); }
  static constexpr Representation materialized() { return Representation(kMaterialized); }
  static constexpr Representation paged() { return Representation(kPaged); }
  static constexpr Representation of(Layout layout, int slot) { return layout == Layout::kPlain ? plain(slot) : channels_last(); }

 private:
  friend class ValueStorage;
  static constexpr int kChannelsLast = 0, kMaterialized = 1, kPaged = 2, kFirstPlain = 3;
  explicit constexpr Representation(int number) : number_(number) {}

  int number_;
};

// The roots of all values, by their representations. -1: the value does not lie there.
class ValueStorage {
 public:
  ValueStorage() = default;
  ValueStorage(std::size_t values, std::size_t devices)
      : used_(Representation::kFirstPlain + devices), per_value_(std::bit_ceil(used_)) {
    EVN_CHECK(per_value_ <= SharedVector<std::int32_t>::kBlock);
    roots_.assign(checked_mul(values, per_value_), -1);
  }

  void freeze() const { roots_.freeze(); }

  std::int32_t& root(ValueId v, Representation r) { return roots_[static_cast<std::size_t>(v) * per_value_ + r.number_]; }

  // In all representations.
  std::span<const std::int32_t> roots(ValueId v) const { return {&roots_[static_cast<std::size_t>(v) * per_value_], used_}; }

  // In plain order: one for each device.
  std::span<const std::int32_t> plain_roots(ValueId v) const { return roots(v).subspan(Representation::kFirstPlain); }

  // In plain order on the first of the devices on which it lies; -1: on none.
  std::int32_t any_plain(ValueId v) const {
    for (const std::int32_t r : plain_roots(v)) {
      if (r >= 0) return r;
    }
    return -1;
  }

 private:
  // Representations of a value, and the places that it has in the list: those of one value lie in one block.
  std::size_t used_ = 0, per_value_ = 0;
  SharedVector<std::int32_t> roots_;
};

// Which part of another root's memory a root is.
struct RootView {
  std::int32_t parent = -1;  // the other root, which has memory of its own; -1: so has this one
  std::size_t skip = 0;      // bytes of the parent in front of it
  // Channel views: so many channels, of which so many lie from one position to the next. 0: its bytes lie together.
  std::int64_t channels = 0, pitch = 0;

  bool exists() const { return parent >= 0; }
  bool is_strided() const { return pitch > 0; }
};

}  // namespace evn
