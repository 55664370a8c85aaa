// The recognition network of examples/python/ocr.py by evener.hpp, as a client of C++17 uses it: alone, as 16 requests with
// deadlines, placed by a configuration, under a memory cap, and quantized. test_cpp_client.py compiles and runs it.
//
//   recognizer MODEL FOLDER        (a folder of bindings/rust/evener/tests/make_ocr_lines.py)
#include <evener/evener.hpp>
#include <evener/quantizer.hpp>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

namespace {

using evener::Tensor;

void expect(bool condition, const std::string& what) {
  if (condition) return;
  std::cerr << "not so: " << what << "\n";
  std::exit(1);
}

template <typename F>
evn_status status_of(F&& f) {
  try {
    f();
  } catch (const evener::Error& e) {
    return e.status();
  }
  return EVN_OK;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  expect(file.good(), path + " can be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The greedy rule of CTC: the largest class of each step, 0 is the blank, repeated ones count once.
std::string decode(const Tensor& probabilities, const std::vector<std::string>& alphabet) {
  const auto values = probabilities.data<float>();
  const std::size_t classes = alphabet.size();
  expect(static_cast<std::size_t>(probabilities.dims()[2]) == classes, "the network has a class for each character");
  std::string text;
  std::size_t last = 0;
  for (std::size_t step = 0; step < values.size(); step += classes) {
    std::size_t best = 0;
    for (std::size_t c = 1; c < classes; ++c) best = values[step + c] > values[step + best] ? c : best;
    if (best != 0 && best != last) text += alphabet[best];
    last = best;
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) try {
  expect(argc == 3, "recognizer MODEL FOLDER");
  const std::string path = argv[1], folder = argv[2];
  evener::RuntimeOptions options;
  options.cache_dir = "";
  options.config_text =
      "version: 1\nplacement:\n  default: cpu\n  rules:\n    - {match: {op: MatMul}, device: cpu, numerics: strict}\n";
  const evener::Runtime runtime(options);
  const evener::Model model = runtime.load(path);
  std::vector<std::string> alphabet = split(model.metadata("character"));
  alphabet.insert(alphabet.begin(), "");
  alphabet.emplace_back(" ");
  const evener::Session session = runtime.session(model);
  expect(session.explain().find("rule") != std::string::npos, "the explanation names the rule of the configuration");

  const std::vector<std::string> texts = split(read_file(folder + "/texts.txt"));
  expect(texts.size() >= 2, "there are lines");
  std::vector<Tensor> lines;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string bytes = read_file(folder + "/line" + std::to_string(i) + ".f32");
    std::vector<float> pixels(bytes.size() / sizeof(float));
    std::memcpy(pixels.data(), bytes.data(), bytes.size());
    const auto width = static_cast<std::int64_t>(pixels.size() / (3 * 48));
    lines.push_back(runtime.take({1, 3, 48, width}, std::move(pixels)));
    const std::string text = decode(session.run(lines[i])[0], alphabet);
    expect(text == texts[i], "\"" + text + "\" is \"" + texts[i] + "\"");
    std::cout << text << "\n";
  }

  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  evener::RunOptions late, in_time;
  in_time.deadline_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(now + std::chrono::minutes(10)).count());
  late.deadline_ns = 1;
  std::vector<evener::Request> requests;
  for (std::size_t i = 0; i < 16; ++i)
    requests.push_back(session.request(evener::Span<const Tensor>(&lines[i % lines.size()], 1), i == 7 ? late : in_time));
  for (std::size_t i = 0; i < 16; ++i) {
    requests[i].wait();
    if (i == 7) {
      expect(status_of([&] { requests[i].take(1); }) == EVN_ERROR_TIMEOUT, "a request whose deadline has passed is late");
    } else {
      expect(decode(requests[i].take(1)[0], alphabet) == texts[i % lines.size()], "each of 16 requests reads its line");
    }
  }

  const evener::Quantizer quantizer(runtime, path);
  for (const Tensor& line : lines) quantizer.add_batch(evener::Span<const Tensor>(&line, 1));
  const evener::Session quantized = runtime.session(quantizer.finish());
  expect(quantized.run(lines[0])[0].dims() == session.run(lines[0])[0].dims(),
         "the quantized network has the outputs of the other");

  const evener::Device cpu = runtime.device("cpu");
  expect(cpu.memory_stats().current > 0, "the device has memory in use");
  const evener::Session capped = runtime.session(model);
  cpu.set_memory_limit(1 << 20);  // less than one line's intermediate values
  try {
    static_cast<void>(capped.run(lines[0]));
    expect(false, "a run that needs more than the cap ends in an error");
  } catch (const evener::Error& e) {
    expect(e.status() == EVN_ERROR_OUT_OF_MEMORY && e.bytes_requested() > 0, std::string("the error is of memory: ") + e.what());
  }
  cpu.set_memory_limit(UINT64_MAX);
  expect(decode(capped.run(lines[0])[0], alphabet) == texts[0], "the session runs on without the cap");
  return 0;
} catch (const evener::Error& e) {
  std::cerr << e.what() << "\n";
  return 1;
}
