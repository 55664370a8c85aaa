// Which samples are in which batch of an epoch, and which of them are this rank's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "evener/train.h"

namespace evn_train {

class LoaderOrder {
 public:
  // Swaps between two looks at the stop condition.
  static constexpr std::uint64_t kPiece = 4096;

  // `options` have been checked.
  explicit LoaderOrder(const evn_loader_options& options);

  // Number of elements of the memory that shuffling needs; 0: the samples come in order.
  std::uint64_t shuffled_count() const { return shuffles_ ? count_ : 0; }
  // Memory of shuffled_count() elements, which outlives the order.
  void use_memory(std::uint32_t* shuffled) { shuffled_ = shuffled; }

  // In an epoch; 0 for a stream.
  std::uint64_t batch_count() const { return batches_; }
  // The most samples that this rank has of a batch.
  std::uint32_t most() const { return std::max(full_part(), part_of(rest_).second); }
  // The other number of samples that this rank has of some batch: of the last one where that is not full, or of the others; 0:
  // there is none.
  std::uint32_t least() const;

  // Makes the order of an epoch; samples() is of the latest one. Calls `stops` after each kPiece samples and returns false if it
  // returns true: the order is then incomplete.
  bool start(std::uint64_t epoch, const std::function<bool()>& stops);
  // Writes the numbers of this rank's samples of a batch. Returns how many there are; of a stream, batch.
  std::uint32_t samples(std::uint64_t batch, std::uint64_t* numbers) const;

 private:
  // This rank's part of a batch of so many samples: the first one's place, how many.
  std::pair<std::uint32_t, std::uint32_t> part_of(std::uint32_t samples) const;
  // How many samples this rank has of a full batch; 0: there is none.
  std::uint32_t full_part() const { return is_stream_ || count_ >= batch_ ? part_of(batch_).second : 0; }

  const std::uint64_t seed_, count_;
  const std::uint32_t batch_, rank_, ranks_;
  const bool shuffles_, is_stream_;
  std::uint64_t batches_ = 0;
  std::uint32_t rest_ = 0;             // samples of the last batch, all ranks together, where that is not full
  std::uint32_t* shuffled_ = nullptr;  // nullptr: in order
};

}  // namespace evn_train
