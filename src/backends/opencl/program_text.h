// Cuts a source of OpenCL C down to one of its kernels. Drivers compile kernels one by one, the more of them the longer; a run
// wants few.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace evn {

// The kernels of a source: functions that begin a line with `kernel` or a macro whose name ends in _KERNEL, and the first
// arguments of macros that make such functions, where they are used on lines of their own.
std::vector<std::string> kernels_of(std::string_view source);

// The source without its other kernels. Lines keep their numbers, and directives but pragmas are kept wherever they stand. A source
// that has no kernel of this name in a form that is known here is returned as it is.
std::string only_kernel(std::string_view source, std::string_view kernel);

}  // namespace evn
