// The contents of a state as bytes, and its description.
#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "runtime/state/state.h"

namespace evn {
namespace {

constexpr std::uint64_t kMagic =
    0x3145544154534e56;  // "VNSTATE1" where the lowest byte comes first; another order of bytes is refused

struct Header {
  std::uint64_t magic = kMagic;
  std::uint64_t pairs = 0;
  std::uint64_t size = 0;  // of all
  std::uint64_t hash = 0;  // of what stands behind this header
};

struct PairHeader {
  std::int32_t dtype = 0;  // and the RowFormat of pages, times kFormat
  std::int32_t rank = 0;
  std::int64_t dims[kMaxRank] = {};
  std::uint64_t bytes = 0;
};

constexpr std::int32_t kFormat = 1 << 16;

std::int32_t type_of(const State::Pair& p) {
  return static_cast<std::int32_t>(p.first.dtype) + kFormat * static_cast<std::int32_t>(p.format);
}

PairHeader header_of(const State::Pair& p) {
  PairHeader h;
  h.dtype = type_of(p);
  h.rank = p.desc.shape.rank();
  for (int i = 0; i < h.rank; ++i) h.dims[i] = p.desc.shape[i];
  h.bytes = p.saved_bytes();
  return h;
}

std::uint64_t hash_of(std::span<const unsigned char> bytes) {
  Hasher hasher;
  hasher.add(bytes.data(), bytes.size());
  return hasher.value();
}

[[noreturn]] void refuse(const char* why) {
  fail(EVN_ERROR_INVALID_ARGUMENT, "the bytes are no saved state of these pairs: %s", why);
}

const char* name_of(State::Storage storage) {
  return storage == State::Storage::kPages ? "pages" : storage == State::Storage::kDoubleBuffered ? "double_buffered" : "tensor";
}

const char* stored_as(const State::Pair& p) {
  const DType dtypes[] = {p.first.dtype, DType::kFloat16, DType::kBfloat16, DType::kInt8};  // by RowFormat
  return dtype_name(dtypes[static_cast<int>(p.format)]);
}

}  // namespace

std::size_t State::saved_size() const {
  std::size_t size = sizeof(Header);
  for (const Pair& p : pairs_) size = checked_add(size, checked_add(sizeof(PairHeader), p.saved_bytes()));
  return size;
}

void State::save(std::span<unsigned char> bytes) const {
  std::size_t at = sizeof(Header);
  for (const Pair& p : pairs_) {
    const PairHeader h = header_of(p);
    std::memcpy(bytes.data() + at, &h, sizeof h);
    at += sizeof h;
    if (h.bytes == 0) continue;
    if (p.cache != nullptr) {
      p.cache->save(p.positions(), bytes.data() + at);
    } else {
      std::memcpy(bytes.data() + at, host_copy(p)->buffer().address(), h.bytes);
    }
    at += h.bytes;
  }
  Header header;
  header.pairs = pairs_.size();
  header.size = bytes.size();
  header.hash = hash_of(bytes.subspan(sizeof header));
  std::memcpy(bytes.data(), &header, sizeof header);
}

// All is checked, and all memory taken, before anything changes.
void State::read(std::span<const unsigned char> bytes) {
  Header header;
  if (bytes.size() < sizeof header) refuse("they are too few");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic) refuse("they begin otherwise");
  if (header.pairs != pairs_.size()) refuse("there are other pairs");
  if (header.size != bytes.size()) refuse("their number is another");
  if (header.hash != hash_of(bytes.subspan(sizeof header))) refuse("they are damaged");
  struct Part {
    TensorDesc desc;
    const unsigned char* data;
    TensorPtr tensor;
  };
  std::vector<Part> parts;
  std::size_t at = sizeof header;
  for (Pair& p : pairs_) {
    PairHeader h;
    if (bytes.size() - at < sizeof h) refuse("they are too few");
    std::memcpy(&h, bytes.data() + at, sizeof h);
    at += sizeof h;
    TensorDesc desc = p.first;
    if (h.dtype != type_of(p) || h.rank != desc.shape.rank()) refuse("a pair has another type, or its pages do");
    for (int i = 0; i < h.rank; ++i) {
      if (h.dims[i] < 0 || (i != p.axis && h.dims[i] != desc.shape[i])) refuse("a pair has other dims");
      desc.shape[i] = h.dims[i];
    }
    if (p.axis >= 0 && h.dims[p.axis] > p.capacity) {
      fail(EVN_ERROR_LIMIT, "the saved state has %lld positions, this one has room for %lld",
           static_cast<long long>(h.dims[p.axis]), static_cast<long long>(p.capacity));
    }
    const std::size_t wanted = p.cache != nullptr ? p.cache->stored_bytes(desc.shape[p.axis]) : desc.size_bytes();
    if (h.bytes != wanted || bytes.size() - at < h.bytes) refuse("a pair has another size");
    parts.push_back({desc, bytes.data() + at, nullptr});
    at += h.bytes;
  }
  if (at != bytes.size()) refuse("there are more of them");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Pair& p = pairs_[i];
    if (p.cache != nullptr) {
      p.cache->own(parts[i].desc.shape[p.axis]);
      continue;
    }
    Part& part = parts[i];
    part.tensor = make_tensor(p, part.desc, false);
    const auto host = part.tensor->on_host() ? part.tensor
                                             : std::make_shared<Tensor>(session_->runtime(), &session_->runtime()->cpu(), part.desc,
                                                                        false, Tensor::Fill::kNone, MemoryClass::kStates);
    if (host->size_bytes() > 0) std::memcpy(host->buffer().address(), part.data, host->size_bytes());
    if (host != part.tensor) copy_tensor(*host, *part.tensor);
  }
  commit([&] {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Pair& p = pairs_[i];
      p.desc = parts[i].desc;
      if (p.cache != nullptr) {
        p.cache->replace(p.positions(), parts[i].data);
      } else {
        p.current = std::move(parts[i].tensor);
      }
    }
  });
}

std::string State::describe(evn_format format) const {
  const std::lock_guard<Mutex> lock(mutex_);
  const Graph& graph = session_->graph();
  JsonWriter json;
  std::string text;
  json.begin_array();
  for (const Pair& p : pairs_) {
    const std::string& output = graph.values[graph.outputs[p.output]].name;
    const std::string& input = graph.values[graph.inputs[p.input]].name;
    const std::size_t page = p.cache != nullptr ? p.cache->page_size() : 0;  // 0: another dim is 0
    const std::size_t pages = page != 0 ? p.counted / page : 0;
    if (format == EVN_FORMAT_JSON) {
      json.begin_object();
      json.field("output", output);
      json.field("input", input);
      json.field("dtype", dtype_name(p.desc.dtype));
      json.key("dims");
      json.begin_array();
      for (const std::int64_t dim : p.desc.shape.dims()) json.value(dim);
      json.end_array();
      json.field("positions", p.positions());
      json.field("capacity", p.capacity);
      json.field("bytes", static_cast<std::uint64_t>(p.counted));
      json.field("pages", static_cast<std::uint64_t>(pages));
      json.field("storage", name_of(p.storage));
      json.field("stored", stored_as(p));
      json.field("reason", p.reason);
      json.end_object();
      continue;
    }
    text += output + " -> " + input + ": " + dtype_name(p.desc.dtype) + p.desc.shape.to_string();
    if (p.axis >= 0) text += ", " + std::to_string(p.positions()) + " of " + std::to_string(p.capacity) + " positions";
    text += ", " + std::to_string(p.counted) + " bytes, " + name_of(p.storage);
    if (p.format != RowFormat::kPlain) text += std::string(" of ") + stored_as(p);
    if (pages > 0) text += " (" + std::to_string(pages) + ")";
    text += ": " + std::string(p.reason) + "\n";
  }
  json.end_array();
  return format == EVN_FORMAT_JSON ? json.take() : text;
}

}  // namespace evn
