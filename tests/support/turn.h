// Long series under a sanitizer: each run takes a share of them, and the next run another one. EVN_TURN says whose turn it is;
// scripts/test sets it to the number of commits, so that a commit is always tested alike. EVN_TEST_FULL=1, and builds without a
// sanitizer, take all.
#pragma once

#include <cstdlib>

#include "tests/support/sanitized.h"

namespace evn::test {

inline int shares(int wanted) {
  const char* const full = std::getenv("EVN_TEST_FULL");
  return kIsSanitized && (full == nullptr || full[0] != '1') ? wanted : 1;
}

// Number of the share, from 0 on. The lowest bit of EVN_TURN says which half of the programs has a sanitizer (scripts/test), and is
// left out: a program would otherwise have the same one of two shares each time.
inline int share_in_turn(int count) {
  const char* const turn = std::getenv("EVN_TURN");
  return turn == nullptr ? 0 : static_cast<int>(std::strtoul(turn, nullptr, 10) / 2 % static_cast<unsigned long>(count));
}

// The numbers first, first + step, ... of what is tried one by one.
struct InTurn {
  explicit InTurn(int wanted) : step(shares(wanted)), first(1 + share_in_turn(step)) {}
  const int step, first;
};

}  // namespace evn::test
