// Clock, environment, libraries and memory of a Linux machine.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

#include "base/fault.h"
#include "base/os/os.h"

namespace evn::os {

std::string environment(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::uint64_t now_ns() noexcept {
  struct timespec t = {};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

void* open_library(const char* name, std::string* why) {
  if (fault_hit(Seam::kIo)) {
    *why = "the system refused the library";
    return nullptr;
  }
  void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    *why = reason == nullptr ? "unknown reason" : reason;
  }
  return library;
}

void* find_symbol(void* library, const char* name) noexcept { return ::dlsym(library, name); }

void close_library(void* library) noexcept {
  if (library != nullptr) ::dlclose(library);
}

std::string own_folder() {
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

std::uint64_t physical_memory_bytes() noexcept {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) : 0;
}

}  // namespace evn::os
