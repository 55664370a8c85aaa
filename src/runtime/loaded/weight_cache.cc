#include "runtime/loaded/weight_cache.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "runtime/loaded/model.h"
#include "version.h"

namespace evn {
namespace {

constexpr char kMagic[8] = {'E', 'V', 'N', 'P', 'A', 'C', 'K', '\n'};
constexpr std::uint32_t kFormat = 1;
constexpr std::uint32_t kByteOrder = 0x01020304;
constexpr std::uint64_t kAlignment = 64;              // of copies in the file: what kernels want in memory
constexpr std::uint64_t kMostRowsPerValue = 16;       // of a table: more is no file of ours
constexpr std::size_t kChunk = std::size_t{1} << 20;  // is summed up while it is in the cache

std::uint64_t add_chunk(std::uint64_t sum, const char* bytes, std::size_t size) {
  return (sum ^ checksum_of(bytes, size)) * 0x9e3779b97f4a7c15u;
}

std::uint64_t checksum_in_chunks(const void* bytes, std::size_t size) {
  const char* const from = static_cast<const char*>(bytes);
  std::uint64_t sum = size;
  for (std::size_t at = 0; at < size; at += kChunk) sum = add_chunk(sum, from + at, std::min(kChunk, size - at));
  return sum;
}

void add_desc(Hasher* hash, const TensorDesc& desc) {
  hash->add(static_cast<std::uint64_t>(desc.dtype));
  for (int i = 0; i < desc.shape.rank(); ++i) hash->add(static_cast<std::uint64_t>(desc.shape[i]));
}

// What the library made of the model: where its constants are, and what reads them.
void add_graph(Hasher* hash, const Graph& graph) {
  hash->add(graph.values.size());
  for (const Value& v : graph.values) {
    hash->add(v.constant != nullptr ? 1u : 0u);
    if (v.constant != nullptr) add_desc(hash, v.constant->desc);
  }
  hash->add(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    hash->add(node.op_type);
    for (const ValueId v : node.inputs) hash->add(static_cast<std::uint64_t>(v));
  }
}

// False when the bytes of some are not there.
bool add_constants(Hasher* hash, const Graph& graph) {
  for (const Value& v : graph.values) {
    if (v.constant == nullptr) continue;
    const Weight& w = v.constant->slice != nullptr ? *v.constant->slice->whole : *v.constant;
    if (w.desc.dtype == DType::kString || w.source != nullptr) continue;
    if (w.data == nullptr && w.size_bytes != 0) return false;
    hash->add(checksum_in_chunks(w.data.get(), w.size_bytes));
  }
  return true;
}

// A piece of a mapped file.
struct Mapped {
  std::shared_ptr<const void> file;
  LedgerPtr ledger;
  std::size_t bytes = 0;
  MemoryClass cls = MemoryClass::kPacked;

  Mapped() = default;
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    if (bytes != 0) ledger->discharge(bytes, cls);
  }
};

}  // namespace

struct WeightCache::Header {
  char magic[8];
  std::uint32_t format;
  std::uint32_t byte_order;
  std::uint64_t file_bytes;
  std::uint64_t model;
  std::uint64_t build;
  std::uint64_t rows;  // of the table, which follows
  std::uint64_t table_checksum;
  char library[40];        // its version, for people
  char isa[24];            // for people
  std::uint64_t checksum;  // of what is before it
};

struct WeightCache::Row {
  Key key;
  std::uint64_t offset;
  std::uint64_t checksum;
  std::uint64_t reserved;
};

WeightCache::WeightCache(const LoadedModel& model, const CacheConfig& options) : model_(model), options_(options) {
  static_assert(sizeof(Header) == 128 && sizeof(Row) == 64);
  const Graph& graph = model.graph();
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].constant != nullptr) values_.try_emplace(graph.values[v].constant.get(), static_cast<int>(v));
  }
  const char* why = hash_model() ? nullptr : "constants of its model that came from other files have been let go";
  evn_log_level level = EVN_LOG_INFO;
  char message[sizeof(Error::message)];
  if (why == nullptr) {
    choose_path();
    const std::uint64_t begin_ns = os::now_ns();
    try {
      why = open();
      level = EVN_LOG_WARNING;
    } catch (const Error& e) {
      if (e.status != EVN_ERROR_IO) throw;
      std::memcpy(message, e.message, sizeof message);
      why = message;
    }
    if (why == nullptr) {
      LogEvent(model.runtime->log(), EVN_LOG_INFO, "cache.opened")
          .field("path", path_.c_str())
          .field("bytes", file_->size())
          .field("copies", entries_.size())
          .field("mapped", maps() ? 1 : 0)
          .field("duration_ns", os::now_ns() - begin_ns)
          .write("opened the cache file '%s': %zu copies of constants", path_.c_str(), entries_.size());
      return;
    }
  }
  file_ = nullptr;
  entries_.clear();
  LogEvent(model.runtime->log(), level, "cache.ignored")
      .field("path", options_.file.c_str())
      .field("reason", why)
      .write("the cache file '%s' is not used: %s", options_.file.c_str(), why);
}

// Hashes the model's bytes but its large tensors, which go by what the system says of the files. Those of a model without a file of
// its own, or with more files of external data than stay open, are looked at.
bool WeightCache::hash_model() {
  Hasher hash;
  hash.add(model_.bytes_hash);
  add_graph(&hash, model_.graph());
  if (model_.file != nullptr) {
    const os::FileIdentity id = model_.file->identity();
    for (const std::uint64_t word : {id.device, id.inode, id.size, id.changed_ns}) hash.add(word);
  }
  std::vector<os::FileIdentity> others;
  const bool all_open = model_.external == nullptr || model_.external->list(&others);
  for (const os::FileIdentity& id : others) {
    for (const std::uint64_t word : {id.device, id.inode, id.size, id.changed_ns}) hash.add(word);
  }
  const bool complete = (model_.file != nullptr && all_open) || add_constants(&hash, model_.graph());
  model_hash_ = hash.value();
  Hasher build;
  isa_ = model_.runtime->cpu().traits().driver;
  build.add(EVN_VERSION_STRING);
  build.add(os::own_build_id());
  build.add(isa_);
  build_hash_ = build.value();
  return complete;
}

// Below a folder, each model has a file of its own.
void WeightCache::choose_path() {
  path_ = options_.file;
  if (path_.empty() || path_.back() != '/') return;
  Hasher name;
  name.add(model_.bytes_hash);
  add_graph(&name, model_.graph());
  path_ += (model_.file_name.empty() ? "model" : model_.file_name) + "-";
  const std::uint64_t value = name.value();
  for (int shift = 60; shift >= 0; shift -= 4) path_.push_back("0123456789abcdef"[(value >> shift) & 15]);
  path_ += ".evc";
}

// Why the file cannot be used, or nullptr. Throws EVN_ERROR_IO too.
const char* WeightCache::open() {
  static constexpr const char kDamaged[] = "it is damaged";
  file_ = os::open_for_reading(path_, UINT64_MAX);
  Header header;
  if (file_->size() < sizeof header) return kDamaged;
  file_->read(0, &header, sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return "it is no cache file";
  if (header.checksum != checksum_of(&header, offsetof(Header, checksum))) return kDamaged;
  if (header.format != kFormat || header.byte_order != kByteOrder || header.build != build_hash_) {
    return "another version of the library has written it, or for another instruction set";
  }
  if (header.model != model_hash_) return "it is of another model, or the model has changed";
  if (header.file_bytes != file_->size()) return kDamaged;
  if (const char* why = read_table(header.rows, header.table_checksum)) return why;
  const bool host_memory = model_.runtime->cpu().ledger()->host_memory().host.allocate != nullptr;
  if (options_.map && !host_memory) mapping_ = file_->map();
  return nullptr;
}

const char* WeightCache::read_table(std::uint64_t rows, std::uint64_t checksum) {
  static constexpr const char kDamaged[] = "its table is damaged";
  const std::uint64_t size = file_->size();
  if (rows > (size - sizeof(Header)) / sizeof(Row) || rows > kMostRowsPerValue * (model_.graph().values.size() + 1))
    return kDamaged;
  std::vector<Row> table(static_cast<std::size_t>(rows));
  file_->read(sizeof(Header), table.data(), table.size() * sizeof(Row));
  if (checksum_of(table.data(), table.size() * sizeof(Row)) != checksum) return kDamaged;
  const std::uint64_t begin = sizeof(Header) + rows * sizeof(Row);
  for (const Row& row : table) {
    if (row.offset < begin || row.offset % kAlignment != 0 || row.offset > size || row.key.bytes > size - row.offset)
      return kDamaged;
    entries_[row.key] = {row.offset, row.checksum, nullptr};
  }
  return nullptr;
}

WeightCache::Key WeightCache::key_of(const Copy& copy) const {
  const auto value = values_.find(copy.weight);
  if (value == values_.end()) return {};
  Hasher kernel;
  if (copy.kernel != nullptr) kernel.add(copy.kernel->name);
  return {value->second, copy.input, copy.kernel != nullptr ? kernel.value() : 0, copy.variant, copy.bytes};
}

const WeightCache::Entry* WeightCache::find(const Copy& copy) const {
  const Key key = key_of(copy);
  if (file_ == nullptr || key.bytes == 0) return nullptr;
  const auto it = entries_.find(key);
  return it == entries_.end() || it->second.offset == 0 ? nullptr : &it->second;
}

bool WeightCache::read(const Entry& entry, void* to, std::size_t bytes) const {
  char* const out = static_cast<char*>(to);
  std::uint64_t sum = bytes;
  try {
    for (std::size_t at = 0; at < bytes; at += kChunk) {
      const std::size_t size = std::min(kChunk, bytes - at);
      file_->read(entry.offset + at, out + at, size);
      sum = add_chunk(sum, out + at, size);
    }
  } catch (const Error& e) {
    if (e.status != EVN_ERROR_IO) throw;
    return false;
  }
  return sum == entry.checksum;
}

void WeightCache::drop(const Copy& copy) {
  LogEvent(model_.runtime->log(), EVN_LOG_WARNING, "cache.ignored")
      .field("path", path_.c_str())
      .field("reason", "damaged")
      .write("a constant in the cache file '%s' is damaged: it is packed anew", path_.c_str());
  entries_[key_of(copy)].offset = 0;
  incomplete_ = true;
}

std::shared_ptr<void> WeightCache::map(const Entry& entry, std::size_t bytes, MemoryClass cls) const {
  auto mapped = std::make_shared<Mapped>();
  mapped->file = mapping_;
  mapped->ledger = model_.runtime->cpu().ledger();
  mapped->cls = cls;
  mapped->ledger->charge(bytes, cls);
  mapped->bytes = bytes;
  // Kernels and plans only read what is constant.
  char* const memory = const_cast<char*>(static_cast<const char*>(mapping_.get())) + entry.offset;
  return std::shared_ptr<void>(std::move(mapped), memory);
}

void WeightCache::note(const Copy& copy, const void* memory) {
  const Key key = key_of(copy);
  if (path_.empty() || !options_.write || key.bytes == 0) return;
  Entry& entry = entries_[key];
  entry.memory = memory;
  incomplete_ |= entry.offset == 0;
}

void WeightCache::save() noexcept {
  if (!incomplete_ || !options_.write || path_.empty()) return;
  const std::uint64_t begin_ns = os::now_ns();
  const LogSink& log = model_.runtime->log();
  const auto warn = [&](const char* why) {
    LogEvent(log, EVN_LOG_WARNING, "cache.not_written")
        .field("path", path_.c_str())
        .field("reason", why)
        .write("cannot write the cache file '%s': %s", path_.c_str(), why);
  };
  try {
    const std::size_t bytes = write();
    const std::uint64_t duration_ns = os::now_ns() - begin_ns;
    LogEvent(log, EVN_LOG_INFO, "cache.written")
        .field("path", path_.c_str())
        .field("bytes", bytes)
        .field("copies", entries_.size())
        .field("duration_ns", duration_ns)
        .write("wrote the cache file '%s': %zu bytes, %llu ms", path_.c_str(), bytes,
               static_cast<unsigned long long>(duration_ns / 1'000'000));
  } catch (const Error& e) {
    warn(e.message);
  } catch (const std::bad_alloc&) {
    warn("there is no memory for it");
  }
}

// What was noted, and what other sessions have left in the file.
std::size_t WeightCache::write() {
  static constexpr char kZeros[kAlignment] = {};
  std::vector<std::shared_ptr<void>> kept;
  for (auto it = entries_.begin(); it != entries_.end();) {
    Entry& entry = it->second;
    const std::size_t bytes = it->first.bytes;
    if (entry.memory == nullptr && entry.offset != 0) {
      kept.push_back(allocate_charged(model_.runtime->cpu().ledger(), bytes, MemoryClass::kLoading));
      if (read(entry, kept.back().get(), bytes)) entry.memory = kept.back().get();
    } else if (entry.memory != nullptr && entry.offset == 0) {
      entry.checksum = checksum_in_chunks(entry.memory, bytes);
    }
    it = entry.memory != nullptr ? std::next(it) : entries_.erase(it);
  }
  std::vector<Row> table;
  std::vector<os::Piece> pieces(2);
  const std::uint64_t begin = sizeof(Header) + entries_.size() * sizeof(Row);
  std::uint64_t at = begin;
  for (const auto& [key, entry] : entries_) {
    table.push_back({key, at, entry.checksum, 0});
    pieces.push_back({entry.memory, key.bytes});
    const std::uint64_t padded = align_up(key.bytes, kAlignment);
    pieces.push_back({kZeros, padded - key.bytes});
    at += padded;
  }
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.format = kFormat;
  header.byte_order = kByteOrder;
  header.file_bytes = at;
  header.model = model_hash_;
  header.build = build_hash_;
  header.rows = table.size();
  header.table_checksum = checksum_of(table.data(), table.size() * sizeof(Row));
  std::strncpy(header.library, EVN_VERSION_STRING, sizeof header.library - 1);
  std::strncpy(header.isa, isa_.c_str(), sizeof header.isa - 1);
  header.checksum = checksum_of(&header, offsetof(Header, checksum));
  pieces[0] = {&header, sizeof header};
  pieces[1] = {table.data(), table.size() * sizeof(Row)};
  if (options_.file.back() == '/') os::make_folders(options_.file.substr(0, options_.file.size() - 1));
  os::write_file_atomically(path_, pieces);
  return static_cast<std::size_t>(at);
}

}  // namespace evn
