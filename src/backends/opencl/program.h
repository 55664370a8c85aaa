// Compiled programs of one device: built from the embedded sources when first needed, each of one kernel, and kept as binaries in a
// folder, so that the next process need not compile. docs/decisions/0076-opencl-programs.md
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/opencl/discovery.h"
#include "backends/opencl/program_saver.h"
#include "base/log.h"
#include "device/native.h"

namespace evn {

// Names one kernel function of one source. Objects of this type have static storage: their address is the key of a lookup.
struct OpenClFunction {
  const char* source;  // "conv": kernels/conv.cl; "conv_half": the same with EVN_HALF
  const char* name;
  std::size_t group = 0;  // work items of a group, where they are not EVN_LOCAL
};

// Status of a program that the driver did not build, from its code and its log: EVN_ERROR_OUT_OF_MEMORY if memory is short,
// EVN_ERROR_UNSUPPORTED if the compiler does not accept the source, EVN_ERROR_DEVICE_LOST if the compiler fails without a reason.
evn_status status_of_build(cl_int code, std::string_view log);

// Where binaries of programs come from and go to; "": nowhere.
struct OpenClProgramFolders {
  std::string cache;   // written too
  std::string stored;  // OpenClPrograms::store_all has made it, perhaps on another machine
};

class OpenClPrograms {
 public:
  // `device_name` is for errors and logs.
  OpenClPrograms(const OpenClFound& found, cl_context context, std::string device_name, OpenClProgramFolders folders,
                 const LogSink& log = {});

  // The kernel object; builds its program at the first call. Not safe to call from two threads at a time. Throws.
  cl_kernel kernel(const OpenClFunction& function);

  // Builds what this device may ever want, each kernel by itself, and writes the binaries into a folder. Safe beside the other
  // calls. Throws EVN_ERROR_IO where a file cannot be written, EVN_ERROR_UNSUPPORTED where there is no compiler.
  NativeSharing::Programs store_all(const std::string& folder) const;
  // Writes the texts of the same programs, from which scripts/make_il.py makes SPIR-V that devices without a compiler take from the
  // folder `stored`. Throws EVN_ERROR_IO.
  NativeSharing::Programs store_texts(const std::string& folder) const;

  // EVN_LANES of the sources.
  int lanes() const { return lanes_; }

  // Programs that were compiled, and that came out of a folder.
  int compiled() const { return compiled_; }
  int restored() const { return restored_; }

 private:
  struct Bound {
    const OpenClFunction* function;
    ClProgram program;
    ClKernel kernel;
  };
  // What a program is made of, and all that it depends on.
  struct Text {
    std::string_view source;
    std::string_view kernel;
    std::string common, text;
    std::string options;
    std::string identity;
  };
  Text text_of(std::string_view source, std::string_view kernel) const;
  // For SPIR-V: without what only OpenCL C 3.0 has; its identity is no device's.
  Text il_text_of(std::string_view source, std::string_view kernel) const;
  // Calls f(source, kernel) for each program of the device.
  void each_program(const std::function<void(const std::string&, const std::string&)>& f) const;
  ClProgram program(const OpenClFunction& function);
  void log_compiling(const Text& text) const;
  void log_built(bool restored, const Text& text, std::uint64_t duration_ns) const;
  std::string options_of(std::string_view source) const;
  ClProgram restore(const std::string& folder, const Text& text) const;
  ClProgram compile(const Text& text) const;
  ClProgram compile_il(const Text& text) const;
  ClProgram finish(ClProgram program, const std::string& options, const Text& text) const;
  // Throws if a call that makes a program or a kernel failed.
  void check_build(cl_int code, const char* call, const std::string& program) const;

  const OpenClFound found_;
  cl_context context_;
  const std::string device_name_;
  const OpenClProgramFolders folders_;
  const LogSink log_;
  const int lanes_;
  const std::string options_;
  std::vector<Bound> kernels_;
  int compiled_ = 0;
  int restored_ = 0;
  OpenClProgramSaver saver_;  // goes first: it uses the programs
};

}  // namespace evn
