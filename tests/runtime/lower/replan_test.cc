// Plans that are made over for other dims: how many are made from the start, and that runs give the bytes that a session gives
// which never saw another shape.
#include "base/fault.h"
#include "tests/runtime/support.h"

namespace evn::test::replan_test {
namespace {

using ReplanTest = RuntimeTest;

struct PlanCount {
  int full = 0;
  int made_over = 0;
};

void count_plans(void* user, const evn_log_record* record) {
  if (std::strcmp(record->event, "plan.created") != 0) return;
  auto* count = static_cast<PlanCount*>(user);
  for (std::uint32_t i = 0; i < record->field_count; ++i) {
    if (std::strcmp(record->fields[i].key, "made_over") == 0)
      ++(record->fields[i].value[0] == '1' ? count->made_over : count->full);
  }
}

std::shared_ptr<Runtime> counting_runtime(PlanCount* count) {
  static constexpr const Backend* kBackends[] = {&cpu_backend, &mock_backend};
  RuntimeOptions o;
  o.config = two_mocks();
  o.thread_count = 2;
  o.backends = kBackends;
  o.log.level = EVN_LOG_DEBUG;
  o.log.sink = count_plans;
  o.log.sink_user = count;
  return std::make_shared<Runtime>(std::move(o));
}

void expect_same_bytes(const std::vector<HostTensor>& got, const std::vector<HostTensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].desc, want[k].desc) << "output " << k;
    EXPECT_EQ(std::memcmp(got[k].bytes.data(), want[k].bytes.data(), want[k].desc.size_bytes()), 0) << "output " << k;
  }
}

// A step of a decoder: keys join a cache, scores are masked by positions that are counted from the cache's length, and weigh the
// cache.
OnnxWriter decoder() {
  OnnxWriter w(13);
  w.add_input("x", kF32, {1, 4, 16})
      .add_input("past", kF32, {1, "P", 16})
      .add_output("y", kF32)
      .add_output("now", kF32)
      .add_output("count", kI64);
  std::vector<float> weight(16 * 16);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = 0.01f * static_cast<float>(i % 29) - 0.13f;
  w.add_initializer("w", {16, 16}, weight).add_initializer("one", {}, std::vector<std::int64_t>{1});
  w.add_initializer("zero", {}, std::vector<std::int64_t>{0}).add_initializer("axis", {1}, std::vector<std::int64_t>{0});
  w.add_node("MatMul", {"x", "w"}, {"k"}).add_node("Concat", {"past", "k"}, {"now"}, {{"axis", 1}});
  w.add_node("Shape", {"now"}, {"s"}).add_node("Gather", {"s", "one"}, {"n"}, {{"axis", 0}}).add_node("Identity", {"n"}, {"count"});
  w.add_node("Range", {"zero", "n", "one"}, {"positions"}).add_node("Cast", {"positions"}, {"at"}, {{"to", 1}});
  w.add_node("Unsqueeze", {"at", "axis"}, {"row"})
      .add_node("Transpose", {"now"}, {"t"}, {{"perm", std::vector<std::int64_t>{0, 2, 1}}});
  w.add_node("MatMul", {"k", "t"}, {"scores"})
      .add_node("Add", {"scores", "row"}, {"masked"})
      .add_node("Softmax", {"masked"}, {"p"}, {{"axis", -1}});
  w.add_node("MatMul", {"p", "now"}, {"z"}).add_node("Add", {"z", "x"}, {"y"});
  return w;
}

TEST_F(ReplanTest, AGrowingCacheMakesEightPlansAndThenMakesThemOver) {
  PlanCount count;
  const auto runtime = counting_runtime(&count);
  const ModelPtr model = load(runtime, decoder());
  TestSession session(model, "");
  HostTensor past = random_tensor({1, 3, 16}, 1);
  for (std::uint64_t step = 0; step < 100; ++step) {
    const std::vector<HostTensor> in = {random_tensor({1, 4, 16}, step + 2), past};
    const std::vector<HostTensor> got = run(session, in);
    expect_close(got, GraphRunner(model->graph()).run(in));
    past = got[1];
  }
  EXPECT_EQ(count.full, 8);
  EXPECT_EQ(count.made_over, 92);
}

TEST_F(ReplanTest, AShapeThatCameBackKeepsItsPlan) {
  PlanCount count;
  TestSession session(load(counting_runtime(&count), decoder()), "");
  const HostTensor x = random_tensor({1, 4, 16}, 1);
  for (int turn = 0; turn < 40; ++turn) {
    run(session, {x, random_tensor({1, 500, 16}, 1)});
    run(session, {x, random_tensor({1, turn + 1, 16}, 1)});
  }
  EXPECT_EQ(count.full + count.made_over, 41);
  EXPECT_EQ(count.full, 8);
}

// Runs with dims that come and go, among them those where a plan is of another kind: an empty cache, an axis of 1.
void compare_with_fresh(const OnnxWriter& w, const std::string& device, const std::vector<std::vector<Shape>>& shapes,
                        PlanCount* count) {
  const auto runtime = counting_runtime(count);
  TestSession session(load(runtime, w), device);
  std::mt19937 random(7);
  for (int turn = 0; turn < 60; ++turn) {
    std::vector<HostTensor> in;
    for (const Shape& s : shapes[random() % shapes.size()]) in.push_back(random_tensor(s, random()));
    PlanCount other;
    TestSession fresh(load(counting_runtime(&other), w), device);
    expect_same_bytes(run(session, in), run(fresh, in));
  }
}

TEST_F(ReplanTest, RunsGiveTheBytesOfASessionThatSawOneShape) {
  PlanCount count;
  std::vector<std::vector<Shape>> shapes;
  for (int n = 0; n < 30; ++n) shapes.push_back({{1, 4, 16}, {1, n, 16}});
  compare_with_fresh(decoder(), "", shapes, &count);
  EXPECT_GT(count.made_over, 20);
}

// Convolutions, whose values lie channels last and change their layout on the way; sums that run with the node before them where
// the shapes agree; sums that are written in place where they do not broadcast.
OnnxWriter image_network() {
  std::vector<float> conv(8 * 8 * 3 * 3);
  for (std::size_t i = 0; i < conv.size(); ++i) conv[i] = 0.01f * static_cast<float>(i % 17) - 0.08f;
  OnnxWriter w(13);
  w.add_input("x", kF32, {"N", 8, "H", "W"})
      .add_input("z", kF32, {"M", 8, "I", "J"})
      .add_output("y", kF32)
      .add_output("s", kF32)
      .add_output("t", kF32);
  w.add_initializer("w", {8, 8, 3, 3}, conv).add_initializer("shape", {3}, std::vector<std::int64_t>{0, 8, -1});
  const std::vector<Attr> same = {{"kernel_shape", std::vector<std::int64_t>{3, 3}},
                                  {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}};
  w.add_node("Conv", {"x", "w"}, {"a"}, same).add_node("Relu", {"a"}, {"b"}).add_node("Conv", {"b", "w"}, {"c"}, same);
  w.add_node("Add", {"c", "z"}, {"d"}).add_node("Relu", {"d"}, {"e"}).add_node("Conv", {"e", "w"}, {"f"}, same);
  w.add_node("Reshape", {"f", "shape"}, {"y"}).add_node("Sigmoid", {"z"}, {"g"}).add_node("Add", {"e", "g"}, {"h"});
  w.add_node("Mul", {"h", "h"}, {"i"}).add_node("ReduceMean", {"i"}, {"s"}, {{"axes", std::vector<std::int64_t>{2, 3}}});
  w.add_node("Transpose", {"h"}, {"t"}, {{"perm", std::vector<std::int64_t>{0, 3, 2, 1}}});
  return w;
}

TEST_F(ReplanTest, LayoutsAndSumsAreThoseOfASessionThatSawOneShape) {
  std::vector<std::vector<Shape>> shapes;
  for (int i = 0; i < 24; ++i) {
    const int h = 1 + i % 7 * 3;
    const int w = 1 + i * 5 % 11;
    shapes.push_back({{1 + i % 2, 8, h, w}, {1, 8, i % 3 == 0 ? 1 : h, i % 4 == 0 ? 1 : w}});
  }
  for (const char* device : {"", "m"}) {
    PlanCount count;
    compare_with_fresh(image_network(), device, shapes, &count);
    EXPECT_GT(count.made_over, 0);
    EXPECT_GT(count.full, 8) << "all shapes were alike";
  }
}

TEST_F(ReplanTest, AShapeThatDoesNotFitIsTheSameErrorAndTheNextRunIsRight) {
  PlanCount count;
  TestSession session(load(counting_runtime(&count), image_network()), "");
  const auto in = [](int h) { return std::vector<HostTensor>{random_tensor({1, 8, h, 9}, 1), random_tensor({1, 8, h, 9}, 2)}; };
  for (int h = 1; h <= 12; ++h) run(session, in(h));
  std::vector<HostTensor> bad = in(20);
  bad[1] = random_tensor({1, 8, 3, 9}, 2);
  EXPECT_THROW(run(session, bad), Error);
  PlanCount other;
  TestSession fresh(load(counting_runtime(&other), image_network()), "");
  expect_same_bytes(run(session, in(20)), run(fresh, in(20)));
}

TEST_F(ReplanTest, AFailedAllocationWhileAPlanIsMadeOverDoesNoHarm) {
  PlanCount count;
  TestSession session(load(counting_runtime(&count), decoder()), "");
  const HostTensor x = random_tensor({1, 4, 16}, 1);
  for (int n = 1; n <= 10; ++n) run(session, {x, random_tensor({1, n, 16}, 1)});
  int failed = 0;
  for (int k = 0; k < 400; ++k) {
    const std::vector<HostTensor> in = {x, random_tensor({1, 20 + k, 16}, 1)};
    fault_arm(Seam::kAlloc, k % 80 + 1, false);
    try {
      run(session, in);
    } catch (const Error&) {
      ++failed;
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    fault_arm(Seam::kAlloc, 0, false);
    PlanCount other;
    if (k % 20 == 0) {
      TestSession fresh(load(counting_runtime(&other), decoder()), "");
      expect_same_bytes(run(session, in), run(fresh, in));
    }
  }
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace evn::test::replan_test
