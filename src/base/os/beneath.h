// Files below a folder that whoever names them must not leave.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/os/os.h"

namespace evn::os {

// Where files of a model may lie, and how they are read: what the host or the configuration allows, never the model.
struct FileAccess {
  // Folders beneath which files may lie that are reached through links. A folder that does not exist allows nothing.
  std::vector<std::string> allowed_roots;
  bool map = false;  // large tensors are used where they lie in mapped files, which nobody truncates
};

// Where the process is, as an absolute path; "." where the system does not say.
std::string current_folder();

// Opens what open_for_reading would open: `location`, a relative path without "..", below `folder`, which ends in /. Throws what
// that throws, and EVN_ERROR_IO where a part of the location is a link, unless the file that the links lead to lies beneath one of
// the allowed roots.
std::shared_ptr<const File> open_for_reading_beneath(const std::string& folder, const std::string& location,
                                                     std::span<const std::string> allowed_roots, std::uint64_t max_bytes);

// Opens a file of a model's external data. `location` is a relative path in ONNX's form, beneath `folder`, which it must not leave.
// A file that is reached through symbolic links, or that has more than one hard link, must lie beneath one of the allowed roots:
// its own path, as the system tells it once the file is open, so that a link that changes meanwhile leads nowhere else.
// Throws EVN_ERROR_INVALID_MODEL naming the location, EVN_ERROR_IO.
std::shared_ptr<const File> open_external(const std::string& folder, const std::string& location,
                                          std::span<const std::string> allowed_roots);

// Throws EVN_ERROR_IO where a part of the location is a link. Parts that are not there are none.
void refuse_links_beneath(const std::string& folder, const std::string& location);

}  // namespace evn::os
