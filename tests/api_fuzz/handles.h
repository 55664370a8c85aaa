// Handles that random calls use: live ones, which threads share, and released, foreign and random ones.
#pragma once

#include "tests/api_fuzz/arguments.h"

namespace evn::fuzz {

// Kinds of handles, in the order of the headers; calls.inc has their names and how each is released.
enum Kind : int {
#define EVN_FUZZ_KIND(name) kind_##name,
#include "calls_kinds.inc"
#undef EVN_FUZZ_KIND
  kKindCount
};

template <typename Handle>
struct KindOf;
#define EVN_FUZZ_KIND(name)                    \
  template <>                                  \
  struct KindOf<name> {                        \
    static constexpr Kind value = kind_##name; \
  };
#include "calls_kinds.inc"
#undef EVN_FUZZ_KIND

evn_status release_handle(Kind kind, void* handle);

// A handle for an argument: mostly a live one, of the runtime that the call's first handle belongs to.
void* pick_handle(Random& random, Kind kind);
// Keeps a handle that a call gave; one of those before is released where the shelf is full.
void keep_handle(Random& random, Kind kind, void* handle);
// Releases all. No other thread may use them.
void release_handles();

// The runtime that the arguments of the call under way belong to; nullptr: not chosen yet.
evn_runtime runtime_of_call();
void begin_call(evn_runtime runtime = nullptr);

template <typename Handle>
Handle pick(Random& random) {
  return static_cast<Handle>(pick_handle(random, KindOf<Handle>::value));
}
template <typename Handle>
void keep(Random& random, Handle handle) {
  if (handle != nullptr) keep_handle(random, KindOf<Handle>::value, handle);
}

}  // namespace evn::fuzz
