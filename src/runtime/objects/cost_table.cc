#include "runtime/objects/cost_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/cache_file.h"
#include "base/os/os.h"
#include "version.h"

namespace evn {
namespace {

constexpr std::size_t kMostEntries = 200'000;  // of a table; some 50 MB would be read otherwise
constexpr int kNeighbours = 3;

struct StoredHead {
  CopyCost upload, download;
  double submission_ns;
  std::uint64_t has_copies;
  std::uint64_t entries;
};

struct StoredEntry {
  std::uint64_t key, family;
  double flops, bytes, ns;
};

constexpr double kMostNs = 1e12;  // what a file says beyond that is no measurement

bool is_time(double ns) { return ns >= 0 && ns <= kMostNs; }
bool is_work(double amount) { return std::isfinite(amount) && amount >= 0; }

// Work of a step in one number: bytes count as the operations that a core does while it reads them.
double work_of(double flops, double bytes) { return flops + 8 * bytes + 1; }

// All that times depend on but the step.
std::string identity_of(const Device& device) {
  const DeviceTraits& t = device.traits();
  return std::string(EVN_VERSION_STRING) + "\n" + std::string(os::own_build_id()) + "\n" + t.description + "\n" + t.driver + "\n" +
         std::to_string(t.compute_units) + "\n" + std::to_string(t.memory_bytes);
}

CacheFile file_of(const std::string& folder, const Device& device) { return CacheFile(folder, "costs", identity_of(device)); }

}  // namespace

std::optional<double> CostTable::measured(std::uint64_t key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  return found->second.ns;
}

std::optional<double> CostTable::estimate(const StepFeatures& step) const {
  if (entries_.empty()) return std::nullopt;
  struct Near {
    double distance = HUGE_VAL, ns = 0;
  };
  Near near[kNeighbours];
  const double work = work_of(step.flops, step.bytes);
  double best_flop_rate = 0, best_byte_rate = 0;
  for (const auto& [key, e] : entries_) {
    const double ns = std::max(e.ns, 1.0);
    best_flop_rate = std::max(best_flop_rate, e.flops / ns);
    best_byte_rate = std::max(best_byte_rate, e.bytes / ns);
    if (e.family != step.family) continue;
    const double ratio = work / work_of(e.flops, e.bytes);
    const double shape = std::log2((step.flops + 1) / (step.bytes + 1)) - std::log2((e.flops + 1) / (e.bytes + 1));
    Near candidate{std::abs(std::log2(ratio)) + std::abs(shape), e.ns * ratio};
    for (Near& n : near) {
      if (candidate.distance < n.distance) std::swap(candidate, n);
    }
  }
  double sum = 0, weights = 0;
  for (const Near& n : near) {
    if (n.distance == HUGE_VAL) continue;
    const double weight = 1 / (0.05 + n.distance * n.distance);
    sum += weight * std::log(std::max(n.ns, 1.0));
    weights += weight;
  }
  if (weights > 0) return std::exp(sum / weights);
  const double by_flops = best_flop_rate > 0 ? step.flops / best_flop_rate : 0;
  const double by_bytes = best_byte_rate > 0 ? step.bytes / best_byte_rate : 0;
  return std::max(by_flops, by_bytes);
}

void CostTable::add(const StepFeatures& step, double ns) {
  if (!is_time(ns) || (entries_.size() >= kMostEntries && !entries_.contains(step.key))) return;
  entries_[step.key] = {step.family, step.flops, step.bytes, ns};
}

std::string CostTable::to_bytes() const {
  const StoredHead head{upload, download, submission_ns, has_copies ? 1u : 0u, entries_.size()};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  for (const auto& [key, e] : entries_) {
    const StoredEntry stored{key, e.family, e.flops, e.bytes, e.ns};
    bytes.append(reinterpret_cast<const char*>(&stored), sizeof stored);
  }
  return bytes;
}

void CostTable::from_bytes(std::string_view bytes) {
  StoredHead head;
  if (bytes.size() < sizeof head) return;
  std::memcpy(&head, bytes.data(), sizeof head);
  bytes.remove_prefix(sizeof head);
  if (head.entries > kMostEntries || bytes.size() != head.entries * sizeof(StoredEntry)) return;
  for (const double ns :
       {head.upload.latency_ns, head.upload.ns_per_byte, head.download.latency_ns, head.download.ns_per_byte, head.submission_ns}) {
    if (!is_time(ns)) return;
  }
  upload = head.upload;
  download = head.download;
  submission_ns = head.submission_ns;
  has_copies = head.has_copies == 1;
  for (std::uint64_t i = 0; i < head.entries; ++i) {
    StoredEntry e;
    std::memcpy(&e, bytes.data() + i * sizeof e, sizeof e);
    if (is_work(e.flops) && is_work(e.bytes)) add({e.key, e.family, e.flops, e.bytes}, e.ns);
  }
}

CostTable& CostTables::table_of(const Device& device) {
  for (Known& k : known_) {
    if (k.device == &device) return *k.table;
  }
  auto table = std::make_unique<CostTable>();
  os::FileBytes keep;
  table->from_bytes(file_of(cache_dir_, device).read(&keep));
  known_.push_back({&device, std::move(table)});
  return *known_.back().table;
}

void CostTables::save(const Device& device) {
  if (cache_dir_.empty()) return;
  const std::string bytes = with(device, [](const CostTable& table) { return table.to_bytes(); });
  file_of(cache_dir_, device).write(bytes);
}

void CostTables::drop(const Device& device) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(known_, [&](const Known& k) { return k.device == &device; });
}

void CostTables::forget(const Device& device) {
  with(device, [](CostTable& table) { table = CostTable(); });
  save(device);
}

}  // namespace evn
