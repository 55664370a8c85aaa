// Times single kernels of the CPU device on the shapes of known networks, next to the machine's peak of fused multiply-adds.
//   usage: bench_kernels [THREADS] [FILTER]     EVN_CPU_ISA chooses the instruction set
// Best of several runs: on a shared machine the best is what the code can do, the rest is the neighbours.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/isa.h"
#include "base/checked.h"
#include "device/backend.h"
#include "ops/op.h"

namespace evn {
extern const Backend cpu_backend;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Ten independent chains of multiply-adds on the widest vectors: operations per second of one core.
#if defined(__x86_64__)
template <typename Vec>
__attribute__((always_inline)) inline double chains() {
  constexpr int kChains = 10, kRounds = 2'000'000;
  Vec acc[kChains], x, y;
  x = Vec{} + 0.999f;
  y = Vec{} + 0.5f;
#pragma GCC unroll 10
  for (int j = 0; j < kChains; ++j) acc[j] = Vec{};
  const double start = now();
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 10
    for (int j = 0; j < kChains; ++j) {
      if constexpr (sizeof(Vec) == 64) {
        asm("vfmadd213ps %2, %1, %0" : "+v"(acc[j]) : "v"(x), "v"(y));
      } else {
        asm("vfmadd213ps %2, %1, %0" : "+x"(acc[j]) : "x"(x), "x"(y));
      }
    }
  }
  const double seconds = now() - start;
  Vec sum = acc[0];
#pragma GCC unroll 10
  for (int j = 1; j < kChains; ++j) sum += acc[j];
  asm volatile("" : : "m"(sum));
  return 2.0 * kChains * kRounds * (sizeof(Vec) / 4) / seconds;
}
typedef float Vec8 __attribute__((vector_size(32)));
typedef float Vec16 __attribute__((vector_size(64)));
__attribute__((target("avx2,fma"))) double peak_avx2() { return chains<Vec8>(); }
__attribute__((target("avx512f,avx512vl"))) double peak_avx512() { return chains<Vec16>(); }
#endif

double peak() {
  double best = 0;
#if defined(__x86_64__)
  for (int i = 0; i < 5; ++i) {
    double p = 0;
    if (cpu_isa() == Isa::k_avx512) p = peak_avx512();
    if (cpu_isa() == Isa::k_avx2) p = peak_avx2();
    if (p > best) best = p;
  }
#endif
  return best;
}

struct Input {
  Shape shape;
  bool constant = false;
};

struct Case {
  std::string name, op;
  std::vector<Input> inputs;
  std::vector<Attribute> attributes;
};

Node make_node(const Case& c) {
  Node n;
  n.name = c.name;
  n.op_type = c.op;
  n.since_version = 17;
  n.op = find_op("", c.op, 17);
  for (const AttributeSpec& spec : n.op->attributes) {
    AttributeValue value;
    if (spec.type == AttributeType::kInt) value = spec.default_int;
    if (spec.type == AttributeType::kFloat) value = spec.default_float;
    if (spec.type == AttributeType::kString && spec.default_string != nullptr) value = std::string(spec.default_string);
    for (const Attribute& a : c.attributes) {
      if (a.name == spec.name) value = a.value;
    }
    n.resolved.push_back(std::move(value));
  }
  n.outputs = {0};
  return n;
}

struct Timing {
  double seconds;
  double flops, bytes;
  std::string kernel;
  std::int64_t tiles;
};

Timing time_case(Device& device, const Case& c) {
  const Node node = make_node(c);
  std::vector<TensorDesc> descs;
  std::vector<WeightPtr> weights, constants;
  std::vector<ConstTensor> values;
  std::vector<Buffer> in, packed;
  for (const Input& i : c.inputs) {
    void* bytes = nullptr;
    weights.push_back(make_weight({DType::kFloat32, i.shape}, nullptr, &bytes));
    auto* f = static_cast<float*>(bytes);
    for (std::int64_t j = 0; j < i.shape.elements(); ++j) f[j] = static_cast<float>(j * 7919 % 1000) / 1000.0f - 0.5f;
    descs.push_back({DType::kFloat32, i.shape});
    constants.push_back(i.constant ? weights.back() : nullptr);
    values.push_back({descs.back(), i.constant ? bytes : nullptr});
    in.push_back({bytes, 0, weights.back()->size_bytes});
  }
  std::vector<TensorDesc> outs = {{DType::kFloat32, {}}};
  InferContext infer{node, descs, values, outs};
  node.op->infer(infer);
  const OpDesc desc = {&node, descs, outs, constants};
  const Kernel* kernel = device.find_kernel(desc, nullptr);
  std::vector<PooledMemory> memory;
  for (std::size_t i = 0; i < descs.size(); ++i) {
    const std::size_t bytes = constants[i] && kernel->prepack_bytes ? kernel->prepack_bytes(desc, static_cast<int>(i)) : 0;
    packed.emplace_back();
    if (bytes == 0) continue;
    memory.push_back(device.allocate(bytes, MemoryClass::kPacked));
    kernel->prepack(desc, static_cast<int>(i), memory.back().memory());
    packed.back() = {memory.back().memory(), 0, bytes};
  }
  KernelPlan plan;
  kernel->plan(desc, &plan);
  const std::size_t scratch =
      align_up(plan.scratch_bytes, 64) + align_up(plan.thread_scratch_bytes, 64) * device.traits().compute_units;
  memory.push_back(device.allocate(scratch, MemoryClass::kScratch));
  const Buffer scratch_buffer = {memory.back().memory(), 0, scratch};
  memory.push_back(device.allocate(outs[0].size_bytes(), MemoryClass::kTensors));
  const Buffer out = {memory.back().memory(), 0, outs[0].size_bytes()};
  KernelCall call;
  call.kernel = kernel;
  call.args.desc = &desc;
  call.args.plan = &plan;
  call.args.inputs = in;
  call.args.outputs = {&out, 1};
  call.args.packed = packed;
  call.args.scratch = scratch_buffer;
  double best = 1e9, total = 0;
  for (int rep = 0; rep < 200 && (total < 0.15 || rep < 5); ++rep) {
    const double start = now();
    device.enqueue(call, {});
    const double t = now() - start;
    total += t;
    if (t < best) best = t;
  }
  return {best, plan.flops, plan.bytes, kernel->name, plan.tiles};
}

Case conv(const char* net, std::int64_t cin, std::int64_t h, std::int64_t w, std::int64_t cout, std::int64_t k, std::int64_t stride,
          std::int64_t group = 1) {
  char name[128];
  std::snprintf(name, sizeof name, "%s conv %lldx%lld/%lld %lld->%lld @%lldx%lld%s", net, static_cast<long long>(k),
                static_cast<long long>(k), static_cast<long long>(stride), static_cast<long long>(cin),
                static_cast<long long>(cout), static_cast<long long>(h), static_cast<long long>(w), group > 1 ? " dw" : "");
  const std::int64_t p = k / 2;
  Case c = {name, "Conv", {{Shape{1, cin, h, w}}, {Shape{cout, cin / group, k, k}, true}, {Shape{cout}, true}}, {}};
  c.attributes.push_back({"pads", std::vector<std::int64_t>{p, p, p, p}});
  c.attributes.push_back({"strides", std::vector<std::int64_t>{stride, stride}});
  c.attributes.push_back({"group", group});
  return c;
}

Case matmul(const char* net, std::int64_t batch, std::int64_t m, std::int64_t k, std::int64_t n, bool constant) {
  char name[128];
  std::snprintf(name, sizeof name, "%s matmul %lldx %lldx%lldx%lld%s", net, static_cast<long long>(batch),
                static_cast<long long>(m), static_cast<long long>(n), static_cast<long long>(k), constant ? " const" : "");
  if (constant) return {name, "MatMul", {{Shape{batch, m, k}}, {Shape{k, n}, true}}, {}};
  return {name, "MatMul", {{Shape{batch, m, k}}, {Shape{batch, k, n}}}, {}};
}

Case unary(const char* op, Shape s) { return {op + s.to_string(), op, {{s}}, {}}; }

std::vector<Case> cases() {
  std::vector<Case> all = {
      conv("resnet50", 3, 224, 224, 64, 7, 2),
      conv("resnet50", 64, 56, 56, 64, 1, 1),
      conv("resnet50", 64, 56, 56, 64, 3, 1),
      conv("resnet50", 64, 56, 56, 256, 1, 1),
      conv("resnet50", 256, 56, 56, 64, 1, 1),
      conv("resnet50", 256, 56, 56, 128, 1, 1),
      conv("resnet50", 128, 56, 56, 128, 3, 2),
      conv("resnet50", 128, 28, 28, 512, 1, 1),
      conv("resnet50", 256, 56, 56, 512, 1, 2),
      conv("resnet50", 128, 28, 28, 128, 3, 1),
      conv("resnet50", 512, 28, 28, 128, 1, 1),
      conv("resnet50", 256, 14, 14, 256, 3, 1),
      conv("resnet50", 256, 28, 28, 256, 3, 2),
      conv("resnet50", 1024, 14, 14, 256, 1, 1),
      conv("resnet50", 256, 14, 14, 1024, 1, 1),
      conv("resnet50", 512, 7, 7, 512, 3, 1),
      conv("resnet50", 2048, 7, 7, 512, 1, 1),
      conv("resnet50", 512, 7, 7, 2048, 1, 1),
      conv("mobilenetv2", 3, 224, 224, 32, 3, 2),
      conv("mobilenetv2", 32, 112, 112, 32, 3, 1, 32),
      conv("mobilenetv2", 32, 112, 112, 16, 1, 1),
      conv("mobilenetv2", 16, 112, 112, 96, 1, 1),
      conv("mobilenetv2", 96, 112, 112, 96, 3, 2, 96),
      conv("mobilenetv2", 96, 56, 56, 24, 1, 1),
      conv("mobilenetv2", 144, 56, 56, 144, 3, 1, 144),
      conv("mobilenetv2", 192, 28, 28, 192, 3, 1, 192),
      conv("mobilenetv2", 384, 14, 14, 64, 1, 1),
      conv("mobilenetv2", 384, 14, 14, 384, 3, 1, 384),
      conv("mobilenetv2", 960, 7, 7, 960, 3, 1, 960),
      conv("mobilenetv2", 960, 7, 7, 160, 1, 1),
      conv("mobilenetv2", 320, 7, 7, 1280, 1, 1),
      conv("ppocr4 det", 16, 320, 480, 16, 3, 1, 16),
      conv("ppocr4 det", 96, 160, 240, 24, 3, 1),
      conv("ppocr4 det", 96, 160, 240, 96, 5, 1, 96),
      conv("ppocr4 det", 96, 20, 30, 24, 3, 1),
      conv("ppocr4 rec", 64, 12, 320, 128, 1, 1),
      conv("se", 240, 1, 1, 64, 1, 1),
      matmul("square", 1, 512, 512, 512, true),
      matmul("bert", 1, 128, 768, 768, true),
      matmul("bert", 1, 128, 768, 3072, true),
      matmul("bert", 1, 128, 3072, 768, true),
      matmul("bert", 12, 128, 64, 128, false),
      matmul("bert", 12, 128, 128, 64, false),
      matmul("gemv", 1, 1, 4096, 4096, true),
      matmul("gpt", 1, 1, 384, 1536, true),
      matmul("ppocr4 rec", 1, 40, 120, 6625, true),
  };
  const Shape plane{1, 96, 112, 112};
  for (const char* op : {"Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Sqrt"}) all.push_back(unary(op, plane));
  all.push_back({"Add same", "Add", {{plane}, {plane}}, {}});
  all.push_back({"Mul per channel", "Mul", {{plane}, {Shape{1, 96, 1, 1}}}, {}});
  all.push_back({"Add trailing", "Add", {{Shape{128, 768}}, {Shape{768}}}, {}});
  all.push_back({"GlobalAveragePool", "GlobalAveragePool", {{plane}}, {}});
  all.push_back({"MaxPool 3x3/2",
                 "MaxPool",
                 {{Shape{1, 64, 112, 112}}},
                 {{"kernel_shape", std::vector<std::int64_t>{3, 3}},
                  {"strides", std::vector<std::int64_t>{2, 2}},
                  {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}}});
  all.push_back(unary("Softmax", Shape{12, 128, 128}));
  all.push_back({"LayerNormalization", "LayerNormalization", {{Shape{128, 768}}, {Shape{768}}, {Shape{768}}}, {}});
  all.push_back(
      {"Transpose NHWC->NCHW", "Transpose", {{Shape{1, 112, 112, 96}}}, {{"perm", std::vector<std::int64_t>{0, 3, 1, 2}}}});
  all.push_back({"Transpose heads", "Transpose", {{Shape{1, 128, 12, 64}}}, {{"perm", std::vector<std::int64_t>{0, 2, 3, 1}}}});
  return all;
}

}  // namespace
}  // namespace evn

int main(int argc, char** argv) {
  using namespace evn;
  DeviceRequest request;
  request.name = "cpu";
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  request.settings.set_number("threads", static_cast<std::uint64_t>(threads));
  const char* filter = argc > 2 ? argv[2] : "";
  const std::shared_ptr<Device> device = cpu_backend.open(request);
  const double top = peak() * threads;
  std::printf("%s, %s, %d thread(s), peak %.1f GFLOPS\n", device->traits().description.c_str(), isa_name(cpu_isa()), threads,
              top / 1e9);
  for (const Case& c : cases()) {
    if (std::strstr(c.name.c_str(), filter) == nullptr) continue;
    const Timing t = time_case(*device, c);
    std::printf("%-44s %-16s %4lld tiles %9.1f us %7.1f GFLOPS %5.1f %% %6.1f GB/s\n", c.name.c_str(), t.kernel.c_str(),
                static_cast<long long>(t.tiles), t.seconds * 1e6, t.flops / t.seconds / 1e9,
                top > 0 ? 100 * t.flops / t.seconds / top : 0.0, t.bytes / t.seconds / 1e9);
  }
  return 0;
}
