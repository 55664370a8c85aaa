// States whose pages store 16 or 8 bits: bit by bit as runs whose caller rounds the caches that he carries along.
#include <cmath>

#include "ops/infra/numeric.h"
#include "tests/api/state_fixture.h"

namespace evn::test::state_test {
namespace {

struct NarrowStateTest : StateTest, testing::WithParamInterface<uint32_t> {
  // What pages store of a row.
  void round_row(float* row) const {
    if (GetParam() == EVN_STATE_FLOAT16) {
      for (int64_t i = 0; i < kDepth; ++i) row[i] = static_cast<float>(Float16::from(static_cast<double>(row[i])).value());
      return;
    }
    float most = 0;
    for (int64_t i = 0; i < kDepth; ++i) most = std::max(most, std::fabs(row[i]));
    const float scale = most / 127, inverse = most > 0 ? 127 / most : 0;
    for (int64_t i = 0; i < kDepth; ++i) row[i] = std::nearbyint(row[i] * inverse) * scale;
  }
  // Rounds what the last run has added.
  void round_new(Carried* c, int64_t rows) const {
    for (std::vector<float>* cache : {&c->k, &c->v}) {
      for (int64_t head = 0; head < c->batch * kHeads; ++head) {
        for (int64_t r = c->past - rows; r < c->past; ++r) round_row(cache->data() + (head * c->past + r) * kDepth);
      }
    }
  }
  // y and the sums over the cache, which a run with a state makes of rounded rows, its own among them: those of the rounded cache.
  void expect_rounded(evn_state with, Carried& c, const Step& s) {
    std::pair<std::vector<float>, std::vector<float>> got;
    by_hand(c, s);
    round_new(&c, s.rows);
    EXPECT_EQ(run(with, s, &got, c.batch), EVN_OK) << error.message;
    Carried same = c;
    same.past -= s.rows;
    EXPECT_TRUE(got == of_whole_cache(same, s)) << "at " << c.past;
  }
  // Concat writes into pages before attention reads them, so that it reads new rows rounded, too.
  std::pair<std::vector<float>, std::vector<float>> of_whole_cache(const Carried& c, const Step& s) {
    Carried before(c.batch);
    before.past = c.past;
    before.h = c.h;
    Step rounded = s;
    const int64_t all = c.past + s.rows;
    for (int64_t head = 0; head < c.batch * kHeads; ++head) {
      for (const auto& [from, to] : {std::pair(&c.k, &before.k), std::pair(&c.v, &before.v)})
        to->insert(to->end(), from->begin() + head * all * kDepth, from->begin() + (head * all + c.past) * kDepth);
      std::copy_n(c.k.begin() + (head * all + c.past) * kDepth, s.rows * kDepth, rounded.k.begin() + head * s.rows * kDepth);
    }
    return by_hand(before, rounded);
  }
};

TEST_P(NarrowStateTest, RoundsWhatItStores) {
  for (const int64_t batch : {1, 2}) {
    const evn_state s = create(batch, GetParam());
    Carried c(batch);
    for (const int64_t rows : {1, 1, 5, 120, 1, 200, 3, 1, 1}) expect_rounded(s, c, step(rows, batch));
    const std::string text = describe(s);
    EXPECT_NE(text.find(GetParam() == EVN_STATE_INT8 ? "pages of int8" : "pages of float16"), std::string::npos) << text;
    EXPECT_EQ(evn_state_release(s), EVN_OK);
  }
}

TEST_P(NarrowStateTest, TakesLessMemory) {
  state = create();
  const uint64_t plain = state_bytes();
  const evn_state narrow = create(1, GetParam());
  const uint64_t bytes = state_bytes() - plain;
  EXPECT_LT(static_cast<double>(bytes), static_cast<double>(plain) * (GetParam() == EVN_STATE_INT8 ? 0.4 : 0.6));
  EXPECT_EQ(evn_state_release(narrow), EVN_OK);
}

TEST_P(NarrowStateTest, ForksAndSavedBytesHaveTheSameBits) {
  state = create(1, GetParam());
  Carried c;
  for (const int64_t rows : {200, 1, 1}) expect_rounded(state, c, step(rows));
  const std::vector<unsigned char> bytes = save(state);
  const evn_state other = create(1, GetParam() | EVN_STATE_ON_DEMAND);
  EXPECT_OK(evn_state_restore(other, bytes.data(), bytes.size(), &error));
  EXPECT_EQ(save(other), bytes);
  evn_state fork = nullptr;
  EXPECT_OK(evn_state_fork(state, &fork, &error));
  for (const evn_state s : {other, fork, state}) {
    Carried copy = c;
    for (const int64_t rows : {1, 60, 1}) expect_rounded(s, copy, step(rows));
  }
  const evn_state plain = create();
  EXPECT_EQ(evn_state_restore(plain, bytes.data(), bytes.size(), &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("or its pages do"), std::string::npos) << error.message;
  for (const evn_state s : {other, fork, plain}) EXPECT_EQ(evn_state_release(s), EVN_OK);
}

TEST_P(NarrowStateTest, EveryFailedAllocationIsAStatus) {
  state = create(1, GetParam());
  Carried c;
  expect_rounded(state, c, step(3));
  const std::vector<unsigned char> before = save(state);
  const Step s = step(1);
  int refused = 0;
  for (int k = 1; k < 100; ++k) {
    const evn_tensor in[5] = {tensor({1, kHeads, 1, kDepth}, s.q), tensor({1, kHeads, 1, kDepth}, s.k)};
    evn_tensor out[5] = {};
    evn_run_options o = EVN_RUN_OPTIONS_INIT;
    o.state = state;
    fault_arm(Seam::kAlloc, k, false);
    const evn_status status = evn_session_run(session, in, 5, out, 5, &o, nullptr);
    fault_arm(Seam::kAlloc, 0, false);
    for (const evn_tensor t : in) evn_tensor_release(t);
    for (const evn_tensor t : out) evn_tensor_release(t);
    if (status == EVN_OK) {
      EXPECT_OK(evn_state_restore(state, before.data(), before.size(), &error));
    } else {
      EXPECT_EQ(status, EVN_ERROR_OUT_OF_MEMORY);
      ++refused;
    }
    EXPECT_EQ(save(state), before) << k;
  }
  EXPECT_GT(refused, 5);
  expect_rounded(state, c, s);
}

TEST_P(NarrowStateTest, NumbersThatAreNotFiniteStaySo) {
  state = create(1, GetParam());
  Step s = step(2);
  s.k[0] = std::numeric_limits<float>::infinity();
  s.k[static_cast<std::size_t>(kDepth)] = std::numeric_limits<float>::quiet_NaN();
  std::pair<std::vector<float>, std::vector<float>> got;
  EXPECT_EQ(run(state, s), EVN_OK) << error.message;
  EXPECT_EQ(run(state, step(1), &got), EVN_OK) << error.message;
  EXPECT_TRUE(std::isnan(got.first[0]));                                  // a score is NaN
  EXPECT_FALSE(std::isnan(got.first[static_cast<std::size_t>(kDepth)]));  // of another head
}

INSTANTIATE_TEST_SUITE_P(Formats, NarrowStateTest, testing::Values(uint32_t{EVN_STATE_FLOAT16}, uint32_t{EVN_STATE_INT8}));

TEST_F(StateTest, FormatsThatExcludeEachOtherAreAnError) {
  evn_state_options o = EVN_STATE_OPTIONS_INIT;
  for (const uint32_t flags : {uint32_t{EVN_STATE_FLOAT16 | EVN_STATE_INT8}, 8u}) {
    o.flags = flags;
    EXPECT_EQ(evn_state_create(session, pairs(), 2, &o, &state, &error), EVN_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(state, nullptr);
  }
}

}  // namespace
}  // namespace evn::test::state_test
