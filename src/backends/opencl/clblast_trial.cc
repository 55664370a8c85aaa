#include "backends/opencl/clblast_trial.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "backends/opencl/clblast.h"
#include "ops/gemm.h"

namespace evn {
namespace {

constexpr std::int64_t kTimedSides[] = {128, 256, 512, 1024};
constexpr int kRounds = 5;
constexpr std::uint64_t kSlow = 100'000'000;  // ns of one product: the next size, eight times as large, is not tried
constexpr std::int64_t kChecked[][3] = {{128, 128, 128}, {65, 129, 257}, {33, 300, 100}, {256, 64, 512}};  // m, n, k

std::string text_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  return std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k);
}

// Whole numbers from -2 to 2. Sums of 1024 products of two of them are below 2^12.
std::vector<float> whole_numbers(std::int64_t count, std::uint32_t seed) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& v : numbers) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>((seed >> 24) % 5) - 2.0f;
  }
  return numbers;
}

// One product on the device: A' (m x k) times B' (k x n), which is a constant, as in most models.
class Trial {
 public:
  Trial(Device& device, std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b)
      : device_(device), m_(m), n_(n), k_(k), transpose_a_(transpose_a), transpose_b_(transpose_b) {
    node_.name = "trial";
    node_.op_type = "Gemm";
    node_.op = find_op("", "Gemm", 13);
    node_.resolved = {1.0f, 1.0f, std::int64_t{transpose_a}, std::int64_t{transpose_b}};
    inputs_[0] = {DType::kFloat32, transpose_a ? Shape{k, m} : Shape{m, k}};
    inputs_[1] = {DType::kFloat32, transpose_b ? Shape{n, k} : Shape{k, n}};
    output_ = {DType::kFloat32, Shape{m, n}};
    std::vector<float>& a = used_->a;
    std::vector<float>& b = used_->b;
    a = whole_numbers(m * k, 1);
    b = whole_numbers(k * n, 2);
    constants_[1] = make_weight_over(inputs_[1], std::shared_ptr<const void>(b.data(), [](const void*) {}));
    buffers_[0] = upload(a.data(), a.size() * sizeof(float));
    buffers_[1] = upload(b.data(), b.size() * sizeof(float));
    result_ = upload(nullptr, static_cast<std::size_t>(m * n) * sizeof(float));
  }

  OpDesc desc() const { return {&node_, inputs_, {&output_, 1}, constants_}; }

  // Plans, packs and runs once.
  void prepare(const Kernel& kernel) {
    kernel_ = &kernel;
    plan_ = KernelPlan{};
    kernel.plan(desc(), &plan_);
    const std::size_t bytes = kernel.prepack_bytes != nullptr ? kernel.prepack_bytes(desc(), 1) : 0;
    std::vector<char>& packed = used_->packed.emplace_back(bytes);
    if (bytes != 0) kernel.prepack(desc(), 1, packed.data());
    packed_[1] = bytes != 0 ? upload(packed.data(), bytes) : Buffer{};
    scratch_ = plan_.scratch_bytes != 0 ? upload(nullptr, plan_.scratch_bytes) : Buffer{};
    run();
  }

  void run() {
    const OpDesc d = desc();
    KernelArgs args;
    args.desc = &d;
    args.plan = &plan_;
    args.inputs = buffers_;
    args.outputs = {&result_, 1};
    args.packed = packed_;
    args.scratch = scratch_;
    wait(device_.enqueue({kernel_, args}, {}));
  }

  std::vector<float> result() {
    std::vector<float>& y = used_->result;
    y.assign(result_.size / sizeof(float), 0.0f);
    wait(device_.copy({&device_, result_}, {nullptr, {y.data(), 0, result_.size}}, {}));
    return y;
  }

  std::vector<float> exact() const {
    std::vector<float> y(static_cast<std::size_t>(m_ * n_), 0.0f);
    for (std::int64_t i = 0; i < m_; ++i) {
      for (std::int64_t d = 0; d < k_; ++d) {
        const float v = used_->a[static_cast<std::size_t>(transpose_a_ ? d * m_ + i : i * k_ + d)];
        for (std::int64_t j = 0; j < n_; ++j) {
          y[static_cast<std::size_t>(i * n_ + j)] += v * used_->b[static_cast<std::size_t>(transpose_b_ ? j * k_ + d : d * n_ + j)];
        }
      }
    }
    return y;
  }

 private:
  Buffer upload(const void* from, std::size_t bytes) {
    used_->memory.push_back(device_.allocate(bytes, MemoryClass::kScratch));
    const Buffer buffer{used_->memory.back().memory(), 0, bytes};
    if (from != nullptr) wait(device_.copy({nullptr, {const_cast<void*>(from), 0, bytes}}, {&device_, buffer}, {}));
    return buffer;
  }

  // A device that comes into quarantine meanwhile is left what it uses.
  void wait(const Event& event) {
    static const Cancel kNever;
    const Cancel* const scope = CancelScope::current();
    device_.wait_or_leave(event, scope != nullptr ? *scope : kNever, used_);
  }

  struct Used {
    std::vector<float> a, b, result;
    std::deque<std::vector<char>> packed;
    std::vector<PooledMemory> memory;
  };

  Device& device_;
  const std::int64_t m_, n_, k_;
  const bool transpose_a_, transpose_b_;
  Node node_;
  TensorDesc inputs_[2], output_;
  WeightPtr constants_[2];
  const std::shared_ptr<Used> used_ = std::make_shared<Used>();
  Buffer buffers_[2], packed_[2], result_, scratch_;
  const Kernel* kernel_ = nullptr;
  KernelPlan plan_;
};

const Kernel& clblast_gemm() {
  for (const Kernel& kernel : clblast_kernels()) {
    if (std::string(kernel.op) == "Gemm") return kernel;
  }
  fail(EVN_ERROR_INTERNAL, "CLBlast has no kernel for Gemm");
}

const Kernel& own_gemm(const Device& device, const OpDesc& desc) {
  const Kernel* kernel = device.Device::find_kernel(desc, nullptr);
  if (kernel == nullptr) fail(EVN_ERROR_INTERNAL, "the device has no kernel for Gemm");
  return *kernel;
}

// Why the results are not to be trusted; "" when they are right.
std::string check(Device& device) {
  for (const auto& [m, n, k] : kChecked) {
    for (const int transposed : {0, 1, 2}) {
      Trial trial(device, m, n, k, transposed == 1, transposed == 2);
      trial.prepare(clblast_gemm());
      if (trial.result() != trial.exact()) return "its results are wrong for " + text_of(m, n, k);
    }
  }
  return "";
}

struct Times {
  std::uint64_t own = UINT64_MAX;
  std::uint64_t clblast = UINT64_MAX;
  bool right = false;
};

Times measure_side(Device& device, std::int64_t side, std::uint64_t (*now)()) {
  Trial own(device, side, side, side, false, false);
  Trial clblast(device, side, side, side, false, false);
  own.prepare(own_gemm(device, own.desc()));
  clblast.prepare(clblast_gemm());
  Times times;
  times.right = own.result() == clblast.result();
  const auto time = [now](Trial& trial, std::uint64_t* best) {
    const std::uint64_t begin = now();
    trial.run();
    *best = std::min(*best, now() - begin);
  };
  for (int round = 0; round < kRounds; ++round) {
    time(own, &times.own);
    time(clblast, &times.clblast);
  }
  return times;
}

std::string percent(const Times& t) { return std::to_string(t.own * 100 / std::max<std::uint64_t>(t.clblast, 1)) + " %"; }

}  // namespace

ClBlastVerdict try_clblast(Device& device, bool measure, std::uint64_t (*now)()) {
  ClBlastVerdict verdict;
  verdict.text = check(device);
  if (!verdict.text.empty()) return verdict;
  verdict.is_right = true;
  if (!measure) return {0, true, "its results are right; used for every product that it takes"};
  std::string speeds;
  for (const std::int64_t side : kTimedSides) {
    const Times t = measure_side(device, side, now);
    if (!t.right) return {UINT64_MAX, false, "its results are wrong for " + text_of(side, side, side)};
    speeds += (speeds.empty() ? "" : ", ") + percent(t) + " at " + std::to_string(side);
    const bool wins = t.own / 11 >= t.clblast / 10;  // a tenth faster
    const auto size = static_cast<std::uint64_t>(side * side * side);
    verdict.from = wins ? std::min(verdict.from, size) : UINT64_MAX;
    if (t.own > kSlow || t.clblast > kSlow) break;
  }
  verdict.text =
      "its speed against the own kernels is " + speeds + "; " +
      (verdict.from == UINT64_MAX ? std::string("not used") : "used from " + std::to_string(verdict.from) + " multiply-adds on");
  return verdict;
}

}  // namespace evn
