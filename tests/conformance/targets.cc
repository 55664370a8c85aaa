#include "tests/conformance/targets.h"

#include <cstdlib>

#include "api/builtin.h"
#include "backends/cpu/gemm/blas.h"
#include "base/error.h"
#include "tests/backends/mock/mock.h"

namespace evn {
extern const Backend cpu_backend;
}  // namespace evn

namespace evn::conformance {
namespace {

struct Opened {
  std::vector<Target> targets;
  std::vector<Absent> absent;
};

// `kernels`: of OpenCL devices, those that are not the device's own kind as well.
void open_one(const Backend& backend, Opened* all, const char* kernels = nullptr) {
  DeviceRequest request;
  if (kernels != nullptr) request.settings.set_text("kernels", kernels);
  request.name = backend.type.name;
  request.settings.set_number("threads", 2);
  request.settings.set_text("clblast", "never");  // its kernels take products by their size, not by rank; ClBlastTest runs them
  try {
    const std::shared_ptr<Device> device = backend.open(request);
    if (&backend != &cpu_backend) {
      const std::string variant = kernels != nullptr ? std::string(" for a ") + kernels : "";
      all->targets.push_back({backend.type.name + variant, device, {}});
      return;
    }
    for (const Isa isa : isas()) {
      const test::ForcedIsa forced(isa);
      if (integer_isa() == isa) all->targets.push_back({std::string("cpu ") + isa_name(isa), device, isa});
      // The baseline is what bfloat16_isa() says where there are no such products.
      const bool has_bfloat16 = bfloat16_isa() == isa && cluster_of(isa) != isa;
      if (cluster_of(isa) == isa && blas_module() != nullptr && blas_module()->row_groups[1] != 0)
        all->targets.push_back(
            {std::string("cpu openblas ") + isa_name(isa), device, isa, Precision::kFloat32, Products::kOpenBlas});
      if (has_bfloat16) all->targets.push_back({std::string("cpu bf16 ") + isa_name(isa), device, isa, Precision::kBfloat16});
    }
  } catch (const Error& e) {
    all->absent.push_back({backend.type.name, e.message});
  }
}

const Opened& opened() {
  static const Opened* all = [] {
    auto* o = new Opened;
    for (const Backend* backend : builtin_backends()) {
      open_one(*backend, o);
      // Once is enough: not in the runs that are for an instruction set of the CPU's.
      if (std::string(backend->type.name) == "opencl" && std::getenv("EVN_CPU_ISA") == nullptr) open_one(*backend, o, "gpu");
    }
    open_one(mock_backend, o);
    return o;
  }();
  return *all;
}

}  // namespace

std::shared_ptr<Device> open_cpu(int threads) {
  DeviceRequest request;
  request.name = "cpu";
  request.settings.set_number("threads", static_cast<std::uint64_t>(threads));
  std::shared_ptr<Device> device = cpu_backend.open(request);
  return device;
}

const std::vector<Target>& targets() { return opened().targets; }
const std::vector<Absent>& absent_backends() { return opened().absent; }

bool devices_are_required() {
  const char* required = std::getenv("EVN_REQUIRE_OPENCL");
  return required != nullptr && std::string(required) == "1";
}

std::vector<Isa> isas() {
  // With EVN_CPU_ISA only the cluster that the device itself chooses. Asked first before any test forces another.
  static const Isa chosen = integer_isa();
  if (const char* name = std::getenv("EVN_CPU_ISA"); name != nullptr && name[0] != '\0') return {chosen};
  return test::available_isas(true);
}

}  // namespace evn::conformance
