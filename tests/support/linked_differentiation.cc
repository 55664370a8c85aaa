// A program with this in it differentiates by rules that are linked in, and not by those of libevener_train.so.
#include "graph/gradient/linked.h"

namespace {

[[maybe_unused]] const bool taken = [] {
  evn::take_differentiation(evn::differentiate_here);
  return true;
}();

}  // namespace
