// Strides, pads, planes and exponents beyond 32 bits, or beyond the whole numbers of float32, on the OpenCL backend. A kernel
// either gives what the reference gives, or refuses the node before anything is enqueued.
#include "tests/backends/opencl/opencl_test.h"
#include "tests/support/kernel_run.h"

namespace evn::test {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kLargestInt = 2147483647;

struct Operand {
  TensorDesc desc;
  Bytes value;
  bool constant = false;
};

// `value` may be left out if the node is only planned.
Operand unread(const Shape& shape, DType dtype = DType::kFloat32) { return {{dtype, shape}, {}}; }

template <typename T>
Operand constant_of(const Shape& shape, const std::vector<T>& values) {
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return {{kDTypeOf<T>, shape}, Bytes(bytes, bytes + values.size() * sizeof(T)), true};
}

Operand drawn(const Shape& shape, DType dtype = DType::kFloat32) {
  Random random(static_cast<std::uint64_t>(shape.elements()));
  Operand o = unread(shape, dtype);
  o.value.resize(o.desc.size_bytes());
  if (dtype == DType::kFloat32) {
    const FloatTensor floats = random_floats(shape, random.next());
    std::memcpy(o.value.data(), floats.data.data(), o.value.size());
  } else {
    for (char& byte : o.value) byte = static_cast<char>(random.next() >> 40);
  }
  return o;
}

Operand drawn_constant(const Shape& shape, DType dtype = DType::kFloat32) {
  Operand o = drawn(shape, dtype);
  o.constant = true;
  return o;
}

KernelSubject subject_of(const std::string& op, int opset, std::vector<Operand> operands, const std::vector<Attribute>& attributes,
                         int outputs = 1) {
  KernelSubject s;
  for (Operand& o : operands) add_operand(&s, o.desc, std::move(o.value), o.constant);
  finish_subject(&s, op, opset, attributes, outputs, {});
  return s;
}

const Kernel* kernel_named(const Device& device, const std::string& name) {
  for (const KernelFamily* family : device.kernels()) {
    for (const Kernel& kernel : family->kernels) {
      if (kernel.name == name) return &kernel;
    }
  }
  ADD_FAILURE() << "no kernel is named " << name;
  return nullptr;
}

bool takes(const KernelSubject& s, const std::string& name) {
  const Kernel* kernel = kernel_named(shared_device(), name);
  return kernel != nullptr && kernel->supports(s.desc()) == nullptr;
}

evn_status status_of_plan(const KernelSubject& s, const std::string& name) {
  const Kernel* kernel = kernel_named(shared_device(), name);
  KernelPlan plan;
  try {
    if (kernel != nullptr) kernel->plan(s.desc(), &plan);
  } catch (const Error& e) {
    return e.status;
  }
  return EVN_OK;
}

OpenClDevice& device_of_kind(const char* kernels) {
  const auto open = [](const char* kind) {
    DeviceRequest request;
    request.settings.set_text("kernels", kind);
    return new std::shared_ptr<OpenClDevice>(open_opencl(request));
  };
  static auto* const of_cpus = open("cpu");
  static auto* const of_gpus = open("gpu");
  return std::string(kernels) == "gpu" ? **of_gpus : **of_cpus;
}

void expect_reference(const KernelSubject& s, const std::string& name) {
  ASSERT_TRUE(takes(s, name)) << name;
  for (const char* kernels : {"cpu", "gpu"}) {
    SCOPED_TRACE(name + " by kernels for a " + kernels);
    OpenClDevice& device = device_of_kind(kernels);
    KernelRun run(device, *kernel_named(device, name), s);
    EXPECT_TRUE(outputs_near(s, run.run(), reference_result(s), tolerance_of(s.node)));
  }
}

// A tensor of bytes, its scale and its zero point.
std::vector<Operand> quantized(Operand bytes) {
  return {std::move(bytes), constant_of<float>({}, {0.02f}), constant_of<std::uint8_t>({}, {7})};
}

std::vector<Operand> joined(std::vector<Operand> a, const std::vector<Operand>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::vector<Operand> kQuantizedResult = {constant_of<float>({}, {0.013f}), constant_of<std::uint8_t>({}, {3})};

// Multiples of these strides come back into the row when they are cut to 32 bits: the 4th of the first, the 3rd of the second. A
// vector of the convolution is stored whole if rows follow, so that all its lanes are read.
TEST(OpenClLimits, StridesMayReachFarBeyondTheRow) {
  EVN_NEEDS_OPENCL();
  for (const std::int64_t stride : {std::int64_t{1} << 30, std::int64_t{1431655766}}) {
    SCOPED_TRACE(stride);
    const std::vector<Attribute> of_conv = {{"group", std::int64_t{2}}, {"strides", Ints{1, stride}}};
    const std::vector<Attribute> of_pool = {{"kernel_shape", Ints{1}}, {"strides", Ints{stride}}};
    expect_reference(subject_of("Conv", 11, {drawn({1, 2, 32, 8}), drawn_constant({2, 1, 1, 1}), drawn_constant({2})}, of_conv),
                     "conv_depthwise");
    const std::vector<Operand> x = quantized(drawn({1, 2, 1, 8}, DType::kUint8));
    const std::vector<Operand> w = quantized(drawn_constant({2, 1, 1, 1}, DType::kUint8));
    expect_reference(subject_of("QLinearConv", 10, joined(joined(x, w), kQuantizedResult), of_conv), "qlinear_conv_depthwise");
    for (const DType d : {DType::kUint8, DType::kInt8})
      expect_reference(subject_of("MaxPool", 12, {drawn({1, 3, 8}, d)}, of_pool), "max_pool_bytes");
    expect_reference(subject_of("com.microsoft::QLinearAveragePool", 1,
                                joined(quantized(drawn({1, 3, 8}, DType::kUint8)), kQuantizedResult), of_pool),
                     "qlinear_average_pool");
  }
}

TEST(OpenClLimits, TheGradientOfWeightsTakesStridesFarBeyondTheRow) {
  EVN_NEEDS_OPENCL();
  const std::vector<Attribute> attributes = {{"strides", Ints{kLargestInt}}, {"pads", Ints{0, kLargestInt}}};
  expect_reference(subject_of("evener::ConvWeightGradient", 1, {drawn({1, 1, 2}), drawn({1, 1, 8}), drawn({1, 1, 2})}, attributes),
                   "conv_weight_gradient");
}

// All taps of the only window lie in the pad.
TEST(OpenClLimits, PadsAndDilationsOfMaxPoolMayAddUpToMoreThan32Bits) {
  EVN_NEEDS_OPENCL();
  for (const std::int64_t dilation : {50, 42949673}) {
    SCOPED_TRACE(dilation);
    const std::vector<Attribute> attributes = {
        {"kernel_shape", Ints{2}}, {"dilations", Ints{dilation}}, {"pads", Ints{kLargestInt, 0}}, {"strides", Ints{kLargestInt}}};
    const KernelSubject s = subject_of("MaxPool", 12, {drawn({1, 1, 4})}, attributes, 2);
    const std::vector<Bytes> want = reference_result(s);
    float largest;
    std::int64_t index;
    ASSERT_EQ(want[0].size(), sizeof largest);
    ASSERT_EQ(want[1].size(), sizeof index);
    std::memcpy(&largest, want[0].data(), sizeof largest);
    std::memcpy(&index, want[1].data(), sizeof index);
    EXPECT_EQ(largest, -std::numeric_limits<float>::infinity());
    EXPECT_EQ(index, -1);
    expect_reference(s, "max_pool_window");
  }
}

TEST(OpenClLimits, PositionsOfConvolutionsBeyond32BitsAreRefused) {
  EVN_NEEDS_OPENCL();
  const auto transposed = [](std::int64_t pad, std::int64_t stride) {
    return subject_of("ConvTranspose", 11, {drawn({1, 1, 3}), drawn_constant({1, 1, 2})},
                      {{"strides", Ints{stride}}, {"pads", Ints{pad, 0}}});
  };
  expect_reference(transposed(kLargestInt / 2 - 2, 1 << 29), "conv_transpose_window");
  EXPECT_EQ(status_of_plan(transposed(kLargestInt - 2, 1 << 30), "conv_transpose_window"), EVN_ERROR_UNSUPPORTED);
}

// The kernels that count the pixels of a plane in 32 bits leave it to those that do not.
TEST(OpenClLimits, LargePlanesAreRefused) {
  EVN_NEEDS_OPENCL();
  const std::vector<Attribute> pads = {{"pads", Ints{1, 1, 1, 1}}};
  const std::vector<Attribute> of_groups = {{"pads", Ints{1, 1, 1, 1}}, {"group", std::int64_t{2}}};
  for (const std::int64_t width : {32704, 32768}) {
    SCOPED_TRACE(width);
    const bool fits = 65536 * width <= kLargestInt;
    const evn_status status = fits ? EVN_OK : EVN_ERROR_UNSUPPORTED;
    const KernelSubject conv = subject_of("Conv", 11, {unread({1, 1, 65536, width}), drawn_constant({1, 1, 3, 3})}, pads);
    EXPECT_EQ(takes(conv, "conv_direct"), fits);
    EXPECT_TRUE(takes(conv, "conv_window"));
    EXPECT_EQ(status_of_plan(conv, "conv_direct"), status);
    EXPECT_EQ(status_of_plan(conv, "conv_window"), EVN_OK);
    const KernelSubject depthwise = subject_of("Conv", 11, {unread({1, 2, 65536, width}), drawn_constant({2, 1, 3, 3})}, of_groups);
    EXPECT_EQ(takes(depthwise, "conv_depthwise"), fits);
    EXPECT_EQ(status_of_plan(depthwise, "conv_depthwise"), status);
  }
}

TEST(OpenClLimits, LongRowsOfThePaddedCopyAreRefused) {
  EVN_NEEDS_OPENCL();
  const KernelSubject conv =
      subject_of("Conv", 11, {drawn({1, 2, 1, 8}), drawn_constant({2, 2, 1, 1})}, {{"strides", Ints{1, std::int64_t{1} << 27}}});
  EXPECT_FALSE(takes(conv, "conv_direct"));
  EXPECT_EQ(status_of_plan(conv, "conv_direct"), EVN_ERROR_UNSUPPORTED);
  expect_reference(conv, "conv_window");
}

TEST(OpenClLimits, LongOutputsOfResizeAreRefused) {
  EVN_NEEDS_OPENCL();
  for (const float factor : {32.0f, 64.0f}) {
    SCOPED_TRACE(factor);
    const KernelSubject s =
        subject_of("Resize", 13, {unread({1, 1, 33554432, 1}, DType::kInt8), {}, constant_of<float>({4}, {1, 1, factor, 1})},
                   {{"coordinate_transformation_mode", std::string("asymmetric")}, {"nearest_mode", std::string("floor")}});
    EXPECT_EQ(takes(s, "resize_nearest"), factor == 32);
    EXPECT_EQ(status_of_plan(s, "resize_nearest"), factor == 32 ? EVN_OK : EVN_ERROR_UNSUPPORTED);
  }
}

TEST(OpenClLimits, ResizeRefusesMoreTapsThan32BitsCount) {
  EVN_NEEDS_OPENCL();
  for (const std::int64_t side : {322, 323}) {
    SCOPED_TRACE(side);
    const KernelSubject s =
        subject_of("Resize", 18, {unread({1, 1, side, side, side}), {}, {}, constant_of<std::int64_t>({5}, {1, 1, 1, 1, 1})},
                   {{"mode", std::string("cubic")}, {"antialias", std::int64_t{1}}});
    EXPECT_EQ(takes(s, "resample"), side == 322);
    EXPECT_EQ(status_of_plan(s, "resample"), side == 322 ? EVN_OK : EVN_ERROR_UNSUPPORTED);
  }
}

// The kernel is chosen before the sizes are known, and serves all of them.
TEST(OpenClLimits, AveragePoolOfBytesCountsTheElementsOfAnySize) {
  EVN_NEEDS_OPENCL();
  for (const std::int64_t side : {7, 9}) {
    const auto pool = [&](Operand x) {
      return subject_of("com.microsoft::QLinearAveragePool", 1, joined(quantized(std::move(x)), kQuantizedResult),
                        {{"kernel_shape", Ints{side, side}}, {"strides", Ints{side, side}}, {"ceil_mode", std::int64_t{1}}});
    };
    const bool takes_any = takes(pool(unread({1, 3, -1, -1}, DType::kUint8)), "qlinear_average_pool");
    EXPECT_EQ(takes_any, side == 7) << "more counts than the table has";
    if (!takes_any) continue;
    for (const std::int64_t size : {10, 18}) {
      SCOPED_TRACE(size);
      expect_reference(pool(drawn({1, 3, size, size}, DType::kUint8)), "qlinear_average_pool");
    }
  }
}

// The index of the last element is rounded to that of an element beyond the row.
TEST(OpenClLimits, GridSampleStaysInRowsOfMoreThan2To24Elements) {
  EVN_NEEDS_OPENCL();
  constexpr std::int64_t kWidth = (1 << 24) + 4;
  for (const char* padding : {"zeros", "border"}) {
    SCOPED_TRACE(padding);
    GraphBuilder b(16);
    b.output(
        b.node("GridSample", {b.input("x", {1, 1, 2, kWidth}), b.input("grid", {1, 1, 2, 2})},
               {{"mode", std::string("nearest")}, {"padding_mode", std::string(padding)}, {"align_corners", std::int64_t{1}}}));
    NodeRun run(b.build(), 3);
    run.input(1).data = {1, -1, -1, -1};  // the last element of the first row, and its first one
    EXPECT_EQ(run.on(shared_device(), "grid_sample"), run.reference());
  }
}

// Float32 has no odd numbers beyond 2^24, so that the sign of a power would be lost.
TEST(OpenClLimits, PowTakesWholeExponentsThatFloat32Has) {
  EVN_NEEDS_OPENCL();
  const auto power = [](Operand exponent) { return subject_of("Pow", 13, {drawn({3, 2}), std::move(exponent)}, {}); };
  expect_reference(power(constant_of<std::int64_t>({}, {2})), "pow");
  expect_reference(power(constant_of<std::int32_t>({2}, {3, -2})), "pow");
  EXPECT_TRUE(takes(power(constant_of<std::int32_t>({2}, {1 << 24, -(1 << 24)})), "pow"));
  EXPECT_TRUE(takes(power(drawn({2}, DType::kInt16)), "pow"));
  EXPECT_FALSE(takes(power(constant_of<std::int32_t>({2}, {2, (1 << 24) + 1})), "pow"));
  EXPECT_FALSE(takes(power(constant_of<std::int64_t>({}, {std::numeric_limits<std::int64_t>::min()})), "pow"));
  EXPECT_FALSE(takes(power(constant_of<std::uint64_t>({}, {(1u << 24) + 1})), "pow"));
  EXPECT_FALSE(takes(power(drawn({2}, DType::kInt32)), "pow"));
}

}  // namespace
}  // namespace evn::test
