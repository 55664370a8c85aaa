#include "backends/opencl/device.h"

#include <algorithm>
#include <new>

#include "backends/opencl/drivers.h"
#include "backends/opencl/host_share.h"
#include "backends/opencl/kernel_table.h"
#include "base/text.h"

namespace evn {

// ------------------------------------------------------------------------------------------------------------ opening --

namespace {

constexpr DeviceOption kOptions[] = {
    {{"match", SettingType::kMap}, true},
    {{"match.vendor", SettingType::kText, "\"*\""}, true},
    {{"match.device", SettingType::kText, "\"*\""}, true},
    {{"match.platform", SettingType::kText, "\"*\""}, true},
    {{.name = "match.kind", .type = SettingType::kChoice, .fallback = "any", .words = "any|gpu|cpu|accelerator"}, true},
    {{"match.index", SettingType::kInteger, "0", 0, 255}, true},
    {{.name = "attached", .type = SettingType::kBoolean, .fallback = "false"}, true},
    {{.name = "kernels", .type = SettingType::kChoice, .fallback = "auto", .words = "auto|cpu|gpu"}},
    {{"programs", SettingType::kText, "\"\""}},
    {{.name = "clblast", .type = SettingType::kChoice, .fallback = "auto", .words = "auto|always|never"}},
    {{.name = "tuning", .type = SettingType::kChoice, .fallback = "cached", .words = "cached|measure|off"}},
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
    throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "\"%s\" is not available or is big-endian", found.name.c_str())
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

ClQueue make_queue(cl_context context, const OpenClFound& found, cl_command_queue_properties properties, cl_int* code) {
  return ClQueue(cl_create(code, opencl().create_command_queue, context, found.id, cl_command_queue_properties{properties}));
}

void choose_kernels(const DeviceRequest& request, OpenClFound* found) {
  if (const std::string kernels = request.settings.text("kernels", "auto"); kernels != "auto")
    found->kernels_of_cpus = kernels == "cpu";
}

std::shared_ptr<Device> open_device(const DeviceRequest& request) {
  OpenClFound found = choose(request);
  choose_kernels(request, &found);
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(found.platform), 0};
  cl_int code = CL_SUCCESS;
  ClContext context(cl_create(&code, opencl().create_context, properties, cl_uint{1}, &found.id, nullptr, nullptr));
  check_open(code, "clCreateContext", request);
  ClQueue queue = make_queue(context.get(), found, 0, &code);
  check_open(code, "clCreateCommandQueue", request);
  return std::make_shared<OpenClDevice>(request, found, std::move(context), std::move(queue));
}

template <typename T, typename Get, typename Object>
T read_info(Get get, Object object, unsigned what, const char* call, const DeviceRequest& request) {
  T value{};
  check_given(cl_call(get, object, what, sizeof(T), static_cast<void*>(&value), static_cast<std::size_t*>(nullptr)), call,
              request.name);
  return value;
}

void check_context(cl_context context, cl_device_id device, const DeviceRequest& request) {
  std::size_t size = 0;
  check_given(cl_call(opencl().get_context_info, context, cl_context_info{CL_CONTEXT_DEVICES}, std::size_t{0},
                      static_cast<void*>(nullptr), &size),
              "clGetContextInfo", request.name);
  std::vector<cl_device_id> devices(size / sizeof(cl_device_id));
  check_given(cl_call(opencl().get_context_info, context, cl_context_info{CL_CONTEXT_DEVICES}, size,
                      static_cast<void*>(devices.data()), static_cast<std::size_t*>(nullptr)),
              "clGetContextInfo", request.name);
  if (std::find(devices.begin(), devices.end(), device) != devices.end()) return;
  throw make_error(EVN_ERROR_INVALID_ARGUMENT, "the context has %zu devices, and not the one that is given", devices.size())
      .with_device(request.name.c_str());
}

void check_queue(cl_command_queue queue, const NativeObjects& objects, const DeviceRequest& request) {
  constexpr char kCall[] = "clGetCommandQueueInfo";
  const auto get = opencl().get_command_queue_info;
  const char* wrong = nullptr;
  if (read_info<cl_context>(get, queue, CL_QUEUE_CONTEXT, kCall, request) != objects.context) wrong = "is of another context";
  else if (read_info<cl_device_id>(get, queue, CL_QUEUE_DEVICE, kCall, request) != objects.device) wrong = "is of another device";
  else if ((read_info<cl_command_queue_properties>(get, queue, CL_QUEUE_PROPERTIES, kCall, request) &
            CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0)
    wrong = "is out of order; the device needs one in order";
  if (wrong != nullptr) throw make_error(EVN_ERROR_INVALID_ARGUMENT, "the queue %s", wrong).with_device(request.name.c_str());
}

std::shared_ptr<Device> attach_device(const DeviceRequest& request, const NativeObjects& objects) {
  std::string why;
  OpenClFound found;
  const auto id = static_cast<cl_device_id>(objects.device);
  const auto given = static_cast<cl_context>(objects.context);
  if (!describe_opencl_device(id, &found, &why))
    throw make_error(opencl_is_forked() ? EVN_ERROR_FORKED : EVN_ERROR_DEVICE_UNAVAILABLE, "%s", why.c_str())
        .with_device(request.name.c_str());
  if (!found.usable) {
    throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "\"%s\" is not available or is big-endian", found.name.c_str())
        .with_device(request.name.c_str());
  }
  check_context(given, id, request);
  choose_kernels(request, &found);
  cl_int code = CL_SUCCESS;
  ClQueue queue;
  if (objects.queue != nullptr) {
    const auto theirs = static_cast<cl_command_queue>(objects.queue);
    check_queue(theirs, objects, request);
    check_given(opencl().retain_command_queue(theirs), "clRetainCommandQueue", request.name);
    queue = ClQueue(theirs);
  } else {
    queue = make_queue(given, found, 0, &code);
    check_open(code, "clCreateCommandQueue", request);
  }
  check_given(opencl().retain_context(given), "clRetainContext", request.name);
  return std::make_shared<OpenClDevice>(request, found, ClContext(given), std::move(queue));
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

TuningMode tuning_mode(const DeviceRequest& request) {
  const std::string text = request.settings.text("tuning", "cached");
  return text == "measure" ? TuningMode::kMeasure : text == "off" ? TuningMode::kOff : TuningMode::kCached;
}

}  // namespace

const Backend opencl_backend = {{"opencl", kOptions}, open_device,   list_devices, identify_device, kAliases,
                                attach_device,        opencl_drivers};

OpenClDevice::OpenClDevice(const DeviceRequest& request, const OpenClFound& found, ClContext context, ClQueue queue,
                           const ClBlastApi* clblast)
    : Device(request.name, std::min(request.memory_limit, found.memory_bytes)),
      found_(found),
      context_(std::move(context)),
      programs_(found_, context_.get(), request.name, {request.cache_dir, request.settings.text("programs", "")}, request.log),
      tuning_(tuning_mode(request), request.cache_dir, identity_of(found_), request.name, request.log),
      clblast_(std::make_unique<ClBlast>(*this, found_.is_cpu(), request, identity_of(found_), clblast)) {
  traits_.host_addressable = false;
  traits_.alignment = 128;
  traits_.kind = EVN_DEVICE_OPENCL;
  traits_.description = found_.name;
  traits_.driver = found_.platform_name + ", " + found_.driver_version;
  traits_.compute_units = found_.compute_units;
  traits_.memory_bytes = found_.memory_bytes;
  traits_.profile = opencl_profile(found_);
  streams_[kKernels] = std::make_unique<OpenClStream>(std::move(queue), issued_);
  cl_int code = CL_SUCCESS;
  for (const Stream of : {kUploads, kDownloads}) {
    ClQueue copies = make_queue(context_.get(), found_, 0, &code);
    check_open(code, "clCreateCommandQueue", request);
    streams_[of] = std::make_unique<OpenClStream>(std::move(copies), issued_);
  }
  if (found_.unified_memory) sharing_ = try_host_sharing(found_, context_.get(), streams_[kUploads]->queue(), traits_.alignment);
}

// What is left in a child is not given back: the calls that would do it do nothing there.
OpenClDevice::~OpenClDevice() {
  if (!is_forked()) {
    reaper_.stop();
    for (OpenClReaper& kept : kept_) kept.stop();
    drain(kAllStreams);
    notices_->settle();
    reaper_.let_go();
    for (OpenClReaper& kept : kept_) kept.let_go();
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
  else if (!found_.half && found_.has_kernels_of_cpus()) *why = "this device has no cl_khr_fp16";  // those of GPUs do without
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
    opencl().enqueue_unmap_mem_object(streams_[kKernels]->queue(), owned->buffer, owned->mapped, 0, nullptr, nullptr);
    // Where the device is out, the driver keeps what its commands use, as it must, for as long as that takes.
    if (!is_out()) drain(std::uint64_t{1} << kKernels);
  }
  opencl().release_mem_object(owned->buffer);
}

// Where the device uses the host's memory, all of it is mapped, and nothing is copied. What is not pinned waits for what uses the
// same memory alone, as the copies did that this is in the place of.
void* OpenClDevice::map(const Buffer& buffer, bool read, bool write) {
  require_not_forked();
  auto* memory = static_cast<OpenClMemory*>(buffer.memory);
  if (memory == nullptr || (!memory->pinned && !found_.unified_memory)) return nullptr;
  if (memory->mapped != nullptr) unmap(memory);  // an earlier unmap failed
  const cl_map_flags flags = read ? CL_MAP_READ | (write ? CL_MAP_WRITE : 0) : CL_MAP_WRITE_INVALIDATE_REGION;
  const Stream of = memory->pinned ? kKernels : write ? kUploads : kDownloads;
  OpenClStep step(streams_[of]->queue());
  if (!memory->pinned) {
    OpenClUse use;
    (write ? use.writes : use.reads) = {&buffer, 1};
    add_conflicts(step, of, use);
  } else if (const Event all = all_enqueued(); !add_wait(step, all)) {
    wait(all);
  }
  OpenClCommand command(step, "clEnqueueMapBuffer");
  cl_int code = CL_SUCCESS;
  void* address = cl_create(&code, opencl().enqueue_map_buffer, step.queue(), memory->buffer, cl_bool{CL_TRUE}, cl_map_flags{flags},
                            buffer.offset, buffer.size, command.wait_count(), command.waits(), command.out());
  check_cl(code, "clEnqueueMapBuffer", name());
  return memory->mapped = address;
}

void OpenClDevice::unmap(const Buffer& buffer, void*) { unmap(static_cast<OpenClMemory*>(buffer.memory)); }

// To the end: what follows may go to another queue.
void OpenClDevice::unmap(OpenClMemory* memory) {
  require_not_forked();
  if (memory->mapped == nullptr) {  // an earlier call failed when it waited, and has said so
    check_cl(finish(all_enqueued().value), "clWaitForEvents", name());
    return;
  }
  Event unmapped;
  {
    const Stream of = memory->pinned ? kKernels : kUploads;
    const auto lock = lock_in_scope(memory->pinned ? mutex_ : transfers_);
    OpenClStep step(streams_[of]->queue());
    {
      OpenClCommand command(step, "clEnqueueUnmapMemObject");
      check_cl(cl_call(opencl().enqueue_unmap_mem_object, step.queue(), memory->buffer, memory->mapped, command.wait_count(),
                       command.waits(), command.out()),
               "clEnqueueUnmapMemObject", name());
    }
    memory->mapped = nullptr;
    unmapped = keep(step, of, {}, 0);
  }
  wait(unmapped);
}

// ------------------------------------------------------------------------------------------------------------ tracing --

OpenClDevice::Stream OpenClDevice::stream_for(Stream kind, const StepTrace* trace) const {
  const bool measured = trace != nullptr && measures_.load(std::memory_order_acquire);
  return static_cast<Stream>(kind + (measured ? kMeasuredKernels : 0));
}

// A queue that measures costs time at every command, so there are others besides. When they cannot be made, nothing is measured.
void OpenClDevice::prepare_tracing() noexcept {
  if (is_forked()) return;
  try {
    const auto lock = lock_in_scope(mutex_);
    if (measures_.load()) return;
    cl_int code = CL_SUCCESS;
    for (const Stream of : {kMeasuredKernels, kMeasuredUploads, kMeasuredDownloads}) {
      ClQueue queue = make_queue(context_.get(), found_, CL_QUEUE_PROFILING_ENABLE, &code);
      if (code != CL_SUCCESS) return;
      streams_[of] = std::make_unique<OpenClStream>(std::move(queue), issued_);
      // Commands that wait_before_all has held back must not begin here.
      OpenClStep step(streams_[of]->queue());
      if (const Event all = all_enqueued(); !add_wait(step, all)) wait_in_scope(all);
      if (step.has_waits()) step.add_marker(name());
    }
    measures_.store(true, std::memory_order_release);
  } catch (const Error&) {
  } catch (const std::bad_alloc&) {}
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
