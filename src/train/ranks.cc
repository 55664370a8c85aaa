#include "train/ranks.h"

#include <algorithm>
#include <vector>

#include "base/os/fork.h"
#include "device/collective_module.h"
#include "train/host.h"

namespace evn_train {
namespace {

constexpr std::uint32_t kTimeoutMs = 60'000;

const evn_collective_module_table* open_collective(const std::string& name) {
  const std::string file = "libevener_" + name + ".so";
  const auto function =
      reinterpret_cast<evn_collective_module_function>(function_of_module(file.c_str(), EVN_COLLECTIVE_MODULE_SYMBOL));
  const auto* const table = function();
  if (table == nullptr || table->abi != EVN_COLLECTIVE_MODULE_ABI || table->version != EVN_VERSION_NUMBER)
    fail(EVN_ERROR_UNSUPPORTED, "%s is of another version", file.c_str());
  return table;
}

}  // namespace

Ranks::Ranks(const Settings& settings) : module_name_(settings.collective), process_(evn::os::fork_generation()) {
  const evn_trainer_options& o = settings.given;
  if (!settings.collective.empty()) {
    const auto* const table = open_collective(settings.collective);
    const evn_collective_settings how = {o.rank, o.rank_count, o.collective_timeout_ms != 0 ? o.collective_timeout_ms : kTimeoutMs,
                                         settings.collective_store.empty() ? nullptr : settings.collective_store.c_str()};
    call(table->open, &how, &context_, &rank_, &count_);
    module_ = table;
    reduce_ = table->reduce;
    if (count_ > 1 && count_ <= kMostRanks) find_shared_memory(how.timeout_ms);
  } else if (o.reduce != nullptr) {
    reduce_ = o.reduce;
    context_ = o.reduce_context;
    rank_ = o.rank;
    count_ = o.rank_count;
  }
  if (count_ <= kMostRanks) return;
  close();
  fail(EVN_ERROR_LIMIT, "there are %u ranks, at most %u can train together", count_, kMostRanks);
}

void Ranks::find_shared_memory(std::uint32_t timeout_ms) {
  try {
    shared_.emplace(rank_, count_, timeout_ms * std::uint64_t{1'000'000});
    is_shared_ = shared_->open([&](std::span<float> n) { sum(n); });
    if (!is_shared_) shared_.reset();
  } catch (...) {
    close();
    throw;
  }
}

void Ranks::close() {
  if (module_ != nullptr && process_ == evn::os::fork_generation()) module_->close(context_);  // a child has nothing to close
}

Ranks::~Ranks() { close(); }

const char* Ranks::transport() const {
  if (is_alone()) return "";
  if (is_shared_) return "shared memory";
  return module_ != nullptr ? module_name_.c_str() : "host";
}

void Ranks::reduce(void* data, std::size_t count, evn_dtype dtype) {
  if (is_alone() || count == 0) return;
  if (process_ != evn::os::fork_generation()) fail(EVN_ERROR_FORKED, "a forked child is no rank");
  if (broken_.status == EVN_OK) {
    const evn_status status = is_shared_ ? evn::guarded(&broken_, [&] { shared_->sum(data, count, dtype); })
                                         : reduce_(context_, data, count, dtype, &broken_);
    if (status == EVN_OK) return;
    if (is_shared_) module_->give_up(context_);
    broken_.status = status;
    broken_.message[sizeof broken_.message - 1] = '\0';  // the host's
  }
  throw evn::make_error(broken_.status, "rank %u of %u: %s", rank_, count_,
                        broken_.message[0] != '\0' ? broken_.message : evn_status_name(broken_.status));
}

void Ranks::broadcast(std::span<float> numbers) {
  if (rank_ != 0) std::fill(numbers.begin(), numbers.end(), 0.0f);
  sum(numbers);
}

// Words are equal where the variance of their halves is 0; all sums are exact.
std::int64_t Ranks::first_difference(std::span<const std::uint64_t> words) {
  if (is_alone()) return -1;
  constexpr std::size_t kParts = 4;
  std::vector<double> sums;
  const auto part = [&](std::size_t i) { return static_cast<double>(words[i / kParts] >> (i % kParts * 16) & 0xffff); };
  for (std::size_t i = 0; i < words.size() * kParts; ++i) {
    sums.push_back(part(i));
    sums.push_back(part(i) * part(i));
  }
  sum(std::span<double>(sums));
  const double n = count_;
  for (std::size_t i = 0; i < words.size() * kParts; ++i) {
    if (sums[2 * i] != n * part(i) || sums[2 * i + 1] != n * part(i) * part(i)) return static_cast<std::int64_t>(i / kParts);
  }
  return -1;
}

}  // namespace evn_train
