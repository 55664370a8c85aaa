// What the CPU's kernels make of the machine: products by few rows as a share of the read bandwidth, large products as a share of
// the multiply-add peak, element-wise, normalizing and reducing operators out of cache as a share of a stream that reads and writes
// as they do. Both are measured in turns, so that a noisy neighbour meets both. Models of one node are run through the C API.
//   usage: bandwidth [--threads N] [--mib M] [--rounds R] [FILTER]
// Element-wise arrays have M MiB (64). Of each pair of times the least of R rounds (9) counts. Streams: "read" sums an array,
// "copy" and "triad" go over whole arrays, the faster of plain and of non-temporal stores.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/isa.h"
#include "evener/evener.h"
#include "peak_loops.h"
#include "tests/model/onnx_writer.h"

namespace evn {
namespace {

using test::Attr;
using test::kF32;
using test::kI64;
using test::OnnxWriter;

int g_threads = 1;
int g_rounds = 9;
std::int64_t g_mib = 64;
evn_error g_error = EVN_ERROR_INIT;

void must(evn_status status) {
  if (status == EVN_OK) return;
  std::fprintf(stderr, "bandwidth: %s\n", g_error.message);
  std::exit(1);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

const PeakLoops& loops() {
#if defined(__x86_64__)
  if (cpu_isa() == Isa::k_avx512) return avx512::peak_loops;
  if (cpu_isa() == Isa::k_avx2) return avx2::peak_loops;
#endif
  return baseline::peak_loops;
}

// A model with its inputs and outputs, which are the caller's own tensors.
class Network {
 public:
  Network(const OnnxWriter& writer, std::vector<std::vector<std::int64_t>> inputs, std::vector<std::int64_t> output) {
    const std::string bytes = writer.serialize();
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.thread_count = g_threads;
    must(evn_runtime_create(&options, &runtime_, &g_error));
    must(evn_runtime_device_find(runtime_, "cpu", &cpu_, &g_error));
    must(evn_model_load_buffer(runtime_, bytes.data(), bytes.size(), nullptr, &model_, &g_error));
    must(evn_session_create(runtime_, model_, nullptr, &session_, &g_error));
    for (const auto& dims : inputs) in_.push_back(make(dims));
    out_ = make(output);
    run();
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network() {
    for (evn_tensor t : in_) evn_tensor_release(t);
    evn_tensor_release(out_);
    evn_session_release(session_);
    evn_model_release(model_);
    evn_device_release(cpu_);
    evn_runtime_release(runtime_);
  }

  void run() { must(evn_session_run(session_, in_.data(), static_cast<std::uint32_t>(in_.size()), &out_, 1, nullptr, &g_error)); }

 private:
  evn_tensor make(const std::vector<std::int64_t>& dims) {
    evn_tensor t = nullptr;
    must(evn_tensor_create(cpu_, EVN_DTYPE_FLOAT32, dims.data(), static_cast<std::uint32_t>(dims.size()), 0, &t, &g_error));
    void* data = nullptr;
    std::size_t bytes = 0;
    must(evn_tensor_map(t, EVN_MAP_WRITE, &data, &bytes, &g_error));
    auto* x = static_cast<float*>(data);
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) x[i] = 0.125f * static_cast<float>(i % 61) - 3.5f;
    must(evn_tensor_unmap(t, &g_error));
    return t;
  }

  evn_runtime runtime_ = nullptr;
  evn_device cpu_ = nullptr;
  evn_model model_ = nullptr;
  evn_session session_ = nullptr;
  std::vector<evn_tensor> in_;
  evn_tensor out_ = nullptr;
};

// ---------------------------------------------------------------------------------------------------------- yardsticks --

enum class Stream { kRead, kCopy, kTriad };

// Runs work(thread) on all threads, each on its own part.
void on_threads(const std::function<void(int)>& work) {
  std::vector<std::thread> others;
  for (int t = 1; t < g_threads; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& t : others) t.join();
}

class Streams {
 public:
  Streams() : count_((g_mib << 18) / g_threads / 256 * 256), memory_(static_cast<std::size_t>(3 * count_ * g_threads) + 16, 1.0f) {
    base_ = memory_.data();
    base_ += 16 - reinterpret_cast<std::uintptr_t>(base_) / 4 % 16;
  }

  // Bytes of one pass.
  double bytes(Stream s) const { return 4.0 * static_cast<double>(count_ * g_threads) * (s == Stream::kCopy ? 2 : 3); }

  // Seconds of one pass, the faster of both ways to store.
  double seconds(Stream s) {
    if (s == Stream::kRead) return time([&](int t) { sink_ = loops().read(at(t), 3 * count_); });
    if (s == Stream::kCopy) {
      return std::min(time([&](int t) { loops().copy(at(t), at(t) + count_, count_, false); }),
                      time([&](int t) { loops().copy(at(t), at(t) + count_, count_, true); }));
    }
    return std::min(time([&](int t) { loops().triad(at(t), at(t) + count_, at(t) + 2 * count_, 0.5f, count_); }),
                    time([&](int t) { loops().triad_past(at(t), at(t) + count_, at(t) + 2 * count_, 0.5f, count_); }));
  }

 private:
  float* at(int thread) { return base_ + 3 * count_ * thread; }
  double time(const std::function<void(int)>& work) {
    const double begin = now();
    on_threads(work);
    return now() - begin;
  }

  std::int64_t count_;
  std::vector<float> memory_;
  float* base_;
  volatile float sink_ = 0;
};

double fma_gflops() {
  constexpr std::int64_t kRounds = 100000;
  volatile float sink = 0;
  const double begin = now();
  on_threads([&](int) { sink = loops().multiply_adds(kRounds); });
  return static_cast<double>(kRounds * kPeakChains * loops().lanes * 2) * g_threads / (now() - begin) / 1e9;
}

// ---------------------------------------------------------------------------------------------------------------- rows --

struct Row {
  std::string name;
  Stream stream;
  double bytes;  // that must be moved; 0: a product, judged by its operations
  double operations;
  std::function<Network*()> make;
};

void measure(const Row& row, Streams& streams) {
  Network* const network = row.make();
  double best = 1e9, yardstick = 0;
  for (int i = 0; i < g_rounds; ++i) {
    const double begin = now();
    network->run();
    best = std::min(best, now() - begin);
    yardstick = std::max(yardstick, row.bytes > 0 ? streams.bytes(row.stream) / streams.seconds(row.stream) / 1e9 : fma_gflops());
  }
  delete network;
  const double got = (row.bytes > 0 ? row.bytes : row.operations) / best / 1e9;
  static const char* const kNames[] = {"GB/s read", "GB/s copied", "GB/s triad"};
  std::printf("%-26s %9.3f ms %8.1f of %8.1f %-12s %5.0f %%\n", row.name.c_str(), best * 1e3, got, yardstick,
              row.bytes > 0 ? kNames[static_cast<int>(row.stream)] : "GFLOPS", 100 * got / yardstick);
  std::fflush(stdout);
}

Row product(std::int64_t m, std::int64_t k, std::int64_t n) {
  Row r;
  r.name = "MatMul " + std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n);
  r.stream = Stream::kRead;
  r.operations = 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
  r.bytes = m <= 4 ? 4.0 * static_cast<double>(k) * static_cast<double>(n) : 0;
  r.make = [=] {
    std::vector<float> w(static_cast<std::size_t>(k * n));
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.001f * static_cast<float>(i % 101) - 0.05f;
    OnnxWriter model(17);
    model.add_node("MatMul", {"x", "w"}, {"y"}).add_input("x", kF32, {m, k}).add_output("y", kF32).add_initializer("w", {k, n}, w);
    return new Network(model, {{m, k}}, {m, n});
  };
  return r;
}

// An operator of arrays of `mib` MiB as rows of `line`; `vectors` further inputs are constant vectors of a line.
Row operation(const char* op, int arrays, std::int64_t line, int vectors, bool reduces, std::vector<Attr> attributes,
              int opset = 17) {
  Row r;
  r.name = std::string(op) + (line > 0 ? " over " + std::to_string(line) : "");
  r.stream = reduces ? Stream::kRead : arrays == 2 ? Stream::kTriad : Stream::kCopy;
  const double bytes = static_cast<double>(g_mib << 20);
  r.bytes = bytes * (arrays + (reduces ? 0 : 1));
  r.operations = 0;
  r.make = [=, op = std::string(op)] {
    const std::int64_t columns = line > 0 ? line : 1024;
    const std::int64_t rows = (g_mib << 18) / columns;
    OnnxWriter model(opset);
    std::vector<std::string> names;
    for (int i = 0; i < arrays; ++i) {
      names.push_back("x" + std::to_string(i));
      model.add_input(names.back(), kF32, {rows, columns});
    }
    for (int i = 0; i < vectors; ++i) {
      names.push_back("v" + std::to_string(i));
      model.add_initializer(names.back(), {columns}, std::vector<float>(static_cast<std::size_t>(columns), 1.25f));
    }
    model.add_node(op, names, {"y"}, attributes).add_output("y", kF32);
    return new Network(model, std::vector<std::vector<std::int64_t>>(static_cast<std::size_t>(arrays), {rows, columns}),
                       reduces ? std::vector<std::int64_t>{rows} : std::vector<std::int64_t>{rows, columns});
  };
  return r;
}

std::vector<Row> rows() {
  std::vector<Row> all;
  for (const std::int64_t m : {1, 2, 3, 4}) all.push_back(product(m, 4096, 8192));
  for (const std::int64_t m : {1, 4}) all.push_back(product(m, 8192, 2048));
  all.push_back(product(128, 768, 3072));
  all.push_back(product(512, 512, 512));
  all.push_back(product(1024, 1024, 1024));
  all.push_back(product(2048, 2048, 2048));
  for (const char* op : {"Relu", "Abs", "Sigmoid", "Tanh", "Exp", "HardSwish"}) all.push_back(operation(op, 1, 0, 0, false, {}));
  all.push_back(operation("Gelu", 1, 0, 0, false, {}, 20));
  for (const char* op : {"Add", "Mul", "Sub", "Max"}) all.push_back(operation(op, 2, 0, 0, false, {}));
  all.push_back(operation("Add", 1, 768, 1, false, {}));
  all.push_back(operation("Softmax", 1, 128, 0, false, {{"axis", -1}}));
  all.push_back(operation("Softmax", 1, 1024, 0, false, {{"axis", -1}}));
  all.push_back(operation("LayerNormalization", 1, 768, 2, false, {{"axis", -1}}));
  all.push_back(operation("RMSNormalization", 1, 768, 1, false, {{"axis", -1}}, 23));
  for (const char* op : {"ReduceMean", "ReduceMax"}) {
    all.push_back(operation(op, 1, 1024, 0, true, {{"axes", std::vector<std::int64_t>{1}}, {"keepdims", 0}}));
  }
  return all;
}

int run(int argc, char** argv) {
  std::string filter;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--threads") == 0 && more) {
      g_threads = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--mib") == 0 && more) {
      g_mib = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--rounds") == 0 && more) {
      g_rounds = std::atoi(argv[++i]);
    } else {
      filter = argv[i];
    }
  }
  if (g_threads < 1 || g_threads > 1024 || g_mib < 1 || g_rounds < 1) return 2;
  std::printf("%s, %d threads, arrays of %lld MiB\n", isa_name(cpu_isa()), g_threads, static_cast<long long>(g_mib));
  Streams streams;
  for (const Row& row : rows()) {
    if (row.name.find(filter) != std::string::npos) measure(row, streams);
  }
  return 0;
}

}  // namespace
}  // namespace evn

int main(int argc, char** argv) { return evn::run(argc, argv); }
