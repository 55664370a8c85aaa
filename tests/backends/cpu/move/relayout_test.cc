// Re-layouts between plain and channels last, against moving one element after the other.
#include "backends/cpu/move/transpose_loops.h"
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

Bytes numbered(std::int64_t count, std::size_t element) {
  Bytes bytes(static_cast<std::size_t>(count) * element);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t words[] = {i, ~i};  // the second one for elements of 16 bytes
    std::memcpy(&bytes[static_cast<std::size_t>(i) * element], words, element);
  }
  return bytes;
}

Bytes expected_last(const Bytes& x, const Shape& s, std::size_t element) {
  const std::int64_t positions = s.elements(2, s.rank());
  Bytes y(x.size());
  for (std::int64_t n = 0; n < s[0]; ++n) {
    for (std::int64_t c = 0; c < s[1]; ++c) {
      for (std::int64_t p = 0; p < positions; ++p) {
        const std::int64_t from = (n * s[1] + c) * positions + p;
        const std::int64_t to = (n * positions + p) * s[1] + c;
        std::memcpy(&y[static_cast<std::size_t>(to) * element], &x[static_cast<std::size_t>(from) * element], element);
      }
    }
  }
  return y;
}

Bytes relayout(const TensorDesc& desc, Bytes x, Layout to) {
  const std::shared_ptr<Device> device = cpu_device(3);
  const Kernel& kernel = *device->relayout_kernel();
  const Layout layouts[] = {to == Layout::kPlain ? Layout::kChannelsLast : Layout::kPlain, to};
  const OpDesc d{nullptr, {&desc, 1}, {&desc, 1}, {}, layouts};
  KernelPlan plan;
  kernel.plan(d, &plan);
  Bytes y(x.size(), '\x55');
  const Buffer in{x.data(), 0, x.size()}, out{y.data(), 0, y.size()};
  KernelArgs args;
  args.desc = &d;
  args.plan = &plan;
  args.inputs = {&in, 1};
  args.outputs = {&out, 1};
  const Cancel never{};
  device->wait(device->enqueue({&kernel, args, &never}, {}));
  return y;
}

TEST(CpuRelayout, MovesEveryElementToItsPlaceAndBack) {
  const Shape shapes[] = {{1, 3, 50, 40}, {2, 3, 7, 5},    {1, 16, 8, 8}, {2, 17, 9, 15},  {1, 40, 31, 33}, {1, 5, 1, 1},
                          {3, 1, 4, 4},   {1, 64, 70, 65}, {2, 24, 100},  {1, 2, 3, 4, 5}, {1, 130, 16, 1}, {1, 4, 200, 200}};
  for (const Isa isa : available_isas()) {
    const ForcedIsa forced(isa);
    for (const Shape& shape : shapes) {
      for (const DType dtype : {DType::kFloat32, DType::kUint8, DType::kInt16, DType::kInt64, DType::kComplex128}) {
        const Bytes plain = numbered(shape.elements(), dtype_size(dtype));
        const Bytes last = relayout({dtype, shape}, plain, Layout::kChannelsLast);
        EXPECT_TRUE(last == expected_last(plain, shape, dtype_size(dtype)))
            << shape.to_string() << " to channels last, " << isa_name(isa);
        EXPECT_TRUE(relayout({dtype, shape}, last, Layout::kPlain) == plain) << shape.to_string() << " to plain, " << isa_name(isa);
      }
    }
  }
}

// Columns of another length than the matrix is high: what lies between them stays as it is.
TEST(CpuTranspose, WritesNothingBetweenTheColumns) {
  for (const Isa isa : available_isas()) {
    for (const std::int64_t rows : {1, 2, 3, 8, 15, 16, 17, 40}) {
      for (const std::int64_t columns : {1, 7, 16, 50, 65}) {
        for (const std::int64_t gap : {0, 5}) {
          const std::int64_t x_step = columns + 3, y_step = rows + gap;
          std::vector<float> x(static_cast<std::size_t>(rows * x_step - 3)),
              y(static_cast<std::size_t>(columns * y_step - gap), -1.0f);
          for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
          simd_transpose::loops(isa).transpose(x.data(), x_step, rows, columns, y.data(), y_step);
          for (std::size_t at = 0; at < y.size(); ++at) {
            const std::int64_t i = static_cast<std::int64_t>(at) % y_step, j = static_cast<std::int64_t>(at) / y_step;
            ASSERT_EQ(y[at], i < rows ? static_cast<float>(i * x_step + j) : -1.0f)
                << rows << " x " << columns << ", " << isa_name(isa);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace evn::test
