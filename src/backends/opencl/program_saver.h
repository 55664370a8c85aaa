// Writes binaries of compiled programs into the folder for caches when the device goes, and not before: a driver may compile a
// program again to give its binary (PoCL takes longer for that than for what a run waits for, and aborts where a kernel of it runs
// meanwhile).
#pragma once

#include <string>
#include <vector>

#include "backends/opencl/loader.h"
#include "base/cache_file.h"
#include "base/os/fork.h"

namespace evn {

// The binary of a program that was built for one device; empty where the driver gives none.
std::string program_binary(cl_program program);

class OpenClProgramSaver {
 public:
  OpenClProgramSaver() = default;
  // Saves them. In a forked child nothing is saved.
  ~OpenClProgramSaver();
  OpenClProgramSaver(const OpenClProgramSaver&) = delete;
  OpenClProgramSaver& operator=(const OpenClProgramSaver&) = delete;

  // The program must live as long as this. Where memory is short it is not saved.
  void add(cl_program program, const CacheFile& file) noexcept;

 private:
  struct Unsaved {
    cl_program program;
    CacheFile file;
  };
  std::vector<Unsaved> unsaved_;
  const std::uint32_t made_in_ = os::fork_generation();
};

}  // namespace evn
