// The rewrites of a loaded graph, in one visible list. Each is in a file of its own and returns whether it changed anything.
#pragma once

#include <span>

#include "base/ledger.h"
#include "base/limits.h"
#include "core/graph.h"

namespace evn {

struct PassContext {
  LedgerPtr ledger;  // new constants are charged here
  Limits limits;
  std::uint64_t deadline_ns = UINT64_MAX;  // deadline_clock_ns(); EVN_ERROR_TIMEOUT after it
  // Units of work (base/cancel.h) that fold_constants may still do in all rounds together, beyond some for each element that it
  // reads and writes.
  static constexpr std::int64_t kFoldWork = std::int64_t{1} << 30;
  mutable std::int64_t fold_work = kFoldWork;
};

struct Pass {
  const char* name;     // "fold_constants"
  const char* summary;  // what it does, for who reads a list
  // Null where this build has no operator that the pass looks for.
  bool (*run)(Graph& graph, const PassContext& context);
  bool settles = false;  // runs again, with inference between, as long as it changes something (within reason)
};

// In the order in which they run.
std::span<const Pass> passes();

// Runs all passes (a null `disabled` entry list: all), repeating the list until nothing changes (at most 4 rounds), with inference
// after each change. `disabled` names passes to leave out. Node::rewrites says which made or changed a node.
void optimize_graph(Graph& graph, const PassContext& context, std::span<const char* const> disabled = {});

}  // namespace evn
