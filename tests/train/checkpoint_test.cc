// Checkpoints that were changed but have the right checksum: each is refused with the file's name, and the trainer stays as it was.
#include "train/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/cxx20.h"
#include "evener/train.h"
#include "tests/api/support.h"

namespace evn_train::checkpoint_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Logits of three classes: y = x w + b.
std::string linear_model(const std::string& bias = "b") {
  std::vector<float> weights;
  for (int i = 0; i < 12; ++i) weights.push_back(static_cast<float>(i % 5) / 4.0f - 0.5f);
  evn::test::OnnxWriter w;
  w.add_input("x", evn::test::kF32, {"rows", 4}).add_output("y", evn::test::kF32);
  w.add_initializer("w", {4, 3}, weights).add_initializer(bias, {3}, std::vector<float>{0, 0, 0});
  w.add_node("MatMul", {"x", "w"}, {"p"}).add_node("Add", {"p", bias}, {"y"});
  return w.serialize();
}

std::string bytes_of_file(const std::string& path) {
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  return all.str();
}

// As the trainer writes numbers.
std::string bits_of(double value) { return std::to_string(evn::bit_cast<std::uint64_t>(value)); }

struct Checkpoints : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_trainer trainer = nullptr;
  evn_tensor input = nullptr, labels = nullptr;
  std::vector<float> x = std::vector<float>(6 * 4);
  std::vector<std::int64_t> classes = {0, 1, 2, 2, 1, 0};
  const std::string path = testing::TempDir() + "evener_checkpoint_" + std::to_string(getpid());

  void SetUp() override {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 5 % 7) / 3.0f - 1.0f;
    evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
    o.cache_dir = "";
    o.thread_count = 1;
    ASSERT_OK(evn_runtime_create(&o, &runtime, &error));
    const int64_t dims[] = {6, 4};
    ASSERT_OK(
        evn_tensor_wrap(runtime, x.data(), x.size() * sizeof(float), EVN_DTYPE_FLOAT32, dims, 2, nullptr, nullptr, &input, &error));
    ASSERT_OK(evn_tensor_wrap(runtime, classes.data(), classes.size() * sizeof(std::int64_t), EVN_DTYPE_INT64, dims, 1, nullptr,
                              nullptr, &labels, &error));
    const std::string model = linear_model();
    evn_trainer_options options = EVN_TRAINER_OPTIONS_INIT;
    options.data = model.data();
    options.size = model.size();
    options.optimizer = EVN_OPTIMIZER_ADAM;
    options.schedule = EVN_SCHEDULE_PLATEAU;
    options.learning_rate = 0.1;
    ASSERT_OK(evn_trainer_create(runtime, nullptr, &options, &trainer, &error));
    step();
    ASSERT_OK(evn_trainer_save(trainer, path.c_str(), &error));
    step();  // the trainer is in another state than the file has
  }
  void TearDown() override {
    evn_trainer_release(trainer);
    for (evn_tensor t : {input, labels}) evn_tensor_release(t);
    evn_runtime_release(runtime);
    std::remove(path.c_str());
  }

  void step() { ASSERT_OK(evn_trainer_step(trainer, &input, 1, labels, nullptr, &error)); }
  evn_status restore() { return evn_trainer_restore(trainer, path.c_str(), &error); }

  // All that the trainer would save.
  std::string state() {
    const std::string own = path + "_state";
    EXPECT_OK(evn_trainer_save(trainer, own.c_str(), &error));
    std::string bytes = bytes_of_file(own);
    std::remove(own.c_str());
    return bytes;
  }

  // Writes the file again with a change, and with the checksum of what it has now.
  void rewrite(const std::function<void(Checkpoint*)>& change) const {
    Checkpoint c = read_checkpoint(path);
    c.metadata.erase("evener.checksum");
    change(&c);
    write_checkpoint(path, c);
  }

  // Restores the changed file: that is an error whose message has `text` with the file's name in the place of '%'.
  void expect_refused(std::string text, const std::function<void(Checkpoint*)>& change) {
    const std::string before = state(), whole = bytes_of_file(path);
    rewrite(change);
    expect_no_restore(std::move(text), before);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole;
  }
  void expect_no_restore(std::string text, const std::string& before) {
    text.replace(text.find('%'), 1, "'" + path + "'");
    error = EVN_ERROR_INIT;
    EXPECT_EQ(restore(), EVN_ERROR_INVALID_ARGUMENT) << text;
    EXPECT_NE(std::string(error.message).find(text), std::string::npos) << error.message << " lacks " << text;
    EXPECT_TRUE(state() == before) << text << ": the trainer is another";
  }
};

TEST_F(Checkpoints, AFileThatIsWrittenAgainIsTheSame) {
  const std::string whole = bytes_of_file(path), later = state();
  ASSERT_NE(whole, later);
  rewrite([](Checkpoint*) {});
  EXPECT_EQ(bytes_of_file(path), whole);
  ASSERT_EQ(restore(), EVN_OK) << error.message;
  EXPECT_TRUE(state() == whole);
  step();
  EXPECT_TRUE(state() == later) << "and the next step is the one that it was";
}

// The header of the format is JSON, which has no other bytes.
TEST_F(Checkpoints, ANameThatIsNotUtf8CannotBeSaved) {
  const std::string model = linear_model("b\xff"), whole = bytes_of_file(path);
  evn_trainer_options options = EVN_TRAINER_OPTIONS_INIT;
  options.data = model.data();
  options.size = model.size();
  evn_trainer other = nullptr;
  ASSERT_OK(evn_trainer_create(runtime, nullptr, &options, &other, &error));
  EXPECT_OK(evn_trainer_step(other, &input, 1, labels, nullptr, &error));
  EXPECT_EQ(evn_trainer_save(other, path.c_str(), &error), EVN_ERROR_UNSUPPORTED);
  EXPECT_NE(std::string(error.message).find("its name is not UTF-8"), std::string::npos) << error.message;
  EXPECT_TRUE(bytes_of_file(path) == whole) << "the file is another";
  evn_trainer_release(other);
}

TEST_F(Checkpoints, WhatIsNoCheckpointIsNamed) {
  const std::string before = state(), whole = bytes_of_file(path);
  const auto expect_none = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    expect_no_restore("% is no checkpoint", before);
  };
  const auto with_header = [](const std::string& header) {
    const std::uint64_t size = header.size();
    return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header;
  };
  expect_none("");
  expect_none("nothing");
  expect_none(whole.substr(0, 100));
  expect_none(with_header("{}"));
  expect_none(with_header("{\"__metadata__\":{\"a\":\"b\"}"));
  expect_none(with_header("{\"__metadata__\":{\"a\":\"\\u00zz\"}}"));
  expect_none(with_header("{\"__metadata__\":{\"a\":\"b\"},\"t\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[0,2]}}") + "12");
  std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, whole.size() - 1) + '\x7f';
  expect_no_restore("% was changed after it was written", before);
}

TEST_F(Checkpoints, AnotherModelsIsNamed) {
  expect_refused("checkpoint % has no tensor \"", [](Checkpoint* c) { c->tensors.pop_back(); });
  expect_refused("checkpoint % has no tensor \"parameter/", [](Checkpoint* c) { c->tensors[0].name = "parameter/other"; });
  expect_refused(" of checkpoint % has other dims", [](Checkpoint* c) {
    for (SavedTensor& t : c->tensors) std::reverse(t.dims.begin(), t.dims.end());
  });
  expect_refused("checkpoint % has ", [](Checkpoint* c) {
    c->tensors.push_back(c->tensors[0]);
    c->tensors.back().name = "parameter/one more";
  });
  expect_refused("% is a checkpoint of loss \"none\"", [](Checkpoint* c) { c->metadata["loss"] = "none"; });
  expect_refused("% is a checkpoint of format \"\"", [](Checkpoint* c) { c->metadata.erase("format"); });
  expect_refused("checkpoint % has no steps", [](Checkpoint* c) { c->metadata.erase("steps"); });
  expect_refused("calls of checkpoint % is no number", [](Checkpoint* c) { c->metadata["calls"] = "many"; });
  expect_refused("rate.base of checkpoint % is no number", [](Checkpoint* c) { c->metadata["rate.base"] = "0.1"; });
}

TEST_F(Checkpoints, NumbersThatNoTrainerComesToAreRefused) {
  const std::pair<const char*, std::vector<double>> wrong[] = {{"rate.base", {kNan, kInfinity, -0.1}},
                                                               {"rate.factor", {kNan, kInfinity, -1}},
                                                               {"rate.best", {kNan}},
                                                               {"loss_scale.value", {kNan, kInfinity, 0, -2}},
                                                               {"loss_scale.latest", {kNan, kInfinity, 0, -2}}};
  for (const auto& [key, values] : wrong) {
    for (const double value : values) {
      SCOPED_TRACE(std::string(key) + " " + std::to_string(value));
      expect_refused("checkpoint % has loss scale ", [&, key = key](Checkpoint* c) {
        ASSERT_EQ(c->metadata.count(key), 1u);
        c->metadata[key] = bits_of(value);
      });
    }
  }
  ASSERT_EQ(restore(), EVN_OK) << error.message;  // the file as it was
}

// A trainer may come to each of these.
TEST_F(Checkpoints, NumbersAtTheEndsAreTaken) {
  const std::pair<const char*, double> right[] = {
      {"rate.base", 0}, {"rate.factor", 0}, {"rate.best", kInfinity}, {"rate.best", -kInfinity}, {"rate.best", -1e300}};
  for (const auto& [key, value] : right) {
    rewrite([&, key = key, value = value](Checkpoint* c) { c->metadata[key] = bits_of(value); });
    EXPECT_EQ(restore(), EVN_OK) << key << " " << value << ": " << error.message;
  }
}

}  // namespace
}  // namespace evn_train::checkpoint_test
