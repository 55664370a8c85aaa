// Analysis of a trainer's model: what it tells, and how soon it ends when its work must stop.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/error.h"
#include "tests/train/named_graph.h"
#include "train/buffers.h"
#include "train/ways.h"

namespace evn_train {
namespace {

// A chain of products, each with a weight of its own.
struct Chain : NamedGraph {
  explicit Chain(std::size_t length) {
    input("x", {2});
    for (std::size_t i = 0; i < length; ++i) {
      const std::string n = std::to_string(i);
      weight("w" + n, {2}).node("Mul", {i == 0 ? "x" : "v" + std::to_string(i - 1), "w" + n}, "v" + n);
    }
    output("v" + std::to_string(length - 1));
  }
};

// Runs `work` to its end, and then with a request that is there from the beginning.
template <typename F>
void expect_stoppable(const char* what, F&& work) {
  const evn::Cancel never;
  {
    const evn::CancelScope scope(never);
    work();
    EXPECT_GT(scope.work(), 4 * evn::kWorkPerLook) << what;
    EXPECT_LE(scope.longest(), 2 * evn::kWorkPerLook) << what;
  }
  const std::atomic<bool> requested{true};
  evn::Cancel cancel;
  cancel.requested = &requested;
  const evn::CancelScope scope(cancel);
  evn_status status = EVN_OK;
  try {
    work();
  } catch (const evn::Error& e) {
    status = e.status;
  }
  EXPECT_EQ(status, EVN_ERROR_CANCELLED) << what;
}

TEST(Reading, EndsWhenItMustStop) {
  const Chain chain(4000);
  const std::string& loss = name_of(chain.graph(), chain.graph().outputs[0]);
  expect_stoppable("Ways", [&] { EXPECT_TRUE(Ways(chain.graph(), loss).of("w0").is_smooth); });
  expect_stoppable("BufferFinder", [&] { BufferFinder(chain.graph()); });
}

TEST(Reading, ALookAtATableEndsWhenItMustStop) {
  std::vector<float> ramp(200'000);
  std::iota(ramp.begin(), ramp.end(), 0.0f);
  NamedGraph graph;
  const Value& table = graph.constant("table", DType::kFloat32, {static_cast<std::int64_t>(ramp.size())}, ramp.data());
  const Graph none;
  const BufferFinder finder(none);
  expect_stoppable("look_at", [&] { EXPECT_EQ(finder.look_at(table).why, "its elements count up"); });
}

// The bytes are not aligned, as in a file.
Suspicion look_at(const std::vector<float>& values) {
  const auto bytes = std::make_shared<std::vector<char>>(1 + values.size() * sizeof(float));
  std::memcpy(bytes->data() + 1, values.data(), values.size() * sizeof(float));
  Value w;
  w.name = "w";
  w.constant = evn::make_weight_over({DType::kFloat32, {static_cast<std::int64_t>(values.size())}},
                                     std::shared_ptr<const void>(bytes, bytes->data() + 1));
  const Graph none;
  return BufferFinder(none).look_at(w);
}

TEST(Reading, ElementsTellWhatATensorIs) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(look_at({0, 1, 1, 0}).why, "its elements are 0 and 1");
  EXPECT_EQ(look_at({1, 1, 1, 1}).why, "");
  EXPECT_EQ(look_at({0, 0, 0, 0}).why, "");
  EXPECT_EQ(look_at({3, 4, 5, 6}).why, "its elements count up");
  EXPECT_EQ(look_at({3, 4, 5, 7}).why, "");
  EXPECT_TRUE(look_at({0, -kInfinity}).is_certain);
  EXPECT_FALSE(look_at({0, -kInfinity}).is_finite);
  EXPECT_TRUE(look_at({0, -1e4f}).is_finite);
  EXPECT_FALSE(look_at({0.5f, -1e4f}).is_certain);
  EXPECT_FALSE(look_at({0.5f, std::numeric_limits<float>::quiet_NaN(), 1}).is_finite);
}

}  // namespace
}  // namespace evn_train
