// Prints the operator tables of the library as JSON: each version of each operator with arity, attributes, dtypes, tolerance, and
// the names of the kernels that backends have for it. scripts/make_operators.py and tests/models/differential read it. With
// --kernels: all kernels of the CPU, to what they round the operands of products, and whether this CPU and build have what they
// need (EVN_CPU_ISA counts). tests/models/test_kernels.py reads it.
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "backends/cpu/gemm/blas.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/kernel_table.h"
#include "backends/cpu/qgemm/qgemm_loops.h"
#include "backends/opencl/kernel_table.h"
#include "device/backend.h"
#include "device/cascade.h"
#include "device/kernel.h"
#include "ops/op.h"

namespace evn {

extern const Backend cpu_backend;

namespace {

using Families = std::span<const KernelFamily* const>;

void print_dtypes(std::uint32_t set) {
  const char* separator = "";
  for (int bit = 0; bit < 32; ++bit) {
    if ((set >> bit & 1u) == 0) continue;
    std::printf("%s\"%s\"", separator, dtype_name(static_cast<DType>(bit)));
    separator = ", ";
  }
}

void print_kernels(const char* backend, Families families, const OpDef& op) {
  std::printf("\"%s\": [", backend);
  const char* separator = "";
  for (const KernelFamily* family : families) {
    for (const Kernel& kernel : family->kernels) {
      if (std::string(kernel.op) != op.name || std::string(kernel.domain) != op.domain) continue;
      std::printf("%s\"%s\"", separator, kernel.name);
      separator = ", ";
    }
  }
  std::printf("]");
}

void print_attributes(const OpDef& op) {
  const char* separator = "";
  for (const AttributeSpec& attribute : op.attributes) {
    std::printf("%s\"%s\"", separator, attribute.name);
    separator = ", ";
  }
}

void print_operator(const OpDef& op) {
  std::printf("{\"domain\": \"%s\", \"name\": \"%s\", \"since\": %d, \"inputs\": [%d, %d], \"outputs\": [%d, %d], ", op.domain,
              op.name, op.since, op.min_inputs, op.max_inputs, op.min_outputs, op.max_outputs);
  std::printf("\"merge\": %s, \"host\": %s, \"rtol\": %g, \"atol\": %g, \"dtypes\": [",
              (op.flags & kOpMerge) != 0 ? "true" : "false", op.host != nullptr ? "true" : "false", op.tolerance.rtol,
              op.tolerance.atol);
  print_dtypes(op.dtypes);
  std::printf("], \"attributes\": [");
  print_attributes(op);
  std::printf("], \"kernels\": {");
  print_kernels("cpu", cpu_kernel_families(), op);
  std::printf(", ");
  print_kernels("opencl", opencl_kernel_families(), op);
  std::printf("}}");
}

// What kernels' `supports` ask of the CPU or the build before they look at a node.
bool has_what_it_needs(const Device& cpu, const Kernel& kernel) {
  const std::string_view name = kernel.name;
  std::string why;
  if (kernel.operands != Precision::kFloat32) return cpu.lowest_precision(kernel.operands, &why) == kernel.operands;
  if (name == "matmul_openblas" || name == "gemm_openblas") return blas_module() != nullptr;
  if (name == "qlinear_conv_winograd") return simd_qgemm::loops(integer_isa()).winograd != nullptr;
  if (name == "qlinear_conv_depthwise_planes") return isa_includes(integer_isa(), Isa::k_avx512_vnni);
  return true;
}

void print_cpu_kernel_families() {
  DeviceRequest request;
  request.name = "cpu";
  const std::shared_ptr<Device> cpu = cpu_backend.open(request);
  const char* separator = "[\n";
  const auto print = [&](const Kernel& kernel) {
    std::printf("%s{\"name\": \"%s\", \"operator\": \"%s\", \"domain\": \"%s\", \"operands\": \"%s\", \"available\": %s}",
                separator, kernel.name, kernel.op, kernel.domain, precision_name(kernel.operands),
                has_what_it_needs(*cpu, kernel) ? "true" : "false");
    separator = ",\n";
  };
  for (const KernelFamily* family : cpu->kernels()) {
    for (const Kernel& kernel : family->kernels) print(kernel);
  }
  print(cpu->cascades()->kernel);
  std::printf("\n]\n");
}

}  // namespace
}  // namespace evn

int main(int count, char** arguments) {
  if (count == 2 && std::strcmp(arguments[1], "--kernels") == 0) {
    evn::print_cpu_kernel_families();
    return 0;
  }
  const char* separator = "[\n";
  for (const evn::OpFamily* family : evn::op_families()) {
    for (const evn::OpDef& op : family->ops) {
      std::printf("%s", separator);
      evn::print_operator(op);
      separator = ",\n";
    }
  }
  std::printf("\n]\n");
  return 0;
}
