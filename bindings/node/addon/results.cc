// What calls give to JavaScript.
#include "call.h"

namespace evn_node {

napi_value NumberOf(napi_env env, uint64_t value) {
  napi_value made;
  if (value <= 9007199254740991u) {
    Check(env, napi_create_double(env, static_cast<double>(value), &made));
  } else {
    Check(env, napi_create_bigint_uint64(env, value, &made));
  }
  return made;
}

napi_value NumberOf(napi_env env, int64_t value) {
  if (value >= 0) return NumberOf(env, static_cast<uint64_t>(value));
  napi_value made;
  if (value >= -9007199254740991) {
    Check(env, napi_create_double(env, static_cast<double>(value), &made));
  } else {
    Check(env, napi_create_bigint_int64(env, value, &made));
  }
  return made;
}

napi_value Call::Undefined() {
  napi_value made;
  Check(env, napi_get_undefined(env, &made));
  return made;
}

napi_value Call::Name(const char* text) {
  napi_value made;
  Check(env, napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &made));
  return made;
}

napi_value Call::Value(bool value) {
  napi_value made;
  Check(env, napi_get_boolean(env, value, &made));
  return made;
}

napi_value Call::Value(double value) {
  napi_value made;
  Check(env, napi_create_double(env, value, &made));
  return made;
}

napi_value Call::String(TextOut* text) {
  napi_value made;
  Check(env, napi_create_string_utf8(env, text->bytes.data(), text->size == 0 ? 0 : text->size - 1, &made));
  return made;
}

napi_value Call::ArrayBuffer(TextOut* text) {
  napi_value made;
  void* data = nullptr;
  Check(env, napi_create_arraybuffer(env, text->size, &data, &made));
  std::copy_n(text->bytes.data(), text->size, static_cast<char*>(data));
  return made;
}

napi_value Call::Array(size_t count) {
  napi_value made;
  Check(env, napi_create_array_with_length(env, count, &made));
  return made;
}

void Call::Put(napi_value array, uint32_t at, napi_value value) { Check(env, napi_set_element(env, array, at, value)); }

static const char* NameOf(const Word* words, int64_t value) {
  for (; words->word != nullptr; ++words) {
    if (words->value == value) return words->word;
  }
  return "unknown";
}

template <class T>
static T At(const void* data, size_t offset) {
  return *reinterpret_cast<const T*>(static_cast<const char*>(data) + offset);
}

napi_value Call::Object(const Struct& kind, const void* data) {
  napi_value object;
  Check(env, napi_create_object(env, &object));
  for (const Field* field = kind.fields; field != kind.fields + kind.count; ++field) {
    napi_value value = nullptr;
    const char* chars = static_cast<const char*>(data) + field->offset;
    switch (field->kind) {
      case kInt32: value = Value(At<int32_t>(data, field->offset)); break;
      case kUint32: value = Value(At<uint32_t>(data, field->offset)); break;
      case kInt64: value = Value(At<int64_t>(data, field->offset)); break;
      case kUint64:
      case kSize: value = Value(At<uint64_t>(data, field->offset)); break;
      case kDouble: value = Value(At<double>(data, field->offset)); break;
      case kWord: value = Name(NameOf(field->words, At<int32_t>(data, field->offset))); break;
      case kChars: value = Name(chars); break;
      case kText: value = Name(At<const char*>(data, field->offset)); break;
      case kFlags: {
        value = Array(0);
        uint32_t count = 0;
        for (const evn_node::Word* word = field->words; word->word != nullptr; ++word) {
          if ((At<uint32_t>(data, field->offset) & word->value) != 0) Put(value, count++, Name(word->word));
        }
        break;
      }
      case kCharsList:
        value = Array(field->many);
        for (uint32_t i = 0; i < field->many; ++i) Put(value, i, Name(chars + i * field->length));
        break;
      case kNumbers:
        value = Array(field->length);
        for (uint32_t i = 0; i < field->length; ++i) Put(value, i, Value(At<uint64_t>(data, field->offset + 8 * i)));
        break;
      case kDims: {
        const auto rank = At<uint32_t>(data, field->other);
        if (rank > field->length) {
          Check(env, napi_get_null(env, &value));
          break;
        }
        value = Array(rank);
        for (uint32_t i = 0; i < rank; ++i) Put(value, i, Value(At<int64_t>(data, field->offset + 8 * i)));
        break;
      }
      default: continue;
    }
    Check(env, napi_set_named_property(env, object, field->name, value));
  }
  return object;
}

}  // namespace evn_node
