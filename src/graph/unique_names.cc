#include "graph/unique_names.h"

#include "base/cancel.h"

namespace evn {

void UniqueNames::take(const std::string& name) {
  cancellation_point(kNameWork);
  latest_.try_emplace(name, 0);
}

std::string UniqueNames::make(const std::string& wanted) {
  cancellation_point(kNameWork);
  const auto [found, is_free] = latest_.try_emplace(wanted, 0);
  if (is_free) return wanted;
  int& number = found->second;  // stays where it is while names are added
  for (;;) {
    cancellation_point(kNameWork);
    std::string name = wanted + "_" + std::to_string(++number);
    if (latest_.try_emplace(name, 0).second) return name;
  }
}

}  // namespace evn
