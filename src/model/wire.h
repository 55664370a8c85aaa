// A bounds-checked reader of protobuf's wire format. It looks at the bytes in place, trusts no length, and allocates nothing.
// A message is described by a table of its fields; what the fields mean is in the readers that own the tables.
//
// Stricter than protobuf on purpose: groups are refused, a known field must have its own wire type, and a singular field may
// stand only once (protobuf would merge or take the last).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "evener/evener.h"

namespace evn::wire {

enum class Type : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Bytes {
  const std::uint8_t* begin = nullptr;
  const std::uint8_t* end = nullptr;
  std::size_t size() const { return static_cast<std::size_t>(end - begin); }
  std::string_view text() const { return {reinterpret_cast<const char*>(begin), size()}; }
};

// One field as it stands in the file. An element of a packed field looks like a field of its own.
struct Field {
  std::uint32_t number = 0;
  Type type = Type::kVarint;
  std::uint64_t value = 0;  // of a varint or fixed-size field
  Bytes bytes;              // of a length-delimited field
  const std::uint8_t* at = nullptr;

  std::int64_t as_int64() const { return static_cast<std::int64_t>(value); }
  std::int32_t as_int32() const { return static_cast<std::int32_t>(static_cast<std::uint32_t>(value)); }  // cut as protobuf does
  float as_float() const { return __builtin_bit_cast(float, static_cast<std::uint32_t>(value)); }
  double as_double() const { return __builtin_bit_cast(double, value); }
};

// The file that is read: for offsets in messages, for depth and for time.
class File {
 public:
  File(Bytes all, const char* name, std::uint64_t max_depth, std::uint64_t deadline_ns)
      : all_(all), name_(name), max_depth_(max_depth), deadline_ns_(deadline_ns) {}

  Bytes all() const { return all_; }

  // Throws with the file's name, `where` ("NodeProto.op_type") and the byte offset of `at`.
  [[noreturn, gnu::format(printf, 5, 6)]] void fail_at(evn_status status, const std::uint8_t* at, const char* where,
                                                       const char* format, ...) const;
  [[noreturn]] void fail_field(const char* message, const char* field, const std::uint8_t* at, const char* what) const;

  void enter(const std::uint8_t* at, const char* message);
  void leave() { --depth_; }
  // Counts one unit of work; looks at the clock now and then. Throws EVN_ERROR_TIMEOUT.
  void tick() {
    if (++ticks_ % 4096 == 0) check_time();
  }
  void check_time() const;

 private:
  Bytes all_;
  const char* name_;
  std::uint64_t max_depth_;
  std::uint64_t deadline_ns_;
  std::uint64_t depth_ = 0;
  std::uint64_t ticks_ = 0;
};

// Reads a varint at *at, which moves past it. False when it is cut or has more than `max_bytes` bytes.
bool read_varint(const std::uint8_t** at, const std::uint8_t* end, int max_bytes, std::uint64_t* value);

// Walks over the fields of one message.
class Cursor {
 public:
  Cursor(File& file, Bytes range, const char* message) : file_(file), at_(range.begin), end_(range.end), message_(message) {}
  // False at the end. Throws EVN_ERROR_INVALID_MODEL on anything malformed.
  bool next(Field* field);

 private:
  File& file_;
  const std::uint8_t* at_;
  const std::uint8_t* end_;
  const char* message_;
};

// The forms that a known field may have. The plural ones are repeated numbers, packed or not.
enum class Kind : std::uint8_t { kVarint, kFixed32, kFixed64, kBytes, kVarints, kFixed32s, kFixed64s };
enum class Count : std::uint8_t { kOnce, kMany };

// What a table says about the form of a field.
struct FieldSpec {
  std::uint32_t number;
  const char* name;
  Kind kind;
  Count count;
};

// A row of a message's table: `handle` is called with the reader, once per element of a packed field; nullptr: only the form is
// checked.
template <typename Reader>
struct Row {
  FieldSpec spec;
  void (*handle)(Reader& reader, const Field& field);
};

// Checks the form of a known field. True when it is packed.
bool check_form(const File& file, const char* message, const FieldSpec& spec, const Field& field, bool seen_before);

// Walks over the elements of a packed field.
class Elements {
 public:
  Elements(File& file, const char* message, const FieldSpec& spec, Bytes packed)
      : file_(file), message_(message), spec_(spec), at_(packed.begin), end_(packed.end) {}
  bool next(Field* element);

 private:
  File& file_;
  const char* message_;
  const FieldSpec& spec_;
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

template <typename Reader, std::size_t kRows>
void read_message(File& file, Bytes range, const char* message, const Row<Reader> (&rows)[kRows], Reader& reader) {
  static_assert(kRows <= 32);
  file.enter(range.begin, message);
  std::uint32_t seen = 0;
  Cursor cursor(file, range, message);
  for (Field field; cursor.next(&field);) {
    std::size_t i = 0;
    while (i < kRows && rows[i].spec.number != field.number) ++i;
    if (i == kRows) continue;
    const Row<Reader>& row = rows[i];
    const bool packed = check_form(file, message, row.spec, field, (seen >> i & 1) != 0);
    seen |= 1u << i;
    if (row.handle == nullptr) continue;
    if (packed) {
      Elements elements(file, message, row.spec, field.bytes);
      for (Field element; elements.next(&element);) row.handle(reader, element);
    } else {
      row.handle(reader, field);
    }
  }
  file.leave();
}

}  // namespace evn::wire
