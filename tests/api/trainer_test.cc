// Misuse of evn_trainer_*: each wrong argument is a status, and changes nothing; and what a trainer needs lives as long as it.
#include "evener/train.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/api/support.h"

namespace evn::test {
namespace {

struct Trainers : testing::Test {
  evn_runtime runtime = nullptr;
  evn_device cpu = nullptr;
  evn_tensor input = nullptr, labels = nullptr;
  evn_trainer trainer = nullptr;
  std::string bytes = small_network().serialize();
  evn_error error = EVN_ERROR_INIT;
  evn_trainer_options options = EVN_TRAINER_OPTIONS_INIT;

  void SetUp() override {
    evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
    o.thread_count = 1;
    const int64_t dims[4] = {1, 3, 8, 8}, classes[1] = {1};
    ASSERT_EQ(evn_runtime_create(&o, &runtime, &error), EVN_OK) << error.message;
    ASSERT_EQ(evn_runtime_device_find(runtime, "cpu", &cpu, &error), EVN_OK);
    ASSERT_EQ(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 4, 0, &input, &error), EVN_OK);
    options.data = bytes.data();
    options.size = bytes.size();
    ASSERT_EQ(evn_trainer_create(runtime, nullptr, &options, &trainer, &error), EVN_OK) << error.message;
    ASSERT_EQ(evn_tensor_create(cpu, EVN_DTYPE_INT64, classes, 1, 0, &labels, &error), EVN_OK);
  }
  void TearDown() override {
    evn_trainer_release(trainer);
    for (evn_tensor t : {input, labels}) evn_tensor_release(t);
    evn_device_release(cpu);
    evn_runtime_release(runtime);
  }

  evn_status step(evn_step_info* info = nullptr) { return evn_trainer_step(trainer, &input, 1, labels, info, &error); }

  // All numbers of all parameters.
  std::vector<float> parameters() {
    std::vector<float> all;
    uint32_t count = 0;
    EXPECT_EQ(evn_trainer_parameter_count(trainer, &count, &error), EVN_OK);
    for (uint32_t i = 0; i < count; ++i) {
      evn_tensor tensor = nullptr;
      void* data = nullptr;
      size_t size = 0;
      EXPECT_EQ(evn_trainer_get_parameter(trainer, i, EVN_PARAMETER_VALUE, &tensor, &error), EVN_OK) << error.message;
      EXPECT_EQ(evn_tensor_map(tensor, EVN_MAP_READ, &data, &size, &error), EVN_OK);
      all.insert(all.end(), static_cast<const float*>(data), static_cast<const float*>(data) + size / sizeof(float));
      evn_tensor_unmap(tensor, &error);
      evn_tensor_release(tensor);
    }
    return all;
  }
};

TEST_F(Trainers, StepsMoveTheParameters) {
  const std::vector<float> before = parameters();
  ASSERT_FALSE(before.empty());
  evn_step_info info = EVN_STEP_INFO_INIT;
  ASSERT_EQ(step(&info), EVN_OK) << error.message;
  EXPECT_EQ(info.step, 1u);
  EXPECT_EQ(info.skipped, 0u);
  EXPECT_GT(info.loss, 0);
  EXPECT_GT(info.gradient_norm, 0);
  EXPECT_NE(parameters(), before);
  const double first = info.loss;
  for (int i = 0; i < 5; ++i) ASSERT_EQ(step(&info), EVN_OK);
  EXPECT_LT(info.loss, first);
}

TEST_F(Trainers, HandlesOfNobodyAreRefused) {
  const evn_trainer stale = trainer;
  ASSERT_EQ(evn_trainer_release(trainer), EVN_OK);
  trainer = nullptr;
  uint32_t number = 0;
  size_t size = 0;
  evn_tensor tensor = nullptr;
  evn_model model = nullptr;
  evn_evaluation evaluation = EVN_EVALUATION_INIT;
  for (evn_trainer t : {evn_trainer{}, stale, reinterpret_cast<evn_trainer>(input)}) {
    EXPECT_EQ(evn_trainer_step(t, &input, 1, labels, nullptr, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_trainer_evaluate(t, &input, 1, labels, &evaluation, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_trainer_input_count(t, &number, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_trainer_find_input(t, "x", &number, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_trainer_note_metric(t, 1, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_trainer_set_learning_rate(t, 1, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_trainer_parameter_count(t, &number, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_trainer_parameter_name(t, 0, nullptr, 0, &size, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_trainer_get_parameter(t, 0, EVN_PARAMETER_VALUE, &tensor, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_trainer_save(t, "/dev/null/x", &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_trainer_restore(t, "/dev/null/x", &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_trainer_finish(t, &model, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_trainer_export(t, "/dev/null/x", &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_trainer_describe(t, EVN_FORMAT_TEXT, nullptr, 0, &size, &error), EVN_ERROR_INVALID_HANDLE);
  }
  EXPECT_EQ(evn_trainer_release(stale), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_trainer_release(nullptr), EVN_OK);
}

TEST_F(Trainers, WrongArgumentsChangeNothing) {
  const std::vector<float> before = parameters();
  evn_step_info wrong = EVN_STEP_INFO_INIT;
  wrong.struct_size = 3;
  EXPECT_EQ(step(&wrong), EVN_ERROR_INVALID_ARGUMENT);
  const evn_tensor none = nullptr;
  EXPECT_EQ(evn_trainer_step(trainer, nullptr, 1, labels, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_trainer_step(trainer, &input, 0, labels, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_trainer_step(trainer, &none, 1, labels, nullptr, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_trainer_step(trainer, &input, 1, nullptr, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_trainer_evaluate(trainer, &input, 1, labels, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_trainer_input_count(trainer, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_trainer_find_input(trainer, nullptr, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_trainer_parameter_count(trainer, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_trainer_parameter_name(trainer, 1000, nullptr, 0, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  evn_tensor tensor = nullptr;
  EXPECT_EQ(evn_trainer_get_parameter(trainer, 0, 7, &tensor, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_trainer_get_parameter(trainer, 0, EVN_PARAMETER_VALUE, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_trainer_save(trainer, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_trainer_save(trainer, "/dev/null/x", &error), EVN_ERROR_IO);
  EXPECT_EQ(evn_trainer_restore(trainer, "/dev/null/x", &error), EVN_ERROR_IO);
  EXPECT_EQ(evn_trainer_restore(trainer, "/dev", &error), EVN_ERROR_IO);
  EXPECT_EQ(evn_trainer_export(trainer, "/dev/null/x", &error), EVN_ERROR_IO);
  EXPECT_EQ(evn_trainer_finish(trainer, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_trainer_describe(trainer, EVN_FORMAT_SVG, nullptr, 0, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_trainer_set_learning_rate(trainer, NAN, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(parameters(), before);
}

// What a call that fails would have written stays as the caller had it.
TEST_F(Trainers, CallsThatFailWriteNoInfo) {
  evn_step_info info = EVN_STEP_INFO_INIT;
  info.loss = 7;
  info.step = 77;
  evn_evaluation evaluation = EVN_EVALUATION_INIT;
  evaluation.loss = 8;
  evaluation.count = 88;
  const evn_step_info info_before = info;
  const evn_evaluation before = evaluation;
  const evn_tensor none = nullptr;
  for (evn_trainer t : {evn_trainer{}, trainer}) {
    EXPECT_NE(evn_trainer_step(t, &none, 1, labels, &info, &error), EVN_OK);
    EXPECT_NE(evn_trainer_evaluate(t, &none, 1, labels, &evaluation, &error), EVN_OK);
  }
  EXPECT_EQ(std::memcmp(&info, &info_before, sizeof info), 0);
  EXPECT_EQ(std::memcmp(&evaluation, &before, sizeof before), 0);
}

// 0 is a number, and what EVN_TRAINER_OPTIONS_INIT writes is the default of torch.optim.
TEST_F(Trainers, ZeroIsAValueAndDefaultsAreThoseOfTorch) {
  const auto train = [&](evn_trainer_options o) {
    evn_trainer_release(std::exchange(trainer, nullptr));
    EXPECT_EQ(evn_trainer_create(runtime, nullptr, &o, &trainer, &error), EVN_OK) << error.message;
    std::vector<double> rates;
    for (int i = 0; i < 3; ++i) {
      evn_step_info info = EVN_STEP_INFO_INIT;
      EXPECT_EQ(step(&info), EVN_OK) << error.message;
      rates.push_back(info.learning_rate);
      EXPECT_EQ(evn_trainer_note_metric(trainer, 1, &error), EVN_OK);
    }
    return std::pair(parameters(), rates);
  };
  const std::vector<float> at_first = parameters();
  struct Case {
    evn_optimizer optimizer;
    double evn_trainer_options::*field;
    double otherwise;
  };
  for (const Case& c :
       {Case{EVN_OPTIMIZER_SGD, &evn_trainer_options::learning_rate, 0.001},
        Case{EVN_OPTIMIZER_ADAM, &evn_trainer_options::learning_rate, 0.001},
        Case{EVN_OPTIMIZER_ADAMW, &evn_trainer_options::learning_rate, 0.001},
        Case{EVN_OPTIMIZER_ADAGRAD, &evn_trainer_options::learning_rate, 0.01},
        Case{EVN_OPTIMIZER_RMSPROP, &evn_trainer_options::learning_rate, 0.01},
        Case{EVN_OPTIMIZER_ADAMW, &evn_trainer_options::weight_decay, 0.01},
        Case{EVN_OPTIMIZER_ADAM, &evn_trainer_options::beta1, 0.9}, Case{EVN_OPTIMIZER_ADAMW, &evn_trainer_options::beta2, 0.999},
        Case{EVN_OPTIMIZER_ADAGRAD, &evn_trainer_options::epsilon, 1e-10},
        Case{EVN_OPTIMIZER_RMSPROP, &evn_trainer_options::alpha, 0.99}}) {
    evn_trainer_options o = options;
    o.optimizer = c.optimizer;
    const auto not_given = train(o);
    o.*c.field = c.otherwise;
    EXPECT_EQ(train(o), not_given) << "optimizer " << c.optimizer << ", " << c.otherwise;
    o.*c.field = 0;
    const auto zero = train(o);
    if (c.field != &evn_trainer_options::epsilon) {
      EXPECT_NE(zero.first, not_given.first) << "optimizer " << c.optimizer << ", 0 for " << c.otherwise;
    }
    if (c.field == &evn_trainer_options::learning_rate) {
      EXPECT_EQ(zero.first, at_first);
      EXPECT_EQ(zero.second[0], 0);
    }
  }
  evn_trainer_options o = options;
  o.schedule = EVN_SCHEDULE_PLATEAU;
  EXPECT_EQ(train(o).second, (std::vector<double>{0.001, 0.001, 0.001}));
  o.plateau_patience = 0;
  EXPECT_EQ(train(o).second, (std::vector<double>{0.001, 0.001, 0.001 * 0.1}));
  o.schedule_factor = 0;
  EXPECT_EQ(train(o).second, (std::vector<double>{0.001, 0.001, 0}));
  const char* const all = "*";
  evn_parameter_group group = {&all, 1, 0, EVN_DEFAULT, EVN_DEFAULT};
  o = options;
  o.weight_decay = 0.5;
  const auto decayed = train(o);
  o.groups = &group;
  o.group_count = 1;
  EXPECT_EQ(train(o), decayed);
  group.weight_decay = 0;
  EXPECT_NE(train(o).first, decayed.first);
  group.rate_factor = 0;
  EXPECT_EQ(train(o).first, at_first);
}

TEST_F(Trainers, WrongOptionsAreRefused) {
  const auto refused = [&](evn_trainer_options o) {
    evn_trainer made = nullptr;
    const evn_status status = evn_trainer_create(runtime, nullptr, &o, &made, &error);
    EXPECT_EQ(made, nullptr);
    return status;
  };
  evn_trainer_options o = options;
  o.struct_size = 8;
  EXPECT_EQ(refused(o), EVN_ERROR_INVALID_ARGUMENT);
  for (int32_t evn_trainer_options::*field :
       {&evn_trainer_options::loss, &evn_trainer_options::optimizer, &evn_trainer_options::schedule}) {
    o = options;
    o.*field = 77;
    EXPECT_EQ(refused(o), EVN_ERROR_INVALID_ARGUMENT);
    o.*field = -1;
    EXPECT_EQ(refused(o), EVN_ERROR_INVALID_ARGUMENT);
  }
  o = options;
  o.precision = EVN_PRECISION_AUTO;
  EXPECT_EQ(refused(o), EVN_ERROR_UNSUPPORTED);
  o = options;
  o.trainable_count = 1;
  EXPECT_EQ(refused(o), EVN_ERROR_INVALID_ARGUMENT);
  const char* const names[] = {nullptr};
  o.trainable = names;
  EXPECT_EQ(refused(o), EVN_ERROR_INVALID_ARGUMENT);
  o.trainable_count = 0;
  EXPECT_EQ(refused(o), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.message, "trainable is an empty list"), nullptr) << error.message;
  o = options;
  o.group_count = 1;
  EXPECT_EQ(refused(o), EVN_ERROR_INVALID_ARGUMENT);
  o = options;
  o.device = "nothing";
  EXPECT_EQ(refused(o), EVN_ERROR_DEVICE_UNAVAILABLE);
  o = options;
  o.size = options.size / 2;
  EXPECT_EQ(refused(o), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(evn_trainer_create(runtime, nullptr, &options, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_trainer_create(runtime, "nothing.onnx", &options, &trainer, &error), EVN_ERROR_INVALID_ARGUMENT);
}

// Before the bytes are read: they are no model.
TEST_F(Trainers, ARequestedTokenEndsTheReadingOfTheModel) {
  evn_cancel cancel = nullptr;
  ASSERT_EQ(evn_cancel_create(&cancel, &error), EVN_OK);
  evn_trainer_options o = options;
  o.size = options.size / 2;
  o.cancel = cancel;
  evn_trainer made = nullptr;
  EXPECT_EQ(evn_trainer_create(runtime, nullptr, &o, &made, &error), EVN_ERROR_INVALID_MODEL);
  evn_cancel_request(cancel);
  EXPECT_EQ(evn_trainer_create(runtime, nullptr, &o, &made, &error), EVN_ERROR_CANCELLED);
  EXPECT_EQ(made, nullptr);
  evn_cancel_release(cancel);
}

// With several optimizers, sums and a limit of the activations.
TEST_F(Trainers, StepsAfterTheFirstTakeNoMemoryOfThePool) {
  for (const auto& [optimizer, accumulate, limit] :
       {std::tuple{EVN_OPTIMIZER_SGD, 1u, 0ull}, {EVN_OPTIMIZER_ADAMW, 1u, 1ull << 40}, {EVN_OPTIMIZER_RMSPROP, 2u, 0ull}}) {
    evn_trainer_options o = options;
    o.optimizer = optimizer;
    o.accumulate = accumulate;
    o.memory_limit = limit;
    evn_trainer_release(trainer);
    trainer = nullptr;
    ASSERT_EQ(evn_trainer_create(runtime, nullptr, &o, &trainer, &error), EVN_OK) << error.message;
    for (uint32_t i = 0; i < 2 * accumulate; ++i) ASSERT_EQ(step(), EVN_OK) << error.message;
    evn_memory_stats before = EVN_MEMORY_STATS_INIT, after = EVN_MEMORY_STATS_INIT;
    ASSERT_EQ(evn_device_get_memory_stats(cpu, &before, &error), EVN_OK);
    for (uint32_t i = 0; i < 3 * accumulate; ++i) ASSERT_EQ(step(), EVN_OK) << error.message;
    ASSERT_EQ(evn_device_get_memory_stats(cpu, &after, &error), EVN_OK);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.current, before.current);
  }
}

TEST_F(Trainers, ALimitThatIsTooSmallIsRefusedWithWhatIsNeeded) {
  evn_trainer_options o = options;
  o.memory_limit = 64;
  evn_trainer_release(trainer);
  trainer = nullptr;
  ASSERT_EQ(evn_trainer_create(runtime, nullptr, &o, &trainer, &error), EVN_OK) << error.message;
  const std::vector<float> before = parameters();
  ASSERT_EQ(step(), EVN_ERROR_LIMIT);
  EXPECT_GT(error.bytes_requested, 64u);
  EXPECT_EQ(error.bytes_available, 64u);
  EXPECT_EQ(parameters(), before);
  o.memory_limit = error.bytes_requested;
  evn_trainer_release(trainer);
  trainer = nullptr;
  ASSERT_EQ(evn_trainer_create(runtime, nullptr, &o, &trainer, &error), EVN_OK) << error.message;
  EXPECT_EQ(step(), EVN_OK) << error.message;
}

TEST_F(Trainers, WhatTheTrainerUsesMayBeReleasedBeforeIt) {
  evn_cancel cancel = nullptr;
  ASSERT_EQ(evn_cancel_create(&cancel, &error), EVN_OK);
  evn_trainer_options o = options;
  o.cancel = cancel;
  evn_trainer other = nullptr;
  ASSERT_EQ(evn_trainer_create(runtime, nullptr, &o, &other, &error), EVN_OK) << error.message;
  evn_trainer_release(trainer);
  trainer = other;
  ASSERT_EQ(step(), EVN_OK) << error.message;
  evn_cancel_request(cancel);
  const std::vector<float> before = parameters();
  EXPECT_EQ(step(), EVN_ERROR_CANCELLED);
  EXPECT_EQ(parameters(), before);
  evn_cancel_release(cancel);
  evn_runtime_release(runtime);
  runtime = nullptr;
  EXPECT_EQ(step(), EVN_ERROR_CANCELLED);
}

TEST_F(Trainers, WhatWasLearnedCanBeSavedAfterTheTokenWasRequested) {
  evn_cancel cancel = nullptr;
  ASSERT_EQ(evn_cancel_create(&cancel, &error), EVN_OK);
  evn_trainer_options o = options;
  o.cancel = cancel;
  evn_trainer_release(trainer);
  trainer = nullptr;
  ASSERT_EQ(evn_trainer_create(runtime, nullptr, &o, &trainer, &error), EVN_OK) << error.message;
  ASSERT_EQ(step(), EVN_OK) << error.message;
  const std::vector<float> learned = parameters();
  evn_cancel_request(cancel);
  evn_cancel_release(cancel);
  evn_evaluation evaluation = EVN_EVALUATION_INIT;
  EXPECT_EQ(step(), EVN_ERROR_CANCELLED);
  EXPECT_EQ(evn_trainer_evaluate(trainer, &input, 1, labels, &evaluation, &error), EVN_ERROR_CANCELLED);
  const std::string path = testing::TempDir() + "/evener_cancelled_" + std::to_string(getpid());
  const std::string state = path + ".safetensors", file = path + ".onnx";
  evn_model model = nullptr;
  EXPECT_EQ(evn_trainer_save(trainer, state.c_str(), &error), EVN_OK) << error.message;
  EXPECT_EQ(evn_trainer_restore(trainer, state.c_str(), &error), EVN_OK) << error.message;
  EXPECT_EQ(evn_trainer_export(trainer, file.c_str(), &error), EVN_OK) << error.message;
  EXPECT_EQ(evn_trainer_finish(trainer, &model, &error), EVN_OK) << error.message;
  EXPECT_EQ(parameters(), learned);
  evn_model_release(model);
  for (const std::string& made : {state, file}) std::remove(made.c_str());
}

TEST_F(Trainers, CallsFromSeveralThreadsWaitForEachOther) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      evn_error own = EVN_ERROR_INIT;
      for (int k = 0; k < 5; ++k) EXPECT_EQ(evn_trainer_step(trainer, &input, 1, labels, nullptr, &own), EVN_OK) << own.message;
    });
  }
  for (std::thread& t : threads) t.join();
  evn_step_info info = EVN_STEP_INFO_INIT;
  ASSERT_EQ(step(&info), EVN_OK);
  EXPECT_EQ(info.step, 21u);
}

}  // namespace
}  // namespace evn::test
