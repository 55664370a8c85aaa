#include "backends/opencl/tuning.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/opencl/launcher.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/os/os.h"
#include "version.h"

namespace evn {
namespace {

constexpr int kRounds = 5;                   // in turns; the least time counts
constexpr std::uint64_t kRoundNs = 400'000;  // of one candidate, so that the time of enqueueing does not count
constexpr int kMostRepeats = 64;
constexpr std::uint64_t kHopeless = 4;  // times the fastest when each has run once: is not measured further
constexpr std::size_t kMostKnown = 1u << 16;

struct Entry {
  std::uint64_t key;
  std::uint32_t choice;
  std::uint32_t zero;
};

}  // namespace

std::uint64_t OpenClTuning::key_of(const Shape& shape) {
  Hasher hash;
  hash.add(std::string_view(shape.family));
  for (const std::int64_t dim : {shape.m, shape.n, shape.k, shape.products}) hash.add(static_cast<std::uint64_t>(dim));
  return hash.value();
}

OpenClTuning::OpenClTuning(TuningMode mode, const std::string& folder, const std::string& identity, std::string device_name,
                           const LogSink& log)
    : mode_(mode),
      device_name_(std::move(device_name)),
      log_(log),
      file_(folder, "opencl-tuning", EVN_VERSION_STRING + ("\n1\n" + identity)) {
  if (mode_ != TuningMode::kOff) load();
}

int OpenClTuning::find_known(const Shape& shape) const {
  const auto it = known_.find(key_of(shape));
  return it != known_.end() ? static_cast<int>(it->second) : -1;
}

void OpenClTuning::load() {
  os::FileBytes file;
  const std::string_view content = file_.read(&file);
  const std::size_t count = std::min(content.size() / sizeof(Entry), kMostKnown);
  for (std::size_t i = 0; i < count; ++i) {
    Entry e;
    std::memcpy(&e, content.data() + i * sizeof e, sizeof e);
    known_.emplace(e.key, e.choice);
  }
}

void OpenClTuning::store() const noexcept {
  try {
    std::vector<Entry> entries;
    entries.reserve(known_.size());
    for (const auto& [key, choice] : known_) entries.push_back({key, choice, 0});
    std::ranges::sort(entries, [](const Entry& a, const Entry& b) { return a.key < b.key; });
    file_.write({reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(Entry)});
  } catch (const std::bad_alloc&) {}  // as where the file cannot be written
}

int OpenClTuning::measure(const Shape& shape, std::span<const Candidate> candidates, int chosen, Launcher& launcher,
                          const std::function<void(int)>& run) {
  std::vector<std::uint64_t> least(candidates.size(), UINT64_MAX);
  std::vector<int> repeats(candidates.size(), 0);  // 0: is not measured
  const auto time = [&](std::size_t i) {
    const std::uint64_t begin = os::now_ns();
    for (int r = 0; r < repeats[i]; ++r) run(static_cast<int>(i));
    launcher.finish();
    return (os::now_ns() - begin) / static_cast<std::uint64_t>(repeats[i]);
  };
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].possible) continue;
    repeats[i] = 1;
    time(i);  // builds its program
    least[i] = std::max<std::uint64_t>(time(i), 1);
  }
  const std::uint64_t fastest = *std::min_element(least.begin(), least.end());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const bool goes_on = repeats[i] != 0 && least[i] / kHopeless <= fastest;
    repeats[i] = goes_on ? static_cast<int>(std::clamp<std::uint64_t>(kRoundNs / least[i], 1, kMostRepeats)) : 0;
  }
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (repeats[i] != 0) least[i] = std::min(least[i], time(i));
    }
  }
  const auto best = static_cast<std::size_t>(std::min_element(least.begin(), least.end()) - least.begin());
  if (known_.size() < kMostKnown) known_[key_of(shape)] = static_cast<std::uint32_t>(best);
  store();
  if (log_.wants(EVN_LOG_INFO)) {
    std::string all;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (least[i] == UINT64_MAX) continue;
      all += (all.empty() ? "" : ", ") + std::string(candidates[i].name) + " " + std::to_string(least[i] / 1000) + "." +
             std::to_string(least[i] / 100 % 10);
    }
    std::string sizes;  // m, n and k of a product, and how many there are
    for (const std::int64_t size : {shape.m, shape.n, shape.k, shape.products}) {
      sizes += (sizes.empty() ? "" : " ") + std::to_string(size);
    }
    LogEvent(log_, EVN_LOG_INFO, "kernel.tuned")
        .device(device_name_.c_str())
        .field("family", shape.family)
        .field("sizes", sizes.c_str())
        .field("chosen", candidates[best].name)
        .field("chosen_ns", least[best])
        .field("default", candidates[static_cast<std::size_t>(chosen)].name)
        .field("default_ns", least[static_cast<std::size_t>(chosen)])
        .write("device %s: %s %lld x %lld x %lld (%lld of them) by %s; us: %s", device_name_.c_str(), shape.family,
               static_cast<long long>(shape.m), static_cast<long long>(shape.n), static_cast<long long>(shape.k),
               static_cast<long long>(shape.products), candidates[best].name, all.c_str());
  }
  return static_cast<int>(best);
}

}  // namespace evn
