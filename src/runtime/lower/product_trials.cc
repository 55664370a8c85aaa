#include "runtime/lower/product_trials.h"

#include <cstring>
#include <mutex>

#include "base/cancel.h"
#include "base/checked.h"
#include "base/hash.h"
#include "ops/gemm.h"

namespace evn {
namespace {

constexpr int kMostTurns = 9;                           // of which the first, with cold caches, does not count
constexpr std::uint64_t kLastTurnAfterNs = 10'000'000;  // after which no other turn is begun
constexpr std::size_t kMostInputs = 8;                  // own and fused ones of a product
constexpr std::size_t kLine = 64;

// Tells apart what the kernels run differently.
std::uint64_t key_of(const OpDesc& desc) {
  Hasher hasher;
  for (std::size_t i = 0; i < desc.inputs.size(); ++i) {
    const Shape& shape = desc.inputs[i].shape;
    hasher.add(static_cast<std::uint64_t>(shape.rank() * 2 + (desc.constant(static_cast<int>(i)) != nullptr ? 1 : 0)));
    for (int axis = 0; axis < shape.rank(); ++axis) hasher.add(static_cast<std::uint64_t>(shape[axis]));
  }
  const bool is_gemm = desc.node->op_type == "Gemm";
  for (const int flag : {GemmAttr::kTransA, GemmAttr::kTransB})
    hasher.add(static_cast<std::uint64_t>(is_gemm ? 1 + attr_int(*desc.node, flag) : 0));
  return hasher.value();
}

std::uint64_t median(std::uint64_t* times, int count) {
  for (int i = 1; i < count; ++i) {
    for (int j = i; j > 0 && times[j] < times[j - 1]; --j) std::swap(times[j], times[j - 1]);
  }
  return times[count / 2];
}

}  // namespace

const ProductTrial& ProductTrials::of(Device& device, const OpDesc& desc, const CompiledNode& n) {
  const std::uint64_t key = key_of(desc);
  const std::lock_guard<Mutex> lock(mutex_);
  for (const ProductTrial& t : all_) {
    if (t.key == key) return t;
  }
  EVN_CHECK(desc.inputs.size() <= kMostInputs);
  OpDesc descs[2] = {desc, desc};
  descs[1].products = Products::kOpenBlas;
  const Kernel* const kernels[2] = {n.kernel, n.rival};
  KernelPlan plans[2];
  std::size_t scratch = 0, bytes = 0;
  for (int i = 0; i < 2; ++i) {
    kernels[i]->plan(descs[i], &plans[i]);
    const std::size_t threads =
        checked_mul<std::size_t>(align_up(plans[i].thread_scratch_bytes, kLine), device.traits().compute_units);
    scratch = std::max(scratch, checked_add(align_up(plans[i].scratch_bytes, kLine), threads));
  }
  // Zeros for operands, but for what is packed.
  Buffer buffers[kMostInputs + 2];
  const std::size_t inputs = desc.inputs.size();
  for (std::size_t i = 0; i < inputs + 2; ++i) {
    const TensorDesc* const d = i < inputs ? &desc.inputs[i] : i == inputs ? &desc.outputs[0] : nullptr;
    const std::size_t size = d == nullptr ? scratch : d->dtype == DType::kUndefined ? 0 : d->size_bytes();
    buffers[i] = {nullptr, bytes, size};
    bytes = checked_add(bytes, align_up(size, kLine));
  }
  const PooledMemory memory = device.allocate(bytes, MemoryClass::kScratch);
  std::memset(memory.memory(), 0, bytes);
  for (Buffer& b : buffers) b.memory = memory.memory();
  std::uint64_t times[2][kMostTurns];
  const std::uint64_t begin = now_ns_();
  int turns = 0;
  do {
    for (int i = 0; i < 2; ++i) {
      KernelArgs args;
      args.desc = &descs[i];
      args.plan = &plans[i];
      args.inputs = {buffers, inputs};
      args.outputs = {buffers + inputs, 1};
      if (i == 0) args.packed = n.packed;
      args.scratch = buffers[inputs + 1];
      const std::uint64_t start = now_ns_();
      device.wait(device.enqueue({kernels[i], args, CancelScope::current()}, {}));
      times[i][turns] = now_ns_() - start;
      cancellation_point(kWorkPerLook);  // what was stopped is no measurement
    }
  } while (++turns < kMostTurns && now_ns_() - begin < kLastTurnAfterNs);
  const int cold = turns > 1 ? 1 : 0;
  all_.push_front({key, median(times[0] + cold, turns - cold), median(times[1] + cold, turns - cold)});
  return all_.front();
}

}  // namespace evn
