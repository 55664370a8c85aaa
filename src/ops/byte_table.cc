// ByteTable: y = table[x], where the bits of an element of x count as a number of 0 to 255. Of the domain of our own: what is left
// of element-wise functions between a DequantizeLinear and a QuantizeLinear (graph/passes/fuse_byte_tables). dtypes: x and the
// table int8 or uint8; y is of the table's. Failures: a table that has not 256 elements. Exact.
#include "ops/byte_table.h"

#include "ops/infra/quantized.h"
#include "ops/merge.h"

namespace evn {
namespace {

DType table_dtype(const Node&, std::span<const DType> inputs, int) { return inputs[1]; }

void infer(InferContext& c) {
  require_dtype(c, 1, kByteDtypes);
  require_vector(c, 1, kByteTableSize);
  infer_same_shape(c);
}

void reference(const ReferenceContext& c) {
  const auto* x = c.input(0).as<std::uint8_t>();
  const auto* table = c.input(1).as<std::uint8_t>();
  for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) {
    cancellation_point();
    c.output().as<std::uint8_t>()[i] = table[x[i]];
  }
}

constexpr OpDef kOps[] = {
    {.name = kByteTable,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kByteDtypes,
     .flags = kOpElementwise,
     .output_dtype = table_dtype,
     .infer = infer,
     .reference = reference},
};

}  // namespace

extern const OpFamily byte_table_family;
const OpFamily byte_table_family = {kOps};

}  // namespace evn
