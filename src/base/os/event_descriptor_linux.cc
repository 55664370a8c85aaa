// Event descriptors by eventfd.
#include "base/os/event_descriptor.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/error.h"
#include "base/fault.h"
#include "base/os/files_linux.h"

namespace evn::os {

int make_event_descriptor() {
  const int fd = fault_hit(Seam::kIo) ? (errno = EMFILE, -1) : ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) fail(EVN_ERROR_LIMIT, "the system refused a descriptor: %s", system_reason(errno).c_str());
  return fd;
}

void close_event_descriptor(int descriptor) noexcept {
  if (descriptor >= 0) ::close(descriptor);
}

void set_event_descriptor(int descriptor, bool readable) noexcept {
  if (descriptor < 0) return;
  std::uint64_t count = 1;
  if (readable) {
    (void)!::write(descriptor, &count, sizeof count);
  } else {
    (void)!::read(descriptor, &count, sizeof count);
  }
}

}  // namespace evn::os
