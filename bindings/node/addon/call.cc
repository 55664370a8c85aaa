#include "call.h"

#include <algorithm>
#include <cstdio>
#include <system_error>

namespace evn_node {
namespace {

struct WorkDone : Message {
  void Deliver(Instance& instance) override {
    work->thread.join();
    instance.works.erase(work);
    instance.End();
    napi_env env = instance.env;
    if (work->status == EVN_OK) {
      try {
        Check(env, napi_resolve_deferred(env, work->deferred, work->result(*work->call)));
      } catch (const Thrown&) {
        napi_value exception;
        Check(env, napi_get_and_clear_last_exception(env, &exception));
        Check(env, napi_reject_deferred(env, work->deferred, exception));
      }
    } else {
      Check(env, napi_reject_deferred(env, work->deferred, MakeError(instance, work->error)));
    }
  }
  std::shared_ptr<Work> work;
};

}  // namespace

napi_value Call::Finish(std::function<evn_status(evn_error*)> run, std::function<napi_value(Call&)> result) {
  if (async_ == nullptr) {
    evn_error error = EVN_ERROR_INIT;
    if (run(&error) != EVN_OK) Throw(instance, error);
    return result(*this);
  }
  auto work = std::make_shared<Work>();
  work->call = shared_from_this();
  work->run = std::move(run);
  work->result = std::move(result);
  auto done = std::make_shared<std::unique_ptr<WorkDone>>(std::make_unique<WorkDone>());
  (*done)->work = work;
  napi_value promise;
  Check(env, napi_create_promise(env, &work->deferred, &promise));
  instance.works.insert(work);
  try {
    // The message is made before, so that the end can be told whatever memory there is then.
    work->thread = std::thread([kept = instance.shared_from_this(), raw = work.get(), done] {
      try {
        raw->status = raw->run(&raw->error);
      } catch (const std::bad_alloc&) {
        raw->status = raw->error.status = EVN_ERROR_OUT_OF_MEMORY;
      }
      kept->Post(std::move(*done));
    });
  } catch (const std::system_error&) {
    instance.works.erase(work);
    (*done)->work = nullptr;
    work->status = work->error.status = EVN_ERROR_NO_THREADS;
    std::snprintf(work->error.message, sizeof(work->error.message), "the system refuses a thread for the call");
    Check(env, napi_reject_deferred(env, work->deferred, MakeError(instance, work->error)));
    return promise;
  }
  instance.Begin();
  return promise;
}

napi_value Call::Release(Kind kind) {
  double id = -1;
  Check(env, napi_get_value_double(env, arguments[0], &id));
  void* handle = instance.Take(id, kind);
  if (handle != nullptr) ReleaseHandle(api, kind, handle);
  return Undefined();
}

napi_value Call::Status(evn_status status) {
  if (status != EVN_OK) Throw(instance, status, "the call failed");
  return Undefined();
}

// ----------------------------------------------------------------------------------------------------- arguments

void Call::Refuse(const std::string& what) {
  Check(env, napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", what.c_str()));
  throw Thrown{};
}

bool IsNothing(napi_env env, napi_value value) {
  napi_valuetype type = napi_undefined;
  if (value == nullptr) return true;
  Check(env, napi_typeof(env, value, &type));
  return type == napi_undefined || type == napi_null;
}

double Call::Double(size_t at) {
  double value;
  if (napi_get_value_double(env, arguments[at], &value) != napi_ok) Refuse("a number is wanted");
  return value;
}

int64_t Call::IntegerOf(napi_value value) {
  napi_valuetype type;
  Check(env, napi_typeof(env, value, &type));
  int64_t made = 0;
  if (type == napi_bigint) {
    bool lossless = false;
    Check(env, napi_get_value_bigint_int64(env, value, &made, &lossless));
    if (!lossless) Refuse("a BigInt that fits 64 bits is wanted");
    return made;
  }
  double number;
  if (type != napi_number || napi_get_value_double(env, value, &number) != napi_ok) Refuse("a whole number or a BigInt is wanted");
  if (!(number >= -9007199254740991.0 && number <= 9007199254740991.0) ||
      number != static_cast<double>(static_cast<int64_t>(number)))
    Refuse("a whole number is wanted, and beyond 2^53 a BigInt");
  return static_cast<int64_t>(number);
}

uint64_t Call::UnsignedOf(napi_value value) {
  napi_valuetype type;
  Check(env, napi_typeof(env, value, &type));
  if (type == napi_bigint) {
    uint64_t made = 0;
    bool lossless = false;
    Check(env, napi_get_value_bigint_uint64(env, value, &made, &lossless));
    if (!lossless) Refuse("a BigInt from 0 to 2^64 - 1 is wanted");
    return made;
  }
  const int64_t made = IntegerOf(value);
  if (made < 0) Refuse("a number that is not negative is wanted");
  return static_cast<uint64_t>(made);
}

int64_t Call::WithinOf(napi_value value, int64_t low, int64_t high, const char* what) {
  const int64_t made = IntegerOf(value);
  if (made < low || made > high)
    Refuse(std::string(what) + ": " + std::to_string(made) + " is not from " + std::to_string(low) + " to " + std::to_string(high));
  return made;
}

int64_t Call::Integer(size_t at, int64_t low, int64_t high) { return WithinOf(arguments[at], low, high, "a number"); }

int64_t Call::WordOf(const evn_node::Word* words, napi_value value) {
  const std::string text = TextOf(env, value, "a word");
  std::string all;
  for (const evn_node::Word* word = words; word->word != nullptr; ++word) {
    if (text == word->word) return word->value;
    all += std::string(all.empty() ? "" : ", ") + word->word;
  }
  Refuse("there is no " + text + ": " + all);
}

int32_t Call::Word(const evn_node::Word* words, size_t at) { return static_cast<int32_t>(WordOf(words, arguments[at])); }

std::string TextOf(napi_env env, napi_value value, const char* what) {
  size_t size = 0;
  if (napi_get_value_string_utf8(env, value, nullptr, 0, &size) != napi_ok) {
    Check(env, napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", (std::string(what) + ": a string is wanted").c_str()));
    throw Thrown{};
  }
  std::string text(size, '\0');
  Check(env, napi_get_value_string_utf8(env, value, text.data(), size + 1, &size));
  return text;
}

const char* Call::CharsOf(napi_value value, const char* what, size_t* size) {
  std::string& text = Keep<KeptValue<std::string>>()->value = TextOf(env, value, what);
  if (size != nullptr) *size = text.size();
  if (size == nullptr && text.find('\0') != std::string::npos) Refuse(std::string(what) + ": a string with a NUL in it");
  return text.c_str();
}

const char* Call::Chars(size_t at) { return IsNothing(env, arguments[at]) ? nullptr : CharsOf(arguments[at], "an argument"); }

// By what V8 knows of the array: its properties may be others.
TypedArray Call::TypedArrayOf(napi_value value) {
  TypedArray array{};
  bool is = false;
  if (napi_is_typedarray(env, value, &is) != napi_ok || !is) Refuse("a typed array is wanted");
  napi_typedarray_type type;
  size_t length = 0;
  Check(env, napi_get_typedarray_info(env, value, &type, &length, &array.data, &array.buffer, nullptr));
  switch (type) {
    case napi_int8_array:
    case napi_uint8_array:
    case napi_uint8_clamped_array: array.size = length; break;
    case napi_int16_array:
    case napi_uint16_array: array.size = 2 * length; break;
    case napi_int32_array:
    case napi_uint32_array:
    case napi_float32_array: array.size = 4 * length; break;
    case napi_float64_array:
    case napi_bigint64_array:
    case napi_biguint64_array: array.size = 8 * length; break;
    default: Refuse("a typed array of a kind that this addon does not know");
  }
  return array;
}

// Copied, as JavaScript goes on while the library works.
Range Call::BytesOf(napi_value value) {
  bool is = false;
  void* data = nullptr;
  size_t size = 0;
  if (napi_is_arraybuffer(env, value, &is) == napi_ok && is) {
    Check(env, napi_get_arraybuffer_info(env, value, &data, &size));
  } else if (napi_is_typedarray(env, value, &is) == napi_ok && is) {
    const TypedArray array = TypedArrayOf(value);
    data = array.data;
    size = array.size;
  } else if (napi_is_dataview(env, value, &is) == napi_ok && is) {
    Check(env, napi_get_dataview_info(env, value, &size, &data, nullptr, nullptr));
  } else {
    Refuse("bytes are an ArrayBuffer, a typed array, a Buffer or a DataView");
  }
  auto& copy = Keep<KeptValue<std::vector<char>>>()->value;
  if (size != 0) copy.assign(static_cast<const char*>(data), static_cast<const char*>(data) + size);
  return {copy.data(), size};
}

Range Call::Bytes(size_t at) { return BytesOf(arguments[at]); }

void Call::Each(napi_value array, const std::function<void(napi_value)>& take) {
  bool is = false;
  Check(env, napi_is_array(env, array, &is));
  if (!is) Refuse("an array is wanted");
  uint32_t count = 0;
  Check(env, napi_get_array_length(env, array, &count));
  for (uint32_t i = 0; i < count; ++i) {
    napi_value value;
    Check(env, napi_get_element(env, array, i, &value));
    take(value);
  }
}

std::vector<int64_t>* Call::IntegersOf(napi_value value) {
  auto* list = &Keep<KeptValue<std::vector<int64_t>>>()->value;
  Each(value, [&](napi_value each) { list->push_back(IntegerOf(each)); });
  return list;
}

void* Call::HandleOf(napi_value value, Kind kind) {
  double id = -1;
  if (napi_get_value_double(env, value, &id) != napi_ok) Refuse("an object of this package is wanted");
  void* handle = instance.Get(id, kind);
  if (handle == nullptr) Throw(instance, EVN_ERROR_INVALID_HANDLE, "an object that is closed");
  if (async_ != nullptr) {
    used_.push_back(id);
    instance.Use(id);
  }
  return handle;
}

// ------------------------------------------------------------------------------------------------------- structs

const void* Call::Options(const Struct& kind, size_t at) {
  if (IsNothing(env, arguments[at])) return nullptr;
  auto* target = static_cast<char*>(Info(kind));
  Fill(kind, arguments[at], target);
  return target;
}

void* Call::Info(const Struct& kind) {
  auto& words = Keep<KeptValue<std::vector<uint64_t>>>()->value;
  words.resize((kind.size + 7) / 8);
  std::copy_n(static_cast<const char*>(kind.initial), kind.size, reinterpret_cast<char*>(words.data()));
  return words.data();
}

Range Call::List(const Struct& kind, size_t at) { return ListOf(kind, arguments[at]); }

Range Call::ListOf(const Struct& kind, napi_value array) {
  auto& bytes = Keep<KeptValue<std::vector<uint64_t>>>()->value;
  std::vector<napi_value> objects;
  Each(array, [&](napi_value value) { objects.push_back(value); });
  bytes.resize(objects.size() * kind.size / 8 + 1);
  auto* target = reinterpret_cast<char*>(bytes.data());
  for (size_t i = 0; i < objects.size(); ++i) {
    std::copy_n(static_cast<const char*>(kind.initial), kind.size, target + i * kind.size);
    Fill(kind, objects[i], target + i * kind.size);
  }
  return {target, objects.size()};
}

void Call::Fill(const Struct& kind, napi_value object, char* target) {
  napi_valuetype type;
  Check(env, napi_typeof(env, object, &type));
  if (type != napi_object) Refuse("options are an object");
  napi_value names;
  Check(env, napi_get_all_property_names(env, object, napi_key_own_only,
                                         static_cast<napi_key_filter>(napi_key_enumerable | napi_key_skip_symbols),
                                         napi_key_numbers_to_strings, &names));
  Each(names, [&](napi_value name) {
    const std::string text = TextOf(env, name, "an option");
    const Field* end = kind.fields + kind.count;
    const Field* field = std::find_if(kind.fields, end, [&](const Field& each) { return text == each.name; });
    if (field == end) {
      std::string all;
      for (const Field* each = kind.fields; each != end; ++each) all += std::string(all.empty() ? "" : ", ") + each->name;
      Refuse("there is no option " + text + ": " + all);
    }
    napi_value value;
    Check(env, napi_get_property(env, object, name, &value));
    if (!IsNothing(env, value)) FillField(*field, value, target);
  });
}

template <class T>
static void Put(char* target, size_t offset, T value) {
  *reinterpret_cast<T*>(target + offset) = value;
}

void Call::FillField(const Field& field, napi_value value, char* target) {
  switch (field.kind) {
    case kInt32:
      return evn_node::Put(target, field.offset, static_cast<int32_t>(WithinOf(value, INT32_MIN, INT32_MAX, field.name)));
    case kUint32: return evn_node::Put(target, field.offset, static_cast<uint32_t>(WithinOf(value, 0, UINT32_MAX, field.name)));
    case kInt64: return evn_node::Put(target, field.offset, IntegerOf(value));
    case kUint64:
    case kSize: return evn_node::Put(target, field.offset, UnsignedOf(value));
    case kDouble: {
      double number;
      if (napi_get_value_double(env, value, &number) != napi_ok) Refuse(std::string(field.name) + ": a number is wanted");
      if (number != number) Refuse(std::string(field.name) + " is not a number");
      return evn_node::Put(target, field.offset, number);
    }
    case kWord: return evn_node::Put(target, field.offset, static_cast<int32_t>(WordOf(field.words, value)));
    case kFlags: {
      uint32_t flags = 0;
      Each(value, [&](napi_value each) { flags |= static_cast<uint32_t>(WordOf(field.words, each)); });
      return evn_node::Put(target, field.offset, flags);
    }
    case kText: return evn_node::Put(target, field.offset, CharsOf(value, field.name));
    case kTextSized: {
      size_t size = 0;
      evn_node::Put(target, field.offset, CharsOf(value, field.name, &size));
      return evn_node::Put(target, field.other, size);
    }
    case kBytes: {
      const Range bytes = BytesOf(value);
      evn_node::Put(target, field.offset, bytes.data);
      return evn_node::Put(target, field.other, bytes.size);
    }
    case kMask: return evn_node::Put(target, field.offset, BytesOf(value).data);
    case kHandle: return evn_node::Put(target, field.offset, HandleOf(value, static_cast<Kind>(field.handle)));
    case kTexts: {
      auto& list = Keep<KeptValue<std::vector<const char*>>>()->value;
      list.reserve(1);  // an empty list is not NULL
      Each(value, [&](napi_value each) { list.push_back(CharsOf(each, field.name)); });
      evn_node::Put(target, field.offset, list.data());
      return evn_node::Put(target, field.other, static_cast<uint32_t>(list.size()));
    }
    case kInts: {
      auto* list = IntegersOf(value);
      evn_node::Put(target, field.offset, list->data());
      return evn_node::Put(target, field.other, static_cast<uint32_t>(list->size()));
    }
    case kStructs: {
      const Range list = ListOf(*field.nested, value);
      evn_node::Put(target, field.offset, list.data);
      return evn_node::Put(target, field.other, static_cast<uint32_t>(list.size));
    }
    case kStruct: {
      auto* nested = static_cast<char*>(Info(*field.nested));
      Fill(*field.nested, value, nested);
      return evn_node::Put(target, field.offset, static_cast<const void*>(nested));
    }
    default: Refuse(std::string(field.name) + " is no option");
  }
}

}  // namespace evn_node
