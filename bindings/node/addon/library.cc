// Opens the library: no symbol of it is linked, and only the table that fits these headers is called.
#include <dlfcn.h>

#include <mutex>

#include "instance.h"
#include "raw_layouts.h"

namespace evn_node {
namespace {

std::mutex mutex;             // of the two below: environments are threads
std::string opened_path;      // the one that is open
const evn_api* opened_table;  // NULL: none is

std::string Dotted(uint32_t version) {
  return std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 255) + "." + std::to_string(version & 255);
}

std::string Reason() {
  const char* text = dlerror();
  return text == nullptr ? "the loader does not say why" : text;
}

}  // namespace

// It stays open until the process ends: objects and threads of it may be anywhere.
const evn_api* OpenLibrary(Instance& instance, const std::string& path) {
  std::lock_guard<std::mutex> lock(mutex);
  if (opened_table != nullptr) {
    if (opened_path == path) return opened_table;
    if (instance.api == nullptr) instance.api = opened_table;  // whose names of statuses the error has
    Throw(instance, EVN_ERROR_WRONG_STATE,
          "the library " + opened_path + " is open in this process already, and cannot be " + path);
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Throw(instance, EVN_ERROR_IO, "the Evener library cannot be opened: " + Reason());
  auto get_api = reinterpret_cast<decltype(&evn_get_api)>(dlsym(library, "evn_get_api"));
  if (get_api == nullptr) {
    const std::string reason = Reason();
    dlclose(library);
    Throw(instance, EVN_ERROR_VERSION, path + " is no Evener library of version 0.2 or later: " + reason);
  }
  const evn_api* table = nullptr;
  uint32_t found = 0;
  const bool fits = get_api(EVN_VERSION_NUMBER, &table) == EVN_OK && table != nullptr;
  if (fits && table->struct_size >= sizeof(evn_api)) {
    char reason[256];
    if (!evn_node_compare_layouts(table->abi_layout, reason, sizeof(reason))) {
      dlclose(library);
      Throw(instance, EVN_ERROR_VERSION, path + " does not fit this package: " + reason);
    }
    opened_path = path;
    return opened_table = table;
  }
  // Only the head may be read of a table that is not whole.
  if (fits) {
    found = table->api_version;
  } else if (auto number = reinterpret_cast<decltype(&evn_version_number)>(dlsym(library, "evn_version_number"))) {
    found = number();
  }
  dlclose(library);
  Throw(instance, EVN_ERROR_VERSION,
        path + " does not fit this package: expected ABI " + Dotted(EVN_VERSION_NUMBER) + ", found " + Dotted(found));
}

}  // namespace evn_node
