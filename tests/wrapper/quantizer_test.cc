// quantizer.hpp, and what of sessions goes with it, used as its users do.
#include "evener/quantizer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "tests/model/onnx_writer.h"

namespace {

using evener::Error;
using evener::Tensor;

// y = x W, of any rows of eight columns.
std::string product_model() {
  std::vector<float> weights;
  for (int i = 0; i < 64; ++i) weights.push_back(static_cast<float>(i % 7) - 3.f);
  evn::test::OnnxWriter w;
  w.add_input("x", evn::test::kF32, {"rows_of_a_model_whose_names_are_longer_than_infos_have_room_for", 8});
  w.add_output("y", evn::test::kF32).add_initializer("w", {8, 8}, weights).add_node("MatMul", {"x", "w"}, {"y"}, {}, "product");
  return w.serialize();
}

// y = x W, where an element of W is no number.
std::string model_with_nan() {
  std::vector<float> weights(32 * 8, 0.5f);
  weights[77] = std::nanf("");
  evn::test::OnnxWriter w;
  w.add_input("x", evn::test::kF32, {"n", 32}).add_output("y", evn::test::kF32);
  w.add_initializer("w", {32, 8}, weights).add_node("MatMul", {"x", "w"}, {"y"}, {}, "product");
  return w.serialize();
}

struct WrapperQuantizer : testing::Test {
  evener::Runtime runtime{[] {
    evener::RuntimeOptions o;
    o.cache_dir = "";
    o.thread_count = 1;
    return o;
  }()};
  std::string bytes = product_model();
  std::vector<Tensor> inputs = some_inputs();

  std::vector<Tensor> some_inputs() const {
    std::vector<float> x;
    for (int i = 0; i < 32; ++i) x.push_back(static_cast<float>(i % 5) / 4.f - 0.5f);
    std::vector<Tensor> all;
    all.push_back(runtime.tensor({4, 8}, x));
    return all;
  }
};

TEST_F(WrapperQuantizer, QuantizesGuardsVerifiesAndReports) {
  std::vector<std::string> told;
  evener::QuantizerOptions options;
  options.calibration = evener::Calibration::kMse;
  options.progress = [&](std::string_view what, std::uint64_t, std::uint64_t) {
    told.emplace_back(what);
    return true;
  };
  const evener::Quantizer quantizer(runtime, bytes.data(), bytes.size(), options);
  ASSERT_EQ(quantizer.input_count(), 1u);
  EXPECT_EQ(quantizer.find_input("x"), 0u);
  EXPECT_THROW(quantizer.find_input("z"), Error);
  quantizer.add_batch(inputs);
  evener::GuardOptions guard;
  guard.speed = false;
  guard.min_cosine = 0.9;
  quantizer.guard(inputs, guard);
  quantizer.verify(inputs);
  EXPECT_NE(quantizer.report(evener::Format::kJson).find("\"quantized_nodes\""), std::string::npos);
  EXPECT_FALSE(told.empty());

  const evener::Session plain = runtime.session(runtime.load(bytes.data(), bytes.size()));
  const evener::Session small = runtime.session(quantizer.finish());
  const std::vector<float> want = plain.run(inputs)[0].to_vector<float>(), got = small.run(inputs)[0].to_vector<float>();
  ASSERT_EQ(want.size(), got.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(want[i], got[i], 0.2f) << i;
  EXPECT_NE(plain.compare(small, inputs).find("y"), std::string::npos);

  const std::string path = testing::TempDir() + "wrapper_quantized.onnx";
  quantizer.save(path);
  EXPECT_EQ(runtime.session(path).run(inputs)[0].to_vector<float>(), got);
  std::remove(path.c_str());
}

TEST_F(WrapperQuantizer, StopsWhenToldTo) {
  evener::QuantizerOptions options;
  options.progress = [](std::string_view, std::uint64_t, std::uint64_t) -> bool { throw std::runtime_error("no"); };
  const evener::Quantizer quantizer(runtime, bytes.data(), bytes.size(), options);
  try {
    quantizer.add_batch(inputs);
    quantizer.verify(inputs);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), EVN_ERROR_CANCELLED) << e.what();
  }
  evener::GuardOptions nothing;
  nothing.error = nothing.speed = false;
  EXPECT_THROW(quantizer.guard(inputs, nothing), Error);
}

TEST_F(WrapperQuantizer, ARefusedWeightAndItsNodeAreNamed) {
  const std::string model = model_with_nan();
  for (const auto mode : {evener::QuantizeMode::kStatic, evener::QuantizeMode::kDynamic, evener::QuantizeMode::kWeights}) {
    evener::QuantizerOptions options;
    options.mode = mode;
    if (mode == evener::QuantizeMode::kWeights) options.weight_bits = 4;
    const evener::Quantizer quantizer(runtime, model.data(), model.size(), options);
    if (mode == evener::QuantizeMode::kStatic) {
      std::vector<Tensor> batch;
      batch.push_back(runtime.tensor({1, 32}, std::vector<float>(32, 0.25f)));
      quantizer.add_batch(batch);
    }
    try {
      quantizer.finish();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), EVN_ERROR_INVALID_MODEL) << e.what();
      EXPECT_STREQ(e.message(), "weight \"w\" has elements that are NaN or infinite");
      EXPECT_STREQ(e.node(), "product");
    }
  }
}

TEST_F(WrapperQuantizer, RequestsOfValuesAndIntoGivenTensors) {
  const evener::Session session = runtime.session(runtime.load(bytes.data(), bytes.size()));
  const std::vector<float> want = session.run(inputs)[0].to_vector<float>();
  std::vector<Tensor> given;
  given.push_back(runtime.device().tensor(evener::DType::kFloat32, {4, 8}));
  const evener::Request into = session.request(inputs, given);
  into.wait();
  into.take(1);
  EXPECT_EQ(given[0].to_vector<float>(), want);
  std::vector<evener::Value> values;
  values.emplace_back(inputs[0]);
  const evener::Request request = session.request_values(values);
  request.wait();
  EXPECT_EQ(request.take_values(1)[0].tensor().to_vector<float>(), want);
}

TEST_F(WrapperQuantizer, NamesAreWhole) {
  const evener::Model model = runtime.load(bytes.data(), bytes.size());
  EXPECT_EQ(model.inputs()[0].symbols[0], "rows_of_a_model_whose_names_are_longer_than_infos_have_room_for");
  const evener::Device cpu = runtime.device();
  EXPECT_EQ(cpu.description().rfind(std::string(cpu.info().description), 0), 0u);
  EXPECT_EQ(cpu.driver().rfind(std::string(cpu.info().driver), 0), 0u);
}

}  // namespace
