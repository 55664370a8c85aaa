#include "backends/opencl/program.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>

#include "backends/opencl/program_text.h"
#include "backends/opencl/source.h"
#include "base/heap.h"
#include "base/inflate.h"
#include "base/os/os.h"
#include "version.h"

namespace evn {
namespace {

constexpr std::string_view kHalf = "_half";
constexpr char kFileKind[] = "opencl";
constexpr char kIlFileKind[] = "il";

// Parts that must not run into each other.
std::string join(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) {
    all += part;
    all.push_back('\0');
  }
  return all;
}

// "conv/conv_1x1"
std::string name_of(std::string_view source, std::string_view kernel) { return std::string(source) + "/" + std::string(kernel); }

std::string find_source(std::string_view name) {
  if (name.ends_with(kHalf)) name.remove_suffix(kHalf.size());
  for (const OpenClSource& source : opencl_sources()) {
    if (name == source.name) return inflate(source.deflated, source.size);
  }
  fail(EVN_ERROR_INTERNAL, "there is no OpenCL source \"%.*s\"", static_cast<int>(name.size()), name.data());
}

// Sources that CPU devices never use, and that need short vectors.
bool is_for_gpus(std::string_view source) { return source == "tiled" || source == "grouped"; }

// Register-blocked kernels want their vectors to be as wide as the device's; a work item of a GPU is one lane of many, so that its
// vectors are short there, and its groups large.
int vector_lanes(const OpenClFound& found) {
  if (!found.has_kernels_of_cpus()) return 4;
  return found.float_lanes >= 16 ? 16 : found.float_lanes >= 8 ? 8 : 4;
}

std::string build_options(const OpenClFound& found) {
  std::string options = " -DEVN_LOCAL=";
  options += found.has_kernels_of_cpus() ? "1" : "64";
  return options + " -DEVN_LANES=" + std::to_string(vector_lanes(found));
}

// A compiler that fails for want of memory may say no more than that it failed. The system is asked, not the memory limit, which
// does not hold for the driver.
bool is_short_of_memory() {
  constexpr std::size_t kNeeded = std::size_t{64} << 20;
  const HeapPause uncounted;
  return std::unique_ptr<char[]>(new (std::nothrow) char[kNeeded]) == nullptr;
}

}  // namespace

evn_status status_of_build(cl_int code, std::string_view log) {
  if (code == CL_OUT_OF_RESOURCES) return EVN_ERROR_OUT_OF_MEMORY;  // nothing has run that could lose the device
  const evn_status status = cl_status(code);
  if (status != EVN_ERROR_INTERNAL) return status;
  constexpr std::string_view kMemory[] = {"out of memory",  "Out of memory",    "bad_alloc",
                                          "annot allocate", "llocation failed", "not enough memory"};
  const auto says = [&](std::string_view words) { return log.find(words) != std::string_view::npos; };
  if (std::any_of(std::begin(kMemory), std::end(kMemory), says) || is_short_of_memory()) return EVN_ERROR_OUT_OF_MEMORY;
  return says("error:") || code == CL_COMPILER_NOT_AVAILABLE ? EVN_ERROR_UNSUPPORTED : EVN_ERROR_DEVICE_LOST;
}

OpenClPrograms::OpenClPrograms(const OpenClFound& found, cl_context context, std::string device_name, OpenClProgramFolders folders,
                               const LogSink& log)
    : found_(found),
      context_(context),
      device_name_(std::move(device_name)),
      folders_(std::move(folders)),
      log_(log),
      lanes_(vector_lanes(found)),
      options_(build_options(found)) {}

cl_kernel OpenClPrograms::kernel(const OpenClFunction& function) {
  for (const Bound& bound : kernels_) {
    if (bound.function == &function) return bound.kernel.get();
  }
  kernels_.reserve(kernels_.size() + 1);
  ClProgram built = program(function);
  cl_int code = CL_SUCCESS;
  ClKernel kernel(cl_create(&code, opencl().create_kernel, built.get(), function.name));
  check_build(code, "clCreateKernel", name_of(function.source, function.name));
  kernels_.push_back({&function, std::move(built), std::move(kernel)});
  return kernels_.back().kernel.get();
}

// Dot products of bytes are functions of OpenCL C 3.0, which devices with that extension have, and so are those of sub-groups.
std::string OpenClPrograms::options_of(std::string_view source) const {
  const bool dots = found_.dot_product && source == "quantized_product";
  const bool subgroups = found_.subgroup_functions && source == "grouped";
  return (dots || subgroups ? "-cl-std=CL3.0" : "-cl-std=CL1.2") + options_ + (subgroups ? " -DEVN_SUBGROUPS" : "") +
         (source.ends_with(kHalf) ? " -DEVN_HALF" : "");
}

OpenClPrograms::Text OpenClPrograms::text_of(std::string_view source, std::string_view kernel) const {
  Text t{source, kernel, find_source("common"), only_kernel(find_source(source), kernel), options_of(source), {}};
  t.identity = join({EVN_VERSION_STRING, t.options, kernel, found_.name, found_.vendor, found_.driver_version, found_.platform_name,
                     found_.platform_version, t.common, t.text});
  return t;
}

OpenClPrograms::Text OpenClPrograms::il_text_of(std::string_view source, std::string_view kernel) const {
  Text t{source, kernel, find_source("common"), only_kernel(find_source(source), kernel), {}, {}};
  t.options = "-cl-std=CL1.2" + options_ + (source.ends_with(kHalf) ? " -DEVN_HALF" : "");
  t.identity = join({EVN_VERSION_STRING, t.options, kernel, t.common, t.text});
  return t;
}

ClProgram OpenClPrograms::program(const OpenClFunction& function) {
  const std::uint64_t begin_ns = os::now_ns();
  const Text text = text_of(function.source, function.name);
  ClProgram program = restore(folders_.stored, text);
  if (!program) program = restore(folders_.cache, text);
  const bool restored = static_cast<bool>(program);
  if (restored) {
    ++restored_;
  } else {
    log_compiling(text);
    program = compile(text);
    ++compiled_;
    if (!folders_.cache.empty()) saver_.add(program.get(), CacheFile(folders_.cache, kFileKind, text.identity));
  }
  log_built(restored, text, os::now_ns() - begin_ns);
  return program;
}

// One after the other, when each kernel is first wanted: how many a run will want is not known here.
void OpenClPrograms::log_compiling(const Text& text) const {
  if (!log_.wants(EVN_LOG_INFO)) return;
  const std::string name = name_of(text.source, text.kernel);
  LogEvent(log_, EVN_LOG_INFO, "program.compiling")
      .device(device_name_.c_str())
      .field("source", name.c_str())
      .field("compiled_before", static_cast<std::uint64_t>(compiled_))
      .field("cache", folders_.cache.c_str())
      .write("device %s builds OpenCL program %s (%d built before it)%s", device_name_.c_str(), name.c_str(), compiled_,
             folders_.cache.empty() ? "; there is no cache that would keep it" : "");
}

void OpenClPrograms::log_built(bool restored, const Text& text, std::uint64_t duration_ns) const {
  if (!log_.wants(EVN_LOG_DEBUG)) return;
  const std::string name = name_of(text.source, text.kernel);
  LogEvent(log_, EVN_LOG_DEBUG, restored ? "program.restored" : "program.compiled")
      .device(device_name_.c_str())
      .field("source", name.c_str())
      .field("cache", folders_.cache.c_str())
      .field("duration_ns", duration_ns)
      .write("program %s of device %s: %s, %llu us", name.c_str(), device_name_.c_str(), restored ? "from the cache" : "compiled",
             static_cast<unsigned long long>(duration_ns / 1000));
}

// Null where the folder has no binary that the driver takes.
ClProgram OpenClPrograms::restore(const std::string& folder, const Text& text) const {
  if (folder.empty()) return {};
  os::FileBytes file;
  const std::string_view content = CacheFile(folder, kFileKind, text.identity).read(&file);
  if (content.empty()) return {};
  const auto* binary = reinterpret_cast<const unsigned char*>(content.data());
  const std::size_t size = content.size();
  cl_int code = CL_SUCCESS, status = CL_SUCCESS;
  const cl_device_id device = found_.id;
  ClProgram program(cl_create(&code, opencl().create_program_with_binary, context_, cl_uint{1}, &device, &size, &binary, &status));
  if (code != CL_SUCCESS || status != CL_SUCCESS) return {};
  if (cl_call(opencl().build_program, program.get(), cl_uint{1}, &device, text.options.c_str(), nullptr, nullptr) != CL_SUCCESS)
    return {};
  return program;
}

ClProgram OpenClPrograms::compile(const Text& text) const {
  if (!found_.has_compiler) return compile_il(il_text_of(text.source, text.kernel));
  const char* texts[] = {text.common.data(), text.text.data()};
  const std::size_t sizes[] = {text.common.size(), text.text.size()};
  cl_int code = CL_SUCCESS;
  ClProgram program(cl_create(&code, opencl().create_program_with_source, context_, cl_uint{2}, texts, sizes));
  check_build(code, "clCreateProgramWithSource", name_of(text.source, text.kernel));
  return finish(std::move(program), text.options, text);
}

ClProgram OpenClPrograms::compile_il(const Text& text) const {
  os::FileBytes file;
  std::string_view il;
  if (found_.takes_il && !folders_.stored.empty()) il = CacheFile(folders_.stored, kIlFileKind, text.identity).read(&file);
  if (il.empty()) {
    throw make_error(
        EVN_ERROR_UNSUPPORTED,
        "\"%s\" has no compiler, and there is no binary%s of program %s for it: not in its folder of programs (\"%s\"), and "
        "not in the cache (\"%s\"); `evener programs` makes them",
        found_.name.c_str(), found_.takes_il ? " and no SPIR-V" : "", name_of(text.source, text.kernel).c_str(),
        folders_.stored.c_str(), folders_.cache.c_str())
        .with_device(device_name_.c_str());
  }
  cl_int code = CL_SUCCESS;
  const void* const bytes = il.data();
  ClProgram program(cl_create(&code, opencl().create_program_with_il, context_, bytes, il.size()));
  check_build(code, "clCreateProgramWithIL", name_of(text.source, text.kernel));
  return finish(std::move(program), "", text);
}

void OpenClPrograms::check_build(cl_int code, const char* call, const std::string& program) const {
  if (code == CL_SUCCESS) return;
  throw make_error(status_of_build(code, ""), "%s of program %s failed: %s (%d)", call, program.c_str(), cl_error_name(code),
                   static_cast<int>(code))
      .with_device(device_name_.c_str());
}

ClProgram OpenClPrograms::finish(ClProgram program, const std::string& options, const Text& text) const {
  const cl_device_id device = found_.id;
  const cl_int code = cl_call(opencl().build_program, program.get(), cl_uint{1}, &device, options.c_str(), nullptr, nullptr);
  if (code == CL_SUCCESS) return program;
  std::string log(16384, '\0');
  cl_call(opencl().get_program_build_info, program.get(), device, static_cast<cl_program_build_info>(CL_PROGRAM_BUILD_LOG),
          log.size() - 1, static_cast<void*>(log.data()), static_cast<std::size_t*>(nullptr));
  const char* line = std::strstr(log.c_str(), "error");
  if (line == nullptr) line = log.c_str();
  throw make_error(status_of_build(code, log.c_str()), "%s of kernels/%.*s.cl cannot be built: %s (%d): %.*s",
                   name_of(text.source, text.kernel).c_str(), static_cast<int>(text.source.size()), text.source.data(),
                   cl_error_name(code), static_cast<int>(code), static_cast<int>(std::strcspn(line, "\r\n")), line)
      .with_device(device_name_.c_str());
}

void OpenClPrograms::each_program(const std::function<void(const std::string&, const std::string&)>& f) const {
  for (const OpenClSource& source : opencl_sources()) {
    if (found_.has_kernels_of_cpus() && is_for_gpus(source.name)) continue;
    const std::string text = find_source(source.name);
    for (const std::string& kernel : kernels_of(text)) {
      f(source.name, kernel);
      if (found_.half && text.find("EVN_HALF") != std::string::npos) f(source.name + std::string(kHalf), kernel);
    }
  }
}

NativeSharing::Programs OpenClPrograms::store_texts(const std::string& folder) const {
  NativeSharing::Programs programs;
  if (!os::make_folders(folder)) fail(EVN_ERROR_IO, "the folder %s cannot be made", folder.c_str());
  each_program([&](const std::string& source, const std::string& kernel) {
    const Text text = il_text_of(source, kernel);
    const CacheFile il(folder, kIlFileKind, text.identity);
    char identity[17];
    std::snprintf(identity, sizeof identity, "%016llx", static_cast<unsigned long long>(il.identity()));
    // What scripts/make_il.py reads: the file to make, its identity, and the compiler's options.
    const std::string all = "// " + il.path().substr(il.path().rfind('/') + 1) + " " + identity + " " + text.options + "\n" +
                            text.common + "\n" + text.text;
    const std::string path = folder + "/" + source + "-" + kernel + ".cl";
    os::write_file_atomically(path, all.data(), all.size());
    ++programs.stored;
  });
  return programs;
}

NativeSharing::Programs OpenClPrograms::store_all(const std::string& folder) const {
  if (!found_.has_compiler) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "\"%s\" has no compiler that programs could be stored of", found_.name.c_str())
        .with_device(device_name_.c_str());
  }
  NativeSharing::Programs programs;
  const auto store = [&](const std::string& source, const std::string& kernel) {
    const Text text = text_of(source, kernel);
    std::string binary;
    try {
      binary = program_binary(compile(text).get());
      if (binary.empty()) fail(EVN_ERROR_UNSUPPORTED, "the driver gives no binary of program %s", name_of(source, kernel).c_str());
    } catch (const Error& error) {
      if (error.status == EVN_ERROR_OUT_OF_MEMORY) throw;
      ++programs.refused;
      LogEvent(log_, EVN_LOG_WARNING, "program.refused").device(device_name_.c_str()).write("%s", error.message);
      return;
    }
    const CacheFile file(folder, kFileKind, text.identity);
    file.write(binary);
    os::FileBytes bytes;
    if (file.read(&bytes) != binary)
      throw make_error(EVN_ERROR_IO, "the binary of program %s cannot be written to %s", name_of(source, kernel).c_str(),
                       file.path().c_str());
    ++programs.stored;
  };
  each_program(store);
  return programs;
}

}  // namespace evn
