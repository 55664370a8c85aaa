#include "backends/opencl/program.h"

#include <cstring>

#include "backends/opencl/source.h"
#include "base/inflate.h"
#include "base/os/os.h"
#include "version.h"

namespace evn {
namespace {

constexpr std::size_t kMaxBinaryBytes = 64u << 20;

constexpr std::string_view kHalf = "_half";

std::string find_source(std::string_view name) {
  if (name.ends_with(kHalf)) name.remove_suffix(kHalf.size());
  for (const OpenClSource& source : opencl_sources()) {
    if (name == source.name) return inflate(source.deflated, source.size);
  }
  fail(EVN_ERROR_INTERNAL, "there is no OpenCL source \"%.*s\"", static_cast<int>(name.size()), name.data());
}

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

}  // namespace

OpenClPrograms::OpenClPrograms(const OpenClFound& found, cl_context context, std::string device_name, std::string cache_dir,
                               const LogSink& log)
    : found_(found),
      context_(context),
      device_name_(std::move(device_name)),
      cache_dir_(std::move(cache_dir)),
      log_(log),
      lanes_(vector_lanes(found)),
      options_(build_options(found)) {}

cl_kernel OpenClPrograms::kernel(const OpenClFunction& function) {
  for (const Bound& bound : kernels_) {
    if (bound.function == &function) return bound.kernel.get();
  }
  kernels_.reserve(kernels_.size() + 1);
  cl_program built = program(function.source);
  cl_int code = CL_SUCCESS;
  ClKernel kernel(cl_create(&code, opencl().create_kernel, built, function.name));
  check_cl(code, "clCreateKernel", device_name_);
  kernels_.push_back({&function, std::move(kernel)});
  return kernels_.back().kernel.get();
}

// Dot products of bytes are functions of OpenCL C 3.0, which devices with that extension have.
std::string OpenClPrograms::options_of(std::string_view source) const {
  const bool dots = found_.dot_product && source == "quantized_product";
  return (dots ? "-cl-std=CL3.0" : "-cl-std=CL1.2") + options_ + (source.ends_with(kHalf) ? " -DEVN_HALF" : "");
}

std::string OpenClPrograms::identity_text(std::string_view text, const std::string& options) const {
  const std::string common = find_source("common");
  std::string all;
  for (const std::string_view part :
       {std::string_view(EVN_VERSION_STRING), std::string_view(options), std::string_view(found_.name),
        std::string_view(found_.vendor), std::string_view(found_.driver_version), std::string_view(found_.platform_name),
        std::string_view(found_.platform_version), std::string_view(common), text}) {
    all += part;
    all.push_back('\0');
  }
  return all;
}

cl_program OpenClPrograms::program(std::string_view source) {
  for (const Built& built : programs_) {
    if (built.source == source) return built.program.get();
  }
  programs_.reserve(programs_.size() + 1);
  const std::string text = find_source(source);
  const std::uint64_t begin_ns = os::now_ns();
  const std::string options = options_of(source);
  const CacheFile cached(cache_dir_, "opencl", cache_dir_.empty() ? std::string() : identity_text(text, options));
  ClProgram program = restore(cached, options);
  const bool restored = static_cast<bool>(program);
  if (!restored) {
    log_compiling(source);
    program = compile(source, text, options);
    store(program.get(), cached);
  }
  log_built(restored, source, os::now_ns() - begin_ns);
  programs_.push_back({source, std::move(program)});
  return programs_.back().program.get();
}

// One after the other, when a kernel of each is first wanted: how many a run will want is not known here.
void OpenClPrograms::log_compiling(std::string_view source) const {
  if (!log_.wants(EVN_LOG_INFO)) return;
  const std::string name(source);
  LogEvent(log_, EVN_LOG_INFO, "program.compiling")
      .device(device_name_.c_str())
      .field("source", name.c_str())
      .field("compiled_before", static_cast<std::uint64_t>(compiled_))
      .field("cache", cache_dir_.c_str())
      .write("device %s builds OpenCL program %s (%d built before it)%s", device_name_.c_str(), name.c_str(), compiled_,
             cache_dir_.empty() ? "; there is no cache that would keep it" : "");
}

void OpenClPrograms::log_built(bool restored, std::string_view source, std::uint64_t duration_ns) const {
  if (!log_.wants(EVN_LOG_DEBUG)) return;
  const std::string name(source);
  LogEvent(log_, EVN_LOG_DEBUG, restored ? "program.restored" : "program.compiled")
      .device(device_name_.c_str())
      .field("source", name.c_str())
      .field("cache", cache_dir_.c_str())
      .field("duration_ns", duration_ns)
      .write("program %s of device %s: %s, %llu us", name.c_str(), device_name_.c_str(), restored ? "from the cache" : "compiled",
             static_cast<unsigned long long>(duration_ns / 1000));
}

ClProgram OpenClPrograms::restore(const CacheFile& cached, const std::string& options) {
  os::FileBytes file;
  const std::string_view content = cached.read(&file);
  if (content.empty()) return {};
  const auto* binary = reinterpret_cast<const unsigned char*>(content.data());
  const std::size_t size = content.size();
  cl_int code = CL_SUCCESS, status = CL_SUCCESS;
  const cl_device_id device = found_.id;
  ClProgram program(cl_create(&code, opencl().create_program_with_binary, context_, cl_uint{1}, &device, &size, &binary, &status));
  if (code != CL_SUCCESS || status != CL_SUCCESS) return {};
  if (cl_call(opencl().build_program, program.get(), cl_uint{1}, &device, options.c_str(), nullptr, nullptr) != CL_SUCCESS)
    return {};
  ++restored_;
  return program;
}

ClProgram OpenClPrograms::compile(std::string_view source, std::string_view text, const std::string& options) {
  const std::string common = find_source("common");
  const char* texts[] = {common.data(), text.data()};
  const std::size_t sizes[] = {common.size(), text.size()};
  cl_int code = CL_SUCCESS;
  ClProgram program(cl_create(&code, opencl().create_program_with_source, context_, cl_uint{2}, texts, sizes));
  check_cl(code, "clCreateProgramWithSource", device_name_);
  const cl_device_id device = found_.id;
  code = cl_call(opencl().build_program, program.get(), cl_uint{1}, &device, options.c_str(), nullptr, nullptr);
  if (code == CL_SUCCESS) {
    ++compiled_;
    return program;
  }
  std::string log(16384, '\0');
  cl_call(opencl().get_program_build_info, program.get(), device, static_cast<cl_program_build_info>(CL_PROGRAM_BUILD_LOG),
          log.size() - 1, static_cast<void*>(log.data()), static_cast<std::size_t*>(nullptr));
  const char* line = std::strstr(log.c_str(), "error");
  if (line == nullptr) line = log.c_str();
  throw make_error(cl_status(code), "kernels/%.*s.cl cannot be built: %s (%d): %.*s", static_cast<int>(source.size()),
                   source.data(), cl_error_name(code), static_cast<int>(code), static_cast<int>(std::strcspn(line, "\r\n")), line)
      .with_device(device_name_.c_str());
}

// The cache is a convenience: whatever goes wrong here costs the next process a compilation and nothing else.
void OpenClPrograms::store(cl_program program, const CacheFile& cached) noexcept {
  if (cache_dir_.empty()) return;
  try {
    std::size_t size = 0;
    const auto info = [&](cl_program_info what, std::size_t bytes, void* value) {
      return cl_call(opencl().get_program_info, program, what, bytes, value, static_cast<std::size_t*>(nullptr)) == CL_SUCCESS;
    };
    if (!info(CL_PROGRAM_BINARY_SIZES, sizeof size, &size) || size == 0 || size > kMaxBinaryBytes) return;
    std::string binary(size, '\0');
    auto* out = reinterpret_cast<unsigned char*>(binary.data());
    if (info(CL_PROGRAM_BINARIES, sizeof out, &out)) cached.write(binary);
  } catch (...) {}
}

}  // namespace evn
