// Histograms of times, and the statistics of sessions as they are kept: labels, priorities, batches, memory that is refused.
#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <thread>

#include "base/fault.h"
#include "runtime/objects/run_statistics.h"
#include "runtime/report/statistics.h"
#include "tests/runtime/support.h"

namespace evn::test::statistics_test {
namespace {

constexpr std::uint64_t kHour = 3'600'000'000'000;

TimeCounts counts_of(const std::vector<std::uint64_t>& times) {
  auto h = std::make_unique<TimeHistogram>();
  for (const std::uint64_t t : times) h->add(t);
  TimeCounts c;
  h->read(&c);
  return c;
}

TEST(TimeBuckets, FollowEachOtherAndAreNarrow) {
  EXPECT_EQ(TimeBuckets::begin(0), 0u);
  for (std::size_t i = 0; i < TimeBuckets::kCount; ++i) {
    const std::uint64_t begin = TimeBuckets::begin(i), end = TimeBuckets::begin(i + 1);
    ASSERT_LT(begin, end) << i;
    EXPECT_EQ(TimeBuckets::of(begin), i);
    EXPECT_EQ(TimeBuckets::of(end - 1), i);
    const double widest = begin < 1000 ? 32 : 0.032 * static_cast<double>(begin);
    EXPECT_LE(static_cast<double>(end - begin), widest) << i;
  }
  EXPECT_GT(TimeBuckets::begin(TimeBuckets::kCount), kHour);
  for (const std::uint64_t far : {TimeBuckets::begin(TimeBuckets::kCount), std::uint64_t{1} << 63, UINT64_MAX}) {
    EXPECT_EQ(TimeBuckets::of(far), TimeBuckets::kCount - 1);
  }
}

TEST(TimeHistogram, PercentilesAreThoseOfTheSortedTimesWithin3Point2Percent) {
  std::mt19937_64 random(7);
  for (const std::size_t n : {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{1000}, std::size_t{20000}}) {
    std::vector<std::uint64_t> times;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      times.push_back(std::uint64_t{1000} << random() % 31);
      times.back() += random() % times.back();
      sum += times.back();
    }
    const TimeCounts c = counts_of(times);
    std::sort(times.begin(), times.end());
    EXPECT_EQ(c.count, n);
    EXPECT_EQ(c.sum_ns, sum);
    EXPECT_EQ(c.mean_ns(), sum / n);
    EXPECT_EQ(c.max_ns, times.back());
    for (const double share : {0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(n)));
      const std::uint64_t want = times[std::max<std::size_t>(rank, 1) - 1];
      EXPECT_GE(c.quantile_ns(share), want) << n << " " << share;
      EXPECT_LE(static_cast<double>(c.quantile_ns(share)), 1.032 * static_cast<double>(want)) << n << " " << share;
    }
    EXPECT_EQ(c.quantile_ns(1.0), times.back());
  }
}

TEST(TimeHistogram, TakesExtremes) {
  const TimeCounts none = counts_of({});
  EXPECT_EQ(none.count, 0u);
  EXPECT_EQ(none.quantile_ns(0.5), 0u);
  EXPECT_EQ(none.mean_ns(), 0u);
  EXPECT_EQ(TimeCounts{}.quantile_ns(1), 0u);
  EXPECT_EQ(TimeCounts{}.count_up_to(UINT64_MAX), 0u);

  const TimeCounts zeros = counts_of({0, 0, 0});
  EXPECT_EQ(zeros.quantile_ns(0.99), 0u);
  EXPECT_EQ(zeros.count_up_to(31), 3u);
  EXPECT_EQ(zeros.count_up_to(30), 0u) << "a bound that cuts a bucket";

  const TimeCounts far = counts_of({10, kHour, UINT64_MAX / 4});
  EXPECT_EQ(far.count, 3u);
  EXPECT_EQ(far.quantile_ns(0.999), UINT64_MAX / 4);
  EXPECT_LE(far.quantile_ns(0.6), kHour + kHour / 31);
  EXPECT_GE(far.quantile_ns(0.6), kHour);
}

TEST(TimeHistogram, CountsOfTwoAreThoseOfAllTimesInOne) {
  std::vector<std::uint64_t> a, b, both;
  std::mt19937_64 random(8);
  for (int i = 0; i < 500; ++i) (i % 3 == 0 ? a : b).push_back(random() % 1'000'000'000);
  both = a;
  both.insert(both.end(), b.begin(), b.end());
  TimeCounts sum = counts_of(a);
  sum.add(counts_of(b));
  sum.add(TimeCounts{});
  const TimeCounts want = counts_of(both);
  EXPECT_EQ(sum.buckets, want.buckets);
  EXPECT_EQ(sum.count, want.count);
  EXPECT_EQ(sum.sum_ns, want.sum_ns);
  EXPECT_EQ(sum.max_ns, want.max_ns);
}

struct RunStatisticsTest : testing::Test {
  StatisticsList list;
  std::atomic<std::size_t> waiting{0};

  std::vector<std::string> labels() const {
    std::vector<std::string> all;
    list.for_each([&](const RunStatistics& s) { all.push_back(s.read().label); });
    return all;
  }
};

TEST_F(RunStatisticsTest, LabelsTellSessionsOfOneNameApartAndStay) {
  using Labels = std::vector<std::string>;
  const RunStatistics first(&list, "m", waiting);
  {
    const RunStatistics second(&list, "m", waiting), taken(&list, "m#3", waiting), third(&list, "m", waiting);
    EXPECT_EQ(labels(), (Labels{"m", "m#2", "m#3", "m#4"}));
    const RunStatistics odd(&list, "m#x", waiting), huge(&list, "m#18446744073709551615", waiting), fourth(&list, "m", waiting);
    EXPECT_EQ(fourth.read().label, "m#5");
    EXPECT_EQ(fourth.read().name, "m");
  }
  const RunStatistics again(&list, "m", waiting);
  EXPECT_EQ(labels(), (Labels{"m", "m#2"}));
}

TEST_F(RunStatisticsTest, NamesThatDifferOnlyInWhatIsReplacedHaveLabelsOfTheirOwn) {
  const RunStatistics a(&list, "m\xff\x1b", waiting), b(&list, "m\xc2\x85\x01", waiting), c(&list, "\xc3\xa4\n\"\\", waiting);
  EXPECT_EQ(labels(), (std::vector<std::string>{"m??", "m??#2", "\xc3\xa4\n\"\\"}));
}

TEST_F(RunStatisticsTest, KeepsWhatIsNotedByPriority) {
  RunStatistics s(&list, "m", waiting);
  s.note_run(7, RunOutcome::kCompleted, 1000, 2000);
  s.note_run(7, RunOutcome::kFailed, 500, 9999);
  s.note_end(-7, RunOutcome::kLate);
  s.note_refusal(0, EVN_ERROR_BUSY);
  s.note_refusal(0, EVN_ERROR_INVALID_ARGUMENT);
  for (const std::size_t rows : {1, 8, 8, 256, 257, 512, 513}) s.note_rows(rows);
  s.note_rows(SIZE_MAX);
  const SessionCounts c = s.read();
  ASSERT_EQ(c.priorities.size(), 3u);
  EXPECT_EQ(c.priorities[0].priority, -7);
  EXPECT_EQ(c.priorities[0].outcomes, (std::array<std::uint64_t, 5>{0, 0, 0, 1, 0}));
  EXPECT_EQ(c.priorities[0].waited.count, 0u);
  EXPECT_EQ(c.priorities[1].outcomes, (std::array<std::uint64_t, 5>{0, 0, 0, 0, 1}));
  EXPECT_EQ(c.priorities[2].outcomes, (std::array<std::uint64_t, 5>{1, 1, 0, 0, 0}));
  EXPECT_EQ(c.priorities[2].waited.count, 2u);
  EXPECT_EQ(c.priorities[2].waited.max_ns, 1000u);
  EXPECT_EQ(c.priorities[2].ran.count, 1u) << "of runs that completed";
  EXPECT_EQ(c.priorities[2].ran.max_ns, 2000u);
  EXPECT_EQ(c.all().outcomes, (std::array<std::uint64_t, 5>{1, 1, 0, 1, 1}));
  std::vector<std::pair<std::uint64_t, std::uint64_t>> batches;
  for (const BatchCount& b : c.batches) batches.emplace_back(b.rows, b.count);
  using Rows = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  EXPECT_EQ(batches, (Rows{{1, 1}, {8, 2}, {256, 1}, {512, 2}, {1024, 1}, {std::uint64_t{512} << 23, 1}}));
}

TEST_F(RunStatisticsTest, WhereMemoryIsRefusedTheTimesAreCountedAsNotKept) {
  RunStatistics s(&list, "m", waiting);
  fault_arm(Seam::kAlloc, 1, true);
  s.note_run(0, RunOutcome::kCompleted, 1, 1);  // has its histograms from the beginning
  s.note_run(3, RunOutcome::kCompleted, 1, 1);
  s.note_run(3, RunOutcome::kCancelled, 1, 1);
  s.note_rows(2);
  fault_arm(Seam::kAlloc, 0, false);
  s.note_run(3, RunOutcome::kCompleted, 1, 1);
  const SessionCounts c = s.read();
  EXPECT_EQ(c.uncounted, 3u);
  EXPECT_TRUE(c.batches.empty());
  EXPECT_EQ(c.priorities[0].ran.count, 1u);
  EXPECT_EQ(c.priorities[1].outcomes[0], 2u);
  EXPECT_EQ(c.priorities[1].outcomes[2], 1u);
  EXPECT_EQ(c.priorities[1].ran.count, 1u);
  EXPECT_NE(describe_statistics(c, EVN_FORMAT_TEXT).find("times not kept for want of memory: 3"), std::string::npos);
  EXPECT_NE(describe_statistics(c, EVN_FORMAT_JSON).find("\"uncounted\":3"), std::string::npos);
}

TEST_F(RunStatisticsTest, ASessionThatIsAPartOfAnotherKeepsNothing) {
  RunStatistics s(nullptr, "body", waiting);
  s.note_run(0, RunOutcome::kCompleted, 1, 1);
  s.note_end(0, RunOutcome::kLate);
  s.note_rows(3);
  EXPECT_TRUE(s.read().priorities.empty());
  EXPECT_TRUE(labels().empty());
}

TEST_F(RunStatisticsTest, NothingIsLostBetweenThreads) {
  RunStatistics s(&list, "m", waiting);
  constexpr int kThreads = 8, kEach = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        s.note_run(i % 3 - 1, RunOutcome::kCompleted, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(t * i));
        s.note_rows(static_cast<std::size_t>(i % 5 + 1));
        if (i % 500 != 0) continue;
        EXPECT_LE(s.read().all().ran.count, std::uint64_t{kThreads} * kEach);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  const SessionCounts c = s.read();
  EXPECT_EQ(c.all().outcomes[0], std::uint64_t{kThreads} * kEach);
  EXPECT_EQ(c.all().ran.count, std::uint64_t{kThreads} * kEach);
  std::uint64_t batches = 0;
  for (const BatchCount& b : c.batches) batches += b.count;
  EXPECT_EQ(batches, std::uint64_t{kThreads} * kEach);
}

using SessionStatisticsTest = RuntimeTest;

TEST_F(SessionStatisticsTest, ARunThatOthersCountIsOnlyTimed) {
  TestSession session(load(make_runtime({}, 0, 1), small_network()), "");
  const auto x = random_tensor({1, 3, 8, 8}, 1);
  run(session, {x});
  EXPECT_EQ(session.statistics().read().all().outcomes[0], 1u);
  EXPECT_EQ(session.statistics().read().name, "model");
  RunTimes times;
  RunRequest request;
  request.times = &times;
  std::vector<RunValue> in{{to_tensor(session.runtime(), x), nullptr}}, out(1);
  session.run(in, out, request);
  EXPECT_NE(times.begin_ns, 0u);
  EXPECT_GE(times.end_ns, times.begin_ns);
  const SessionCounts c = session.statistics().read();
  EXPECT_EQ(c.all().outcomes[0], 1u);
  EXPECT_EQ(c.queued, 0u);
  EXPECT_EQ(c.running, 0u);

  SessionRequest part("");
  part.role.listed = false;
  TestSession within(load(session.runtime(), small_network()), part);
  run(within, {x});
  EXPECT_TRUE(within.statistics().read().priorities.empty());
  int listed = 0;
  session.runtime()->statistics().for_each([&](const RunStatistics&) { ++listed; });
  EXPECT_EQ(listed, 1);
}

}  // namespace
}  // namespace evn::test::statistics_test
