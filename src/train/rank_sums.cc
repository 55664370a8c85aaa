#include "train/rank_sums.h"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <set>

#include "base/mutex.h"
#include "train/host.h"

namespace evn_train {
namespace {

// A node's number is exchanged as digits and their squares. All ranks have the same number if the variance of each digit is 0; a
// sum of integers is exact.
constexpr unsigned kDigitBits = 4;
constexpr std::size_t kDigits = 32 / kDigitBits, kDigitNumbers = 2 * kDigits;
constexpr std::size_t kFlagNumbers = 2;
constexpr float kLargestDigit = (1 << kDigitBits) - 1;
static_assert(kMostRanks * kLargestDigit * kLargestDigit < 1 << 24);

float digit_of(std::int64_t number, std::size_t i) {
  return static_cast<float>(number >> (i * kDigitBits) & ((1 << kDigitBits) - 1));
}

struct Registry {
  evn::Mutex mutex;
  std::map<std::int64_t, RankSums*> all;  // that are alive
  std::set<const void*> runtimes;         // identities of those that have the operator
  std::int64_t next = 1;
};
// Never destroyed: runtimes may end after this module's static objects would.
Registry& registry() {
  static Registry* const r = new Registry;
  return *r;
}

evn_status infer(void*, evn_operator_node, const evn_tensor_view* inputs, std::uint32_t, evn_tensor_view* outputs, std::uint32_t,
                 evn_error*) {
  outputs[0].dtype = inputs[0].dtype;
  outputs[0].rank = inputs[0].rank;
  std::copy(std::begin(inputs[0].dims), std::end(inputs[0].dims), std::begin(outputs[0].dims));
  return EVN_OK;
}

evn_status run(void*, evn_operator_node node, const evn_tensor_view* inputs, std::uint32_t, const evn_tensor_view* outputs,
               std::uint32_t, evn_error* error) {
  return evn::guarded(error, [&] {
    std::int64_t id = 0, number = 0;
    call(evn_operator_attribute_int, node, kSumsId, &id);
    call(evn_operator_attribute_int, node, kSumNumber, &number);
    RankSums* sums = nullptr;
    {
      const std::lock_guard<evn::Mutex> lock(registry().mutex);
      const auto found = registry().all.find(id);
      if (found == registry().all.end()) fail(EVN_ERROR_WRONG_STATE, "there are no ranks to sum over");
      sums = found->second;  // alive: its trainer is what runs
    }
    sums->sum(number, static_cast<const float*>(inputs[0].data), static_cast<float*>(outputs[0].data),
              static_cast<std::size_t>(inputs[0].size_bytes / sizeof(float)));
  });
}

void forget_runtime(void* runtime) {
  const evn::LockIfAlive lock(registry().mutex);
  registry().runtimes.erase(runtime);
}

// With the mutex held. A runtime has many handles, and one operator.
void register_operator(evn_runtime runtime) {
  void* const identity = identity_of(runtime);
  if (!registry().runtimes.insert(identity).second) return;
  evn_operator op = EVN_OPERATOR_INIT;
  op.domain = kTrainDomain;
  op.name = kAllReduce;
  op.min_inputs = op.max_inputs = 1;
  op.user = identity;
  op.infer = infer;
  op.run = run;
  op.release = forget_runtime;
  try {
    call(evn_runtime_register_operator, runtime, static_cast<const evn_operator*>(&op));
  } catch (...) {
    registry().runtimes.erase(identity);
    throw;
  }
}

}  // namespace

RankSums::RankSums(evn_runtime runtime, Ranks& ranks, std::size_t most)
    : ranks_(ranks), numbers_(most + kDigitNumbers + kFlagNumbers) {
  const std::lock_guard<evn::Mutex> lock(registry().mutex);
  register_operator(runtime);
  id_ = registry().next++;
  registry().all.emplace(id_, this);
}

RankSums::~RankSums() {
  const evn::LockIfAlive lock(registry().mutex);
  registry().all.erase(id_);
}

std::span<float> RankSums::digits() { return std::span(numbers_).last(kDigitNumbers + kFlagNumbers).first(kDigitNumbers); }

void RankSums::exchange(bool failed, bool ended) {
  float* const told = numbers_.data() + numbers_.size() - kFlagNumbers;
  told[0] = failed ? 1 : 0;
  told[1] = ended ? 1 : 0;
  is_stopped_ = true;  // should this throw
  std::exception_ptr thrown;
  auto wait = [&] {
    try {
      ranks_.sum(std::span<float>(numbers_));
    } catch (...) {
      thrown = std::current_exception();
    }
  };
  // Other ranks may be runs of this process, which need a core to come to their call.
  wait_without_core(wait);
  if (thrown) std::rethrow_exception(thrown);
  if (told[0] == 0 && told[1] != 0 && told[1] != static_cast<float>(ranks_.count()))
    fail(EVN_ERROR_WRONG_STATE, "ranks have run graphs with other numbers of sums");
  is_stopped_ = told[0] != 0 || ended;
}

void RankSums::sum(std::int64_t number, const float* from, float* to, std::size_t count) {
  if (is_stopped_) fail(EVN_ERROR_WRONG_STATE, "the ranks have stopped");
  if (count + kDigitNumbers + kFlagNumbers > numbers_.size()) fail(EVN_ERROR_INTERNAL, "a sum over ranks has %zu elements", count);
  std::copy_n(from, count, numbers_.data());
  std::fill(numbers_.begin() + static_cast<std::ptrdiff_t>(count), numbers_.end(), 0.0f);
  const std::span<float> sums = digits();
  for (std::size_t i = 0; i < kDigits; ++i) {
    sums[2 * i] = digit_of(number, i);
    sums[2 * i + 1] = digit_of(number, i) * digit_of(number, i);
  }
  exchange(false, false);
  if (is_stopped_) fail(EVN_ERROR_WRONG_STATE, "another rank has failed");
  const auto ranks = static_cast<float>(ranks_.count());
  for (std::size_t i = 0; i < kDigits; ++i) {
    const float digit = digit_of(number, i);
    if (sums[2 * i] == ranks * digit && sums[2 * i + 1] == ranks * digit * digit) continue;
    is_stopped_ = true;  // in all ranks
    fail(EVN_ERROR_WRONG_STATE,
         "the ranks are at different nodes, as their devices have different orders; give all the same device");
  }
  std::copy_n(numbers_.data(), count, to);
}

void RankSums::end(bool failed) {
  if (is_stopped_) return;
  std::fill(numbers_.begin(), numbers_.end(), 0.0f);
  exchange(failed, true);
}

}  // namespace evn_train
