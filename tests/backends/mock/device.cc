#include "tests/backends/mock/mock.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string_view>

#include "base/error.h"
#include "ops/op.h"
#include "tests/backends/mock/queues.h"

namespace evn {
namespace {

// The packed form of a weight: its bytes with every bit turned over, so that a kernel that reads the wrong copy is found out.
void turn_over(const void* from, void* to, std::size_t bytes) {
  const auto* a = static_cast<const unsigned char*>(from);
  auto* b = static_cast<unsigned char*>(to);
  for (std::size_t i = 0; i < bytes; ++i) b[i] = static_cast<unsigned char>(~a[i]);
}

// Guards the counters and what is left of MockSettings::fail_call: runs on several devices go on at a time.
std::mutex& shared_mutex() {
  static std::mutex mutex;
  return mutex;
}

template <typename F>
void count(F&& f) {
  const std::lock_guard<std::mutex> lock(shared_mutex());
  f(mock_counters());
}

// True for the call that is to fail.
bool is_failing_call() {
  const std::lock_guard<std::mutex> lock(shared_mutex());
  std::int64_t& left = mock_settings().fail_call;
  return left > 0 && --left == 0;
}

class MockDevice final : public Device {
 public:
  explicit MockDevice(const DeviceRequest& request) : Device(request.name, request.memory_limit) {
    traits_.host_addressable = false;
    traits_.alignment = 256;
    traits_.kind = EVN_DEVICE_OTHER;
    traits_.description = "mock device";
    traits_.driver = "tests";
    traits_.memory_bytes = 1 << 30;
    if (const SettingValue* refused = request.settings.find("refuse")) refused_ops_ = refused->texts;
    traits_.claims_segments = mock_settings().segments != nullptr;
    if (mock_settings().has_queues) queues_ = std::make_unique<MockQueues>();
  }

  ~MockDevice() override {
    queues_ = nullptr;
    close_pool();
  }

  void* obtain(std::size_t bytes, bool) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (held_ + bytes > mock_settings().memory_bytes) return nullptr;
    held_ += bytes;
    void* token = reinterpret_cast<void*>(next_token_);  // no address: using it as one faults
    next_token_ += 4096;
    memory_[token].resize(bytes);
    return token;
  }

  void give_back(void* memory, std::size_t bytes, bool) noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_ -= bytes;
    memory_.erase(memory);
  }

  Event copy(const Location& from, const Location& to, std::span<const Event> waits) override {
    const auto work = [this, from, to] {
      count([&](MockCounters& c) {
        c.uploads += from.device != this;
        c.downloads += to.device != this;
      });
      std::memmove(address(to), address(from), from.buffer.size);
    };
    if (queues_ != nullptr) {
      std::vector<MockQueues::Use> uses;
      if (from.device == this) uses.push_back({from.buffer, false});
      if (to.device == this) uses.push_back({to.buffer, true});
      return add(to.device == this ? MockQueues::kUploads : MockQueues::kDownloads, mock_settings().copy_ns, std::move(uses), waits,
                 work);
    }
    wait_for_others(waits);
    const std::lock_guard<std::mutex> lock(queue_mutex_);
    queue_.push_back(work);
    return {this, ++issued_};
  }

  Event enqueue(const KernelCall& call, std::span<const Event> waits) override {
    const auto work = [this, call] {
      count([](MockCounters& c) { ++c.kernels; });
      KernelArgs args = call.args;
      args.context = this;
      call.kernel->run(args, 0, call.args.plan->tiles, *call.cancel);
    };
    if (const auto clock = mock_settings().element_ns.find(name());
        call.trace != nullptr && clock != mock_settings().element_ns.end()) {
      double ns = 0;
      for (const Buffer& b : call.args.outputs) ns += clock->second * static_cast<double>(b.size) / 4;
      call.trace->start = 1;
      call.trace->end = 1 + static_cast<std::uint64_t>(ns);
    }
    if (queues_ != nullptr) {
      std::vector<MockQueues::Use> uses;
      for (const Buffer& b : call.args.inputs) uses.push_back({b, false});
      for (const Buffer& b : call.args.outputs) uses.push_back({b, true});
      uses.push_back({call.args.scratch, true});
      return add(MockQueues::kKernels, mock_settings().kernel_ns, std::move(uses), waits, work);
    }
    wait_for_others(waits);
    const std::lock_guard<std::mutex> lock(queue_mutex_);
    queue_.push_back(work);
    return {this, ++issued_};
  }

  void wait(const Event& event) override {
    if (queues_ != nullptr) return event.device == this ? queues_->wait(event.value) : void();
    const std::lock_guard<std::mutex> lock(queue_mutex_);  // one thread after the other does what is queued
    while (done_ < event.value) {
      ++done_;
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      if (fails_always()) throw make_error(EVN_ERROR_DEVICE_LOST, "the mock device is gone").with_device(name().c_str());
      if (is_failing_call()) {
        throw make_error(EVN_ERROR_DEVICE_LOST, "the mock device failed").with_device(name().c_str());
      }
      work();
    }
  }

  bool wait_or_stop(const Event& event, const Cancel& cancel) override {
    if (queues_ != nullptr && event.device == this) return queues_->wait_or_stop(event.value, cancel);
    wait(event);
    return true;
  }

  void hold_until(const Event& event, std::shared_ptr<const void> held) noexcept override {
    if (queues_ == nullptr || event.device != this) return Device::hold_until(event, std::move(held));
    queues_->hold_until(event.value, std::move(held));
  }

  bool settle(const Cancel& cancel) override { return queues_ == nullptr || queues_->settle(cancel); }

  std::span<const KernelFamily* const> kernels() const override { return {}; }

  const Kernel* find_kernel(const OpDesc& desc, std::string* reason) const override;
  Claim claim(std::span<const OpDesc> nodes) override;
  const Kernel* reference_kernel(const OpDesc&) const override;
  Precision lowest_precision(Precision wanted, std::string* why) const override {
    if (wanted != Precision::kFloat16) return Precision::kBfloat16;
    *why = "the mock has none";
    return Precision::kFloat32;
  }

  void* address(const Location& l) { return l.device == this ? address(l.buffer) : l.buffer.address(); }
  void* address(const Buffer& b) {
    if (b.memory == nullptr) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<unsigned char>& bytes = memory_.at(b.memory);
    EVN_CHECK(b.offset + b.size <= bytes.size());
    return bytes.data() + b.offset;
  }

 private:
  Event add(MockQueues::Queue queue, std::uint64_t ns, std::vector<MockQueues::Use> uses, std::span<const Event> waits,
            std::function<void()> work) {
    std::vector<std::shared_ptr<const MockQueues::Done>> before;
    for (const Event& e : waits) {
      if (e.device == nullptr) continue;
      auto* const mock = e.device->traits().kind == EVN_DEVICE_OTHER ? static_cast<MockDevice*>(e.device) : nullptr;
      if (mock != nullptr && mock->queues_ != nullptr) before.push_back(mock->queues_->done(e.value));
      else e.device->wait(e);
    }
    return {this, queues_->add(queue, std::chrono::nanoseconds(ns), std::move(uses), std::move(before), std::move(work))};
  }
  // What is this device's happens in order.
  void wait_for_others(std::span<const Event> waits) const {
    for (const Event& e : waits) {
      if (e.device != nullptr && e.device != this) e.device->wait(e);
    }
  }
  bool refuses(const std::string& op) const {
    const auto contains = [&](const std::vector<std::string>& ops) { return std::find(ops.begin(), ops.end(), op) != ops.end(); };
    return contains(mock_settings().refused_ops) || contains(refused_ops_);
  }

  // True if the test has lost this device.
  bool fails_always() const {
    for (std::string_view names = mock_settings().lost; !names.empty();) {
      const std::size_t end = std::min(names.find(','), names.size());
      if (names.substr(0, end) == name()) return true;
      names.remove_prefix(std::min(end + 1, names.size()));
    }
    return false;
  }

  std::map<void*, std::vector<unsigned char>> memory_;
  std::uintptr_t next_token_ = 4096;
  std::vector<std::string> refused_ops_;  // by the configuration
  std::size_t held_ = 0;
  std::mutex queue_mutex_;  // guards what follows
  std::deque<std::function<void()>> queue_;
  std::uint64_t issued_ = 0;
  std::uint64_t done_ = 0;
  std::mutex mutex_;  // guards memory_, where queues work by themselves
  std::unique_ptr<MockQueues> queues_;
};

Refusal supports_any(const OpDesc&) { return nullptr; }

std::size_t prepack_bytes(const OpDesc& desc, int input) {
  return desc.node->op_type == "Conv" && input == 1 ? desc.constant(1)->size_bytes : 0;
}

void prepack(const OpDesc& desc, int input, void* packed) {
  turn_over(desc.constant(input)->data.get(), packed, desc.constant(input)->size_bytes);
}

void plan(const OpDesc& desc, KernelPlan* p) {
  p->tiles = 1;
  p->scratch_bytes = 64;
  if ((desc.node->op->flags & kOpElementwise) != 0) p->in_place = 1;
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  auto& device = *static_cast<MockDevice*>(args.context);
  const OpDesc& desc = *args.desc;
  std::vector<ConstTensor> inputs;
  std::vector<std::vector<unsigned char>> unpacked(desc.inputs.size());
  for (std::size_t i = 0; i < desc.inputs.size(); ++i) {
    const void* data = device.address(args.inputs[i]);
    if (args.packed[i].memory != nullptr) {
      count([](MockCounters& c) { ++c.packed_reads; });
      unpacked[i].resize(args.packed[i].size);
      turn_over(device.address(args.packed[i]), unpacked[i].data(), unpacked[i].size());
      data = unpacked[i].data();
    } else if (data == nullptr && desc.constant(static_cast<int>(i)) != nullptr) {
      data = desc.constant(static_cast<int>(i))->data.get();  // shapes are read on the host
    }
    inputs.push_back({desc.inputs[i], data});
  }
  // Through host memory, as in-place references would read what they have written.
  std::vector<std::vector<unsigned char>> results;
  std::vector<MutableTensor> outputs;
  for (const TensorDesc& d : desc.outputs) {
    results.emplace_back(d.dtype == DType::kUndefined ? 1 : d.size_bytes() + 1);
    outputs.push_back({d, results.back().data()});
  }
  run_reference({*desc.node, inputs, outputs});
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (outputs[k].present() && args.outputs[k].memory != nullptr) {
      std::memcpy(device.address(args.outputs[k]), results[k].data(), args.outputs[k].size);
    }
  }
}

constexpr Kernel kMockKernel = {.name = "mock",
                                .rank = 1,
                                .supports = supports_any,
                                .prepack_bytes = prepack_bytes,
                                .prepack = prepack,
                                .plan = plan,
                                .run = run};
// Of Conv alone; computes as the other does.
constexpr Kernel kMockBfloat16Kernel = [] {
  Kernel k = kMockKernel;
  k.name = "mock_bf16";
  k.operands = Precision::kBfloat16;
  return k;
}();

const Kernel* MockDevice::find_kernel(const OpDesc& desc, std::string* reason) const {
  if (!refuses(desc.node->op_type)) {
    return desc.precision == Precision::kBfloat16 && desc.node->op_type == "Conv" ? &kMockBfloat16Kernel : &kMockKernel;
  }
  if (reason != nullptr) *reason = "mock: refused by the test";
  return nullptr;
}

// Runs the nodes of a segment one after the other. What lies between them is the host's.
void run_segment(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  auto& device = *static_cast<MockDevice*>(args.context);
  const OpDesc& desc = *args.desc;
  std::map<ValueId, const void*> values;
  std::deque<std::vector<unsigned char>> made;
  for (std::size_t k = 0; k < desc.inputs.size(); ++k) values[desc.values->inputs[k]] = device.address(args.inputs[k]);
  for (const OpDesc& part : desc.nodes) {
    ++mock_counters().segment_nodes;
    std::vector<ConstTensor> inputs;
    std::vector<MutableTensor> outputs;
    for (std::size_t k = 0; k < part.inputs.size(); ++k) {
      const ValueId v = part.node->inputs[k];
      const Weight* const constant = part.constant(static_cast<int>(k));
      const bool by_value = part.node->op->reads_value(k);
      const void* const data = v == kNoValue ? nullptr : by_value && constant != nullptr ? constant->data.get() : values.at(v);
      inputs.push_back({part.inputs[k], data});
    }
    for (std::size_t k = 0; k < part.outputs.size(); ++k) {
      const TensorDesc& d = part.outputs[k];
      made.emplace_back(d.dtype == DType::kUndefined ? 1 : d.size_bytes() + 1);
      outputs.push_back({d, made.back().data()});
      if (part.node->outputs[k] != kNoValue) values[part.node->outputs[k]] = made.back().data();
    }
    run_reference({*part.node, inputs, outputs});
  }
  for (std::size_t k = 0; k < desc.outputs.size(); ++k) {
    if (args.outputs[k].memory != nullptr)
      std::memcpy(device.address(args.outputs[k]), values.at(desc.values->outputs[k]), args.outputs[k].size);
  }
}

void plan_segment(const OpDesc& desc, KernelPlan* p) {
  EVN_CHECK(desc.values != nullptr && desc.nodes.size() > 1);
  p->tiles = 1;
}

constexpr Kernel kMockSegmentKernel = [] {
  Kernel k = {.name = "mock_segment", .rank = 1, .supports = supports_any, .plan = plan_segment, .run = run_segment};
  k.takes_empty = true;
  return k;
}();

Claim MockDevice::claim(std::span<const OpDesc> nodes) {
  Claim claim = Device::claim(nodes);
  if (!traits_.claims_segments || nodes.size() < 2) return claim;
  claim.segments.clear();
  for (std::vector<int>& segment : mock_settings().segments(nodes))
    claim.segments.push_back({std::move(segment), &kMockSegmentKernel});
  return claim;
}

const Kernel* MockDevice::reference_kernel(const OpDesc&) const { return &kMockKernel; }

std::shared_ptr<Device> open_mock(const DeviceRequest& request) { return std::make_shared<MockDevice>(request); }

std::vector<DeviceListing> list_mock(std::string*) {
  return {{"mock:0", "mock device", "tests", "tests", "other", 1, 1 << 30, ""}};
}

}  // namespace

MockSettings& mock_settings() {
  static MockSettings settings;
  return settings;
}

MockCounters& mock_counters() {
  static MockCounters counters;
  return counters;
}

MockCounters counters_of_working_mocks() {
  const std::lock_guard<std::mutex> lock(shared_mutex());
  return mock_counters();
}

constexpr DeviceOption kMockOptions[] = {
    {{.name = "refuse", .type = SettingType::kTexts}},  // operators that it does not run
};

const Backend mock_backend = {{"mock", kMockOptions}, open_mock, list_mock};

}  // namespace evn
