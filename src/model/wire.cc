#include "model/wire.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/cancel.h"
#include "base/error.h"

namespace evn::wire {
namespace {

constexpr int kTagBytes = 5;  // as protobuf's own readers take it
constexpr int kVarintBytes = 10;

Type wire_type(Kind kind) {
  switch (kind) {
    case Kind::kVarint:
    case Kind::kVarints: return Type::kVarint;
    case Kind::kFixed32:
    case Kind::kFixed32s: return Type::kFixed32;
    case Kind::kFixed64:
    case Kind::kFixed64s: return Type::kFixed64;
    case Kind::kBytes: break;
  }
  return Type::kBytes;
}

bool may_be_packed(Kind kind) { return kind == Kind::kVarints || kind == Kind::kFixed32s || kind == Kind::kFixed64s; }

// Little-endian, at any alignment.
std::uint64_t read_fixed(const std::uint8_t* at, std::size_t bytes) {
  std::uint64_t v = 0;
  std::memcpy(&v, at, bytes);
  return v;
}
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

}  // namespace

void File::fail_at(evn_status status, const std::uint8_t* at, const char* where, const char* format, ...) const {
  char what[320];
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(what, sizeof what, format, args);
  va_end(args);
  fail(status, "%.96s%s%s at byte %zu: %s", name_, name_[0] == '\0' ? "" : ": ", where, static_cast<std::size_t>(at - all_.begin),
       what);
}

void File::fail_field(const char* message, const char* field, const std::uint8_t* at, const char* what) const {
  char where[96];
  std::snprintf(where, sizeof where, "%s%s%s", message, field[0] == '\0' ? "" : ".", field);
  fail_at(EVN_ERROR_INVALID_MODEL, at, where, "%s", what);
}

void File::enter(const std::uint8_t* at, const char* message) {
  if (++depth_ > max_depth_) {
    fail_at(EVN_ERROR_LIMIT, at, message, "messages are nested more than %llu deep", static_cast<unsigned long long>(max_depth_));
  }
}

void File::check_time() const {
  cancellation_point(kWorkPerLook);  // a look in each call: thousands of fields are read between two
  if (deadline_ns_ != UINT64_MAX && deadline_clock_ns() > deadline_ns_) fail(EVN_ERROR_TIMEOUT, "loading the model took too long");
}

bool read_varint(const std::uint8_t** at, const std::uint8_t* end, int max_bytes, std::uint64_t* value) {
  std::uint64_t v = 0;
  const std::uint8_t* p = *at;
  for (int i = 0; i < max_bytes && p != end; ++i) {
    const std::uint8_t byte = *p++;
    v |= static_cast<std::uint64_t>(byte & 0x7f) << (7 * i);  // the tenth byte's upper bits fall away, as in protobuf
    if (byte < 0x80) {
      *at = p;
      *value = v;
      return true;
    }
  }
  return false;
}

bool Cursor::next(Field* field) {
  if (at_ == end_) return false;
  file_.tick();
  field->at = at_;
  std::uint64_t tag = 0;
  if (!read_varint(&at_, end_, kTagBytes, &tag)) file_.fail_field(message_, "", field->at, "a field tag is cut or too long");
  if (tag >> 3 == 0 || tag >> 32 != 0) file_.fail_field(message_, "", field->at, "a field number is outside 1 to 2^29-1");
  field->number = static_cast<std::uint32_t>(tag >> 3);
  const auto left = [this] { return static_cast<std::size_t>(end_ - at_); };
  switch (tag & 7) {
    case 0:
      field->type = Type::kVarint;
      if (!read_varint(&at_, end_, kVarintBytes, &field->value))
        file_.fail_field(message_, "", field->at, "a number is cut or too long");
      return true;
    case 1:
    case 5: {
      field->type = (tag & 7) == 1 ? Type::kFixed64 : Type::kFixed32;
      const std::size_t bytes = (tag & 7) == 1 ? 8 : 4;
      if (left() < bytes) file_.fail_field(message_, "", field->at, "a number is cut");
      field->value = read_fixed(at_, bytes);
      at_ += bytes;
      return true;
    }
    case 2: {
      field->type = Type::kBytes;
      std::uint64_t length = 0;
      if (!read_varint(&at_, end_, kVarintBytes, &length)) file_.fail_field(message_, "", field->at, "a length is cut or too long");
      if (length > left()) file_.fail_field(message_, "", field->at, "a length goes beyond the end");
      field->bytes = {at_, at_ + length};
      at_ += length;
      return true;
    }
    default: file_.fail_field(message_, "", field->at, "a wire type is not known");
  }
}

bool check_form(const File& file, const char* message, const FieldSpec& spec, const Field& field, bool seen_before) {
  const bool packed = field.type == Type::kBytes && may_be_packed(spec.kind);
  if (!packed && field.type != wire_type(spec.kind)) file.fail_field(message, spec.name, field.at, "has the wrong wire type");
  if (spec.count == Count::kOnce && seen_before) file.fail_field(message, spec.name, field.at, "is there twice");
  return packed;
}

bool Elements::next(Field* element) {
  if (at_ == end_) return false;
  file_.tick();
  element->number = spec_.number;
  element->type = wire_type(spec_.kind);
  element->at = at_;
  if (element->type == Type::kVarint) {
    if (!read_varint(&at_, end_, kVarintBytes, &element->value)) {
      file_.fail_field(message_, spec_.name, at_, "a number is cut or too long");
    }
    return true;
  }
  const std::size_t bytes = element->type == Type::kFixed64 ? 8 : 4;
  if (static_cast<std::size_t>(end_ - at_) < bytes) file_.fail_field(message_, spec_.name, at_, "a number is cut");
  element->value = read_fixed(at_, bytes);
  at_ += bytes;
  return true;
}

}  // namespace evn::wire
