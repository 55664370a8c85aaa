#include "base/os/folder.h"

#include <dirent.h>

#include <memory>
#include <string_view>

#include "base/fault.h"

namespace evn::os {

std::vector<std::string> names_in(const std::string& folder) {
  constexpr std::size_t kMost = 4096;
  std::vector<std::string> names;
  struct Close {
    void operator()(DIR* d) const { closedir(d); }
  };
  if (fault_hit(Seam::kIo)) return names;
  const std::unique_ptr<DIR, Close> open(opendir(folder.c_str()));
  if (open == nullptr) return names;
  while (names.size() < kMost) {
    const dirent* const entry = readdir(open.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

}  // namespace evn::os
