// Work from bytes to results grows with the size of a model and not with its square, and the stop condition is asked all along.
// Work is counted, in the units of cancellation points and in allocations: nothing here measures time.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "base/fault.h"
#include "base/guarded.h"
#include "base/heap.h"
#include "core/node_patterns.h"
#include "runtime/run/overlap.h"
#include "runtime/state/state.h"
#include "tests/runtime/support.h"
#include "tests/support/sanitized.h"
#include "tests/support/test_clock.h"
#include "tests/work/shapes.h"

namespace evn::test {
namespace {

// Counts what happens between two looks at the clock of deadlines.
class LookClock {
 public:
  LookClock() {
    fault_count_reset(Seam::kAlloc);
    last_ = most_ = 0;
    before_ = Access<DeadlineClock>::replace(&now);
  }
  ~LookClock() {
    Access<DeadlineClock>::replace(before_);
    fault_arm(Seam::kAlloc, 0, false);
  }
  LookClock(const LookClock&) = delete;
  LookClock& operator=(const LookClock&) = delete;

  // Most allocations between two looks.
  std::int64_t most() const {
    now();
    return most_;
  }

 private:
  static std::uint64_t now() {
    const std::int64_t count = fault_count(Seam::kAlloc);
    most_ = std::max(most_, count - last_);
    last_ = count;
    return TestClock::kNow;
  }

  std::uint64_t (*before_)();
  static inline std::int64_t last_ = 0, most_ = 0;
};

struct Work {
  std::int64_t units = 0;
  std::int64_t allocations = 0;
  std::int64_t most_allocations = 0;  // between two looks
};

template <typename F>
Work work_of(F&& stage) {
  Work work;
  Cancel cancel;
  cancel.deadline_ns = UINT64_MAX / 2;
  const LookClock clock;
  const CancelScope scope(cancel);
  stage();
  work.units = scope.work();
  work.allocations = fault_count(Seam::kAlloc);
  work.most_allocations = clock.most();
  return work;
}

std::vector<TensorPtr> inputs_of(const std::shared_ptr<Runtime>& runtime, const Graph& graph, std::int64_t open_dim) {
  std::vector<TensorPtr> tensors;
  for (const ValueId v : graph.inputs) {
    const Value& value = graph.values[static_cast<std::size_t>(v)];
    TensorDesc desc{value.dtype, value.shape};
    for (int i = 0; i < desc.shape.rank(); ++i) {
      if (desc.shape[i] < 0) desc.shape[i] = open_dim;
    }
    auto tensor = std::make_shared<Tensor>(runtime, &runtime->cpu(), desc, false);
    const auto count = static_cast<std::size_t>(desc.shape.elements());
    if (desc.dtype == DType::kString) {
      std::vector<std::string> texts;
      for (std::size_t i = 0; i < count; ++i) texts.push_back("word" + std::to_string(i * 7919 % (2 * count + 1)));
      tensor->set_strings(std::vector<std::string_view>(texts.begin(), texts.end()));
    } else {
      auto* const to = static_cast<float*>(tensor->buffer().address());
      for (std::size_t i = 0; i < count; ++i) to[i] = 0.1f * static_cast<float>(i * 7919 % (2 * count + 1));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

constexpr const char* kStages[] = {"load", "make a session", "first run", "second run", "run with other dims", "explain"};

// The work of each stage for a model of this size.
std::vector<Work> stages_of(const SizedModel& sized, int n) {
  const std::shared_ptr<Runtime> runtime = make_runtime({}, 0, 1);
  const std::string bytes = sized.make(n).serialize();
  std::vector<Work> all;
  ModelPtr model;
  all.push_back(work_of([&] { model = load_model_buffer(runtime, bytes.data(), bytes.size(), ""); }));
  std::shared_ptr<Session> session;
  all.push_back(work_of([&] { session = make_session(model, ""); }));
  for (const std::int64_t open_dim : {8, 8, 9}) {
    const std::vector<TensorPtr> in = inputs_of(runtime, session->graph(), open_dim);
    std::vector<TensorPtr> out(session->graph().outputs.size());
    all.push_back(work_of([&] { run_tensors(*session, in, out); }));
  }
  all.push_back(work_of([&] { explain(*session, EVN_FORMAT_TEXT); }));
  return all;
}

struct GrowthTest : testing::TestWithParam<std::size_t> {};

TEST_P(GrowthTest, IsNearLinearAndLooksAtTheClock) {
  const SizedModel& sized = sized_models()[GetParam()];
  constexpr int kSize = 1600;
  constexpr double kMostGrowth = 2.7;              // 2 and what sorting adds
  constexpr std::int64_t kFew = 4 * kWorkPerLook;  // of units, which growth may add to whatever it begins with
  constexpr std::int64_t kFewAllocations = 100;
  constexpr std::int64_t kMostBetweenLooks = 25'000;  // some milliseconds
  const std::vector<Work> small = stages_of(sized, kSize), large = stages_of(sized, 2 * kSize);
  for (std::size_t s = 0; s < std::size(kStages); ++s) {
    EXPECT_LE(static_cast<double>(large[s].units), kMostGrowth * static_cast<double>(small[s].units) + kFew)
        << sized.name << ": " << kStages[s];
    EXPECT_LE(static_cast<double>(large[s].allocations), kMostGrowth * static_cast<double>(small[s].allocations) + kFewAllocations)
        << sized.name << ": " << kStages[s];
    if (std::string(kStages[s]) == "explain") continue;  // which nobody can stop
    EXPECT_LE(large[s].most_allocations, kMostBetweenLooks) << sized.name << ": " << kStages[s];
  }
}

INSTANTIATE_TEST_SUITE_P(, GrowthTest, testing::Range(std::size_t{0}, sized_models().size()));

// Tensors for inputs and outputs, where each node reads an input of its own and makes an output.
OnnxWriter model_of_pairs(int n) {
  OnnxWriter w(21, 10);
  for (int i = 0; i < n; ++i) {
    const std::string k = std::to_string(i);
    w.add_input("x" + k, kF32, {4}).add_output("y" + k, kF32, {4}).add_node("Neg", {"x" + k}, {"y" + k});
  }
  return w;
}

TEST(GivenOutputsTest, ChecksOfOverlapsGrowAsSortingDoes) {
  constexpr std::size_t kSize = 3000;
  constexpr std::int64_t kUnitsPerTensor = 80;  // comparisons of a sort, and of a search
  const auto runtime = make_runtime({}, 0, 1);
  const TestSession session(load(runtime, model_of_pairs(kSize)), "");
  const auto tensors = [&] { return inputs_of(runtime, session.graph(), 0); };
  const std::vector<TensorPtr> in = tensors(), apart = tensors();
  std::vector<RunValue> inputs, outputs, over;
  for (std::size_t i = 0; i < kSize; ++i) {
    inputs.push_back({in[i], nullptr});
    outputs.push_back({apart[i], nullptr});
    over.push_back({in[kSize - 1 - i], nullptr});
  }
  const auto expect_linear = [](const Work& work) {
    EXPECT_GE(work.units, static_cast<std::int64_t>(kSize));
    EXPECT_LE(work.units, static_cast<std::int64_t>(kSize) * kUnitsPerTensor);
  };
  expect_linear(work_of([&] { check_overlap(inputs, outputs, false, nullptr); }));
  expect_linear(work_of([&] { check_overlap(inputs, over, true, nullptr); }));
  outputs.back() = outputs[kSize / 2];  // the message names both, whose search takes more
  const Work refused = work_of([&] { EXPECT_THROW(check_overlap(inputs, outputs, false, nullptr), Error); });
  EXPECT_LE(refused.units, 20 * static_cast<std::int64_t>(kSize) * kUnitsPerTensor);
  EXPECT_LT(20 * kUnitsPerTensor, static_cast<std::int64_t>(kSize)) << "fewer than all pairs";
}

TEST(GivenOutputsTest, OneWalkOfAPlanFindsWhatMustBeStaged) {
  constexpr std::size_t kSize = 3000;
  const auto runtime = make_runtime({}, 0, 1);
  TestSession session(load(runtime, model_of_pairs(kSize)), "");
  const std::vector<TensorPtr> in = inputs_of(runtime, session.graph(), 0);
  std::vector<TensorPtr> made(kSize);
  run_tensors(session, in, made);
  const std::shared_ptr<const Plan> plan = session.latest_plans().at(0);
  std::vector<RunValue> same, turned;
  for (std::size_t i = 0; i < kSize; ++i) {
    same.push_back({in[i], nullptr});
    turned.push_back({in[(i + 1) % kSize], nullptr});
  }
  std::size_t staged = 0;
  const auto count_staged = [&](const std::vector<RunValue>& outputs) {
    const OverwriteCheck check(session.compiled(), *plan, in, outputs, nullptr);
    staged = 0;
    for (std::size_t j = 0; j < kSize; ++j) staged += check.must_stage(j) ? 1 : 0;
  };
  const Work work = work_of([&] { count_staged(same); });
  EXPECT_EQ(staged, 0u);
  EXPECT_GE(work.units, static_cast<std::int64_t>(kSize));
  EXPECT_LE(work.units, static_cast<std::int64_t>(100 * kSize));
  count_staged(turned);
  EXPECT_GE(staged, 1u);  // an input is overwritten before the step that reads it
}

TEST(StateTest, NamesOfPairsAreLookedUp) {
  static constexpr int kSize = 3000;
  OnnxWriter w(21, 10);
  StateRequest request;
  for (int i = 0; i < kSize; ++i) {
    const std::string k = std::to_string(i);
    w.add_input("x" + k, kF32, {Dim(("d" + std::to_string(i / 2)).c_str())})
        .add_output("y" + k, kF32)
        .add_node("Neg", {"x" + k}, {"y" + k});
    request.pairs.push_back({"y" + k, "x" + k});
    if (i % 2 == 0) request.dims.push_back({"x" + k, {1 + i % 5}});  // of the next input, too
  }
  const auto runtime = make_runtime({}, 0, 1);
  const auto session = make_session(load(runtime, w), "");
  std::shared_ptr<State> state;
  const Work work = work_of([&] { state = std::make_shared<State>(session, request); });
  EXPECT_GE(work.units, 3 * kSize);
  EXPECT_LE(work.units, 500 * kSize);
  for (int i = 0; i < kSize; ++i) {
    const State::Pair& p = state->pairs()[static_cast<std::size_t>(i)];
    EXPECT_EQ(p.input, static_cast<std::size_t>(i));
    EXPECT_EQ(p.output, static_cast<std::size_t>(i));
    EXPECT_EQ(p.first.shape[0], 1 + i / 2 * 2 % 5);
  }
}

TEST(NodePatternsTest, NamesAreLookedUpAndGlobsAreTriedInTurn) {
  static constexpr int kSize = 3000;
  std::vector<std::string> patterns;
  for (int i = 0; i < kSize; ++i) patterns.push_back("n" + std::to_string(i));
  patterns.insert(patterns.begin() + 100, {"n1?00", "type:Softmax", "n7", "with fused*"});
  const NodePatterns all(patterns);
  const auto found = [&](const char* name, const char* op = "Relu", std::vector<std::string> fused = {}, bool with_fused = true) {
    Node node;
    node.name = name;
    node.op_type = op;
    node.fused = std::move(fused);
    const std::string* const pattern = all.find(node, with_fused);
    return pattern != nullptr ? *pattern : "";
  };
  EXPECT_EQ(found("n7"), "n7");
  EXPECT_EQ(found("n1100"), "n1?00") << "the first in their order";
  EXPECT_EQ(found("n20", "Softmax"), "n20");
  EXPECT_EQ(found("n2000", "Softmax"), "type:Softmax");
  EXPECT_EQ(found("n"), "");
  EXPECT_EQ(found("a", "Relu", {"b", "n2500", "n2400"}), "n2400");
  EXPECT_EQ(found("a", "Relu", {"with fused b"}), "with fused*");
  EXPECT_EQ(found("a", "Relu", {"n2500", "with fused b"}, false), "");
  const Work work = work_of([&] {
    for (int i = 0; i < kSize; ++i) found(("n" + std::to_string(i)).c_str());
  });
  EXPECT_GE(work.units, kSize);
  EXPECT_LE(work.units, 1000 * kSize);
}

TEST(NodePatternsTest, ManyNamesOfKeptNodesCostASessionLittle) {
  const auto units_of = [](int n) {
    const auto runtime = make_runtime({}, 0, 1);
    OnnxWriter w(21, 10);
    w.add_input("x", kF32, {4}).add_output("y", kF32, {4});
    SessionRequest request("");
    for (int i = 0; i < n; ++i) {
      const std::string name = "n" + std::to_string(i);
      w.add_node("Tanh", {i == 0 ? "x" : "a" + std::to_string(i - 1)}, {i + 1 == n ? "y" : "a" + std::to_string(i)}, {}, name);
      request.keep_fp32.push_back(name);
    }
    std::reverse(request.keep_fp32.begin(), request.keep_fp32.end());
    request.precision = Precision::kBfloat16;
    const ModelPtr model = load(runtime, w);
    return work_of([&] { TestSession(model, request); }).units;
  };
  const std::int64_t small = units_of(800), large = units_of(1600);
  EXPECT_LE(static_cast<double>(large), 2.7 * static_cast<double>(small) + 4 * kWorkPerLook);
}

// Inputs with a default, of which all are to be open.
TEST(OpenInputsTest, NamesAreFoundInASet) {
  static constexpr int kSize = 3000;
  OnnxWriter w(21, 10);
  std::vector<std::string> names;
  for (int i = 0; i < kSize; ++i) {
    const std::string k = std::to_string(i);
    names.push_back("x" + k);
    w.add_input("x" + k, kF32, {1}).add_initializer("x" + k, {1}, std::vector<float>{1});
    w.add_output("y" + k, kF32, {1}).add_node("Neg", {"x" + k}, {"y" + k});
  }
  const auto runtime = make_runtime({}, 0, 1);
  const ModelPtr model = load(runtime, w);
  const auto expect_linear = [](const Work& work) {
    EXPECT_GE(work.units, kSize);
    EXPECT_LE(work.units, 100 * kSize);
  };
  std::vector<std::string> with_other = names;
  with_other.push_back("other");
  expect_linear(work_of([&] { EXPECT_THROW(with_open_inputs(model, with_other), Error); }));
  const ModelPtr opened = with_open_inputs(model, std::vector(names.rbegin(), names.rend()));
  EXPECT_EQ(opened->open_inputs, names) << "in the model's order";
  const auto session = make_session(opened, "");
  expect_linear(work_of([&] { EXPECT_EQ(session->open_inputs().with(names), session); }));
}

// A run of `parts` parts, each of which begins with a shape that depends on what the one before computed, behind a chain of nodes.
// The indexes that each part finds are an output.
OnnxWriter model_in_parts(int chain, int parts) {
  OnnxWriter w(17);
  w.add_input("x", kF32, {"n", 4});
  std::string from = "x";
  const auto add = [&](const char* op, const std::vector<std::string>& inputs, const std::string& to,
                       const std::vector<Attr>& attributes = {}) { w.add_node(op, inputs, {to}, attributes); };
  for (int i = 0; i < chain; ++i) {
    const std::string to = "c" + std::to_string(i);
    add(i % 2 == 0 ? "Sin" : "Cos", {from}, to);
    from = to;
  }
  for (int i = 0; i < parts; ++i) {
    const std::string n = std::to_string(i);
    add("NonZero", {from}, "where" + n);
    add("Size", {"where" + n}, "count" + n);
    add("Cast", {"count" + n}, "factor" + n, {{"to", kF32}});
    add("Mul", {from, "factor" + n}, "scaled" + n);
    add("Cos", {"scaled" + n}, "a" + n);
    w.add_output("where" + n, kI64);
    from = "a" + n;
  }
  add("Neg", {from}, "y");
  return w.add_output("y");
}

// Bytes of the heap that a session keeps after its first run.
std::int64_t bytes_after_run(const OnnxWriter& model, std::size_t least_plans) {
  const std::shared_ptr<Runtime> runtime = make_runtime({}, 0, 1);
  Pool& pool = runtime->cpu().pool();
  const std::string bytes = model.serialize();
  const HeapScope counted(&pool);
  const auto in_use = [&] {
    heap_meter().report();
    return static_cast<std::int64_t>(pool.stats().by_class[static_cast<int>(MemoryClass::kHeap)]);
  };
  const auto session = make_session(load_model_buffer(runtime, bytes.data(), bytes.size(), ""), "");
  const std::vector<TensorPtr> in = inputs_of(runtime, session->graph(), 8);
  const std::int64_t before = in_use();
  {
    std::vector<TensorPtr> out(session->graph().outputs.size());
    run_tensors(*session, in, out);
  }
  const std::int64_t after = in_use();
  EXPECT_GE(session->plans().latest().size(), least_plans);
  return after - before;
}

TEST(RetainedTest, PlansOfPartsShareWhatTheyKnowOfOtherParts) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer has memory of its own";
  constexpr int kParts = 200, kChain = 40;  // nodes of the chain for each part
  const auto bytes_of_parts = [](int parts) {
    const int chain = kChain * parts;
    return bytes_after_run(model_in_parts(chain, parts), static_cast<std::size_t>(parts)) -
           bytes_after_run(model_in_parts(chain, 0), 1);
  };
  const std::int64_t small = bytes_of_parts(kParts), large = bytes_of_parts(2 * kParts);
  EXPECT_GT(small, 0);
  EXPECT_LT(static_cast<double>(large), 2.5 * static_cast<double>(small)) << small << " and " << large << " bytes";
}

// A deadline that passes while a stage is under way ends it at one of the next looks, wherever that is.
TEST(StopTest, EveryStageEndsAtTheNextLook) {
  constexpr int kParts = 8;
  const auto runtime = make_runtime({}, 0, 1);
  for (const char* const wanted :
       {"every second value stays", "values of many sizes", "Split with copies", "calls of a function", "Ifs"}) {
    const auto sized = std::find_if(sized_models().begin(), sized_models().end(),
                                    [&](const SizedModel& m) { return m.name == std::string(wanted); });
    ASSERT_NE(sized, sized_models().end());
    const std::string bytes = sized->make(600).serialize();
    ModelPtr model;
    std::shared_ptr<Session> session;
    std::vector<TensorPtr> in;
    const auto load = [&] { model = load_model_buffer(runtime, bytes.data(), bytes.size(), ""); };
    const auto make = [&] { session = make_session(model, ""); };
    const auto run = [&] {
      std::vector<TensorPtr> out(session->graph().outputs.size());
      run_tensors(*session, in, out);
    };
    const auto prepare_make = [&] {
      session.reset();
      load();
    };
    const auto prepare_run = [&] {
      prepare_make();
      make();
      in = inputs_of(runtime, session->graph(), 8);
    };
    const struct {
      const char* name;
      std::function<void()> prepare, stage;
    } stages[] = {{"load", [&] { session.reset(); }, load}, {"make a session", prepare_make, make}, {"run", prepare_run, run}};
    TestClock clock;
    Cancel cancel;
    cancel.deadline_ns = UINT64_MAX / 2;
    for (const auto& s : stages) {
      clock.restart();
      const std::optional<Error> failure = error_of([&] {
        s.prepare();
        clock.restart();
        const CancelScope scope(cancel);
        s.stage();
      });
      ASSERT_FALSE(failure) << wanted << ": " << s.name << ": " << failure->message;
      const std::int64_t looks = clock.looks();
      ASSERT_GE(looks, kParts) << wanted << ": " << s.name;
      for (int part = 0; part < kParts; ++part) {
        clock.restart();
        const std::optional<Error> unprepared = error_of(s.prepare);
        ASSERT_FALSE(unprepared) << wanted << ": " << s.name << ": " << unprepared->message;
        clock.restart(looks * part / kParts);
        const CancelScope scope(cancel);
        EXPECT_THROW(s.stage(), Error) << wanted << ": " << s.name << " " << part;
        EXPECT_LE(clock.looks(), looks * part / kParts + 4) << wanted << ": " << s.name << " " << part;
      }
    }
  }
}

}  // namespace
}  // namespace evn::test
