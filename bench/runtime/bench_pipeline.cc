// How well runs use several devices at once, with devices whose kernels and copies take a given time: nothing of it depends on how
// fast this machine is, as long as it has a core to spare.
//   usage: bench_pipeline [RUNS]
// A stream of requests over two devices that have half of the nodes each, with one, two and three devices' worth of copies between
// them: the share of the ideal throughput (that of the busier device) and the share of the copies' time that is hidden. Then one
// run with two branches on two devices, against the longer branch.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "runtime/request/request.h"
#include "tests/runtime/live/support.h"

namespace evn::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kNodes = 8;  // half of them on each device

// x -> Softmax, Neg, Softmax, ... -> y, whose names begin with the device that they are for. `branches`: two chains and their sum.
OnnxWriter chain(bool branches) {
  OnnxWriter w;
  w.add_input("x", kF32, {64});
  const char* devices[] = {"m", "n"};
  std::string ends[2], at = "x";
  for (int half = 0; half < 2; ++half) {
    if (branches) at = "x";
    for (int i = 0; i < kNodes / 2; ++i) {
      const std::string name = std::string(devices[half]) + std::to_string(i);
      w.add_node(i % 2 == 0 ? "Softmax" : "Neg", {at}, {name + "_out"}, {}, name);
      at = name + "_out";
    }
    ends[half] = at;
  }
  if (branches) w.add_node("Add", {ends[0], ends[1]}, {"sum"}, {}, "add");
  w.add_output(branches ? "sum" : at, kF32, {64});
  return w;
}

std::shared_ptr<Runtime> runtime_with(std::uint64_t kernel_ns, std::uint64_t copy_ns) {
  mock_settings() = {};
  mock_settings().has_queues = true;
  mock_settings().kernel_ns = kernel_ns;
  mock_settings().copy_ns = copy_ns;
  Config c = two_mocks();
  c.rules = {rule({}, {"m*"}, "m", Policy::kRequire, 1), rule({}, {"n*"}, "n", Policy::kRequire, 2)};
  return make_runtime(c, 0, 1);
}

struct Counter {
  std::mutex mutex;
  std::condition_variable changed;
  int ended = 0;
};

class Counted final : public Request {
 public:
  Counted(std::shared_ptr<Session> session, std::vector<RunValue> in, Counter& counter)
      : Request(std::move(session), std::move(in), std::vector<RunValue>(1), {}, nullptr), counter_(counter) {}

 private:
  void tell(const RequestPtr&) noexcept override {
    const std::lock_guard<std::mutex> lock(counter_.mutex);
    ++counter_.ended;
    counter_.changed.notify_all();
  }
  Counter& counter_;
};

double seconds_of(const std::shared_ptr<Session>& session, int runs) {
  const TensorPtr x = to_tensor(session->runtime(), HostTensor({DType::kFloat32, {64}}));
  Counter counter;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < runs; ++i) {
    session->runtime()->dispatcher().submit(std::make_shared<Counted>(session, std::vector<RunValue>{{x, nullptr}}, counter), false,
                                            {});
  }
  std::unique_lock<std::mutex> lock(counter.mutex);
  counter.changed.wait(lock, [&] { return counter.ended == runs; });
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void pipeline(int runs, std::uint64_t kernel_ns, std::uint64_t copy_ns) {
  const auto session = std::make_shared<Session>(load(runtime_with(kernel_ns, copy_ns), chain(false)), "");
  seconds_of(session, 4);
  const double stage = static_cast<double>(kernel_ns) * kNodes / 2 * 1e-9;
  const double fill = stage;  // until the second device has something to do
  const double seconds = seconds_of(session, runs);
  const double copies = 4 * static_cast<double>(copy_ns) * 1e-9 * runs;  // in, out of the first, into the second, out
  const double visible = seconds - fill - stage * runs;
  std::printf("pipeline: kernels of %5.2f ms, copies of %5.2f ms: %6.2f runs/s, %.3f of the ideal, %.3f of the copies hidden\n",
              static_cast<double>(kernel_ns) * 1e-6, static_cast<double>(copy_ns) * 1e-6, runs / seconds,
              (fill + stage * runs) / seconds, 1 - visible / copies);
}

void branches(std::uint64_t kernel_ns) {
  const auto session = std::make_shared<Session>(load(runtime_with(kernel_ns, 0), chain(true)), "");
  const std::vector<HostTensor> x = {HostTensor({DType::kFloat32, {64}})};
  run(*session, x);
  std::vector<double> times;
  for (int i = 0; i < 11; ++i) {
    const Clock::time_point begin = Clock::now();
    run(*session, x);
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + 5, times.end());
  const double branch = static_cast<double>(kernel_ns) * kNodes / 2 * 1e-9;
  std::printf("branches: kernels of %5.2f ms: %.3f of the longer branch, %.3f of both one after the other\n",
              static_cast<double>(kernel_ns) * 1e-6, times[5] / branch, times[5] / (2 * branch));
}

}  // namespace
}  // namespace evn::test

int main(int count, char** arguments) {
  const int runs = count > 1 ? std::atoi(arguments[1]) : 100;
  for (const std::uint64_t copy_ns : {std::uint64_t{500'000}, std::uint64_t{1'000'000}, std::uint64_t{2'000'000}})
    evn::test::pipeline(runs, 2'000'000, copy_ns);
  evn::test::branches(2'000'000);
}
