// Trains a network on written digits by trainer.hpp, as a client of C++17 uses it: it sees the numbers that Python sees, goes on
// from checkpoints with the same bits, and what it exports computes what the trainer evaluates. test_cpp_client.py compiles and
// runs it.
//
//   trainer FOLDER        (a folder of tests/training/make_digits_run.py)
#include <evener/trainer.hpp>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>

namespace {

using evener::Tensor;

constexpr std::size_t kBatches = 8, kBatch = 32, kHeld = 64, kPixels = 28 * 28;

void expect(bool condition, const std::string& what) {
  if (condition) return;
  std::cerr << "not so: " << what << "\n";
  std::exit(1);
}

template <typename T>
std::vector<T> read_numbers(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  expect(file.good(), path + " can be read");
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
  return numbers;
}

struct Digits {
  Digits(const evener::Runtime& of, const std::string& folder)
      : runtime(of),
        images(read_numbers<float>(folder + "/images.f32")),
        labels(read_numbers<std::int64_t>(folder + "/labels.i64")) {
    expect(labels.size() == kBatches * kBatch + kHeld && images.size() == labels.size() * kPixels, "all pictures are there");
  }
  std::vector<Tensor> inputs(std::size_t at, std::size_t count) const {
    std::vector<Tensor> all;
    const auto begin = images.begin() + static_cast<std::ptrdiff_t>(at * kPixels);
    all.push_back(runtime.tensor({static_cast<std::int64_t>(count), 1, 28, 28},
                                 std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(count * kPixels))));
    return all;
  }
  Tensor classes(std::size_t at, std::size_t count) const {
    const auto begin = labels.begin() + static_cast<std::ptrdiff_t>(at);
    return runtime.tensor({static_cast<std::int64_t>(count)},
                          std::vector<std::int64_t>(begin, begin + static_cast<std::ptrdiff_t>(count)));
  }

  const evener::Runtime& runtime;
  std::vector<float> images;
  std::vector<std::int64_t> labels;
};

// Takes steps from number `first` on, and expects the losses of Python.
void train(const evener::Trainer& trainer, const Digits& digits, std::size_t first, std::size_t last,
           const std::vector<double>& expected) {
  for (std::size_t i = first; i < last; ++i) {
    const evn_step_info step = trainer.step(digits.inputs(i * kBatch, kBatch), digits.classes(i * kBatch, kBatch));
    expect(step.step == i + 1 && step.skipped == 0 && step.gradient_norm > 0, "a step moves the parameters");
    expect(step.loss == expected[i], "step " + std::to_string(i) + " has the loss of Python, to the last bit");
  }
}

// Mean cross-entropy and right answers of logits.
evener::Evaluation score(const std::vector<float>& logits, const std::int64_t* labels) {
  evener::Evaluation of;
  of.count = logits.size() / 10;
  for (std::size_t row = 0; row < of.count; ++row) {
    const float* const y = &logits[row * 10];
    std::size_t best = 0;
    double sum = 0;
    for (std::size_t c = 0; c < 10; ++c) {
      best = y[c] > y[best] ? c : best;
      sum += std::exp(static_cast<double>(y[c]));
    }
    const auto label = static_cast<std::size_t>(labels[row]);
    of.loss += (std::log(sum) - static_cast<double>(y[label])) / static_cast<double>(of.count);
    of.correct += best == label ? 1u : 0u;
  }
  return of;
}

void expect_as_evaluated(const evener::Session& session, const Digits& digits, const evener::Evaluation& held) {
  const std::size_t at = kBatches * kBatch;
  const evener::Evaluation got = score(session.run(digits.inputs(at, kHeld))[0].to_vector<float>(), &digits.labels[at]);
  expect(got.correct == held.correct && got.count == held.count && std::abs(got.loss - held.loss) < 1e-5,
         "the model computes what the trainer evaluates");
}

}  // namespace

int main(int argc, char** argv) try {
  expect(argc == 2, "trainer FOLDER");
  const std::string folder = argv[1], model = folder + "/simple_cnn.onnx", checkpoint = folder + "/cpp.safetensors";
  const std::vector<double> expected = read_numbers<double>(folder + "/expected.f64");
  expect(expected.size() == kBatches + 3, "all numbers of Python are there");
  evener::RuntimeOptions runtime_options;
  runtime_options.cache_dir = "";
  runtime_options.thread_count = 2;
  const evener::Runtime runtime(runtime_options);
  const Digits digits(runtime, folder);

  evener::TrainerOptions options;
  options.optimizer = evener::Optimizer::kAdamW;
  options.learning_rate = 0.002;
  options.weight_decay = 0.01;
  options.groups = {{{"*.b"}, 2, 0}};
  options.frozen = {"conv1.b"};
  options.schedule = evener::Schedule::kCosine;
  options.schedule_steps = 16;
  options.warmup_steps = 2;
  options.clip_norm = 1;
  options.seed = 7;

  const evener::Trainer trainer(runtime, model, options);
  train(trainer, digits, 0, kBatches / 2, expected);
  trainer.save(checkpoint);
  train(trainer, digits, kBatches / 2, kBatches, expected);
  expect(expected[kBatches - 1] < expected[0], "the loss falls");
  const std::size_t at = kBatches * kBatch;
  const evener::Evaluation held = trainer.evaluate(digits.inputs(at, kHeld), digits.classes(at, kHeld));
  expect(held.loss == expected[kBatches] && static_cast<double>(held.correct) == expected[kBatches + 1] && held.count == kHeld,
         "the evaluation is that of Python");
  expect(*held.accuracy() > 0.5, "it has learned");

  for (const std::string& file : {checkpoint, folder + "/state.safetensors"}) {  // its own, and Python's
    const evener::Trainer other(runtime, model, options);
    other.restore(file);
    train(other, digits, kBatches / 2, kBatches, expected);
    for (std::size_t i = 0; i < trainer.parameter_names().size(); ++i)
      expect(other.parameter(i).to_vector<float>() == trainer.parameter(i).to_vector<float>(), "parameters have the same bits");
  }

  const std::string exported = folder + "/cpp.onnx";
  trainer.export_model(exported);
  expect_as_evaluated(runtime.session(exported), digits, held);
  expect_as_evaluated(runtime.session(trainer.finish()), digits, held);
  std::cout << held.correct << " of " << held.count << "\n";
  return 0;
} catch (const evener::Error& e) {
  std::cerr << e.what() << "\n";
  return 1;
}
