#include "backends/cpu/gemm/blas.h"

#include <atomic>
#include <mutex>

#include "backends/cpu/isa.h"
#include "base/mutex.h"
#include "base/os/os.h"

namespace evn {
namespace {

constexpr const char* kModule = "libevener_openblas.so";

struct BlasState {
  Mutex mutex;
  std::atomic<const evn_blas_module_table*> table{nullptr};
};
constinit BlasState g_blas;

// OpenBLAS knows CPUs by model numbers, and takes one that it does not know for an older one; CPUID bits decide here.
const char* core_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::k_avx512) return "SkylakeX";
  if (isa == Isa::k_avx2) return "Haswell";
  return "Prescott";
#else
  static_cast<void>(isa);
  return nullptr;
#endif
}

}  // namespace

const evn_blas_module_table* open_blas_module(const std::string& path, std::string* why) {
  void* library = os::open_library(path.c_str(), why);
  if (library == nullptr) return nullptr;
  const auto open = reinterpret_cast<evn_blas_module_function>(os::find_symbol(library, EVN_BLAS_MODULE_SYMBOL));
  const evn_blas_module_table* table = open == nullptr ? nullptr : open(core_of(cpu_isa()));
  if (table != nullptr && table->abi == EVN_BLAS_MODULE_ABI) return table;
  *why = open == nullptr ? "it is no module of this library" : table == nullptr ? "no memory" : "it is of another version";
  os::close_library(library);
  return nullptr;
}

namespace {

const evn_blas_module_table* find_module(std::string* why) {
  if (const auto* table = g_blas.table.load(std::memory_order_acquire)) return table;
  const std::lock_guard<Mutex> lock(g_blas.mutex);
  if (const auto* table = g_blas.table.load(std::memory_order_relaxed)) return table;
  const std::string folder = os::own_folder();
  if (folder.empty()) *why = "the folder of this library is not known";
  const evn_blas_module_table* table = folder.empty() ? nullptr : open_blas_module(folder + kModule, why);
  g_blas.table.store(table, std::memory_order_release);
  return table;
}

}  // namespace

const evn_blas_module_table* blas_module() {
  std::string why;
  return find_module(&why);
}

std::string blas_outlook() {
  std::string why;
  const evn_blas_module_table* table = find_module(&why);
  if (table == nullptr) return "OpenBLAS: no, " + why;
  return std::string("OpenBLAS: ") + (table->core != nullptr ? table->core : "yes") +
         (table->depth[0] == 0 || table->depth[1] == 0 ? "; its block size is unknown: a product is not cancelled within a tile"
                                                       : "");
}

}  // namespace evn
