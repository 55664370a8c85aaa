// OpenCL C sources that are built into the library: kernels/<name>.cl, written as text by cmake/embed.cmake.
#pragma once

#include <span>
#include <string_view>

namespace evn {

struct OpenClSource {
  const char* name;  // file name without its ending
  std::string_view text;
};

std::span<const OpenClSource> opencl_sources();

}  // namespace evn
