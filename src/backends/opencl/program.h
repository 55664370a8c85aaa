// Compiled programs of one device: built from the embedded sources when first needed, and kept as binaries in a folder, so that the
// next process need not compile.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/opencl/discovery.h"
#include "base/cache_file.h"
#include "base/log.h"

namespace evn {

// Names one kernel function of one source. Objects of this type have static storage: their address is the key of a lookup.
struct OpenClFunction {
  const char* source;  // "conv": kernels/conv.cl; "conv_half": the same with EVN_HALF
  const char* name;
  std::size_t group = 0;  // work items of a group, where they are not EVN_LOCAL
};

class OpenClPrograms {
 public:
  // `device_name` is for errors and logs. cache_dir "": no cache.
  OpenClPrograms(const OpenClFound& found, cl_context context, std::string device_name, std::string cache_dir,
                 const LogSink& log = {});

  // The kernel object; builds its program at the first call. Not safe to call from two threads at a time. Throws.
  cl_kernel kernel(const OpenClFunction& function);

  // EVN_LANES of the sources.
  int lanes() const { return lanes_; }

  // Programs that were compiled and that came out of the cache.
  int compiled() const { return compiled_; }
  int restored() const { return restored_; }

 private:
  struct Built {
    std::string_view source;
    ClProgram program;
  };
  struct Bound {
    const OpenClFunction* function;
    ClKernel kernel;
  };
  cl_program program(std::string_view source);
  void log_compiling(std::string_view source) const;
  void log_built(bool restored, std::string_view source, std::uint64_t duration_ns) const;
  std::string options_of(std::string_view source) const;
  ClProgram restore(const CacheFile& cached, const std::string& options);
  ClProgram compile(std::string_view source, std::string_view text, const std::string& options);
  void store(cl_program program, const CacheFile& cached) noexcept;
  std::string identity_text(std::string_view text, const std::string& options) const;

  const OpenClFound found_;
  cl_context context_;
  const std::string device_name_;
  const std::string cache_dir_;
  const LogSink log_;
  const int lanes_;
  const std::string options_;
  std::vector<Built> programs_;
  std::vector<Bound> kernels_;
  int compiled_ = 0;
  int restored_ = 0;
};

}  // namespace evn
