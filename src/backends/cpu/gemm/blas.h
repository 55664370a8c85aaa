// Opens libevener_openblas.so (device/blas_module.h) from beside the library, when a kernel first asks.
#pragma once

#include <string>

#include "device/blas_module.h"

namespace evn {

// The module's table, or nullptr when it cannot be used. A failure is not remembered: the next call tries again. Once open it
// stays.
const evn_blas_module_table* blas_module();

// What `evener devices` says of it: the core whose kernels it uses, or why it cannot be used.
std::string blas_outlook();

// Opens a module, as `blas_module` does the one beside the library. The table, or nullptr and *why.
const evn_blas_module_table* open_blas_module(const std::string& path, std::string* why);

}  // namespace evn
