// Opens libevener_image.so (ops/infra/image_module.h) from beside the library, when a model has ImageDecoder.
#pragma once

#include <string>

#include "ops/infra/image_module.h"

namespace evn {

// The module's table, or nullptr and *why. A failure is not remembered: the next call tries again. Once open it stays.
const evn_image_module_table* image_module(std::string* why);

// Opens a module, as `image_module` does the one beside the library. The table, or nullptr and *why.
const evn_image_module_table* open_image_module(const std::string& path, std::string* why);

}  // namespace evn
