// Which of several kernels that give the same bits is fastest for a shape, as it was measured on this device: kept in a file of the
// cache folder, by device and driver.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>

#include "base/cache_file.h"
#include "base/log.h"
#include "base/test_access.h"

namespace evn {

class Launcher;

enum class TuningMode : std::uint8_t { kOff, kCached, kMeasure };

class OpenClTuning {
 public:
  // What is run: the family of kernels, and the sizes of its product.
  struct Shape {
    const char* family;
    std::int64_t m, n, k, products;
  };
  struct Candidate {
    const char* name;
    bool possible;
  };

  // `identity`: of device and driver. `folder` "": what is measured is kept for this process only.
  OpenClTuning(TuningMode mode, const std::string& folder, const std::string& identity, std::string device_name,
               const LogSink& log);

  // The number of the kernel that was fastest; -1: that is not known. Not safe to call from two threads at a time.
  int find(const Shape& shape) const { return known_.empty() ? -1 : find_known(shape); }
  bool measures() const { return mode_ == TuningMode::kMeasure; }

  // Runs each candidate that is possible some times in turns, by `run`, keeps the fastest, and writes the file. `chosen`: which
  // would have been taken, for the log. Throws what `run` and Launcher::finish throw.
  int measure(const Shape& shape, std::span<const Candidate> candidates, int chosen, Launcher& launcher,
              const std::function<void(int)>& run);

  std::size_t known() const { return known_.size(); }

 private:
  friend struct test::Access<OpenClTuning>;
  static std::uint64_t key_of(const Shape& shape);
  int find_known(const Shape& shape) const;
  void load();
  void store() const noexcept;

  const TuningMode mode_;
  const std::string device_name_;
  const LogSink log_;
  const CacheFile file_;
  std::unordered_map<std::uint64_t, std::uint32_t> known_;  // by a hash of the shape
};

}  // namespace evn
