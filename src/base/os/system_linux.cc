// Clock, environment, libraries and memory of a Linux machine.
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/fault.h"
#include "base/os/os.h"

namespace evn::os {

std::string environment(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

namespace {

std::uint64_t read_clock(clockid_t clock) noexcept {
  struct timespec t = {};
  ::clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace

std::uint64_t now_ns() noexcept { return read_clock(CLOCK_MONOTONIC); }

std::uint64_t thread_time_ns() noexcept { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

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

void* reference_own_library() noexcept {
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<const void*>(&reference_own_library), &info) == 0 || info.dli_fname == nullptr) return nullptr;
  return ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

std::string own_folder() {
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

namespace {

// The note of the GNU linker that is called so; nullptr where [at, end) holds none.
const ElfW(Nhdr) * find_build_id(const char* at, const char* end) {
  while (end - at >= static_cast<std::ptrdiff_t>(sizeof(ElfW(Nhdr)))) {
    const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
    if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && std::memcmp(note + 1, "GNU", 4) == 0) return note;
    const std::size_t bytes = sizeof *note + (note->n_namesz + 3u) / 4 * 4 + (note->n_descsz + 3u) / 4 * 4;
    if (bytes > static_cast<std::size_t>(end - at)) break;
    at += bytes;
  }
  return nullptr;
}

struct BuildId {
  char bytes[64];
  std::size_t size = 0;
};

// Called for each object of the process, until it returns other than 0.
int look_for_build_id(struct dl_phdr_info* object, std::size_t, void* result) {
  const auto here = reinterpret_cast<ElfW(Addr)>(&own_build_id);
  const ElfW(Phdr)* const end = object->dlpi_phdr + object->dlpi_phnum;
  bool ours = false;
  for (const ElfW(Phdr)* p = object->dlpi_phdr; p < end; ++p) {
    ours |= p->p_type == PT_LOAD && here - (object->dlpi_addr + p->p_vaddr) < p->p_memsz;
  }
  if (!ours) return 0;
  for (const ElfW(Phdr)* p = object->dlpi_phdr; p < end; ++p) {
    if (p->p_type != PT_NOTE) continue;
    const char* const notes = reinterpret_cast<const char*>(object->dlpi_addr + p->p_vaddr);
    const ElfW(Nhdr)* const note = find_build_id(notes, notes + p->p_memsz);
    if (note == nullptr) continue;
    auto* const id = static_cast<BuildId*>(result);
    id->size = std::min<std::size_t>(note->n_descsz, sizeof id->bytes);
    std::memcpy(id->bytes, reinterpret_cast<const char*>(note + 1) + 4, id->size);
    break;
  }
  return 1;
}

}  // namespace

std::string own_build_id() {
  BuildId id;
  ::dl_iterate_phdr(look_for_build_id, &id);
  return std::string(id.bytes, id.size);
}

void trim_allocator() noexcept {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
}

std::uint64_t physical_memory_bytes() noexcept {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) : 0;
}

}  // namespace evn::os
