#include "backends/opencl/clblast_library.h"

#include <atomic>
#include <mutex>

#include "base/mutex.h"
#include "base/os/os.h"

namespace evn {
namespace {

struct LibraryState {
  Mutex mutex;
  std::atomic<bool> open{false};
  ClBlastApi api{};
};
constinit LibraryState g_library;

}  // namespace

bool open_clblast_library(const char* name, ClBlastApi* api, std::string* why) {
  std::string reason;
  void* library = fault_hit(Seam::kDevice) ? nullptr : os::open_library(name, &reason);
  if (library == nullptr) {
    *why = std::string(name) + " cannot be opened: " + (reason.empty() ? "the system refused" : reason);
    return false;
  }
  api->sgemm = reinterpret_cast<decltype(api->sgemm)>(os::find_symbol(library, "CLBlastSgemmWithTempBuffer"));
  api->temp_bytes = reinterpret_cast<decltype(api->temp_bytes)>(os::find_symbol(library, "CLBlastSGemmTempBufferSize"));
  if (api->sgemm != nullptr && api->temp_bytes != nullptr) return true;
  os::close_library(library);
  *why = std::string(name) + " is no CLBlast of version 1.5 or later";
  return false;
}

const ClBlastApi* clblast_api(std::string* why) {
  if (g_library.open.load(std::memory_order_acquire)) return &g_library.api;
  const std::lock_guard<Mutex> lock(g_library.mutex);
  if (g_library.open.load(std::memory_order_relaxed)) return &g_library.api;
  if (!open_clblast_library("libclblast.so.1", &g_library.api, why)) return nullptr;
  g_library.open.store(true, std::memory_order_release);
  return &g_library.api;
}

}  // namespace evn
