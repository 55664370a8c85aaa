#include "backends/cpu/float_mode.h"

#include "backends/cpu/cascade.h"
#include "backends/cpu/reference.h"

namespace evn {

#if defined(__x86_64__)
namespace {

// Bits of MXCSR (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 10.2.3).
constexpr unsigned int kNoExceptions = 0x1f80;
constexpr unsigned int kFlushResults = 0x8000;
constexpr unsigned int kInputsAreZero = 0x0040;
constexpr unsigned int kExceptionFlags = 0x003f;

bool multiplies_by_constants(const Kernel& kernel) { return kernel.prepack_bytes != nullptr || &kernel == &cpu_cascades.kernel; }

}  // namespace

FloatMode::FloatMode(const Kernel& kernel, bool strict) noexcept {
  unsigned int wanted = kNoExceptions;
  if (!strict && &kernel != &cpu_reference_kernel) wanted |= kFlushResults;
  if (!strict && multiplies_by_constants(kernel)) wanted |= kInputsAreZero;
  before_ = __builtin_ia32_stmxcsr();
  if ((before_ & ~kExceptionFlags) == wanted) return;
  __builtin_ia32_ldmxcsr(wanted);
  changed_ = true;
}

FloatMode::~FloatMode() {
  if (changed_) __builtin_ia32_ldmxcsr(before_);
}
#else
// Other processors take such floats as fast as any.
FloatMode::FloatMode(const Kernel&, bool) noexcept {}
FloatMode::~FloatMode() {}
#endif

}  // namespace evn
