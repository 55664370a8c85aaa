// Floating-point environment of the calling thread: rounding mode, traps, exception flags and the treatment of subnormal numbers.
// The library computes in the default environment of IEEE 754 (rounding to nearest, no trap), whatever the host has set.
#pragma once

#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <cfenv>
#endif

namespace evn {

// State of the control and status registers of one thread.
class FloatRegisters {
 public:
  // Reads the registers, and puts the default environment into them.
  void save_and_reset() noexcept;
  // Puts the saved state back, exception flags included.
  void restore() const noexcept;

 private:
#if defined(__x86_64__)
  // Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 8.1.5 (x87 control word) and 10.2.3 (MXCSR).
  static constexpr std::uint32_t kDefaultMxcsr = 0x1f80;
  static constexpr std::uint32_t kMxcsrFlags = 0x003f;
  static constexpr std::uint16_t kDefaultX87 = 0x037f;
  std::uint32_t mxcsr_;
  std::uint16_t x87_control_;
  unsigned char x87_[28];  // FSTENV; written only if the control word is not the default one
#elif defined(__aarch64__)
  std::uint64_t control_, status_;  // FPCR and FPSR
#else
  std::fenv_t all_;
#endif
};

#if defined(__x86_64__)
inline void FloatRegisters::save_and_reset() noexcept {
  mxcsr_ = __builtin_ia32_stmxcsr();
  if ((mxcsr_ & ~kMxcsrFlags) != kDefaultMxcsr) __builtin_ia32_ldmxcsr(kDefaultMxcsr);
  asm volatile("fnstcw %0" : "=m"(x87_control_));
  if (x87_control_ == kDefaultX87) return;
  asm volatile("fnstenv %0\n\tfldcw %1" : "=m"(x87_) : "m"(kDefaultX87) : "memory");
}

inline void FloatRegisters::restore() const noexcept {
  if (__builtin_ia32_stmxcsr() != mxcsr_) __builtin_ia32_ldmxcsr(mxcsr_);
  if (x87_control_ != kDefaultX87) asm volatile("fldenv %0" : : "m"(x87_));
}
#elif defined(__aarch64__)
inline void FloatRegisters::save_and_reset() noexcept {
  asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(control_), "=r"(status_));
  if (control_ != 0) asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
}

inline void FloatRegisters::restore() const noexcept {
  if (control_ != 0) asm volatile("msr fpcr, %0" : : "r"(control_));
  asm volatile("msr fpsr, %0" : : "r"(status_));
}
#else
inline void FloatRegisters::save_and_reset() noexcept {
  std::fegetenv(&all_);
  std::fesetenv(FE_DFL_ENV);
}

inline void FloatRegisters::restore() const noexcept { std::fesetenv(&all_); }
#endif

// While one lives the calling thread computes in the library's environment; the destructor restores the host's. One inside another,
// without a HostFloatEnvironment between them, changes nothing.
class LibraryFloatEnvironment {
 public:
  LibraryFloatEnvironment() noexcept : is_outermost_(t_hosts == nullptr) {
    if (!is_outermost_) return;
    hosts_.save_and_reset();
    t_hosts = &hosts_;
  }
  ~LibraryFloatEnvironment() {
    if (!is_outermost_) return;
    t_hosts = nullptr;
    hosts_.restore();
  }
  LibraryFloatEnvironment(const LibraryFloatEnvironment&) = delete;
  LibraryFloatEnvironment& operator=(const LibraryFloatEnvironment&) = delete;

 private:
  friend class HostFloatEnvironment;
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local FloatRegisters* t_hosts = nullptr;
  FloatRegisters hosts_;
  const bool is_outermost_;
};

// While one lives, during a callback, the environment of the host is in force, which is the default one on threads of the library.
// Changes that the callback makes to it are kept for the host.
class HostFloatEnvironment {
 public:
  HostFloatEnvironment() noexcept : hosts_(LibraryFloatEnvironment::t_hosts) {
    own_.save_and_reset();
    LibraryFloatEnvironment::t_hosts = nullptr;
    if (hosts_ != nullptr) hosts_->restore();
  }
  ~HostFloatEnvironment() {
    if (hosts_ != nullptr) hosts_->save_and_reset();
    LibraryFloatEnvironment::t_hosts = hosts_;
    own_.restore();
  }
  HostFloatEnvironment(const HostFloatEnvironment&) = delete;
  HostFloatEnvironment& operator=(const HostFloatEnvironment&) = delete;

 private:
  FloatRegisters* const hosts_;
  FloatRegisters own_;
};

}  // namespace evn
