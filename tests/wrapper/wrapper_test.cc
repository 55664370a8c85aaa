// evener.hpp and operator.hpp, used as its users do: nothing else of the library is included, but for a model to run.
#include "evener/operator.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <thread>

#include "tests/model/onnx_writer.h"

namespace {

using evener::Access;
using evener::Cancel;
using evener::DType;
using evener::Error;
using evener::RunOptions;
using evener::Tensor;

// y = 2 x + b, of any rows of three columns.
std::string line_model() {
  evn::test::OnnxWriter w;
  w.add_input("x", evn::test::kF32, {"rows", 3}).add_input("b", evn::test::kF32, {3}).add_output("y", evn::test::kF32, {"rows", 3});
  w.add_initializer("two", {}, std::vector<float>{2});
  w.add_node("Mul", {"x", "two"}, {"d"}, {}, "double").add_node("Add", {"d", "b"}, {"y"}, {}, "shift");
  w.model().message(14, evn::test::Proto().bytes(1, "author").bytes(2, "nobody"));
  return w.serialize();
}

evener::RuntimeOptions plain_options() {
  evener::RuntimeOptions o;
  o.cache_dir = "";
  o.thread_count = 1;
  return o;
}

struct Wrapper : testing::Test {
  evener::Runtime runtime{plain_options()};
  std::string bytes = line_model();
  evener::Session session = runtime.session(runtime.load(bytes.data(), bytes.size()));
};

template <typename F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(EVN_OK, "");
}

TEST_F(Wrapper, CopiesHaveEvents) {
  evener::Runtime own(plain_options());
  const evener::Device cpu = own.device("cpu");
  Tensor a = cpu.tensor(DType::kFloat32, {3}), b = cpu.tensor(DType::kFloat32, {3});
  a.data<float>()[1] = 5;
  const evener::Event copied = evener::Event::copy(a, b);
  const evener::Event all = evener::Event::record(cpu), again = evener::Event::copy(b, a, {&copied, &all});
  copied.hold_back(cpu);
  EXPECT_TRUE(copied.wait_for(0));
  again.wait();
  EXPECT_EQ(b.to_vector<float>()[1], 5.0f);
  EXPECT_THROW(evener::Event().wait(), Error);
  EXPECT_THROW(evener::OpenCl::of(cpu), Error);
  EXPECT_THROW(evener::OpenCl::place(a), Error);
  EXPECT_THROW(evener::OpenCl::wrap(cpu, &own, 0, DType::kFloat32, {1}), Error);
  EXPECT_THROW(evener::OpenCl::import_event(cpu, &own), Error);
  EXPECT_THROW(evener::OpenCl::export_event(copied, cpu), Error);
  EXPECT_THROW(evener::OpenCl::store_programs(cpu, "programs"), Error);
  EXPECT_THROW(evener::OpenCl().attach(own, "display"), Error);
}

TEST_F(Wrapper, ModelsOfTheConfigurationHaveSessionsByName) {
  const std::string file = "evener_named_" + std::to_string(getpid()) + ".onnx";
  std::FILE* const out = std::fopen(file.c_str(), "wb");
  ASSERT_NE(out, nullptr);
  ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), out), bytes.size());
  std::fclose(out);
  evener::RuntimeOptions options = plain_options();
  options.config_text = "models: {line: {path: " + file + "}}";
  const evener::Runtime configured(options);
  const evener::Session first = configured.session_named("line");
  const evener::Session second = configured.session_named("line");
  std::remove(file.c_str());
  std::vector<Tensor> inputs;
  inputs.push_back(configured.tensor<float>({1, 3}, {1, 2, 3}));
  inputs.push_back(configured.tensor<float>({3}, {10, 20, 30}));
  for (const evener::Session* session : {&first, &second}) {
    const std::vector<Tensor> outputs = session->run(inputs);
    const auto y = outputs[0].data<float>();
    EXPECT_EQ(std::vector<float>(y.begin(), y.end()), (std::vector<float>{12, 24, 36}));
  }
  const Error e = error_of([&] { configured.session_named("lime"); });
  EXPECT_EQ(e.status(), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(e.what()).find("there are: line"), std::string::npos) << e.what();
}

TEST_F(Wrapper, RunsByOrderAndByName) {
  const Tensor x = runtime.tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = runtime.tensor<float>({3}, std::vector<float>{10, 20, 30});
  const std::vector<float> want = {12, 24, 36, 18, 30, 42};
  std::vector<Tensor> inputs;
  inputs.push_back(x.copy_to(runtime.device()));
  inputs.push_back(b.copy_to(runtime.device("cpu")));
  const std::vector<Tensor> by_order = session.run(inputs);
  ASSERT_EQ(by_order.size(), 1u);
  EXPECT_EQ(by_order[0].to_vector<float>(), want);
  EXPECT_EQ(session.run({{"b", b}, {"x", x}})[0].to_vector<float>(), want);
}

TEST_F(Wrapper, RunsEndWhenThatIsRequestedOrTheDeadlineHasPassed) {
  const Tensor x = runtime.tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = runtime.tensor<float>({3}, std::vector<float>{10, 20, 30});
  const Cancel cancel;
  RunOptions options;
  options.cancel = &cancel;
  session.run({{"b", b}, {"x", x}}, options);
  options.deadline_ns = 1;
  EXPECT_EQ(error_of([&] { session.run({{"b", b}, {"x", x}}, options); }).status(), EVN_ERROR_TIMEOUT);
  cancel.request();
  EXPECT_EQ(error_of([&] { session.run({{"b", b}, {"x", x}}, options); }).status(), EVN_ERROR_CANCELLED);
}

TEST_F(Wrapper, FuturesGiveWhatRunsGiveAndThrowWhatTheyThrow) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < 2; ++i) {
    inputs.push_back(session.input(i).name == "x" ? runtime.tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6})
                                                  : runtime.tensor<float>({3}, {10, 20, 30}));
  }
  const std::vector<float> want = session.run(inputs)[0].to_vector<float>();
  std::vector<std::future<std::vector<Tensor>>> futures;
  for (int i = 0; i < 20; ++i) futures.push_back(session.submit(inputs));
  for (auto& f : futures) EXPECT_EQ(f.get()[0].to_vector<float>(), want);
  const Cancel cancel;
  cancel.request();
  RunOptions options;
  options.cancel = &cancel;
  options.priority = 2;
  std::future<std::vector<Tensor>> cancelled = session.submit(inputs, options);
  EXPECT_EQ(error_of([&] { cancelled.get(); }).status(), EVN_ERROR_CANCELLED);
  options.priority = 8;
  EXPECT_EQ(error_of([&] { session.submit(inputs, options); }).status(), EVN_ERROR_INVALID_ARGUMENT);
}

TEST_F(Wrapper, RequestsAreJoinedToBatches) {
  evener::SessionOptions options;
  options.batching.emplace();
  options.batching->max_batch = 4;
  options.batching->max_delay = std::chrono::milliseconds(1);
  const evener::Session joined = runtime.session(runtime.load(bytes.data(), bytes.size()), options);
  std::vector<std::future<std::vector<Tensor>>> futures;
  for (int i = 0; i < 20; ++i) {
    std::vector<Tensor> inputs;
    for (std::size_t k = 0; k < 2; ++k) {
      inputs.push_back(joined.input(k).name == "x" ? runtime.tensor<float>({1, 3}, {static_cast<float>(i), 2, 3})
                                                   : runtime.tensor<float>({3}, {10, 20, 30}));
    }
    futures.push_back(joined.submit(inputs));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(futures[static_cast<std::size_t>(i)].get()[0].to_vector<float>(),
              (std::vector<float>{10 + 2 * static_cast<float>(i), 24, 36}));
  }
  options.batching->buckets = {16};
  const Error e = error_of([&] { runtime.session(runtime.load(bytes.data(), bytes.size()), options); });
  EXPECT_NE(std::string(e.what()).find("buckets need a mask"), std::string::npos) << e.what();
}

TEST_F(Wrapper, RequestsAndQueues) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < 2; ++i) {
    inputs.push_back(session.input(i).name == "x" ? runtime.tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6})
                                                  : runtime.tensor<float>({3}, {10, 20, 30}));
  }
  const evener::Request request = session.request(inputs);
  request.wait();
  EXPECT_TRUE(request.wait_for(0));
  EXPECT_EQ(request.take(1)[0].to_vector<float>(), session.run(inputs)[0].to_vector<float>());
  EXPECT_EQ(error_of([&] { request.take(1); }).status(), EVN_ERROR_WRONG_STATE);
  const evener::Queue queue;
  EXPECT_GE(queue.fd(), 0);
  EXPECT_FALSE(queue.next(0));
  int number = 0;
  session.submit(inputs, queue, &number);
  const evener::Request ended = queue.next();
  EXPECT_EQ(ended.user(), &number);
  EXPECT_EQ(ended.take(1).size(), 1u);
}

TEST_F(Wrapper, RunsIntoGivenMemory) {
  std::vector<float> result(6, -1);
  std::vector<Tensor> outputs(1);
  outputs[0] = runtime.wrap<float>({2, 3}, result);
  std::vector<Tensor> inputs;
  inputs.push_back(runtime.tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  inputs.push_back(runtime.take<float>({3}, {0, 0, 1}));
  session.run(inputs, outputs);
  EXPECT_EQ(result, (std::vector<float>{2, 4, 7, 8, 10, 13}));
}

TEST_F(Wrapper, OutputsMayBeSkippedLieOverInputsAndStayOnTheDevice) {
  Tensor x = runtime.tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = runtime.tensor<float>({3}, {10, 20, 30});
  RunOptions options;
  options.skipped_outputs = {1};
  EXPECT_FALSE(session.run({{"x", x}, {"b", b}}, options)[0]);
  options.skipped_outputs = {0, 1};
  EXPECT_EQ(error_of([&] { session.run({{"x", x}, {"b", b}}, options); }).status(), EVN_ERROR_INVALID_ARGUMENT);
  options.skipped_outputs.clear();
  options.outputs_on_device = true;
  const std::vector<float> want = {12, 24, 36, 18, 30, 42};
  EXPECT_EQ(session.run({{"x", x}, {"b", b}}, options)[0].to_vector<float>(), want);
  options.overwrite_inputs = true;
  std::vector<Tensor> inputs(2), outputs(1);
  const std::size_t at = session.find_input("x");
  inputs[at] = x.view(0, {2, 3});
  inputs[1 - at] = b.view(0, {3});
  outputs[0] = x.view(0, {2, 3});
  session.run(inputs, outputs, options);
  EXPECT_EQ(x.to_vector<float>(), want);
}

TEST_F(Wrapper, ViewsShareTheMemoryOfTheirTensor) {
  Tensor whole = runtime.tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  Tensor row = whole.view(3, {1, 3});
  EXPECT_EQ(row.dims(), (evener::Dims{1, 3}));
  row.data<float>()[0] = 9;
  EXPECT_EQ(whole.to_vector<float>(), (std::vector<float>{1, 2, 3, 9, 5, 6}));
  {
    const Tensor& read = whole;
    const auto first = read.data<float>(), second = read.data<float>();  // readers share a map
    EXPECT_EQ(first.data(), second.data());
    EXPECT_EQ(error_of([&] { row.data<float>(); }).status(), EVN_ERROR_WRONG_STATE);
  }
  whole = Tensor();
  EXPECT_EQ(row.to_vector<float>(), (std::vector<float>{9, 5, 6}));
  EXPECT_EQ(error_of([&] { static_cast<void>(row.view(1, {3})); }).status(), EVN_ERROR_INVALID_ARGUMENT);
}

TEST_F(Wrapper, StringsComeAllAtOnce) {
  Tensor texts = runtime.device().tensor(DType::kString, {2, 2});
  EXPECT_EQ(texts.strings(), std::vector<std::string>(4));
  const std::vector<std::string> want = {"one", std::string("a\0b", 3), "", std::string(500, 'x')};
  texts.set_strings(want);
  EXPECT_EQ(texts.strings(), want);
  EXPECT_EQ(runtime.device().tensor(DType::kString, {0}).strings(), std::vector<std::string>());
  EXPECT_EQ(error_of([&] { static_cast<void>(runtime.tensor<float>({1}, {1}).strings()); }).status(), EVN_ERROR_INVALID_ARGUMENT);
}

TEST_F(Wrapper, NamesShapesAndTexts) {
  const std::vector<evener::ValueInfo> inputs = session.inputs();
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_EQ(inputs[0].name, "x");
  EXPECT_EQ(inputs[0].dtype, DType::kFloat32);
  EXPECT_EQ(inputs[0].dims, (std::vector<std::int64_t>{-1, 3}));
  EXPECT_EQ(inputs[0].symbols[0], "rows");
  EXPECT_EQ(session.find_input("b"), 1u);
  EXPECT_EQ(session.output(session.find_output("y")).name, "y");
  EXPECT_NE(session.explain().find("double"), std::string::npos);
  EXPECT_EQ(session.explain(evener::Format::kJson).front(), '{');
  const evener::Model model = runtime.load(bytes.data(), bytes.size());
  EXPECT_EQ(model.metadata("author"), "nobody");
  EXPECT_NE(model.describe().find("rows"), std::string::npos);
  EXPECT_NE(runtime.describe_devices().find("cpu"), std::string::npos);
  EXPECT_NE(evener::describe_passes(evener::Format::kJson).find("\"cascade\""), std::string::npos);
  evener::SessionOptions without;
  without.disabled_passes = {"cascade", "sum_epilogue"};
  EXPECT_NO_THROW(runtime.session(model, without));
  without.disabled_passes = {"cascde"};
  EXPECT_THROW(runtime.session(model, without), evener::Error);
  EXPECT_EQ(runtime.device().name(), "cpu");
  EXPECT_TRUE(runtime.device().has(EVN_DEVICE_UNIFIED_MEMORY));
  EXPECT_FALSE(runtime.device().has(EVN_DEVICE_UNIFIED_MEMORY | EVN_DEVICE_SUBGROUPS));
  EXPECT_EQ(runtime.device_count(), 1u);
}

TEST_F(Wrapper, AnotherConfiguration) {
  const evener::Session session = runtime.session(runtime.load(bytes.data(), bytes.size()));
  runtime.reconfigure("", "placement: {default: cpu}\n");
  EXPECT_NE(session.explain().find("the default device"), std::string::npos);
  EXPECT_EQ(error_of([&] { runtime.reconfigure("", "placement: {default: gpuu}\n"); }).status(), EVN_ERROR_CONFIG);
  EXPECT_EQ(error_of([&] { runtime.reconfigure("no-such-file.yaml"); }).status(), EVN_ERROR_IO);
  EXPECT_NE(session.explain().find("the default device"), std::string::npos);
  runtime.reconfigure("");
  EXPECT_EQ(session.explain().find("the default device"), std::string::npos);
}

TEST_F(Wrapper, Statistics) {
  evener::SessionOptions options;
  options.name = "by name";
  const evener::Session named = runtime.session(runtime.load(bytes.data(), bytes.size()), options);
  EXPECT_NE(named.statistics().find("session by name: 0 queued, 0 running"), std::string::npos);
  EXPECT_EQ(named.statistics(evener::Format::kJson).rfind("{\"name\":\"by name\",", 0), 0u);
  EXPECT_NE(runtime.statistics().find("session by name"), std::string::npos);
  EXPECT_NE(runtime.statistics(evener::Format::kPrometheus).find("evener_requests_running{session=\"by name\"} 0\n"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { static_cast<void>(named.statistics(evener::Format::kPrometheus)); }).status(),
            EVN_ERROR_INVALID_ARGUMENT);
}

TEST_F(Wrapper, ErrorsHaveStatusAndText) {
  const Error missing = error_of([&] { runtime.load("no-such-file.onnx"); });
  EXPECT_EQ(missing.status(), EVN_ERROR_IO);
  EXPECT_EQ(std::string(missing.what()).rfind("EVN_ERROR_IO: ", 0), 0u);
  EXPECT_EQ(error_of([&] { runtime.device("abacus"); }).status(), EVN_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(error_of([&] { session.find_input("z"); }).status(), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(error_of([&] { session.run({{"x", Tensor()}}); }).status(), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(error_of([] { evener::Session().run(Tensor()); }).status(), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(error_of([&] { runtime.tensor<float>({2, 2}, {1}); }).status(), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(error_of([] { evener::Dims({1, 1, 1, 1, 1, 1, 1, 1, 1}); }).status(), EVN_ERROR_LIMIT);
  evener::RuntimeOptions options = plain_options();
  options.cpu_memory_limit_bytes = 1 << 20;
  const evener::Runtime capped(std::move(options));
  const Error full = error_of([&] { capped.device().tensor(DType::kFloat32, {1 << 20}); });
  EXPECT_EQ(full.status(), EVN_ERROR_OUT_OF_MEMORY);
  EXPECT_STREQ(full.device(), "cpu");
  EXPECT_GE(full.bytes_requested(), 4u << 20);
  EXPECT_LE(full.bytes_available(), 1u << 20);
}

TEST_F(Wrapper, CapsMayChangeAndSessionsTellWhatTheyHold) {
  const evener::Device device = runtime.device();
  EXPECT_EQ(session.memory_stats().arenas_made, 0u);
  device.set_memory_limit(4096);
  EXPECT_EQ(device.memory_stats().limit, 4096u);
  EXPECT_EQ(error_of([&] { device.tensor(DType::kFloat32, {1 << 20}); }).status(), EVN_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(error_of([&] { device.set_memory_limit(1); }).status(), EVN_ERROR_INVALID_ARGUMENT);
  device.set_memory_limit(UINT64_MAX);
  EXPECT_EQ(device.memory_stats().limit, UINT64_MAX);
  device.set_cache_policy(4096, evener::Trim::kIdle);
  EXPECT_EQ(device.memory_stats().cache_limit, 4096u);
  EXPECT_EQ(device.memory_stats().trim, EVN_TRIM_IDLE);
  device.set_cache_policy(UINT64_MAX);
  EXPECT_EQ(device.memory_stats().trim, EVN_TRIM_NEVER);
  EXPECT_EQ(device.state(), evener::DeviceState::kReady);
  EXPECT_EQ(device.condition(), "");
}

TEST_F(Wrapper, AModelThatCannotRunNamesItsNode) {
  evn::test::OnnxWriter w;
  w.add_input("x", evn::test::kF32, {3}).add_output("y").add_node("NoSuchOperator", {"x"}, {"y"}, {}, "strange");
  const std::string bad = w.serialize();
  const Error e = error_of([&] { runtime.load(bad.data(), bad.size()); });
  EXPECT_EQ(e.status(), EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(e.node(), "strange");
  EXPECT_NE(std::string(e.what()).find("(node strange)"), std::string::npos);
}

TEST_F(Wrapper, MapsAreTypedAndEndWithTheirScope) {
  Tensor t = runtime.device().tensor(DType::kInt32, {4});
  EXPECT_EQ(error_of([&] { t.data<float>(); }).status(), EVN_ERROR_INVALID_ARGUMENT);
  {
    const auto view = t.data<std::int32_t>();
    for (std::size_t i = 0; i < view.size(); ++i) view[i] = static_cast<std::int32_t>(i * i);
    EXPECT_EQ(error_of([&] { t.bytes(); }).status(), EVN_ERROR_WRONG_STATE);
  }
  const Tensor& read = t;
  static_assert(std::is_same_v<decltype(read.data<std::int32_t>()[0]), const std::int32_t&>);
  std::int32_t sum = 0;
  for (const std::int32_t v : read.data<std::int32_t>()) sum += v;
  EXPECT_EQ(sum, 0 + 1 + 4 + 9);
  EXPECT_EQ(read.bytes().size(), 16u);
  EXPECT_EQ(read.dims(), evener::Dims({4}));
  auto moved = t.data<std::int32_t>(Access::kRead);
  auto last = std::move(moved);
  EXPECT_EQ(last.span().size(), 4u);
  last.unmap();
  EXPECT_EQ(t.to_vector<std::int32_t>()[3], 9);
}

TEST_F(Wrapper, WrappedMemoryIsDeletedOnceAndOnlyOnSuccess) {
  int deleted = 0;
  float data[2] = {1, 2};
  const evn_deleter count = [](void* user, void*) { ++*static_cast<int*>(user); };
  EXPECT_EQ(error_of([&] { runtime.wrap(DType::kFloat32, {3}, data, sizeof data, count, &deleted); }).status(),
            EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(deleted, 0);
  {
    Tensor t = runtime.wrap(DType::kFloat32, {2}, data, sizeof data, count, &deleted);
    Tensor moved = std::move(t);
    EXPECT_FALSE(t);
    EXPECT_EQ(moved.to_vector<float>()[1], 2);
    EXPECT_EQ(deleted, 0);
  }
  EXPECT_EQ(deleted, 1);
}

TEST_F(Wrapper, DlpackGoesOutAndComesBack) {
  Tensor back;
  {
    const Tensor t = runtime.tensor<float>({2, 2}, {1, 2, 3, 4});
    void* managed = t.to_dlpack();
    back = runtime.from_dlpack(managed);
  }
  EXPECT_EQ(back.to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
  const Tensor legacy = runtime.from_dlpack(back.to_dlpack(true), true);
  EXPECT_EQ(legacy.dims(), evener::Dims({2, 2}));
}

TEST_F(Wrapper, TracesARun) {
  const Tensor x = runtime.tensor<float>({1, 3}, {1, 2, 3});
  const Tensor b = runtime.tensor<float>({3}, {0, 0, 0});
  EXPECT_EQ(error_of([&] { session.trace(); }).status(), EVN_ERROR_WRONG_STATE);
  session.start_trace(64);
  session.run({{"x", x}, {"b", b}});
  session.stop_trace();
  EXPECT_NE(session.trace(evener::Format::kJson).find("traceEvents"), std::string::npos);
}

TEST(WrapperCallbacks, OutliveTheRuntimeObjectAndMayThrow) {
  std::vector<std::string> events;
  std::atomic<int> calls{0};
  evener::Session session;
  Tensor x;
  {
    evener::RuntimeOptions options = plain_options();
    options.log_level = evener::LogLevel::kDebug;
    options.log = [&events, kept = std::make_shared<int>(1)](const evn_log_record& r) {
      events.push_back(r.event);
      if (*kept == 1) throw std::runtime_error("dropped");
    };
    options.thread_count = 2;
    options.parallel_for = [&calls](std::uint32_t, const std::function<void(std::uint32_t)>& task) {
      ++calls;
      task(0);
      throw 1;
    };
    const evener::Runtime runtime(std::move(options));
    const std::string bytes = evn::test::small_network().serialize();
    session = runtime.session(runtime.load(bytes.data(), bytes.size()));
    x = runtime.device().tensor(DType::kFloat32, {64, 3, 8, 8});
  }
  const std::vector<float> y = session.run(x)[0].to_vector<float>();
  EXPECT_EQ(y.size(), 640u);
  EXPECT_TRUE(std::isfinite(y[0]));
  EXPECT_GT(calls, 0);
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.back(), "plan.created");
}

TEST(WrapperCallbacks, GoWhenTheRuntimeHasEnded) {
  auto kept = std::make_shared<int>(0);
  int ended = 0;
  void* managed = nullptr;
  {
    evener::RuntimeOptions options = plain_options();
    options.log = [kept](const evn_log_record&) { ++*kept; };
    options.ended = [&ended, kept] {
      ++ended;
      throw 1;
    };
    const evener::Runtime runtime(std::move(options));
    options = plain_options();
    managed = runtime.device().tensor(DType::kFloat32, {2}).to_dlpack();
  }
  EXPECT_EQ(kept.use_count(), 3) << "what DLPack has keeps the runtime";
  EXPECT_EQ(ended, 0);
  struct Managed {  // the beginning of a DLManagedTensorVersioned
    std::uint32_t major, minor;
    void* context;
    void (*deleter)(Managed*);
  };
  static_cast<Managed*>(managed)->deleter(static_cast<Managed*>(managed));
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(kept.use_count(), 1);

  evener::RuntimeOptions wrong = plain_options();
  wrong.config_text = "";
  EXPECT_EQ(error_of([&] { evener::Runtime r(wrong); }).status(), EVN_ERROR_INVALID_ARGUMENT);
  wrong.config_text = "nonsense: 1";
  wrong.ended = [&ended, kept] { ++ended; };
  EXPECT_EQ(error_of([&] { evener::Runtime runtime(std::move(wrong)); }).status(), EVN_ERROR_CONFIG);
  EXPECT_EQ(ended, 1) << "there was no runtime";
  wrong = plain_options();
  EXPECT_EQ(kept.use_count(), 1);
}

TEST_F(Wrapper, AModelTellsWhatItTakes) {
  evn::test::OnnxWriter w(17);
  const std::string name(300, 'n'), optional(300, 'o'), rows(100, 'r'), columns(100, 'c');
  w.add_input(name, 1, {rows.c_str(), 3}).add_input(optional, 1, {1, columns.c_str()}).add_output("y", 1);
  w.add_initializer<float>(optional, {1, 3}, {1, 2, 3}).add_node("Add", {name, optional}, {"y"});
  w.model().message(14, evn::test::Proto().bytes(1, "author").bytes(2, "nobody"));
  const std::string serialized = w.serialize();
  const evener::Model model = runtime.load(serialized.data(), serialized.size());
  ASSERT_EQ(model.inputs().size(), 1u);
  EXPECT_EQ(model.inputs()[0].name, name);
  EXPECT_EQ(model.inputs()[0].dims, (std::vector<std::int64_t>{-1, 3}));
  EXPECT_EQ(model.inputs()[0].symbols, (std::vector<std::string>{rows, ""}));
  EXPECT_EQ(model.defaults().at(0).name, optional);
  EXPECT_EQ(model.defaults()[0].symbols, (std::vector<std::string>{"", columns}));
  EXPECT_EQ(model.outputs().at(0).name, "y");
  EXPECT_EQ(model.metadata_keys(), std::vector<std::string>{"author"});
  EXPECT_EQ(runtime.session(model).input(0).name, name);
  EXPECT_EQ(runtime.session(model).defaults().at(0).name, optional);
}

TEST_F(Wrapper, StatesGoFromRunToRun) {
  using evn::test::kF32;
  evn::test::OnnxWriter w(17);
  w.add_input("x", kF32, {1, "S"}).add_input("past", kF32, {1, "P"}).add_output("all", kF32).add_output("sum", kF32);
  w.add_node("Concat", {"past", "x"}, {"all"}, {{"axis", 1}}).add_node("ReduceSum", {"all"}, {"sum"}, {{"keepdims", 0}});
  const std::string appender = w.serialize();
  evener::Session appends = runtime.session(runtime.load(appender.data(), appender.size()));
  evener::State state = appends.state({{"all", "past", 100}});
  evener::RunOptions options;
  options.state = &state;
  std::vector<evener::Tensor> inputs(2);
  inputs[0] = runtime.tensor<float>({1, 2}, {1.0f, 2.0f});
  EXPECT_EQ(appends.run(inputs, options)[1].to_vector<float>(), std::vector<float>{3});
  const std::vector<unsigned char> saved = state.save();
  evener::State fork = state.fork();
  const std::vector<evener::Tensor> outputs = appends.run(inputs, options);
  EXPECT_FALSE(outputs[0]);
  EXPECT_EQ(outputs[1].to_vector<float>(), std::vector<float>{6});
  EXPECT_EQ(state.length(), 4);
  EXPECT_EQ(fork.length(), 2);
  state.truncate(1);
  EXPECT_EQ(appends.submit(inputs, options).get()[1].to_vector<float>(), std::vector<float>{4});
  state.restore(saved);
  EXPECT_EQ(state.save(), fork.save());
  EXPECT_NE(state.describe().find("pages"), std::string::npos);
  state.reset();
  EXPECT_EQ(state.length(), 0);
}

TEST_F(Wrapper, AssignmentReleasesWhatWasHeld) {
  const evn_session old = session.get();
  session = evener::Session();
  EXPECT_FALSE(session);
  std::uint32_t n = 0;
  EXPECT_EQ(evn_session_input_count(old, &n, nullptr), EVN_ERROR_INVALID_HANDLE);
}

TEST_F(Wrapper, OperatorsOfTheProgram) {
  evener::Operator op;
  op.domain = "mine";
  op.name = "Shifted";
  op.infer = [](const evener::OperatorNode&, evener::Span<const evn_tensor_view> in, evener::Span<evn_tensor_view> out) {
    out[0] = in[0];
  };
  auto kept = std::make_shared<int>(0);
  op.run = [kept](const evener::OperatorNode& node, evener::Span<const evn_tensor_view> in,
                  evener::Span<const evn_tensor_view> out) {
    if (node.has("texts") && node.get_strings("texts") != std::vector<std::string>{"one", std::string("a\0b", 3)})
      throw Error(EVN_ERROR_IO, "texts");
    if (node.get_int("fail", 0) == 1) throw Error(EVN_ERROR_LIMIT, "as asked");
    if (node.get_int("fail", 0) == 2) throw std::runtime_error("as asked too");
    const float by = node.get_float("by", 1.0f) + static_cast<float>(node.has("more") ? node.get_ints("more")[1] : 0);
    for (std::size_t i = 0; i < in[0].size_bytes / 4; ++i)
      static_cast<float*>(out[0].data)[i] = static_cast<float*>(in[0].data)[i] + by;
    ++*kept;
  };
  evener::register_operator(runtime, op);
  EXPECT_EQ(error_of([&] { evener::register_operator(runtime, op); }).status(), EVN_ERROR_INVALID_ARGUMENT);
  const auto run = [&](const std::vector<evn::test::Attr>& attributes) {
    evn::test::OnnxWriter w;
    w.import("mine", 1)
        .add_input("x", evn::test::kF32, {2})
        .add_output("y")
        .add_node("Shifted", {"x"}, {"y"}, attributes, "shifted", "mine");
    const std::string model = w.serialize();
    return runtime.session(runtime.load(model.data(), model.size())).run(runtime.tensor<float>({2}, {1, 2}))[0].to_vector<float>();
  };
  EXPECT_EQ(run({}), (std::vector<float>{2, 3}));
  EXPECT_EQ(run({{"by", 0.5f}, {"more", std::vector<std::int64_t>{7, 9}}}), (std::vector<float>{10.5f, 11.5f}));
  const evn::test::Attr texts(
      evn::test::Proto().bytes(1, "texts").bytes(9, "one").bytes(9, std::string_view("a\0b", 3)).varint(20, 8));
  EXPECT_EQ(run({texts}), (std::vector<float>{2, 3}));
  EXPECT_EQ(*kept, 3);
  const Error asked = error_of([&] { run({{"fail", 1}}); });
  EXPECT_EQ(asked.status(), EVN_ERROR_LIMIT);
  EXPECT_STREQ(asked.node(), "shifted");
  EXPECT_NE(std::string(error_of([&] { run({{"fail", 2}}); }).what()).find("as asked too"), std::string::npos);
  EXPECT_NE(std::string(error_of([&] { run({{"by", 1}}); }).what()).find("\"by\" is of type"), std::string::npos);
  session = evener::Session();
  op = evener::Operator();
  runtime = evener::Runtime(plain_options());
  EXPECT_EQ(kept.use_count(), 1) << "the runtime has let go of it";
}

TEST_F(Wrapper, InspectsAFile) {
  const std::string path = testing::TempDir() + "evener_wrapper_inspect.onnx";
  std::FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
  std::fclose(file);
  const std::string json = runtime.inspect(path, {{"x", {4, 3}}}, evener::Format::kJson);
  EXPECT_NE(json.find("\"shapes\":{\"x\":[4,3],\"b\":[3]},\"complete\":true"), std::string::npos) << json;
  EXPECT_EQ(error_of([&] { runtime.inspect(path, {{"x", {4, 4}}}); }).status(), EVN_ERROR_INVALID_ARGUMENT);
  std::remove(path.c_str());
}

}  // namespace
