// When a list drops entries whose objects are gone: each time that it has doubled. An addition then takes constant time on average,
// however many objects are alive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <vector>

namespace evn {

class PruneSchedule {
 public:
  // Removes the entries for which is_gone(entry) is true from a container, if that has doubled since the last time.
  template <typename Container, typename IsGone>
  void prune(Container& entries, IsGone&& is_gone) {
    if (entries.size() < next_) return;
    std::erase_if(entries, is_gone);
    next_ = std::max(kFew, 2 * entries.size());
  }

 private:
  static constexpr std::size_t kFew = 16;
  std::size_t next_ = kFew;
};

}  // namespace evn
