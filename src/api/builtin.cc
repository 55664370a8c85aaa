#include "api/builtin.h"

namespace evn {

extern const Backend cpu_backend;
extern const Backend opencl_backend;

std::span<const Backend* const> builtin_backends() {
  static constexpr const Backend* kBackends[] = {&cpu_backend, &opencl_backend};
  return kBackends;
}

}  // namespace evn
