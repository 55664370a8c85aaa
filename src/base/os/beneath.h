// Files below a folder that whoever names them must not leave.
#pragma once

#include <memory>
#include <string>

#include "base/os/os.h"

namespace evn::os {

// Where the process is, as an absolute path; "." where the system does not say.
std::string current_folder();

// Opens what open_for_reading would open: `location`, a relative path without "..", below `folder`, which ends in /. Throws what
// that throws, and EVN_ERROR_IO where a part of the location is a link.
std::shared_ptr<const File> open_for_reading_beneath(const std::string& folder, const std::string& location,
                                                     std::uint64_t max_bytes);

// Throws EVN_ERROR_IO where a part of the location is a link. Parts that are not there are none.
void refuse_links_beneath(const std::string& folder, const std::string& location);

}  // namespace evn::os
