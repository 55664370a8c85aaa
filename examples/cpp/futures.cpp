// Keeps several runs of a model in flight with std::future, and prints the largest value of each output.
// c++ -std=c++17 futures.cpp $(pkg-config --cflags --libs evener) && ./a.out model.onnx
#include <evener/evener.hpp>

#include <algorithm>
#include <cstdio>
#include <deque>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const evener::Runtime runtime;
    const evener::Session session = runtime.session(argv[1]);
    const evener::ValueInfo info = session.input(0);
    if (info.dtype != evener::DType::kFloat32 || !info.has_rank) {
      std::fprintf(stderr, "input %s is not float32, or its rank is not known\n", info.name.c_str());
      return 1;
    }
    std::vector<std::int64_t> dims = info.dims;
    std::replace(dims.begin(), dims.end(), std::int64_t{-1}, std::int64_t{1});

    std::deque<std::future<std::vector<evener::Tensor>>> in_flight;
    const auto print_first = [&] {
      const std::vector<evener::Tensor> outputs = in_flight.front().get();  // throws what the run threw
      in_flight.pop_front();
      const std::vector<float> y = outputs[0].to_vector<float>();
      std::printf("%.5f\n", static_cast<double>(*std::max_element(y.begin(), y.end())));
    };
    for (int i = 0; i < 10; ++i) {
      evener::Tensor x = runtime.device().tensor(evener::DType::kFloat32, dims);
      for (float& value : x.data<float>()) value = 0.1f * static_cast<float>(i);
      in_flight.push_back(session.submit(evener::Span<const evener::Tensor>(&x, 1)));  // keeps x
      if (in_flight.size() > 4) print_first();  // no more than so many inputs and outputs at a time
    }
    while (!in_flight.empty()) print_first();
  } catch (const evener::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
