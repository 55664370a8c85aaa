#include "backends/opencl/device.h"

#include <algorithm>
#include <new>

#include "base/text.h"

namespace evn {

std::span<const KernelFamily* const> opencl_kernel_families();

// ------------------------------------------------------------------------------------------------------------ opening --

namespace {

constexpr DeviceOption kOptions[] = {
    {{"match", SettingType::kMap}, true},
    {{"match.vendor", SettingType::kText, "\"*\""}, true},
    {{"match.device", SettingType::kText, "\"*\""}, true},
    {{"match.platform", SettingType::kText, "\"*\""}, true},
    {{.name = "match.kind", .type = SettingType::kChoice, .fallback = "any", .words = "any|gpu|cpu|accelerator"}, true},
    {{"match.index", SettingType::kInteger, "0", 0, 255}, true},
    {{.name = "kernels", .type = SettingType::kChoice, .fallback = "auto", .words = "auto|cpu|gpu"}},
    {{.name = "clblast", .type = SettingType::kChoice, .fallback = "auto", .words = "auto|always|never"}},
};
constexpr DeviceAlias kAliases[] = {{"gpu", "match.kind", "gpu"}};

// Which device is meant: number `index` of those that the globs and the kind leave, over all platforms.
struct Match {
  explicit Match(const DeviceRequest& request)
      : vendor(request.settings.text("match.vendor", "*")),
        device(request.settings.text("match.device", "*")),
        platform(request.settings.text("match.platform", "*")),
        kind(request.settings.text("match.kind", "any")),
        index(static_cast<int>(request.settings.number("match.index", static_cast<std::uint64_t>(request.index)))) {}

  bool leaves(const OpenClFound& found) const {
    return glob_match(vendor, found.vendor) && glob_match(device, found.name) && glob_match(platform, found.platform_name) &&
           (kind == "any" || kind == opencl_kind(found));
  }

  const std::string vendor, device, platform, kind;
  const int index;
};

std::string names_of(const std::vector<OpenClFound>& all) {
  std::string names;
  for (std::size_t i = 0; i < all.size(); ++i) {
    names +=
        (i == 0 ? "" : ", ") + ("opencl:" + std::to_string(i)) + " is \"" + all[i].name + "\" of \"" + all[i].platform_name + "\"";
  }
  return names;
}

OpenClFound choose(const DeviceRequest& request) {
  std::string why;
  const std::vector<OpenClFound> all = find_opencl_devices(&why);
  if (opencl_is_forked()) throw make_error(EVN_ERROR_FORKED, "%s", why.c_str()).with_device(request.name.c_str());
  if (all.empty())
    throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "no OpenCL device: %s", why.c_str()).with_device(request.name.c_str());
  const Match match(request);
  int left = match.index;
  int matching = 0;
  for (const OpenClFound& found : all) {
    if (!match.leaves(found)) continue;
    ++matching;
    if (left-- != 0) continue;
    if (found.usable) return found;
    throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "\"%s\" is not available, has no compiler or is big-endian", found.name.c_str())
        .with_device(request.name.c_str());
  }
  throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE,
                   "no OpenCL device number %d matches vendor \"%s\", device \"%s\", platform \"%s\", kind %s: %d match; %s",
                   match.index, match.vendor.c_str(), match.device.c_str(), match.platform.c_str(), match.kind.c_str(), matching,
                   names_of(all).c_str())
      .with_device(request.name.c_str());
}

void check_open(cl_int code, const char* call, const DeviceRequest& request) {
  if (code == CL_SUCCESS) return;
  throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "%s failed: %s (%d)", call, cl_error_name(code), static_cast<int>(code))
      .with_device(request.name.c_str());
}

std::shared_ptr<Device> open_device(const DeviceRequest& request) {
  OpenClFound found = choose(request);
  if (const std::string kernels = request.settings.text("kernels", "auto"); kernels != "auto")
    found.kernels_of_cpus = kernels == "cpu";
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(found.platform), 0};
  cl_int code = CL_SUCCESS;
  ClContext context(cl_create(&code, opencl().create_context, properties, cl_uint{1}, &found.id, nullptr, nullptr));
  check_open(code, "clCreateContext", request);
  ClQueue queue(cl_create(&code, opencl().create_command_queue, context.get(), found.id, cl_command_queue_properties{0}));
  check_open(code, "clCreateCommandQueue", request);
  return std::make_shared<OpenClDevice>(request, found, std::move(context), std::move(queue));
}

std::vector<DeviceListing> list_devices(std::string* why) {
  std::vector<DeviceListing> listings;
  for (const OpenClFound& found : find_opencl_devices(why)) {
    listings.push_back({"opencl:" + std::to_string(listings.size()), found.name,
                        found.platform_name + ", " + found.platform_version, found.driver_version, opencl_kind(found),
                        found.compute_units, found.memory_bytes, clblast_outlook(found.is_cpu()), opencl_profile(found)});
  }
  return listings;
}

const void* identify_device(const DeviceRequest& request) { return choose(request).id; }

std::string identity_of(const OpenClFound& found) {
  return found.name + "\n" + found.vendor + "\n" + found.driver_version + "\n" + found.platform_name + "\n" +
         found.platform_version;
}

}  // namespace

const Backend opencl_backend = {{"opencl", kOptions}, open_device, list_devices, identify_device, kAliases};

OpenClDevice::OpenClDevice(const DeviceRequest& request, const OpenClFound& found, ClContext context, ClQueue queue,
                           const ClBlastApi* clblast)
    : Device(request.name, std::min(request.memory_limit, found.memory_bytes)),
      found_(found),
      context_(std::move(context)),
      queue_(std::move(queue)),
      programs_(found_, context_.get(), request.name, request.cache_dir, request.log),
      clblast_(std::make_unique<ClBlast>(*this, found_.is_cpu(), request, identity_of(found_), clblast)) {
  traits_.host_addressable = false;
  traits_.alignment = 128;
  traits_.kind = EVN_DEVICE_OPENCL;
  traits_.description = found_.name;
  traits_.driver = found_.platform_name + ", " + found_.driver_version;
  traits_.compute_units = found_.compute_units;
  traits_.memory_bytes = found_.memory_bytes;
  traits_.profile = opencl_profile(found_);
}

// What is left in a child is not given back: the calls that would do it do nothing there.
OpenClDevice::~OpenClDevice() {
  if (!is_forked()) {
    reaper_.stop();
    drain();
  }
  clblast_->release();
  close_pool();
}

void OpenClDevice::require_not_forked() const {
  if (!is_forked()) return;
  throw make_error(EVN_ERROR_FORKED, "the process was forked after it had opened device %s, which does not work in the child",
                   name().c_str())
      .with_device(name().c_str());
}

std::span<const KernelFamily* const> OpenClDevice::kernels() const { return opencl_kernel_families(); }

Precision OpenClDevice::lowest_precision(Precision wanted, std::string* why) const {
  if (wanted == Precision::kBfloat16) *why = "OpenCL devices have no bf16 products";
  else if (!found_.half) *why = "this device has no cl_khr_fp16";
  else if (wanted == Precision::kAuto && found_.is_cpu()) *why = "fp16 may be slower on a CPU";
  else return Precision::kFloat16;
  return Precision::kFloat32;
}

const char* OpenClDevice::why_not_by(Products library, const OpDesc& desc) const {
  if (library != Products::kClBlast) return Device::why_not_by(library, desc);
  if (desc.strict) return "numerics: strict";
  const char* why = nullptr;
  clblast_->kernel_for(desc, &why);
  return why;
}

// CLBlast builds its programs with options of its own, which strict nodes cannot rely on.
const Kernel* OpenClDevice::find_kernel(const OpDesc& desc, std::string* reason) const {
  require_not_forked();
  if (desc.strict && !keeps_denormals()) {
    if (reason != nullptr) *reason = "numerics: strict, and this device flushes floats below 2^-126 (no CL_FP_DENORM)";
    return nullptr;
  }
  const Kernel* own = Device::find_kernel(desc, reason);
  const bool in_float32 = own != nullptr && (own->operands == Precision::kFloat32 || desc.products == Products::kClBlast);
  const bool may_be_theirs = in_float32 && !desc.strict;
  const Kernel* theirs = may_be_theirs ? clblast_->kernel_for(desc) : nullptr;
  return theirs != nullptr ? theirs : own;
}

// ------------------------------------------------------------------------------------------------------------- memory --

// Drivers allocate when memory is first used, so what is there is what the pool's ledger says; only what can never be is refused
// here.
void* OpenClDevice::obtain(std::size_t bytes, bool pinned) {
  require_not_forked();
  if (bytes > found_.largest_buffer) {
    throw make_error(EVN_ERROR_OUT_OF_MEMORY, "%zu bytes are more than the largest buffer of the device, %llu bytes", bytes,
                     static_cast<unsigned long long>(found_.largest_buffer))
        .with_device(name().c_str())
        .with_bytes(bytes, found_.largest_buffer);
  }
  auto memory = std::make_unique<OpenClMemory>();
  memory->bytes = bytes;
  memory->pinned = pinned;
  cl_int code = CL_SUCCESS;
  const cl_mem_flags flags = CL_MEM_READ_WRITE | (pinned ? CL_MEM_ALLOC_HOST_PTR : 0);
  memory->buffer = cl_create(&code, opencl().create_buffer, context_.get(), flags, bytes, static_cast<void*>(nullptr));
  if (code != CL_SUCCESS) return nullptr;
  return memory.release();
}

void OpenClDevice::give_back(void* memory, std::size_t, bool) noexcept {
  const std::unique_ptr<OpenClMemory> owned(static_cast<OpenClMemory*>(memory));
  if (owned->mapped != nullptr && !is_forked()) {
    opencl().enqueue_unmap_mem_object(queue_.get(), owned->buffer, owned->mapped, 0, nullptr, nullptr);
    drain();
  }
  opencl().release_mem_object(owned->buffer);
}

void* OpenClDevice::map(const Buffer& buffer, bool read, bool write) {
  require_not_forked();
  auto* memory = static_cast<OpenClMemory*>(buffer.memory);
  if (memory == nullptr || !memory->pinned) return nullptr;
  if (memory->mapped != nullptr) unmap(memory);  // an earlier unmap failed
  const cl_map_flags flags = read ? CL_MAP_READ | (write ? CL_MAP_WRITE : 0) : CL_MAP_WRITE_INVALIDATE_REGION;
  cl_int code = CL_SUCCESS;
  void* address =
      cl_create(&code, opencl().enqueue_map_buffer, queue_.get(), memory->buffer, cl_bool{CL_TRUE}, cl_map_flags{flags},
                buffer.offset, buffer.size, cl_uint{0}, static_cast<const cl_event*>(nullptr), static_cast<cl_event*>(nullptr));
  check_cl(code, "clEnqueueMapBuffer", name());
  return memory->mapped = address;
}

void OpenClDevice::unmap(const Buffer& buffer, void*) { unmap(static_cast<OpenClMemory*>(buffer.memory)); }

// To the end: a run of a traced session goes to another queue.
void OpenClDevice::unmap(OpenClMemory* memory) {
  require_not_forked();
  if (memory->mapped == nullptr) return wait(event());  // an earlier call failed when it waited
  check_cl(cl_call(opencl().enqueue_unmap_mem_object, queue_.get(), memory->buffer, memory->mapped, cl_uint{0},
                   static_cast<const cl_event*>(nullptr), static_cast<cl_event*>(nullptr)),
           "clEnqueueUnmapMemObject", name());
  memory->mapped = nullptr;
  wait(event());
}

// --------------------------------------------------------------------------------------------------------------- work --

Event OpenClDevice::event() { return {this, issued_.fetch_add(1) + 1}; }

// Past the seam: whatever has failed, memory that is in use must not be given up.
void OpenClDevice::drain() noexcept {
  opencl().finish(queue_.get());
  if (cl_command_queue measuring = measuring_.load()) opencl().finish(measuring);
}

// Both queues, as work that others wait for may be on either.
cl_int OpenClDevice::finish() {
  const cl_int code = cl_call(opencl().finish, queue_.get());
  cl_command_queue measuring = measuring_.load();
  return code != CL_SUCCESS || measuring == nullptr ? code : cl_call(opencl().finish, measuring);
}

void OpenClDevice::wait_for_others(std::span<const Event> waits) {
  for (const Event& event : waits) {
    if (event.device != nullptr && event.device != this) event.device->wait(event);
  }
}

OpenClReaper::Finished OpenClDevice::finish_all() noexcept {
  const std::uint64_t issued = issued_.load();
  const cl_int code = finish();
  if (code != CL_SUCCESS) drain();
  std::uint64_t done = done_.load();
  while (done < issued && !done_.compare_exchange_weak(done, issued)) {}
  return {issued, code};
}

void OpenClDevice::wait(const Event& event) {
  require_not_forked();
  if (event.device != this || event.value <= done_.load()) return;
  check_cl(finish_all().code, "clFinish", name());
}

bool OpenClDevice::wait_or_stop(const Event& event, const Cancel& cancel) {
  require_not_forked();
  if (event.device != this || event.value <= done_.load()) return true;
  if (!cancel.exists() || !reaper_.start()) {
    wait(event);
    return true;
  }
  cl_int code = CL_SUCCESS;
  if (!reaper_.wait(event.value, cancel, &code)) return false;
  check_cl(code, "clFinish", name());
  return true;
}

bool OpenClDevice::settle(const Cancel& cancel) {
  require_not_forked();
  return reaper_.settle(cancel);
}

void OpenClDevice::hold_until(const Event& event, std::shared_ptr<const void> held) noexcept {
  if (is_forked()) return;
  if (reaper_.start() && reaper_.hold(event.value, held)) return;
  Device::hold_until(event, std::move(held));
}

Event OpenClDevice::copy(const Location& from, const Location& to, std::span<const Event> waits) {
  return copy_traced(from, to, waits, nullptr);
}

Event OpenClDevice::copy_traced(const Location& from, const Location& to, std::span<const Event> waits, StepTrace* trace) {
  require_not_forked();
  const cl_command_queue queue = queue_of(trace);
  EVN_CHECK(from.buffer.size == to.buffer.size && (from.device == this || to.device == this));
  wait_for_others(waits);
  if (from.buffer.size == 0) return {};
  const auto host = [this](const Location& l) {
    return l.device != this ? static_cast<char*>(l.buffer.memory) + l.buffer.offset : nullptr;
  };
  const auto* none = static_cast<const cl_event*>(nullptr);
  TracedCommand command(trace);
  char* source = host(from);
  char* target = host(to);
  if (source != nullptr) {
    const cl_mem memory = static_cast<OpenClMemory*>(to.buffer.memory)->buffer;
    check_cl(cl_call(opencl().enqueue_write_buffer, queue, memory, cl_bool{CL_FALSE}, to.buffer.offset, to.buffer.size,
                     static_cast<const void*>(source), cl_uint{0}, none, command.out()),
             "clEnqueueWriteBuffer", name());
  } else if (target != nullptr) {
    const cl_mem memory = static_cast<OpenClMemory*>(from.buffer.memory)->buffer;
    check_cl(cl_call(opencl().enqueue_read_buffer, queue, memory, cl_bool{CL_FALSE}, from.buffer.offset, from.buffer.size,
                     static_cast<void*>(target), cl_uint{0}, none, command.out()),
             "clEnqueueReadBuffer", name());
  } else {
    Launcher(programs_, queue, found_, name(), trace).copy(from.buffer, to.buffer, from.buffer.size);
  }
  return event();
}

void OpenClDevice::run(const KernelCall& call) {
  static const Cancel kNever;
  Launcher context(programs_, queue_of(call.trace), found_, name(), call.trace, clblast_.get());
  KernelArgs args = call.args;
  args.context = &context;
  call.kernel->run(args, 0, args.plan->tiles, call.cancel != nullptr ? *call.cancel : kNever);
}

Event OpenClDevice::enqueue(const KernelCall& call, std::span<const Event> waits) {
  require_not_forked();
  wait_for_others(waits);
  const std::lock_guard<std::mutex> lock(mutex_);
  run(call);
  return event();
}

// ------------------------------------------------------------------------------------------------------------ tracing --

cl_command_queue OpenClDevice::queue_of(const StepTrace* trace) const {
  cl_command_queue measuring = trace != nullptr ? measuring_.load() : nullptr;
  return measuring != nullptr ? measuring : queue_.get();
}

// A queue that measures costs time at every command, so there is one besides. When it cannot be made, nothing is measured.
void OpenClDevice::prepare_tracing() noexcept {
  if (is_forked()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (measuring_.load() != nullptr) return;
  cl_int code = CL_SUCCESS;
  measuring_owner_ = ClQueue(cl_create(&code, opencl().create_command_queue, context_.get(), found_.id,
                                       cl_command_queue_properties{CL_QUEUE_PROFILING_ENABLE}));
  if (code == CL_SUCCESS) measuring_.store(measuring_owner_.get());
}

void OpenClDevice::finish_trace(StepTrace* trace) noexcept {
  const auto time_of = [](void* command, cl_profiling_info what) {
    cl_ulong time = 0;
    const cl_int code = cl_call(opencl().get_event_profiling_info, static_cast<cl_event>(command), what, sizeof time,
                                static_cast<void*>(&time), static_cast<std::size_t*>(nullptr));
    return code == CL_SUCCESS ? time : 0;
  };
  if (trace->first != nullptr) {
    trace->queued = time_of(trace->first, CL_PROFILING_COMMAND_QUEUED);
    trace->start = time_of(trace->first, CL_PROFILING_COMMAND_START);
    trace->end = time_of(trace->last != nullptr ? trace->last : trace->first, CL_PROFILING_COMMAND_END);
    if (trace->queued == 0 || trace->start < trace->queued || trace->end < trace->start) trace->end = 0;
  }
  for (void** command : {&trace->first, &trace->last}) {
    if (*command != nullptr) opencl().release_event(static_cast<cl_event>(*command));
    *command = nullptr;
  }
}

}  // namespace evn
