// A file of the cache folder: bytes that save the next process some work. It can do no harm: one that is damaged, foreign or
// unreadable counts as absent, and one that cannot be written is not.
#pragma once

#include <string>
#include <string_view>

#include "base/os/os.h"

namespace evn {

class CacheFile {
 public:
  // `kind` begins the file's name; `identity` is all that the content depends on. folder "": nothing is read or written.
  CacheFile(const std::string& folder, const char* kind, std::string_view identity);

  // The content; empty when there is none. The view lives as long as *keep.
  std::string_view read(os::FileBytes* keep) const noexcept;
  void write(std::string_view content) const noexcept;

  const std::string& path() const { return path_; }
  std::uint64_t identity() const { return identity_; }  // as the file has it

 private:
  const std::string folder_;
  std::string path_;
  std::uint64_t identity_ = 0;
};

}  // namespace evn
