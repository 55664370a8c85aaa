#include "backends/opencl/program_saver.h"

#include <new>

namespace evn {
namespace {

constexpr std::size_t kMaxBinaryBytes = 64u << 20;

}  // namespace

std::string program_binary(cl_program program) {
  const auto info = [&](cl_program_info what, std::size_t bytes, void* value) {
    return cl_call(opencl().get_program_info, program, what, bytes, value, static_cast<std::size_t*>(nullptr)) == CL_SUCCESS;
  };
  std::size_t size = 0;
  if (!info(CL_PROGRAM_BINARY_SIZES, sizeof size, &size) || size == 0 || size > kMaxBinaryBytes) return {};
  std::string binary(size, '\0');
  auto* out = reinterpret_cast<unsigned char*>(binary.data());
  return info(CL_PROGRAM_BINARIES, sizeof out, static_cast<void*>(&out)) ? binary : std::string();
}

// The cache is a convenience: whatever goes wrong here costs the next process a compilation and nothing else.
OpenClProgramSaver::~OpenClProgramSaver() {
  if (made_in_ != os::fork_generation()) return;
  for (const Unsaved& one : unsaved_) {
    try {
      if (const std::string binary = program_binary(one.program); !binary.empty()) one.file.write(binary);
    } catch (...) {}
  }
}

void OpenClProgramSaver::add(cl_program program, const CacheFile& file) noexcept {
  try {
    unsaved_.push_back({program, file});
  } catch (const std::bad_alloc&) {}
}

}  // namespace evn
