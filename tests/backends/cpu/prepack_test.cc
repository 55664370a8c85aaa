// Constants that are packed some rows at a time, by several threads, in any order: bit for bit as all at once.
#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string>

#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

constexpr const char* kBlocks = "com.microsoft::MatMulNBits";

struct PartsCase {
  std::string op;
  Shape x;
  std::vector<Shape> weights;
  std::vector<Attribute> attributes = {};
};

KernelSubject subject_of(const PartsCase& c) {
  KernelSubject s;
  add_operand(&s, {DType::kFloat32, c.x}, Bytes(TensorDesc{DType::kFloat32, c.x}.size_bytes()), false);
  Random random(7);
  for (const Shape& weight : c.weights) {
    if (weight.rank() == 3 && c.op == kBlocks) {  // elements of 4 or 8 bits
      Bytes bytes(static_cast<std::size_t>(weight.elements()));
      for (char& b : bytes) b = static_cast<char>(random.next() >> 24);
      add_operand(&s, {DType::kUint8, weight}, std::move(bytes), true);
      continue;
    }
    std::vector<float> values(static_cast<std::size_t>(weight.elements()));
    for (float& v : values) v = random.uniform(-1, 1);
    const auto* const bytes = reinterpret_cast<const char*>(values.data());
    add_operand(&s, {DType::kFloat32, weight}, Bytes(bytes, bytes + values.size() * sizeof(float)), true);
  }
  finish_subject(&s, c.op, 13, c.attributes, 1, {});
  return s;
}

// Blocks differ before, so that what is not written differs after.
void expect_same(const Kernel& kernel, const KernelSubject& s, int input) {
  const OpDesc d = s.desc();
  const std::size_t bytes = kernel.prepack_bytes(d, input);
  Bytes whole(bytes, '\0');
  kernel.prepack(d, input, whole.data());
  const Bytes& values = s.values[static_cast<std::size_t>(input)];
  const std::int64_t rows = kernel.prepack_parts.rows(*d.constant(input)), step = kernel.prepack_parts.step(d, input);
  const std::size_t row = values.size() / static_cast<std::size_t>(rows);
  ASSERT_TRUE(step > 0 || input > 1);  // a kernel with parts has them of its first weight; others may be packed as a whole
  if (step == 0) return;
  for (const std::int64_t steps : {1, 2, 5, 1000}) {
    Bytes parts(bytes, '\xff');
    for (std::int64_t begin = (rows - 1) / (steps * step) * steps * step; begin >= 0; begin -= steps * step) {
      const std::int64_t end = std::min(begin + steps * step, rows);
      const auto from = values.begin();
      const Bytes some(from + static_cast<std::ptrdiff_t>(row) * begin, from + static_cast<std::ptrdiff_t>(row) * end);
      kernel.prepack_parts.run(d, input, some.data(), begin, end, parts.data());
    }
    EXPECT_TRUE(parts == whole) << kernel.name << ", " << d.inputs[input].shape.to_string() << ", parts of " << steps * step
                                << " rows";
  }
}

std::vector<PartsCase> cases() {
  std::vector<PartsCase> all;
  for (const std::int64_t n : {1, 15, 16, 33, 64, 130, 201}) {
    for (const std::int64_t k : {1, 7, 32, 70}) {
      all.push_back({"MatMul", {3, k}, {{k, n}}});
      all.push_back({"Gemm", {3, k}, {{k, n}}, {{"alpha", 0.3f}}});
      all.push_back({"Gemm", {3, k}, {{n, k}}, {{"transB", std::int64_t{1}}, {"alpha", 0.3f}}});
      all.push_back({"Conv", {1, k, 6, 5}, {{n, k, 1, 1}}});
      all.push_back({"Conv", {1, k, 15, 17}, {{n, k, 3, 3}}, {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}}});
      all.push_back({"Conv", {1, 3 * k, 9}, {{3 * n, k, 5}}, {{"group", std::int64_t{3}}}});
    }
  }
  for (const auto& [groups, in, out] : {std::array<std::int64_t, 3>{3, 16, 16}, {2, 20, 33}, {4, 8, 16}, {6, 7, 8}}) {
    all.push_back({"Conv", {1, groups * in, 6, 5}, {{groups * out, in, 3, 3}}, {{"group", groups}}});
  }
  all.push_back(
      {"Conv", {1, 256, 7, 9}, {{257, 256, 3, 3}}, {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}}});  // Winograd's small tiles
  for (const std::int64_t n : {1, 16, 64, 130, 201}) {
    for (const std::int64_t k : {7, 33, 70}) {
      for (const std::int64_t bits : {4, 8}) {
        const std::int64_t blocks = (k + 15) / 16;
        for (const std::int64_t level : {0, 4}) {
          all.push_back({kBlocks,
                         {3, k},
                         {{n, blocks, 2 * bits}, {n, blocks}},
                         {{"K", k}, {"N", n}, {"bits", bits}, {"block_size", std::int64_t{16}}, {"accuracy_level", level}}});
        }
      }
    }
  }
  for (const std::int64_t hidden : {1, 16, 20, 48, 80}) {
    for (const auto& [op, gates] : {std::pair<const char*, std::int64_t>{"LSTM", 4}, {"GRU", 3}, {"RNN", 1}}) {
      for (const std::int64_t directions : {1, 2}) {
        all.push_back({op,
                       {3, 1, 7},
                       {{directions, gates * hidden, 7}, {directions, gates * hidden, hidden}},
                       {{"hidden_size", hidden}, {"direction", std::string(directions == 2 ? "bidirectional" : "forward")}}});
      }
    }
  }
  return all;
}

// What products round their operands to on an extension that has products of such; elsewhere nothing.
Precision precision_on(Isa isa) {
  if (cluster_of(isa) == isa) return Precision::kFloat32;  // what the next two say where there is none, too
  if (float16_isa() == isa) return Precision::kFloat16;
  return bfloat16_isa() == isa ? Precision::kBfloat16 : Precision::kFloat32;
}

TEST(CpuPrepack, PartsMakeWhatTheWholeMakes) {
  std::set<std::string> with_parts, seen;
  for (const Isa isa : available_isas(true)) {
    const ForcedIsa forced(isa);
    const Precision precision = precision_on(isa);
    if (cluster_of(isa) != isa && precision == Precision::kFloat32) continue;
    SCOPED_TRACE(isa_name(isa));
    const std::shared_ptr<Device> device = cpu_device(1);
    for (const KernelFamily* family : device->kernels()) {
      for (const Kernel& k : family->kernels) {
        if (k.prepack_parts.run != nullptr && k.operands == precision) with_parts.insert(k.name);
      }
    }
    for (const PartsCase& c : cases()) {
      KernelSubject s = subject_of(c);
      s.precision = precision;
      for (const Kernel* kernel : supporting_kernels(*device, s.desc())) {
        if (kernel->prepack_parts.run == nullptr) continue;
        seen.insert(kernel->name);
        for (int input = 1; input <= static_cast<int>(c.weights.size()); ++input) expect_same(*kernel, s, input);
      }
    }
  }
  EXPECT_EQ(seen, with_parts);
  EXPECT_GE(seen.size(), 8u);
}

// The packed copy says so in its first word. Instruction sets without a conversion keep float32.
TEST(CpuPrepack, ScalesThatFloat16HoldsExactlyArePackedAsFloat16) {
  const PartsCase c = {kBlocks,
                       {3, 70},
                       {{33, 5, 8}, {33, 5}},
                       {{"K", std::int64_t{70}},
                        {"N", std::int64_t{33}},
                        {"bits", std::int64_t{4}},
                        {"block_size", std::int64_t{16}},
                        {"accuracy_level", std::int64_t{4}}}};
  constexpr int kScales = 2;
  for (const Isa isa : available_isas(true)) {
    const ForcedIsa forced(isa);
    SCOPED_TRACE(isa_name(isa));
    const std::shared_ptr<Device> device = cpu_device(1);
    for (const bool exact : {false, true}) {
      KernelSubject s = subject_of(c);
      if (exact) {
        std::vector<float> scales(33 * 5);
        for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<float>(i + 1) * 0x1p-12f;
        const auto* const bytes = reinterpret_cast<const char*>(scales.data());
        s.values[kScales] = Bytes(bytes, bytes + scales.size() * sizeof(float));
        s.constants[kScales] = copy_of(s.inputs[kScales], s.values[kScales]);
      }
      int found = 0;
      for (const Kernel* kernel : supporting_kernels(*device, s.desc())) {
        if (std::string(kernel->name) != "matmul_nbits_dot") continue;
        ++found;
        Bytes packed(kernel->prepack_bytes(s.desc(), kScales));
        kernel->prepack(s.desc(), kScales, packed.data());
        std::uint32_t are_halves = 2;
        std::memcpy(&are_halves, packed.data(), sizeof are_halves);
        EXPECT_EQ(are_halves, exact && isa != Isa::k_baseline ? 1u : 0u);
      }
      EXPECT_EQ(found, 1);
    }
  }
}

}  // namespace
}  // namespace evn::test
