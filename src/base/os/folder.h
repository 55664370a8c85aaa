// What is in a folder.
#pragma once

#include <string>
#include <vector>

namespace evn::os {

// The names in the folder, in no order, without "." and ".."; at most 4096 of them. None where it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace evn::os
