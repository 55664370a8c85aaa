// A call of JavaScript: reads its arguments, calls the library at once or on a thread of its own, and makes the result.
#ifndef EVENER_NODE_CALL_H
#define EVENER_NODE_CALL_H

#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>

#include "instance.h"

namespace evn_node {

class Call;

// A function of the library for JavaScript; `with_error`: it can fail, and is also there as NAME_promised, which gives a promise.
struct Entry {
  const char* name;
  napi_value (*function)(Call&);
  bool with_error;
};
extern const Entry* const kEntries[];

// Says of which headers the functions are; JavaScript's side must be made from these too.
extern const char* const kDeclarations;

// Memory of the caller's.
struct Range {
  const void* data;
  size_t size;
};

struct TypedArray {
  void* data;
  size_t size;  // in bytes
  napi_value buffer;
};

napi_value NumberOf(napi_env env, uint64_t value);  // a BigInt where a number would not be exact
napi_value NumberOf(napi_env env, int64_t value);
std::string TextOf(napi_env env, napi_value value, const char* what);
bool IsNothing(napi_env env, napi_value value);  // undefined or null

// Memory that lives as long as a call.
struct Kept {
  virtual ~Kept() = default;
};

template <class T>
struct KeptValue : Kept {
  T value{};
};

// A text of the library, which is asked again with more room until it fits.
struct TextOut : Kept {
  std::vector<char> bytes;
  size_t size = 0;

  template <class Function>
  evn_status Read(Function call, evn_error* error) {
    for (;;) {
      const evn_status status = call(bytes.data(), bytes.size(), &size, error);
      if (status != EVN_ERROR_BUFFER_TOO_SMALL) return status;
      bytes.resize(std::max<size_t>(error->bytes_requested, 2 * bytes.size()));
    }
  }
};

// A handle that the library has made; released with the call where no slot has got it.
template <class H>
struct MadeHandle : Kept {
  explicit MadeHandle(const evn_api* api) : api(api) {}
  ~MadeHandle() override {
    if (handle != nullptr) ReleaseHandle(api, KindOf<H>::value, handle);
  }
  const evn_api* api;
  H handle = nullptr;
};

template <class H>
struct HandleList : Kept {
  H* data() { return handles.data(); }
  uint32_t count() const { return static_cast<uint32_t>(handles.size()); }
  std::vector<H> handles;
};

// Slots of outputs: those that are given, and those that are made, which are released with the call where no slot has got them.
template <class H>
struct SlotList : HandleList<H> {
  ~SlotList() override {
    for (size_t i = 0; i < given.size(); ++i) {
      if (!given[i] && this->handles[i] != nullptr) ReleaseHandle(api, KindOf<H>::value, this->handles[i]);
    }
  }
  const evn_api* api;
  std::vector<bool> given;
};

class Call : public std::enable_shared_from_this<Call> {
 public:
  static constexpr size_t kArguments = 8;

  Call(Instance& instance, bool is_async) : env(instance.env), instance(instance), api(instance.api) {
    if (is_async) async_ = instance.shared_from_this();
  }
  ~Call() {
    for (const double id : used_) instance.EndUse(id);
  }

  // Arguments, by their places. Where nothing is given, a handle is NULL.
  int32_t Int32(size_t at) { return static_cast<int32_t>(Integer(at, INT32_MIN, INT32_MAX)); }
  uint32_t Uint32(size_t at) { return static_cast<uint32_t>(Integer(at, 0, UINT32_MAX)); }
  int64_t Int64(size_t at) { return IntegerOf(arguments[at]); }
  uint64_t Uint64(size_t at) { return UnsignedOf(arguments[at]); }
  size_t Size(size_t at) { return UnsignedOf(arguments[at]); }
  double Double(size_t at);
  int32_t Word(const evn_node::Word* words, size_t at);
  const char* Chars(size_t at);  // NULL where nothing is given
  Range Bytes(size_t at);
  std::vector<int64_t>* Dims(size_t at) { return IntegersOf(arguments[at]); }
  const void* Options(const Struct& kind, size_t at);  // NULL where nothing is given
  Range List(const Struct& kind, size_t at);
  template <class H>
  H Handle(size_t at) {
    return static_cast<H>(IsNothing(env, arguments[at]) ? nullptr : HandleOf(arguments[at], KindOf<H>::value));
  }
  template <class H>
  HandleList<H>* Handles(size_t at) {
    auto* list = Keep<HandleList<H>>();
    Each(arguments[at], [&](napi_value value) {
      list->handles.push_back(static_cast<H>(IsNothing(env, value) ? nullptr : HandleOf(value, KindOf<H>::value)));
    });
    return list;
  }
  template <class H>
  SlotList<H>* Slots(size_t at) {
    auto* list = Keep<SlotList<H>>();
    list->api = api;
    Each(arguments[at], [&](napi_value value) {
      const bool is_given = !IsNothing(env, value);
      list->handles.push_back(static_cast<H>(is_given ? HandleOf(value, KindOf<H>::value) : nullptr));
      list->given.push_back(is_given);
    });
    return list;
  }

  // Places for results.
  TextOut* Text(size_t capacity = 4096) {
    auto* text = Keep<TextOut>();
    text->bytes.resize(capacity);
    return text;
  }
  template <class H>
  H* Out() {
    kept_.push_back(std::make_unique<MadeHandle<H>>(api));
    return &static_cast<MadeHandle<H>*>(kept_.back().get())->handle;
  }
  template <class T>
  T* Scalar() {
    return &Keep<KeptValue<T>>()->value;
  }
  void* Info(const Struct& kind);
  template <class T, class... Arguments>
  T* Keep(Arguments&&... arguments) {
    kept_.push_back(std::make_unique<T>(std::forward<Arguments>(arguments)...));
    return static_cast<T*>(kept_.back().get());
  }

  // Results.
  napi_value Undefined();
  napi_value Name(const char* text);
  napi_value Number(uint32_t value) { return NumberOf(env, static_cast<uint64_t>(value)); }
  napi_value Value(bool value);
  napi_value Value(double value);
  template <class T>
  napi_value Value(T value) {
    return NumberOf(env, static_cast<std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>(value));
  }
  napi_value String(TextOut* text);
  napi_value ArrayBuffer(TextOut* text);
  napi_value Object(const Struct& kind, const void* data);
  template <class H>
  napi_value Made(H* handle) {
    return Value(instance.Add(KindOf<H>::value, std::exchange(*handle, nullptr)));
  }
  template <class H>
  napi_value MadeAll(SlotList<H>* list) {
    napi_value array = Array(list->count());
    for (uint32_t i = 0; i < list->count(); ++i) {
      if (!list->given[i] && list->handles[i] != nullptr) Put(array, i, Made(&list->handles[i]));
    }
    return array;
  }
  napi_value Array(size_t count);
  void Put(napi_value array, uint32_t at, napi_value value);
  napi_value Status(evn_status status);
  napi_value Release(Kind kind);

  // Calls the library, here or on a thread of its own, and then makes the result here.
  napi_value Finish(std::function<evn_status(evn_error*)> run, std::function<napi_value(Call&)> result);

  napi_env env;
  Instance& instance;
  const evn_api* api;
  napi_value arguments[kArguments] = {};

  // What reads values that are no arguments.
  TypedArray TypedArrayOf(napi_value value);
  int64_t IntegerOf(napi_value value);
  uint64_t UnsignedOf(napi_value value);
  std::vector<int64_t>* IntegersOf(napi_value value);
  void* HandleOf(napi_value value, Kind kind);
  void Each(napi_value array, const std::function<void(napi_value)>& take);
  [[noreturn]] void Refuse(const std::string& what);

 private:
  int64_t Integer(size_t at, int64_t low, int64_t high);
  int64_t WithinOf(napi_value value, int64_t low, int64_t high, const char* what);
  int64_t WordOf(const evn_node::Word* words, napi_value value);
  Range BytesOf(napi_value value);
  Range ListOf(const Struct& kind, napi_value array);
  const char* CharsOf(napi_value value, const char* what, size_t* size = nullptr);
  void Fill(const Struct& kind, napi_value object, char* target);
  void FillField(const Field& field, napi_value value, char* target);

  std::shared_ptr<Instance> async_;  // NULL if the call is made at once
  std::vector<double> used_;         // slots whose handles an asynchronous call has
  std::vector<std::unique_ptr<Kept>> kept_;
};

// A call on a thread of its own, which ends with a promise.
struct Work {
  std::shared_ptr<Call> call;
  std::function<evn_status(evn_error*)> run;
  std::function<napi_value(Call&)> result;
  napi_deferred deferred = nullptr;
  std::thread thread;
  evn_status status = EVN_OK;
  evn_error error = EVN_ERROR_INIT;
};

}  // namespace evn_node

#endif
