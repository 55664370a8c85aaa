// Types that a model declares for a value of its own and that the value does not have.
#pragma once

#include <string>
#include <vector>

namespace evn {

// One such declaration, which is ignored: converters to float16 write them.
struct TypeConflict {
  std::string node;  // that makes the value
  std::string value;
  std::string declared;  // "tensor(float16)"
  std::string actual;    // the type that counts
};
using TypeConflicts = std::vector<TypeConflict>;

}  // namespace evn
