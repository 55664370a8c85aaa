#include "backends/opencl/host_share.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/alloc.h"

namespace evn {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLine = 64;
constexpr std::size_t kTried = 4 * kPage;     // bytes
constexpr unsigned kUsesSvmPointer = 0x1109;  // CL_MEM_USES_SVM_POINTER, since OpenCL 2.0

struct FreeBytes {
  void operator()(void* p) const { free_bytes(p); }
};
using Bytes = std::unique_ptr<unsigned char, FreeBytes>;

// Two buffers, one of the host's memory and one of the driver's, and copies between them, with nothing mapped: what one side writes
// the other sees only where the driver has no copy of its own.
class Trial {
 public:
  Trial(cl_context context, cl_command_queue queue) : context_(context), queue_(queue) {}

  bool passes(unsigned char* at, std::size_t bytes, bool as_svm) {
    std::memset(at, 0x11, bytes);
    theirs_ = make(CL_MEM_READ_WRITE, bytes, nullptr);
    here_ = make(CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes, at);
    if (!theirs_ || !here_ || (as_svm && !is_svm())) return false;
    const std::vector<unsigned char> first(bytes, 0x5a);
    std::vector<unsigned char> seen(bytes, 0);
    const bool written = done(cl_call(opencl().enqueue_write_buffer, queue_, theirs_.get(), cl_bool{CL_TRUE}, std::size_t{0}, bytes,
                                      static_cast<const void*>(first.data()), cl_uint{0}, kNone, kNoEvent)) &&
                         copy(theirs_.get(), here_.get(), bytes) && std::memcmp(at, first.data(), bytes) == 0;
    if (!written) return false;
    std::memset(at, 0x3c, bytes);
    return copy(here_.get(), theirs_.get(), bytes) &&
           done(cl_call(opencl().enqueue_read_buffer, queue_, theirs_.get(), cl_bool{CL_TRUE}, std::size_t{0}, bytes,
                        static_cast<void*>(seen.data()), cl_uint{0}, kNone, kNoEvent)) &&
           std::memcmp(at, seen.data(), bytes) == 0;
  }

 private:
  static constexpr const cl_event* kNone = nullptr;
  static constexpr cl_event* kNoEvent = nullptr;

  ClMemory make(cl_mem_flags flags, std::size_t bytes, void* at) const {
    cl_int code = CL_SUCCESS;
    ClMemory made(cl_create(&code, opencl().create_buffer, context_, cl_mem_flags{flags}, bytes, at));
    return code == CL_SUCCESS ? std::move(made) : ClMemory();
  }

  bool is_svm() const {
    cl_bool svm = CL_FALSE;
    return cl_call(opencl().get_mem_object_info, here_.get(), cl_mem_info{kUsesSvmPointer}, sizeof svm, static_cast<void*>(&svm),
                   static_cast<std::size_t*>(nullptr)) == CL_SUCCESS &&
           svm == CL_TRUE;
  }

  bool copy(cl_mem from, cl_mem to, std::size_t bytes) const {
    const cl_int code =
        cl_call(opencl().enqueue_copy_buffer, queue_, from, to, std::size_t{0}, std::size_t{0}, bytes, cl_uint{0}, kNone, kNoEvent);
    return done(code);
  }

  // Past the seam: the memory goes with the trial.
  bool done(cl_int code) const {
    const cl_int finished = opencl().finish(queue_);
    return code == CL_SUCCESS && finished == CL_SUCCESS;
  }

  cl_context context_;
  cl_command_queue queue_;
  ClMemory theirs_, here_;
};

}  // namespace

HostSharing try_host_sharing(const OpenClFound& found, cl_context context, cl_command_queue queue, std::size_t alignment) {
  const Bytes memory(static_cast<unsigned char*>(allocate_bytes(kTried + 2 * kPage, kPage)));
  if (memory == nullptr) throw std::bad_alloc();
  const std::size_t base = std::max<std::size_t>(alignment, found.base_alignment);
  const auto passes = [&](std::size_t at, std::size_t bytes) {
    return Trial(context, queue).passes(memory.get() + at, bytes, found.system_svm);
  };
  // Memory as it comes, first: not at the begin of a page, and of no round size.
  if (base < kPage && passes(base, kTried - 4)) return {base, 1, found.system_svm};
  if (kPage % base == 0 && passes(0, kTried)) return {kPage, kLine, found.system_svm};
  return {};
}

// Commands on two buffers of the same bytes of the host are undefined: the same memory is one buffer, and a part of it none.
HostSharePtr OpenClDevice::share_host(void* address, std::size_t bytes) {
  if (!sharing_.fits(address, bytes) || bytes > found_.largest_buffer || is_forked()) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(address), end = begin + bytes;
  const std::lock_guard<std::mutex> lock(sharing_mutex_);
  for (const KnownShare& known : shares_) {
    if (known.begin == begin && known.end == end) {
      if (std::shared_ptr<OpenClHostShare> share = known.share.lock()) return share;
    } else if (known.begin < end && begin < known.end && !known.share.expired()) {
      return nullptr;
    }
  }
  std::erase_if(shares_, [](const KnownShare& known) { return known.share.expired(); });
  shares_.reserve(shares_.size() + 1);
  cl_int code = CL_SUCCESS;
  ClMemory buffer(cl_create(&code, opencl().create_buffer, context_.get(), cl_mem_flags{CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR},
                            bytes, address));
  if (code != CL_SUCCESS) return nullptr;
  auto share = std::make_shared<OpenClHostShare>(*this, std::move(buffer), bytes, sharing_.is_free);
  shares_.push_back({begin, end, share});
  return share;
}

// ------------------------------------------------------------------------------------------------------------- a share --

OpenClHostShare::OpenClHostShare(OpenClDevice& device, ClMemory buffer, std::size_t bytes, bool is_free)
    : device_(device), is_free_(is_free), owned_(std::move(buffer)) {
  memory_.buffer = owned_.get();
  memory_.bytes = bytes;
  buffer_ = {&memory_, 0, bytes};
}

// The host's memory goes when this has returned, so that the driver must have let go of it.
OpenClHostShare::~OpenClHostShare() {
  if (memory_.mapped != nullptr) device_.end_sharing(memory_, buffer_);
}

Event OpenClHostShare::begin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Event given;
  if (uses_ == 0 && memory_.mapped != nullptr) given = device_.give_to_device(memory_, buffer_);
  ++uses_;
  return given;
}

Event OpenClHostShare::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--uses_ != 0 || is_free_) return {};
  return device_.give_to_host(memory_, buffer_);
}

Event OpenClDevice::give_to_device(OpenClMemory& memory, const Buffer& buffer) {
  require_not_forked();
  OpenClStep step(streams_[kKernels]->queue());
  OpenClUse use;
  use.writes = {&buffer, 1};
  const auto lock = lock_in_scope(mutex_);
  add_conflicts(step, kKernels, use);
  {
    OpenClCommand command(step, "clEnqueueUnmapMemObject");
    check_cl(cl_call(opencl().enqueue_unmap_mem_object, step.queue(), memory.buffer, memory.mapped, command.wait_count(),
                     command.waits(), command.out()),
             "clEnqueueUnmapMemObject", name());
  }
  memory.mapped = nullptr;
  return keep(step, kKernels, use, 0);
}

// Behind the kernels, in their queue; nobody waits here.
Event OpenClDevice::give_to_host(OpenClMemory& memory, const Buffer& buffer) {
  require_not_forked();
  OpenClStep step(streams_[kKernels]->queue());
  OpenClUse use;
  use.writes = {&buffer, 1};
  const std::lock_guard<Mutex> lock(mutex_);  // not to be given up: the host's memory must be mapped again
  add_conflicts(step, kKernels, use);
  {
    OpenClCommand command(step, "clEnqueueMapBuffer");
    cl_int code = CL_SUCCESS;
    memory.mapped = cl_create(&code, opencl().enqueue_map_buffer, step.queue(), memory.buffer, cl_bool{CL_FALSE},
                              cl_map_flags{CL_MAP_READ | CL_MAP_WRITE}, buffer.offset, buffer.size, command.wait_count(),
                              command.waits(), command.out());
    check_cl(code, "clEnqueueMapBuffer", name());
  }
  return keep(step, kKernels, use, 0);
}

// In a queue of copies: kernels of others are not waited for. A device that is out of use keeps what it needs, if anything.
void OpenClDevice::end_sharing(OpenClMemory& memory, const Buffer& buffer) noexcept {
  if (is_forked() || is_out()) return;
  try {
    OpenClUse use;
    use.writes = {&buffer, 1};
    Event unmapped;
    {
      OpenClStep step(streams_[kUploads]->queue());
      const auto lock = lock_in_scope(transfers_);
      add_conflicts(step, kUploads, use);
      {
        OpenClCommand command(step, "clEnqueueUnmapMemObject");
        check_cl(cl_call(opencl().enqueue_unmap_mem_object, step.queue(), memory.buffer, memory.mapped, command.wait_count(),
                         command.waits(), command.out()),
                 "clEnqueueUnmapMemObject", name());
      }
      unmapped = keep(step, kUploads, use, 0);
    }
    static const Cancel never;
    wait_bounded(unmapped, never);
  } catch (const Error&) {  // the driver undoes it with the buffer
  } catch (const std::bad_alloc&) {}
}

}  // namespace evn
