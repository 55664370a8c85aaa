// Times what a session does when it meets a new input shape, per node of the optimized graph, next to what a handle check costs.
//   usage: bench_plan MODEL DIM...    the dims of the first input
// Medians. The design allows 1 us a node and 20 ns a check.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "api/objects.h"
#include "evener/evener.h"
#include "runtime/lower/plan.h"

namespace evn {
extern const Backend cpu_backend;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <typename F>
double median_seconds(int runs, F&& f) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const double start = now();
    f();
    times.push_back(now() - start);
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return times[static_cast<std::size_t>(runs / 2)];
}

void time_plan(const char* path, const Shape& shape) {
  static const Backend* const backends[] = {&cpu_backend};
  RuntimeOptions options;
  options.backends = backends;
  const ModelPtr model = load_model_file(std::make_shared<Runtime>(std::move(options)), path);
  const CompiledGraph compiled = compile(model, "", {});
  Signature signature;
  const Graph& graph = model->graph();
  signature.inputs = {{graph.values[graph.inputs[0]].dtype, shape}};
  signature.input_slots = {0};
  signature.output_slots.assign(graph.outputs.size(), 0);
  signature.values.resize(1);
  const double seconds = median_seconds(101, [&] { make_plan(compiled, signature); });
  std::printf("%zu nodes: %.1f us a plan, %.2f us a node\n", graph.nodes.size(), seconds * 1e6,
              seconds * 1e6 / static_cast<double>(graph.nodes.size()));
}

void time_handles() {
  evn_runtime runtime = nullptr;
  if (evn_runtime_create(nullptr, &runtime, nullptr) != EVN_OK) return;
  constexpr int kCalls = 1000;
  std::uint32_t count = 0;
  const double seconds = median_seconds(101, [&] {
    for (int i = 0; i < kCalls; ++i) evn_runtime_device_count(runtime, &count, nullptr);
  });
  std::printf("a call with one handle: %.1f ns\n", seconds / kCalls * 1e9);
  evn_runtime_release(runtime);
}

}  // namespace
}  // namespace evn

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  evn::Shape shape;
  for (int i = 2; i < argc; ++i) shape.push_back(std::atoll(argv[i]));
  evn::time_handles();
  evn::time_plan(argv[1], shape);
  return 0;
}
