// Trains a network on written digits, and runs what it has become.
//
//   c++ -std=c++17 train.cpp $(pkg-config --cflags --libs evener) -o train
//   ./train FOLDER TRAINED.onnx
//
// FOLDER is what tests/training/make_digits_run.py has written: a network, and pictures of 28 x 28 with their classes, as plain
// numbers.
#include <algorithm>
#include <cstdio>
#include <evener/trainer.hpp>
#include <fstream>
#include <iterator>

namespace {

constexpr std::size_t kBatch = 32, kPixels = 28 * 28;

template <typename T>
std::vector<T> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
  return numbers;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s FOLDER TRAINED.onnx\n", argv[0]);
    return 2;
  }
  const std::string folder = argv[1], trained = argv[2];
  const std::vector<float> images = read<float>(folder + "/images.f32");
  const std::vector<std::int64_t> labels = read<std::int64_t>(folder + "/labels.i64");
  if (labels.size() < 2 * kBatch || images.size() != labels.size() * kPixels) {
    std::fprintf(stderr, "there are no pictures in %s\n", folder.c_str());
    return 1;
  }
  const std::size_t held = labels.size() - kBatch;  // the last pictures are not learned
  try {
    const evener::Runtime runtime;
    evener::TrainerOptions options;
    options.optimizer = evener::Optimizer::kAdamW;
    options.learning_rate = 0.002;
    const evener::Trainer trainer(runtime, folder + "/simple_cnn.onnx", options);
    const auto inputs = [&](std::size_t first) {
      return runtime.tensor({kBatch, 1, 28, 28}, evener::Span<const float>(&images[first * kPixels], kBatch * kPixels));
    };
    const auto classes = [&](std::size_t first) {
      return runtime.tensor({kBatch}, evener::Span<const std::int64_t>(&labels[first], kBatch));
    };

    for (int epoch = 1; epoch <= 4; ++epoch) {
      evn_step_info step = EVN_STEP_INFO_INIT;
      for (std::size_t first = 0; first + kBatch <= held; first += kBatch) {
        const evener::Tensor x = inputs(first);
        step = trainer.step({&x, 1}, classes(first));
      }
      const evener::Tensor x = inputs(held);
      const evener::Evaluation found = trainer.evaluate({&x, 1}, classes(held));
      std::printf("epoch %d: loss %.4f, %d of %d read rightly\n", epoch, step.loss, static_cast<int>(found.correct),
                  static_cast<int>(found.count));
    }

    trainer.export_model(trained);  // an ONNX file, for any engine
    const std::vector<float> scores = runtime.session(trained).run(inputs(held)).at(0).to_vector<float>();
    const auto best = std::max_element(scores.begin(), scores.begin() + 10) - scores.begin();
    std::printf("the first of them is a %d: it was read as %d\n", static_cast<int>(labels[held]), static_cast<int>(best));
    return 0;
  } catch (const evener::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
