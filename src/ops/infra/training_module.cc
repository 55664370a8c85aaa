#include "ops/infra/training_module.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>

#include "base/fault.h"
#include "base/heap.h"
#include "base/mutex.h"
#include "base/os/os.h"
#include "base/unwinder.h"

namespace evn {
namespace {

constexpr const char* kModule = "libevener_train.so";

struct TrainingModule {
  Mutex mutex;
  std::atomic<bool> was_tried{false};
  void* library = nullptr;  // these are written once, before was_tried
  char why[256] = "";
};
constinit TrainingModule g_module;

void open_module() {
  const std::string folder = os::own_folder();
  std::string why = "the folder of this library is not known";
  g_module.library = folder.empty() ? nullptr : os::open_library((folder + kModule).c_str(), &why);
  if (g_module.library != nullptr) {
    prepare_unwinder();
    const auto take = reinterpret_cast<void (*)(void*)>(os::find_symbol(g_module.library, EVN_FAULT_SEAMS_SYMBOL));
    if (take != nullptr) take(fault_seams());
    const auto use = reinterpret_cast<void (*)(HeapMeterOf)>(os::find_symbol(g_module.library, EVN_HEAP_METERS_SYMBOL));
    if (use != nullptr) use(heap_meters());
    return;
  }
  std::snprintf(g_module.why, sizeof g_module.why, "%s: %s", kModule, why.c_str());
}

}  // namespace

void* training_module_symbol(const char* name) {
  if (!g_module.was_tried.load(std::memory_order_acquire)) {
    const std::lock_guard<Mutex> lock(g_module.mutex);
    if (!g_module.was_tried.load(std::memory_order_relaxed)) {
      open_module();
      g_module.was_tried.store(true, std::memory_order_release);
    }
  }
  return g_module.library == nullptr ? nullptr : os::find_symbol(g_module.library, name);
}

const char* why_no_training_module() {
  return g_module.was_tried.load(std::memory_order_acquire) && g_module.why[0] != '\0' ? g_module.why : nullptr;
}

}  // namespace evn
