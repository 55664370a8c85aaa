#include "backends/opencl/clblast.h"

#include <cstring>

#include "base/os/os.h"
#include "version.h"

namespace evn {
namespace {

constexpr const char* kNotOnCpu = "not used on a CPU device unless the configuration says `clblast: always`";

// Multiply-adds of the product; 0 when CLBlast's kernel does not take it, a dim is not known or a side is too small.
std::uint64_t size_of(const Kernel& kernel, const OpDesc& desc) {
  const Shape& y = desc.outputs[0].shape;
  if (kernel.supports(desc) != nullptr || y.rank() < 2 || !y.is_known() || y.elements() == 0) return 0;
  if (!desc.inputs[0].shape.is_known() || !desc.inputs[1].shape.is_known()) return 0;
  KernelPlan plan;
  kernel.plan(desc, &plan);
  const auto& p = plan.state<ClBlastProduct>();  // what the kernels' state begins with
  if (p.m < ClBlast::kSmallestSide || p.n < ClBlast::kSmallestSide || p.k < ClBlast::kSmallestSide) return 0;
  return static_cast<std::uint64_t>(plan.flops / 2);
}

}  // namespace

std::string clblast_outlook(bool is_cpu) {
  std::string why;
  const char* const outlook = is_cpu                         ? kNotOnCpu
                              : clblast_api(&why) != nullptr ? "tried when a model first multiplies large matrices"
                                                             : why.c_str();
  return std::string("CLBlast: ").append(outlook);
}

ClBlast::ClBlast(Device& device, bool is_cpu, const DeviceRequest& request, const std::string& identity, const ClBlastApi* api)
    : device_(device),
      mode_(request.settings.text("clblast", "auto")),
      is_cpu_(is_cpu),
      log_(request.log),
      cached_(request.cache_dir, "clblast", EVN_VERSION_STRING + ("\n1 " + mode_ + "\n" + identity)),
      api_(api) {}

// Why there is no trial; "" when there is to be one.
std::string ClBlast::refuse() {
  std::string why;
  if (api_ == nullptr) api_ = clblast_api(&why);
  return why;
}

// What came out is said: who asked for CLBlast must learn that it is not there.
void ClBlast::decide() {
  const std::uint64_t begin_ns = os::now_ns();
  judge();
  decided_ = true;
  const bool disappoints = mode_ == "always" && verdict_.from == UINT64_MAX;
  LogEvent(log_, disappoints ? EVN_LOG_WARNING : EVN_LOG_INFO, "clblast.tried")
      .device(device_.name().c_str())
      .field("result", verdict_.text.c_str())
      .field("trials", static_cast<std::uint64_t>(trials_))
      .field("duration_ns", os::now_ns() - begin_ns)
      .write("CLBlast on device %s: %s", device_.name().c_str(), verdict_.text.c_str());
}

void ClBlast::judge() {
  verdict_ = {UINT64_MAX, false, refuse()};
  if (!verdict_.text.empty()) return;
  os::FileBytes file;
  const std::string_view kept = cached_.read(&file);
  if (kept.size() > sizeof verdict_.from) {
    std::memcpy(&verdict_.from, kept.data(), sizeof verdict_.from);
    verdict_.is_right = kept[sizeof verdict_.from] != 0;
    verdict_.text = kept.substr(sizeof verdict_.from + 1);
    return;
  }
  ++trials_;
  try {
    verdict_ = try_clblast(device_, mode_ != "always", os::now_ns);
    std::string content(reinterpret_cast<const char*>(&verdict_.from), sizeof verdict_.from);
    cached_.write(content + static_cast<char>(verdict_.is_right) + verdict_.text);
  } catch (const Error& e) {
    // Who asks next tries again.
    if (e.status == EVN_ERROR_CANCELLED || e.status == EVN_ERROR_TIMEOUT || device_.quarantine().is_on()) throw;
    verdict_ = {UINT64_MAX, false, std::string("the trial failed: ") + e.message};
  }
}

const Kernel* ClBlast::kernel_for(const OpDesc& desc, const char** why) {
  const char* ignored;
  if (why == nullptr) why = &ignored;
  const bool is_asked = mode_ == "always" || desc.products == Products::kClBlast;
  *why = mode_ == "never" ? "the configuration says `clblast: never`" : kNotOnCpu;
  if (mode_ == "never" || (is_cpu_ && !is_asked) || desc.products == Products::kOwn) return nullptr;
  *why = kNoSuchProduct;
  for (const Kernel& kernel : clblast_kernels()) {
    if (desc.node->op_type != kernel.op || !desc.node->domain.empty()) continue;
    const std::uint64_t size = size_of(kernel, desc);
    const Refusal refusal = kernel.supports(desc);
    *why = refusal != nullptr ? refusal : "a dim that is not known when the model is placed, or a side below 16";
    if (size == 0 || (!is_asked && size < kSmallestProduct)) return nullptr;
    const auto lock = device_.lock_in_scope(mutex_);
    if (!decided_) decide();
    const bool goes = is_asked ? verdict_.is_right : size >= verdict_.from;
    *why = goes ? nullptr : verdict_.text.c_str();
    return goes ? &kernel : nullptr;
  }
  return nullptr;
}

ClBlastVerdict ClBlast::measure(std::uint64_t (*now)()) {
  const auto lock = device_.lock_in_scope(mutex_);
  std::string why;
  if (api_ == nullptr) api_ = clblast_api(&why);
  return api_ != nullptr ? try_clblast(device_, true, now) : ClBlastVerdict{UINT64_MAX, false, why};
}

std::string ClBlast::verdict() const {
  const std::lock_guard<Mutex> lock(mutex_);
  return verdict_.text;
}

// CLBlast would otherwise allocate in each call, past the device's ledger. It is handed a whole buffer, so an arena will not do.
cl_mem ClBlast::work_space(cl_command_queue queue, std::size_t bytes) {
  WorkSpace& space = work_spaces_[work_spaces_[0].queue == nullptr || work_spaces_[0].queue == queue ? 0 : 1];
  space.queue = queue;
  if (space.memory.size() < bytes) {
    if (space.memory.size() > 0) OpenClStep(queue).finish(device_);  // before the pool lends the old one to others
    space.memory = PooledMemory();
    space.memory = device_.allocate(bytes, MemoryClass::kScratch);
  }
  return bytes == 0 ? nullptr : static_cast<OpenClMemory*>(space.memory.memory())->buffer;
}

void ClBlast::multiply(OpenClStep& step, const ClBlastProduct& p, const Buffer& a, const Buffer& b, const Buffer& c) {
  cl_command_queue queue = step.queue();
  const auto memory = [](const Buffer& buffer) { return static_cast<OpenClMemory*>(buffer.memory)->buffer; };
  const auto first = [](const Buffer& buffer) { return buffer.offset / sizeof(float); };
  const auto check = [&](int status, const char* call) {
    if (status == CL_SUCCESS) return;
    throw make_error(cl_status(status), "CLBlast's %s of %lld x %lld x %lld failed with status %d", call,
                     static_cast<long long>(p.m), static_cast<long long>(p.n), static_cast<long long>(p.k), status)
        .with_device(device_.name().c_str());
  };
  const int a_transpose = p.transpose_a ? kClBlastTransposed : kClBlastNotTransposed;
  const int b_transpose = p.transpose_b ? kClBlastTransposed : kClBlastNotTransposed;
  const auto m = static_cast<std::size_t>(p.m), n = static_cast<std::size_t>(p.n), k = static_cast<std::size_t>(p.k);
  const std::size_t a_ld = p.transpose_a ? m : k, b_ld = p.transpose_b ? k : n;
  std::size_t bytes = 0;
  check(cl_call(api_->temp_bytes, kClBlastRowMajor, a_transpose, b_transpose, m, n, k, first(a), a_ld, first(b), b_ld, first(c), n,
                &queue, &bytes),
        "SGemmTempBufferSize");
  const cl_mem temp = work_space(queue, bytes);
  // It has no wait list, and gives the event of its last kernel only: markers wait for it, say when the first began, and cover what
  // it has enqueued before it failed.
  if (step.has_waits() || step.is_measured()) step.add_marker(device_.name());
  const int status =
      cl_call(api_->sgemm, kClBlastRowMajor, a_transpose, b_transpose, m, n, k, p.alpha, memory(a), first(a), a_ld, memory(b),
              first(b), b_ld, 0.0f, memory(c), first(c), n, &queue, static_cast<cl_event*>(nullptr), temp);
  try {
    step.add_marker(device_.name());
  } catch (const Error&) {
    opencl().finish(queue);  // past the seam: the memory may be in use
    throw;
  }
  check(status, "Sgemm");
}

}  // namespace evn
