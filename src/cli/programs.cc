#include "cli/programs.h"

#include <cstdio>

#include "evener/opencl.h"

namespace evn::cli {

int run_programs(const Arguments& arguments) {
  const char* const folder = arguments.get("-o");
  if (folder == nullptr) fail_usage("-o is missing: the folder for the binaries");
  const char* const given = arguments.get("--device");
  const char* const name = given != nullptr ? given : "gpu";
  const Runtime runtime = open_runtime(arguments);
  Device device;
  Call found(kExitDevice);
  found.check(evn_runtime_device_find(runtime.get(), name, device.out(), found));
  const bool sources = arguments.has("--sources");
  std::uint32_t stored = 0, refused = 0;
  Call done;
  done.check(evn_opencl_store_programs(device.get(), folder, sources ? EVN_PROGRAMS_SOURCES : 0, &stored, &refused, done));
  std::printf("%u %s of device %s are in %s\n", stored, sources ? "texts of programs" : "programs", name, folder);
  if (refused == 0) return kExitOk;
  std::fprintf(stderr, "evener: the driver refused %u programs\n", refused);
  return kExitFailure;
}

}  // namespace evn::cli
