// Files of a model's external data. They stay open, so that tensors are read when they are wanted, and so that a file that is
// removed or replaced meanwhile does no harm. From any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/os/beneath.h"
#include "base/os/fork.h"

namespace evn {

class ExternalFiles {
 public:
  // More files than this are opened for each tensor anew, whose bytes are then read at once.
  static constexpr std::size_t kMostOpen = 64;

  // folder "": the model may have no external data. Relative paths are taken from the current folder of the process, once.
  explicit ExternalFiles(std::string folder, os::FileAccess access = {});

  const std::string& folder() const { return folder_; }
  const os::FileAccess& access() const { return access_; }

  struct Opened {
    std::shared_ptr<const os::File> file;
    std::shared_ptr<const void> mapping;  // of the whole file; null: it is not mapped
    bool stays_open = false;
  };
  // Throws EVN_ERROR_INVALID_MODEL naming the location, EVN_ERROR_IO.
  Opened open(const std::string& location);

  // Throws EVN_ERROR_IO when a file that stays open is not as it was when it was opened.
  void check_unchanged() const;
  // Identities of the files that stay open, by location; false: there are others.
  bool list(std::vector<os::FileIdentity>* identities) const;

 private:
  const std::string folder_;
  const os::FileAccess access_;
  mutable std::mutex mutex_;  // held for moments
  const os::HeldOverForks held_{mutex_};
  std::map<std::string, Opened> opened_;  // by location
  bool has_others_ = false;
};

}  // namespace evn
