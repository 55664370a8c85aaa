// The file in which packed constants of a model are kept from one process to the next, so that a session need neither read nor pack
// the plain ones. One lives while a session is made. What is wrong with the file does no harm: it is as if there were none.
// What is in it, and what is believed of it: docs/decisions/0030.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "config/config.h"
#include "core/graph.h"
#include "device/kernel.h"

namespace evn {

struct LoadedModel;

class WeightCache {
 public:
  // A copy of a constant that is input `input` of a node, as `kernel` wants it; kernel null: the plain bytes.
  struct Copy {
    const Weight* weight;
    const Kernel* kernel;
    int input;
    std::uint64_t variant;
    std::size_t bytes;
  };
  // Where a copy is in the file, and in memory.
  struct Entry {
    std::uint64_t offset = 0;      // 0: not in the file
    std::uint64_t checksum = 0;    // in the file
    const void* memory = nullptr;  // noted
  };

  // Opens the file that the options name, and reads its table. `model` outlives this. Throws EVN_ERROR_OUT_OF_MEMORY.
  WeightCache(const LoadedModel& model, const CacheConfig& options);

  // Whether copies are used where they lie in the file, which is mapped. Then plain constants may be in it as well.
  bool maps() const { return mapping_ != nullptr; }
  bool wants_plain() const { return options_.map; }

  // nullptr when the file has no such copy.
  const Entry* find(const Copy& copy) const;
  // Reads it. Any thread may. False when it is not what it was when it was written, or cannot be read.
  bool read(const Entry& entry, void* to, std::size_t bytes) const;
  // It cannot: from here on the file does not have it.
  void drop(const Copy& copy);
  // The bytes in the mapped file, charged until the last owner lets go. Throws EVN_ERROR_OUT_OF_MEMORY at the ledger's cap.
  std::shared_ptr<void> map(const Entry& entry, std::size_t bytes, MemoryClass cls) const;

  // The session has this copy, whose bytes are in memory by the time of `save`.
  void note(const Copy& copy, const void* memory);
  // Writes the file anew when a copy that was noted is not in it, and the options allow it.
  void save() noexcept;

 private:
  struct Key {
    std::int64_t value;  // the first of the graph's that is the constant
    std::int64_t input;
    std::uint64_t kernel;
    std::uint64_t variant;
    std::uint64_t bytes;
    auto operator<=>(const Key&) const = default;
  };
  struct Header;
  struct Row;

  Key key_of(const Copy& copy) const;  // no bytes: of no constant of the model
  bool hash_model();
  void choose_path();
  const char* open();
  const char* read_table(std::uint64_t rows, std::uint64_t checksum);
  std::size_t write();

  const LoadedModel& model_;
  const CacheConfig options_;
  std::string path_;  // "": none can be used
  std::string isa_;
  std::uint64_t model_hash_ = 0;
  std::uint64_t build_hash_ = 0;  // of the library, and the instruction set
  std::map<const Weight*, int> values_;
  std::map<Key, Entry> entries_;
  std::shared_ptr<const os::File> file_;  // null: there is none that fits
  std::shared_ptr<const void> mapping_;
  bool incomplete_ = false;  // a copy that was noted is not in the file
};

}  // namespace evn
