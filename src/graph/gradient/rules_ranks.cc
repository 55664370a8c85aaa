// Sums over the ranks of a data-parallel training (train/rank_sums.h).
#include "graph/gradient/rules.h"

namespace evn {
namespace {

// What depends on a sum in any rank depends on each of its terms.
void all_reduce(Backward& b) { b.give(0, b.tape.like(b.node, {b.dy()})); }

constexpr GradientRule kRows[] = {{"AllReduce", all_reduce, 1, "evener.train"}};

}  // namespace

extern const GradientRules kRankGradients = kRows;

}  // namespace evn
