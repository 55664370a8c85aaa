// OpenCL C sources that are built into the library: kernels/<name>.cl, compressed by cmake/embed.cmake.
#pragma once

#include <cstddef>
#include <span>

namespace evn {

struct OpenClSource {
  const char* name;  // file name without its ending
  std::span<const unsigned char> deflated;
  std::size_t size;  // of the text, in bytes
};

std::span<const OpenClSource> opencl_sources();

}  // namespace evn
