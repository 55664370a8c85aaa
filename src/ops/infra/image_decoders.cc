#include "ops/infra/image_decoders.h"

#include <atomic>
#include <mutex>

#include "base/mutex.h"
#include "base/os/os.h"

namespace evn {
namespace {

constexpr const char* kModule = "libevener_image.so";

struct ImageState {
  Mutex mutex;
  std::atomic<const evn_image_module_table*> table{nullptr};
};
constinit ImageState g_image;

}  // namespace

const evn_image_module_table* open_image_module(const std::string& path, std::string* why) {
  void* library = os::open_library(path.c_str(), why);
  if (library == nullptr) return nullptr;
  const auto open = reinterpret_cast<evn_image_module_function>(os::find_symbol(library, EVN_IMAGE_MODULE_SYMBOL));
  const evn_image_module_table* table = open == nullptr ? nullptr : open();
  if (table != nullptr && table->abi == EVN_IMAGE_MODULE_ABI) return table;
  *why = open == nullptr ? "it is no module of this library" : "it is of another version";
  os::close_library(library);
  return nullptr;
}

const evn_image_module_table* image_module(std::string* why) {
  if (const auto* table = g_image.table.load(std::memory_order_acquire)) return table;
  const std::lock_guard<Mutex> lock(g_image.mutex);
  if (const auto* table = g_image.table.load(std::memory_order_relaxed)) return table;
  const std::string folder = os::own_folder();
  if (folder.empty()) *why = "the folder of this library is not known";
  const evn_image_module_table* table = folder.empty() ? nullptr : open_image_module(folder + kModule, why);
  g_image.table.store(table, std::memory_order_release);
  return table;
}

}  // namespace evn
