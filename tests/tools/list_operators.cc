// Prints the operator tables of the library as JSON: each version of each operator with arity, attributes, dtypes, tolerance, and the
// names of the kernels that backends have for it. scripts/make_operators.py and tests/models/differential read it.
#include <cstdio>
#include <string>

#include "device/kernel.h"
#include "ops/op.h"

namespace evn {

std::span<const KernelFamily* const> cpu_kernel_families();
std::span<const KernelFamily* const> opencl_kernel_families();

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
  std::printf("{\"domain\": \"%s\", \"name\": \"%s\", \"since\": %d, \"inputs\": [%d, %d], \"outputs\": [%d, %d], ", op.domain, op.name,
              op.since, op.min_inputs, op.max_inputs, op.min_outputs, op.max_outputs);
  std::printf("\"merge\": %s, \"rtol\": %g, \"atol\": %g, \"dtypes\": [", (op.flags & kOpMerge) != 0 ? "true" : "false",
              op.tolerance.rtol, op.tolerance.atol);
  print_dtypes(op.dtypes);
  std::printf("], \"attributes\": [");
  print_attributes(op);
  std::printf("], \"kernels\": {");
  print_kernels("cpu", cpu_kernel_families(), op);
  std::printf(", ");
  print_kernels("opencl", opencl_kernel_families(), op);
  std::printf("}}");
}

}  // namespace
}  // namespace evn

int main() {
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
