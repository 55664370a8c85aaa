// Threads and sleeping on Linux.
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <memory>
#include <type_traits>

#include "base/error.h"
#include "base/fault.h"
#include "base/float_environment.h"
#include "base/heap.h"
#include "base/library_work.h"
#include "base/os/background.h"
#include "base/os/files_linux.h"
#include "base/os/fork.h"
#include "base/os/os.h"

namespace evn::os {
namespace {

static_assert(std::is_same_v<pthread_t, unsigned long>);

constexpr std::size_t kStackBytes = std::size_t{1} << 20;

// The heap counts what the thread allocates, as it does for the thread that starts it.
struct Start {
  void (*body)(void*);
  void* argument;
  Heap* heap;  // nullable

  Start(void (*the_body)(void*), void* the_argument) noexcept : body(the_body), argument(the_argument), heap(heap_meter().heap) {
    if (heap != nullptr) heap->hold();
  }
  ~Start() {
    if (heap != nullptr) heap->let_go();
  }
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;
};

void* thread_main(void* p) {
  const std::unique_ptr<Start> start(static_cast<Start*>(p));
  const LibraryWork own(true);
  FloatRegisters().save_and_reset();  // a thread begins with the registers of the thread that made it, which may run a kernel
  const HeapScope counted(start->heap);
  start->body(start->argument);
  return nullptr;
}

pthread_t start_thread(void (*body)(void*), void* argument) {
  auto start = std::make_unique<Start>(body, argument);
  pthread_t handle = 0;
  pthread_attr_t attributes;
  int error = fault_hit(Seam::kThread) ? EAGAIN : ::pthread_attr_init(&attributes);
  if (error == 0) {
    ::pthread_attr_setstacksize(&attributes, kStackBytes);
    sigset_t blocked, before;
    ::sigfillset(&blocked);
    // But for faults of the thread itself, which a host's crash reporter or a sanitizer handles.
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) ::sigdelset(&blocked, fault);
    ::pthread_sigmask(SIG_SETMASK, &blocked, &before);  // the new thread inherits it
    error = ::pthread_create(&handle, &attributes, thread_main, start.get());
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::pthread_attr_destroy(&attributes);
  }
  if (error != 0) fail(EVN_ERROR_NO_THREADS, "the system refused a thread: %s", system_reason(error).c_str());
  start.release();
  return handle;
}

// 65,536 CPUs, eight times what the kernel can be built for, so that no call finds the set too small.
struct CoreSet {
  static constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);
  unsigned long words[65536 / kWordBits];
  long bytes;  // what the kernel wrote; negative: nothing

  // The cores that this thread may use.
  CoreSet() noexcept : bytes(::syscall(SYS_sched_getaffinity, 0, sizeof words, words)) {}

  int count() const noexcept {
    int n = 0;
    for (long i = 0; i < bytes / static_cast<long>(sizeof words[0]); ++i) n += __builtin_popcountl(words[i]);
    return n;
  }
  bool apply() const noexcept { return ::syscall(SYS_sched_setaffinity, 0, bytes, words) == 0; }
};

int affinity_cores() noexcept {
  const int cores = CoreSet().count();
  if (cores > 0) return cores;
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 && online < INT_MAX ? static_cast<int>(online) : 1;
}

}  // namespace

Thread::Thread(void (*body)(void*), void* argument) : handle_(start_thread(body, argument)), joinable_(true) {}

Thread::~Thread() {
  if (joinable_) ::pthread_join(handle_, nullptr);
}

BackgroundThread::BackgroundThread(void (*body)(void*), void* argument)
    : handle_(start_thread(body, argument)), started_in_(fork_generation()) {}

BackgroundThread::~BackgroundThread() {
  if (started_in_ != fork_generation()) return;
  if (::pthread_equal(handle_, ::pthread_self()) != 0) {
    ::pthread_detach(handle_);
  } else {
    ::pthread_join(handle_, nullptr);
  }
}

bool allow_tiles() noexcept {
#if defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023,
                 kTileData = 18;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h, which older headers do not have
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

void futex_wait(const std::uint32_t* word, std::uint32_t expected) noexcept {
  ::syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake_all(const std::uint32_t* word) noexcept {
  ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  asm volatile("pause");
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int current_core() noexcept { return ::sched_getcpu(); }

void leave_core() noexcept {
  CoreSet set;
  const auto core = static_cast<std::size_t>(current_core());  // no core: a number beyond any
  if (set.count() < 2 || core / CoreSet::kWordBits >= static_cast<std::size_t>(set.bytes) / sizeof set.words[0]) return;
  unsigned long& word = set.words[core / CoreSet::kWordBits];
  const unsigned long all = word;
  word &= ~(1ul << core % CoreSet::kWordBits);
  if (set.count() == 0 || !set.apply()) return;
  word = all;
  set.apply();
}

std::int64_t l2_cache_bytes() noexcept {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  const long bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? bytes : 0;
#else
  return 0;
#endif
}

int usable_cores() noexcept {
  const int cores = affinity_cores();
  const int quota = quota_cores("/proc/self/cgroup", "/sys/fs/cgroup");
  return quota > 0 && quota < cores ? quota : cores;
}

}  // namespace evn::os
