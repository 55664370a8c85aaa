// The processes that train a model together (data parallel): sums over all of them, by the host or by a collective's module.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "train/library.h"
#include "train/settings.h"
#include "train/shared_sums.h"

struct evn_collective_module_table;

namespace evn_train {

class Ranks {
 public:
  // Waits for the others where a module brings them together. Throws EVN_ERROR_UNSUPPORTED, EVN_ERROR_TIMEOUT.
  explicit Ranks(const Settings& settings);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  bool is_alone() const { return reduce_ == nullptr; }
  std::uint32_t rank() const { return rank_; }
  std::uint32_t count() const { return count_; }
  // By what gradients are summed: "shared memory", the name of the module, "host" (its evn_reduce), "" of one rank alone.
  const char* transport() const;

  // Replaces numbers by their sums over all ranks. Every rank makes the same calls, one at a time. Once a call has failed, all
  // fail.
  void sum(std::span<float> numbers) { reduce(numbers.data(), numbers.size(), EVN_DTYPE_FLOAT32); }
  void sum(std::span<double> numbers) { reduce(numbers.data(), numbers.size(), EVN_DTYPE_FLOAT64); }
  // Gives all ranks the numbers of rank 0.
  void broadcast(std::span<float> numbers);
  // The words that are not the same in all ranks; the index of the first, or -1.
  std::int64_t first_difference(std::span<const std::uint64_t> words);

 private:
  void reduce(void* data, std::size_t count, evn_dtype dtype);
  void find_shared_memory(std::uint32_t timeout_ms);
  void close();

  const std::string module_name_;
  evn_reduce reduce_ = nullptr;
  void* context_ = nullptr;
  const evn_collective_module_table* module_ = nullptr;
  std::optional<SharedSums> shared_;
  bool is_shared_ = false;       // sums are those of shared_: the ranks have found each other by the module's
  const std::uint32_t process_;  // the fork generation that made it
  std::uint32_t rank_ = 0, count_ = 1;
  evn_error broken_ = EVN_ERROR_INIT;  // of the call that failed
};

}  // namespace evn_train
