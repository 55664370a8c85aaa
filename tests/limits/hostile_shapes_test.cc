// Models whose attributes name sizes far beyond their tensors are loaded and run under a memory limit of megabytes: the memory that
// they take is that of what they compute.
#include <gtest/gtest.h>

#include "base/heap.h"
#include "runtime/report/explain.h"
#include "runtime/stages/make_session.h"
#include "tests/model/onnx_writer.h"
#include "tests/support/sanitized.h"

namespace evn {
extern const Backend cpu_backend;
}

namespace evn::test::hostile_shapes_test {
namespace {

using Longs = std::vector<std::int64_t>;

constexpr std::uint64_t kLimit = std::uint64_t{16} << 20;

// The memory limit counts what containers take, but not in sanitized builds.
struct HostileShapes : testing::Test {
  std::shared_ptr<Runtime> runtime;

  void SetUp() override {
    if (kIsSanitized) GTEST_SKIP() << "sanitizers have heads of their own";
    static constexpr const Backend* kBackends[] = {&cpu_backend};
    RuntimeOptions o;
    o.thread_count = 2;
    o.cpu_memory_limit = kLimit;
    o.backends = kBackends;
    runtime = std::make_shared<Runtime>(std::move(o));
  }

  // Calls body() under the limit. Returns its error, whose status is EVN_OK if there is none.
  template <typename F>
  Error error_under_limit(F&& body) const {
    Error none;
    none.status = EVN_OK;
    try {
      const HeapScope counted(&runtime->cpu().pool());
      body();
    } catch (const Error& e) {
      return e;
    } catch (const HeapRefused& refused) {
      return refused.error;
    }
    return none;
  }

  ModelPtr load(const OnnxWriter& w) const {
    const std::string bytes = w.serialize();
    ModelPtr model;
    const Error e = error_under_limit([&] { model = load_model_buffer(runtime, bytes.data(), bytes.size(), ""); });
    EXPECT_EQ(e.status, EVN_OK) << e.message << " [" << e.node << "]";
    return model;
  }

  // Runs a model of one input of float32. `session` gets the session.
  std::vector<TensorPtr> run(const OnnxWriter& w, const Shape& shape, const std::vector<float>& x,
                             std::shared_ptr<Session>* session) const {
    const ModelPtr model = load(w);
    if (model == nullptr) return {};
    std::vector<RunValue> in = {
        {std::make_shared<Tensor>(runtime, &runtime->cpu(), TensorDesc{DType::kFloat32, shape}, false), {}}};
    std::memcpy(in[0].tensor->buffer().address(), x.data(), x.size() * sizeof(float));
    std::vector<RunValue> out(model->graph().outputs.size());
    const Error e = error_under_limit([&] {
      *session = make_session(model, "");
      (*session)->run(in, out, {});
    });
    EXPECT_EQ(e.status, EVN_OK) << e.message << " [" << e.node << "]";
    std::vector<TensorPtr> tensors;
    for (const RunValue& v : out) tensors.push_back(v.tensor);
    return e.status == EVN_OK ? tensors : std::vector<TensorPtr>{};
  }
};

template <typename T>
std::vector<T> values_of(const TensorPtr& t) {
  EXPECT_EQ(t->desc().dtype, kDTypeOf<T>);
  const T* const from = static_cast<const T*>(t->buffer().address());
  return std::vector<T>(from, from + t->desc().shape.elements());
}

// A linear classifier has no decisions of pairs, of which 20,000 classes have 200 million.
TEST_F(HostileShapes, ALinearClassifierOfManyClassesHasNoPairs) {
  constexpr std::size_t kClasses = 20'000;
  Longs labels;
  std::vector<float> coefficients;
  for (std::size_t k = 0; k < kClasses; ++k) {
    labels.push_back(static_cast<std::int64_t>(3 * k));
    coefficients.push_back(static_cast<float>(k));
  }
  OnnxWriter w(17);
  w.import("ai.onnx.ml", 1).add_input("x", kF32, {1, 1}).add_output("label", kI64).add_output("scores");
  w.add_node("SVMClassifier", {"x"}, {"label", "scores"},
             {{"classlabels_ints", labels}, {"coefficients", coefficients}, {"rho", std::vector<float>{0.5f}}}, "svm",
             "ai.onnx.ml");
  std::shared_ptr<Session> session;
  const std::vector<TensorPtr> y = run(w, {1, 1}, {2}, &session);
  ASSERT_EQ(y.size(), 2u);
  EXPECT_EQ(values_of<std::int64_t>(y[0]), Longs{3 * (kClasses - 1)});
  const std::vector<float> scores = values_of<float>(y[1]);
  ASSERT_EQ(scores.size(), kClasses);
  EXPECT_EQ(scores[0], 0.5f);
  EXPECT_EQ(scores[kClasses - 1], 2 * static_cast<float>(kClasses - 1) + 0.5f);
}

// The CPU's kernel has a place in its scratch for each position under a window.
TEST_F(HostileShapes, PoolsOfWideDilationsTakeNoScratch) {
  constexpr std::int64_t kWide = 1 << 20;
  for (const char* op : {"MaxPool", "AveragePool"}) {
    for (const bool is_image : {false, true}) {
      const Longs kernel = is_image ? Longs{1, 3} : Longs{3}, steps = is_image ? Longs{1, kWide} : Longs{kWide};
      const Longs pads = is_image ? Longs{0, kWide, 0, kWide} : Longs{kWide, kWide};
      OnnxWriter w(19, 9);
      if (is_image) {
        w.add_input("x", kF32, {1, 1, 1, 1});
      } else {
        w.add_input("x", kF32, {1, 1, 1});
      }
      w.add_node(op, {"x"}, {"y"}, {{"kernel_shape", kernel}, {"strides", steps}, {"dilations", steps}, {"pads", pads}}, "pool");
      std::shared_ptr<Session> session;
      const std::vector<TensorPtr> y = run(w.add_output("y"), is_image ? Shape{1, 1, 1, 1} : Shape{1, 1, 1}, {-7}, &session);
      ASSERT_EQ(y.size(), 1u) << op;
      EXPECT_EQ(values_of<float>(y[0]), std::vector<float>{-7}) << op;
      const std::string line = "pool  " + std::string(op) + "  cpu  reference", text = explain(*session, EVN_FORMAT_TEXT);
      EXPECT_NE(text.find(line), std::string::npos) << text;
    }
  }
}

// Nodes that compute nothing, as their outputs are empty, and have no input but constants.
TEST_F(HostileShapes, ConstantsWithoutElementsAreMadeWithoutMemory) {
  const auto expect_folded = [&](const char* op, OnnxWriter w) {
    w.add_node("Neg", {"empty"}, {"y"}).add_output("y");
    const ModelPtr model = load(w);
    ASSERT_NE(model, nullptr) << op;
    ASSERT_EQ(model->graph().nodes.size(), 1u) << op;
    EXPECT_EQ(model->graph().nodes[0].op_type, "Neg") << op;
  };
  OnnxWriter grid(21, 10);
  grid.add_initializer("theta", {0, 2, 3}, std::vector<float>{})
      .add_initializer("size", {4}, Longs{0, 1, 1, std::int64_t{1} << 34});
  expect_folded("AffineGrid", grid.add_node("AffineGrid", {"theta", "size"}, {"empty"}));
  OnnxWriter regions(21, 10);
  regions.add_initializer("image", {1, 1, 1, 1}, std::vector<float>{1}).add_initializer("rois", {0, 5}, std::vector<float>{});
  regions.add_node("MaxRoiPool", {"image", "rois"}, {"empty"}, {{"pooled_shape", Longs{std::int64_t{1} << 33, 1}}});
  expect_folded("MaxRoiPool", regions);
  OnnxWriter columns(21, 10);
  const std::int64_t huge = std::int64_t{1} << 40;
  columns.add_initializer("columns", {0, 1, huge}, std::vector<float>{}).add_initializer("image", {1}, Longs{huge});
  columns.add_initializer("block", {1}, Longs{1});
  expect_folded("Col2Im", columns.add_node("Col2Im", {"columns", "image", "block"}, {"empty"}));
}

}  // namespace
}  // namespace evn::test::hostile_shapes_test
