// Gives a test program the operators of training that it has linked in, in the place of the module's.
#include "ops/training/linked.h"

namespace evn {
namespace {

[[maybe_unused]] const bool kTaken = [] {
  take_training_operators(linked_training_operators());
  return true;
}();

}  // namespace
}  // namespace evn
