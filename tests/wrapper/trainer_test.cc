// trainer.hpp, used as its users do; tests/models/trainer.cpp learns from real pictures.
#include "evener/trainer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <limits>
#include <mutex>
#include <thread>

#include "tests/model/onnx_writer.h"

namespace {

using evener::Error;
using evener::Loss;
using evener::Tensor;
using evener::TrainerOptions;

// Logits of three classes: y = x W + b, of any rows of four columns.
std::string linear_model() {
  std::vector<float> weights;
  for (int i = 0; i < 12; ++i) weights.push_back(static_cast<float>(i % 5) / 4.f - 0.5f);
  evn::test::OnnxWriter w;
  w.add_input("x", evn::test::kF32, {"rows", 4}).add_output("y", evn::test::kF32);
  w.add_initializer("w", {4, 3}, weights).add_initializer("b", {3}, std::vector<float>{0, 0, 0});
  w.add_node("MatMul", {"x", "w"}, {"p"}, {}, "product").add_node("Add", {"p", "b"}, {"y"}, {}, "shift");
  return w.serialize();
}

struct WrapperTrainer : testing::Test {
  evener::Runtime runtime{[] {
    evener::RuntimeOptions o;
    o.cache_dir = "";
    o.thread_count = 1;
    return o;
  }()};
  std::string bytes = linear_model();
  std::vector<Tensor> inputs = rows(6);
  Tensor labels = runtime.tensor<std::int64_t>({6}, {0, 1, 2, 2, 1, 0});

  std::vector<Tensor> rows(std::int64_t count) const {
    std::vector<float> x;
    for (std::int64_t i = 0; i < count * 4; ++i) x.push_back(static_cast<float>(i * 5 % 7) / 3.f - 1.f);
    std::vector<Tensor> all;
    all.push_back(runtime.tensor({count, 4}, x));
    return all;
  }
  evener::Trainer trainer(const TrainerOptions& options = {}) const {
    return evener::Trainer(runtime, bytes.data(), bytes.size(), options);
  }
  std::vector<double> losses(const evener::Trainer& of, int steps) const {
    std::vector<double> all;
    for (int i = 0; i < steps; ++i) all.push_back(of.step(inputs, labels).loss);
    return all;
  }
};

template <typename F>
evn_status trainer_status(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_STRNE(e.message(), "");
    return e.status();
  }
  return EVN_OK;
}

TEST_F(WrapperTrainer, LearnsAndGoesOnFromACheckpoint) {
  const std::string path = testing::TempDir() + "wrapper_trainer.safetensors";
  TrainerOptions options;
  options.optimizer = evener::Optimizer::kAdam;
  options.learning_rate = 0.1;
  const evener::Trainer first = trainer(options), second = trainer(options);
  losses(first, 5);
  first.save(path);
  second.restore(path);
  const std::vector<double> on = losses(first, 5);
  EXPECT_EQ(losses(second, 5), on);
  EXPECT_LT(on.back(), on.front());
  EXPECT_NE(first.describe(evener::Format::kJson).find("\"steps\":10"), std::string::npos) << first.describe(evener::Format::kJson);
  { std::ofstream(path, std::ios::trunc) << "nothing"; }
  EXPECT_NE(trainer_status([&] { second.restore(path); }), EVN_OK);
  EXPECT_EQ(losses(second, 3), losses(first, 3));
  std::remove(path.c_str());
  EXPECT_EQ(trainer_status([&] { second.restore(path); }), EVN_ERROR_IO);
}

TEST_F(WrapperTrainer, ParametersGradientsAndTheFinishedModel) {
  const evener::Trainer of = trainer();
  ASSERT_EQ(of.parameter_names(), (std::vector<std::string>{"b", "w"}));
  EXPECT_EQ(of.parameter(0).to_vector<float>(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(of.gradient(0).to_vector<float>(), (std::vector<float>{0, 0, 0}));
  of.step(inputs, labels);
  const std::vector<float> gradient = of.gradient(0).to_vector<float>(), moved = of.parameter(0).to_vector<float>();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(moved[i], -0.001f * gradient[i]);
  EXPECT_EQ(trainer_status([&] { of.parameter(2); }), EVN_ERROR_INVALID_ARGUMENT);

  const evener::Evaluation found = of.evaluate(inputs, labels);
  EXPECT_EQ(found.count, 6u);
  const std::vector<float> y = runtime.session(of.finish()).run(inputs)[0].to_vector<float>();
  const std::vector<std::int64_t> classes = labels.to_vector<std::int64_t>();
  double loss = 0;
  for (std::size_t row = 0; row < 6; ++row) {
    double sum = 0;
    for (std::size_t c = 0; c < 3; ++c) sum += std::exp(static_cast<double>(y[row * 3 + c]));
    loss += (std::log(sum) - static_cast<double>(y[row * 3 + static_cast<std::size_t>(classes[row])])) / 6;
  }
  EXPECT_NEAR(loss, found.loss, 1e-5);
  const std::string path = testing::TempDir() + "wrapper_trained.onnx";
  of.export_model(path);
  EXPECT_EQ(runtime.session(path).run(inputs)[0].to_vector<float>(), y);
  std::remove(path.c_str());
}

TEST_F(WrapperTrainer, EachChoiceReachesTheLibrary) {
  const Tensor numbers = runtime.tensor<float>({6, 3}, std::vector<float>(18, 0.5f));
  for (const Loss loss : {Loss::kSoftmaxCrossEntropy, Loss::kBceWithLogits, Loss::kMse, Loss::kL1}) {
    TrainerOptions options;
    options.loss = loss;
    options.output = "y";
    const evener::Trainer of = trainer(options);
    const double first = of.step(inputs, numbers).loss;
    EXPECT_LT(of.step(inputs, numbers).loss, first);
  }
  const auto text = [&](const TrainerOptions& options) { return trainer(options).describe(evener::Format::kJson); };
  const auto holds = [](const std::string& json, const char* what) { return json.find(what) != std::string::npos; };
  TrainerOptions options;
  options.optimizer = evener::Optimizer::kRmsprop;
  options.centered = true;
  options.schedule = evener::Schedule::kPlateau;
  options.frozen = {"b"};
  options.groups = {{{"w"}, 0.5, 0.1}};
  options.precision = evener::Precision::kBf16;
  EXPECT_TRUE(holds(text(options), "\"rmsprop\"") && holds(text(options), "\"plateau\"") &&
              !holds(text(options), "\"name\":\"b\",\"dims\""))
      << text(options);
  const evener::Trainer of = trainer(options);
  EXPECT_EQ(of.parameter_names(), std::vector<std::string>{"w"});
  of.set_learning_rate(0.5);
  EXPECT_EQ(of.step(inputs, labels).learning_rate, 0.5);
  for (int i = 0; i < 12; ++i) of.note_metric(1);
  EXPECT_DOUBLE_EQ(of.step(inputs, labels).learning_rate, 0.05);

  const auto refused = [&](auto&& change) {
    TrainerOptions o;
    change(o);
    return trainer_status([&] { trainer(o); });
  };
  EXPECT_EQ(refused([](TrainerOptions& o) { o.nesterov = true; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused([](TrainerOptions& o) { o.trainable = {"none"}; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused([](TrainerOptions& o) { o.output = "none"; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused([](TrainerOptions& o) { o.learning_rate = -1; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused([](TrainerOptions& o) { o.schedule = evener::Schedule::kStep; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused([](TrainerOptions& o) { o.prune_share = 2; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused([](TrainerOptions& o) { o.collective_timeout = std::chrono::milliseconds(-1); }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused([](TrainerOptions& o) { o.collective_timeout = std::chrono::hours(10000); }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(refused([](TrainerOptions& o) { o.device = "nowhere"; }), EVN_OK);
  EXPECT_NE(refused([](TrainerOptions& o) { o.replicas = {"nowhere", "cpu"}; }), EVN_OK);
  EXPECT_NE(refused([](TrainerOptions& o) { o.collective = "nothing"; }), EVN_OK);
}

TEST_F(WrapperTrainer, ZeroIsAValue) {
  const auto after = [&](auto&& change) {
    TrainerOptions o;
    o.optimizer = evener::Optimizer::kAdamW;
    change(o);
    const evener::Trainer of = trainer(o);
    losses(of, 3);
    of.note_metric(1);
    of.note_metric(1);
    const double rate = of.step(inputs, labels).learning_rate;
    return std::pair(of.parameter(1).to_vector<float>(), rate);
  };
  const auto by_default = after([](TrainerOptions&) {});
  EXPECT_EQ(by_default.second, 0.001);
  EXPECT_EQ(after([](TrainerOptions& o) {
              o.learning_rate = 0.001;
              o.weight_decay = 0.01;
              o.beta1 = 0.9;
              o.beta2 = 0.999;
            }),
            by_default);
  EXPECT_EQ(after([](TrainerOptions& o) { o.groups = {{{"*"}}}; }), by_default);
  EXPECT_EQ(after([](TrainerOptions& o) { o.learning_rate = 0; }).second, 0);
  EXPECT_NE(after([](TrainerOptions& o) { o.beta1 = 0; }).first, by_default.first);
  EXPECT_NE(after([](TrainerOptions& o) { o.weight_decay = 0; }).first, by_default.first);
  EXPECT_NE(after([](TrainerOptions& o) { o.groups = {{{"*"}, 1, 0}}; }).first, by_default.first);
  const double lowered = after([](TrainerOptions& o) {
                           o.schedule = evener::Schedule::kPlateau;
                           o.plateau_patience = 0;
                         }).second;
  EXPECT_DOUBLE_EQ(lowered, 0.0001);
}

TEST_F(WrapperTrainer, MisuseThrowsAndChangesNothing) {
  const evener::Trainer of = trainer(), same = trainer();
  const auto status = [&](const std::vector<Tensor>& in, const Tensor& wanted) {
    const evn_status got = trainer_status([&] { of.step(in, wanted); });
    EXPECT_EQ(trainer_status([&] { of.evaluate(in, wanted); }), got);
    return got;
  };
  EXPECT_EQ(status(inputs, runtime.tensor<std::int64_t>({6}, {0, 1, 2, 3, 1, 0})), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(inputs, runtime.tensor<std::int64_t>({6}, {0, 1, -1, 0, 1, 0})), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(inputs, runtime.tensor<std::int64_t>({5}, {0, 1, 2, 0, 1})), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(inputs, runtime.tensor<std::int32_t>({6}, {0, 1, 2, 0, 1, 0})), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(inputs, Tensor()), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status({}, labels), EVN_ERROR_INVALID_ARGUMENT);
  std::vector<Tensor> wrong;
  wrong.push_back(runtime.tensor({6, 3}, std::vector<float>(18)));
  EXPECT_EQ(status(wrong, labels), EVN_ERROR_INVALID_ARGUMENT);
  wrong[0] = runtime.tensor({6, 4}, std::vector<double>(24));
  EXPECT_EQ(status(wrong, labels), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(trainer_status([&] { of.set_learning_rate(std::numeric_limits<double>::infinity()); }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(trainer_status([&] { of.find_input("z"); }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(of.find_input("x"), 0u);
  EXPECT_EQ(of.input_count(), 1u);
  EXPECT_EQ(losses(of, 2), losses(same, 2));

  evener::Trainer moved = trainer();
  const evener::Trainer target = std::move(moved);
  EXPECT_EQ(trainer_status([&] { moved.step(inputs, labels); }), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(trainer_status([&] { evener::Trainer().evaluate(inputs, labels); }), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(losses(target, 2), losses(trainer(), 2));
  EXPECT_EQ(trainer_status([&] { evener::Trainer(runtime, testing::TempDir() + "no_such_model.onnx"); }), EVN_ERROR_IO);
}

TEST_F(WrapperTrainer, IsCancelledForGood) {
  const evener::Cancel cancel;
  TrainerOptions options;
  options.cancel = &cancel;
  const evener::Trainer of = trainer(options);
  of.step(inputs, labels);
  const std::vector<float> before = of.parameter(1).to_vector<float>();
  cancel.request();
  EXPECT_EQ(trainer_status([&] { of.step(inputs, labels); }), EVN_ERROR_CANCELLED);
  EXPECT_EQ(trainer_status([&] { of.evaluate(inputs, labels); }), EVN_ERROR_CANCELLED);
  EXPECT_EQ(of.parameter(1).to_vector<float>(), before);
}

TEST_F(WrapperTrainer, OneTrainerHasManyThreads) {
  const evener::Trainer of = trainer();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { losses(of, 5); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(of.step(inputs, labels).step, 21u);
}

// All-reduce among two threads.
class Meeting {
 public:
  template <typename T>
  void sum(std::size_t rank, T* data, std::uint64_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    parts_[rank] = data;
    const int round = round_;
    if (++here_ == 2) {
      T* const other = static_cast<T*>(parts_[1 - rank]);
      for (std::uint64_t i = 0; i < count; ++i) other[i] = data[i] = data[i] + other[i];
      here_ = 0;
      ++round_;
      all_.notify_all();
    } else {
      all_.wait(lock, [&] { return round_ != round; });
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  std::array<void*, 2> parts_{};
  int here_ = 0, round_ = 0;
};

TEST_F(WrapperTrainer, RanksSumByTheHostAndAreAsOne) {
  Meeting meeting;
  std::array<std::vector<double>, 2> found;
  std::array<std::vector<float>, 2> learned;
  const auto learn = [&](std::size_t rank) {
    TrainerOptions options;
    options.rank = static_cast<std::uint32_t>(rank);
    options.rank_count = 2;
    options.check_ranks = true;
    options.reduce = [&meeting, rank](void* data, std::uint64_t count, evener::DType dtype) {
      if (dtype == evener::DType::kFloat32) meeting.sum(rank, static_cast<float*>(data), count);
      else meeting.sum(rank, static_cast<double*>(data), count);
    };
    const evener::Trainer of = trainer(options);
    std::vector<Tensor> part;
    part.push_back(inputs[0].view(rank * 12, {3, 4}));
    const Tensor classes = labels.view(rank * 3, {3});
    for (int i = 0; i < 4; ++i) found[rank].push_back(of.step(part, classes).loss);
    learned[rank] = of.parameter(1).to_vector<float>();
  };
  std::thread second([&] { learn(1); });
  learn(0);
  second.join();
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(learned[0], learned[1]);
  const std::vector<double> alone = losses(trainer(), 4);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[0][i], alone[i], 1e-5) << i;
}

TEST_F(WrapperTrainer, WhatTheHostsSumThrowsIsTheStatus) {
  TrainerOptions options;
  options.rank_count = 2;
  options.reduce = [](void*, std::uint64_t, evener::DType) { throw Error(EVN_ERROR_TIMEOUT, "rank 1 is gone"); };
  try {
    trainer(options);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), EVN_ERROR_TIMEOUT);
    EXPECT_NE(std::string(e.message()).find("rank 1 is gone"), std::string::npos) << e.message();
  }
  options.reduce = [](void*, std::uint64_t, evener::DType) { throw std::runtime_error("no network"); };
  EXPECT_EQ(trainer_status([&] { trainer(options); }), EVN_ERROR_INTERNAL);
  options.reduce = [](void*, std::uint64_t, evener::DType) { throw 1; };
  EXPECT_EQ(trainer_status([&] { trainer(options); }), EVN_ERROR_INTERNAL);
}

}  // namespace
