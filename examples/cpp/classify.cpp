// Loads a model, runs it once on a ramp, prints the five largest values of its first output: examples/c/terse.c in C++.
//
//   c++ -std=c++17 classify.cpp $(pkg-config --cflags --libs evener) -o classify
//   ./classify model.onnx [sizes of dims that the model leaves open]
//
// The model must have one input and one output of dtype float32. An open dim without a size is 1 on axis 0 and 128 elsewhere.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <evener/evener.hpp>
#include <numeric>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL.onnx [SIZE ...]\n", argv[0]);
    return 2;
  }
  try {
    evener::RuntimeOptions options;
    options.log = [](const evn_log_record& record) { std::fprintf(stderr, "%s\n", record.message); };
    const evener::Runtime runtime(std::move(options));
    const evener::Session session = runtime.session(argv[1]);

    const evener::ValueInfo info = session.input(0);
    if (info.dtype != evener::DType::kFloat32 || !info.has_rank) {
      std::fprintf(stderr, "input %s is not float32, or its rank is not known\n", info.name.c_str());
      return 1;
    }
    std::vector<std::int64_t> dims = info.dims;
    int next = 2;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] < 0) dims[i] = next < argc ? std::atoll(argv[next++]) : i == 0 ? 1 : 128;
    }
    evener::Tensor input = runtime.device().tensor(evener::DType::kFloat32, dims);
    {
      const auto x = input.data<float>();  // mapped until the end of this scope
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 256) / 255;
    }

    const std::vector<float> y = session.run(input).at(0).to_vector<float>();
    std::vector<std::size_t> order(y.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return y[a] > y[b]; });
    for (std::size_t i = 0; i < order.size() && i < 5; ++i) std::printf("%zu %.5f\n", order[i], static_cast<double>(y[order[i]]));
    return 0;
  } catch (const evener::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
