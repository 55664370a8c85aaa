// Products of matrices of known networks: this library's kernels beside OpenBLAS's, in turns, as a table of GFLOPS (medians).
//   usage: bench_products [THREADS...]     by default 1 2; EVN_CPU_ISA chooses the instruction set
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/gemm/blas.h"
#include "base/checked.h"
#include "device/backend.h"
#include "ops/op.h"

namespace evn {
extern const Backend cpu_backend;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Case {
  const char* network;
  std::int64_t batch, m, n, k;
  bool constant;  // the right-hand matrix
};

constexpr Case kCases[] = {
    {"square", 1, 512, 512, 512, true},
    {"square, computed", 1, 512, 512, 512, false},
    {"square", 1, 1024, 1024, 1024, true},
    {"bert_base, 128 tokens", 1, 128, 768, 768, true},
    {"bert_base, 128 tokens", 1, 128, 3072, 768, true},
    {"bert_base, 128 tokens", 1, 128, 768, 3072, true},
    {"bert_base, scores", 12, 128, 128, 64, false},
    {"bert_base, values", 12, 128, 64, 128, false},
    {"bert_mini, 16 tokens", 1, 16, 1024, 256, true},
    {"vit_small, 197 tokens", 1, 197, 1536, 384, true},
    {"svtr, 40 characters", 1, 40, 6625, 120, true},
    {"llama, 8 tokens", 1, 8, 2048, 2048, true},
    {"one row", 1, 1, 1536, 384, true},
    {"one row", 1, 1, 4096, 4096, true},
    {"one row, computed", 1, 1, 4096, 4096, false},
    {"few columns", 1, 1024, 8, 256, true},
    {"deep", 1, 64, 64, 8192, false},
};

// One kernel with all that it runs on.
class Contender {
 public:
  Contender(Device& device, const Case& c, Products products) : device_(device) {
    node_.op_type = "MatMul";
    node_.op = find_op("", "MatMul", 13);
    const Shape a = c.batch > 1 ? Shape{c.batch, c.m, c.k} : Shape{c.m, c.k};
    const Shape b = c.batch > 1 ? Shape{c.batch, c.k, c.n} : Shape{c.k, c.n};
    const Shape y = c.batch > 1 ? Shape{c.batch, c.m, c.n} : Shape{c.m, c.n};
    inputs_ = {{DType::kFloat32, a}, {DType::kFloat32, b}};
    outputs_ = {{DType::kFloat32, y}};
    for (const TensorDesc& d : inputs_) {
      void* bytes = nullptr;
      weights_.push_back(make_weight(d, nullptr, &bytes));
      auto* f = static_cast<float*>(bytes);
      for (std::int64_t j = 0; j < d.shape.elements(); ++j) f[j] = static_cast<float>(j * 7919 % 1000) / 1000.0f - 0.5f;
      in_.push_back({bytes, 0, weights_.back()->size_bytes});
    }
    constants_ = {nullptr, c.constant ? weights_[1] : nullptr};
    desc_ = {&node_, inputs_, outputs_, constants_};
    desc_.threads = device.traits().compute_units;
    desc_.products = products;
    kernel_ = device.find_kernel(desc_, nullptr);
    const std::size_t bytes = c.constant && kernel_->prepack_bytes != nullptr ? kernel_->prepack_bytes(desc_, 1) : 0;
    packed_.resize(2);
    if (bytes != 0) {
      packed_[1] = take(bytes);
      kernel_->prepack(desc_, 1, packed_[1].address());
    }
    kernel_->plan(desc_, &plan_);
    scratch_ = take(align_up(plan_.scratch_bytes, 64) + align_up(plan_.thread_scratch_bytes, 64) * desc_.threads + 64);
    out_ = take(outputs_[0].size_bytes());
  }

  const char* name() const { return kernel_->name; }
  double run() {
    KernelCall call;
    call.kernel = kernel_;
    call.args.desc = &desc_;
    call.args.plan = &plan_;
    call.args.inputs = in_;
    call.args.outputs = {&out_, 1};
    call.args.packed = packed_;
    call.args.scratch = scratch_;
    const double start = now();
    device_.enqueue(call, {});
    return now() - start;
  }

 private:
  Buffer take(std::size_t bytes) {
    memory_.push_back(device_.allocate(bytes, MemoryClass::kScratch));
    return {memory_.back().memory(), 0, bytes};
  }

  Device& device_;
  Node node_;
  std::vector<TensorDesc> inputs_, outputs_;
  std::vector<WeightPtr> weights_, constants_;
  std::vector<Buffer> in_, packed_;
  std::vector<PooledMemory> memory_;
  OpDesc desc_;
  const Kernel* kernel_ = nullptr;
  KernelPlan plan_;
  Buffer scratch_, out_;
};

double median(std::vector<double>* times) {
  std::nth_element(times->begin(), times->begin() + static_cast<std::ptrdiff_t>(times->size() / 2), times->end());
  return (*times)[times->size() / 2];
}

void print(Device& device, const Case& c) {
  Contender own(device, c, Products::kOwn), blas(device, c, Products::kOpenBlas);
  own.run();
  blas.run();
  std::vector<double> own_times, blas_times;
  const double begin = now();
  for (int i = 0; i < 2000 && (i < 9 || now() - begin < 0.5); ++i) {
    own_times.push_back(own.run());
    blas_times.push_back(blas.run());
  }
  const double flops = 2.0 * static_cast<double>(c.batch * c.m * c.n) * static_cast<double>(c.k);
  const double mine = flops / median(&own_times) / 1e9, theirs = flops / median(&blas_times) / 1e9;
  std::printf("| %s | %s%lld x %lld x %lld%s | %u | %.1f | %.1f | %.2f |\n", c.network,
              c.batch > 1 ? (std::to_string(c.batch) + " times ").c_str() : "", static_cast<long long>(c.m),
              static_cast<long long>(c.n), static_cast<long long>(c.k), c.constant ? ", constant" : "",
              device.traits().compute_units, mine, theirs, mine / theirs);
  std::fflush(stdout);
}

int main_of(int count, char** arguments) {
  if (blas_module() == nullptr) {
    std::fprintf(stderr, "%s\n", blas_outlook().c_str());
    return 1;
  }
  std::vector<std::uint64_t> threads;
  for (int i = 1; i < count; ++i) threads.push_back(static_cast<std::uint64_t>(std::atoi(arguments[i])));
  if (threads.empty()) threads = {1, 2};
  std::printf(
      "| network | rows x columns x depth | threads | this library | OpenBLAS (%s) | ratio |\n|---|---|---:|---:|---:|---:|\n",
      blas_module()->core);
  for (const std::uint64_t t : threads) {
    DeviceRequest request;
    request.name = "cpu";
    request.settings.set_number("threads", t);
    const std::shared_ptr<Device> device = cpu_backend.open(request);
    for (const Case& c : kCases) print(*device, c);
  }
  return 0;
}

}  // namespace
}  // namespace evn

int main(int count, char** arguments) { return evn::main_of(count, arguments); }
