// The memory of a plan's values: roots, of which each is a piece of memory that one or several values share, the copies and
// re-layouts that bring a value to where it is read, and views of some channels of a value.
#pragma once

#include "runtime/lower/plan_state.h"

namespace evn {

class PlanRoots {
 public:
  explicit PlanRoots(PlanWork& work) : w_(work) {}

  // Adds root r and returns its number.
  std::int32_t add_root(const PlanRoot& r);

  // Adds a root in the arena of `slot` for v, which step `step` writes, and returns its number.
  std::int32_t add_arena_root(ValueId v, int slot, std::int32_t step);
  // Adds a root in the arena of `slot` that holds no value and lives during step `step` alone, and returns its number.
  std::int32_t add_scratch_root(int slot, std::size_t bytes, std::int32_t step);

  // Adds a buffer of the next step, which lies in root r (-1: there is none), and returns its number.
  std::uint32_t add_buffer(std::int32_t r);

  // Adds a step that copies v from root `from` to root `to` on another device.
  void add_copy(ValueId v, std::int32_t from, std::int32_t to);

  // Adds a step that converts v from root `from` to root `to` in layout `wanted`.
  void add_relayout(ValueId v, std::int32_t from, std::int32_t to, Layout wanted);

  // Adds a step that writes v, in plain order, behind the first `first` rows of the paged root.
  void add_append(ValueId v, std::int32_t paged, std::int64_t first);
  // Adds a step that makes room for v, which a kernel makes of the paged root by appending to its first `first` rows.
  void add_extend(ValueId v, std::int32_t paged, std::int64_t first);

  // The root that holds v on a slot, copying it there first when it is elsewhere.
  std::int32_t need(ValueId v, int slot);

  // The root that holds v on a slot in the given layout; v is copied or converted first if needed. If `may_be_view`, the reader
  // accepts a value that is a range of channels of a wider one.
  std::int32_t need(ValueId v, int slot, Layout layout, bool may_be_view);

  // Notes a copy of a tensor that the caller gives, for runs that allow none.
  void note_given_copy(const GivenCopy& copy, std::size_t bytes);

  // Adds the root of graph output j.
  std::int32_t add_output_root(std::size_t j, int slot);

  // Adds a root for v, which is channels [first, first + channels) of the value of root `of`, of `pitch` channels, all channels
  // last.
  std::int32_t add_view_root(ValueId v, std::int32_t of, std::int64_t first, std::int64_t channels, std::int64_t pitch);

  // Adds a root for v, whose bytes lie together in the memory of root `of`, `skip` bytes behind its begin.
  std::int32_t add_part_root(ValueId v, std::int32_t of, std::size_t skip);

  // Notes that v, too, lies in root r.
  void keep_for(std::int32_t r, ValueId v);

  // The slot on which v was made: the host, where it is known when the run is planned.
  std::uint8_t slot_that_made(ValueId v);

  // Where output j of the graph, which is there, is wanted; and whether it is wanted on a slot on which it is made (j < 0: no).
  std::uint8_t slot_for_output(std::size_t j);
  bool is_output_on(std::int32_t j, int slot) const;

  // The last node that reads v; -1: none; INT32_MAX: the run gives it.
  std::int32_t last_user(ValueId v) const;

 private:
  // Adds a root of v on `slot` that lies there for good, and returns its number.
  std::int32_t add_fixed_root(ValueId v, int slot, const Buffer& fixed);

  // The root that holds v on slot 0 in a layout in which it is not yet there, from the other one.
  std::int32_t relayout(ValueId v, std::int32_t from, Layout wanted);

  // Adds a step that brings v, whose root is paged, to the host in plain order, and returns its root there.
  std::int32_t gather(ValueId v, std::int32_t paged);

  // Whether a reader of v on `slot`, which is in root `from`, reads memory of the host where it lies.
  bool reads_in_place(std::int32_t from, ValueId v, int slot) const;

  // Counts the copy of an input of the run that a step on `slot` needs. need() calls itself for a copy between two devices by way
  // of the host; only the first call counts.
  void note_copy_of_input(std::int32_t from, int slot);

  PlanWork& w_;
};

}  // namespace evn
