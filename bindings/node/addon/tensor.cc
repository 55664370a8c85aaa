// Tensors over memory of JavaScript's, JavaScript's arrays over memory of tensors, and strings.
#include "hand.h"

namespace evn_node {
namespace {

// Keeps an ArrayBuffer while the library uses its memory.
struct Hold {
  std::shared_ptr<Instance> instance;
  napi_ref reference;
};

void Deleter(void* user, void*) {
  auto* hold = static_cast<Hold*>(user);
  hold->instance->Delete(hold->reference, false);
  delete hold;
}

// (runtime, typed array, dtype, dims): the slot of a tensor over the array's memory.
napi_value Wrap(Call& c) {
  auto runtime = c.Handle<evn_runtime>(0);
  const int32_t dtype = c.Word(kWordsOf_evn_dtype, 2);
  auto* dims = c.Dims(3);
  const auto [data, size, buffer] = c.TypedArrayOf(c.arguments[1]);
  bool is = false;
  Check(c.env, napi_is_arraybuffer(c.env, buffer, &is));
  if (!is) c.Refuse("memory of a SharedArrayBuffer cannot be wrapped: N-API cannot keep it");
  Check(c.env, napi_is_detached_arraybuffer(c.env, buffer, &is));
  if (is) c.Refuse("the ArrayBuffer is detached");
  auto hold = std::make_unique<Hold>(Hold{c.instance.shared_from_this(), nullptr});
  Check(c.env, napi_create_reference(c.env, buffer, 1, &hold->reference));
  evn_tensor tensor = nullptr;
  evn_error error = EVN_ERROR_INIT;
  if (c.api->tensor_wrap(runtime, size == 0 ? nullptr : data, size, dtype, dims->data(), static_cast<uint32_t>(dims->size()),
                         Deleter, hold.get(), &tensor, &error) != EVN_OK) {
    napi_delete_reference(c.env, hold->reference);
    Throw(c.instance, error);
  }
  hold.release();
  return c.Value(c.instance.Add(kKind_evn_tensor, tensor, false));
}

// Keeps a tensor's memory while an ArrayBuffer shows it.
struct Shown {
  const evn_api* api;
  evn_tensor tensor;
};

void Hidden(napi_env, void*, void* hint) {
  auto* shown = static_cast<Shown*>(hint);
  shown->api->tensor_release(shown->tensor);
  delete shown;
}

// (tensor): an ArrayBuffer over its memory, which is the CPU's, without a copy.
napi_value Show(Call& c) {
  auto tensor = c.Handle<evn_tensor>(0);
  evn_tensor_info info = EVN_TENSOR_INFO_INIT;
  evn_error error = EVN_ERROR_INIT;
  if (c.api->tensor_get_info(tensor, &info, &error) != EVN_OK) Throw(c.instance, error);
  napi_value made;
  if (info.size_bytes == 0) {
    Check(c.env, napi_create_arraybuffer(c.env, 0, nullptr, &made));
    return made;
  }
  auto shown = std::make_unique<Shown>(Shown{c.api, nullptr});
  if (c.api->tensor_create_view(tensor, 0, info.dims, info.rank, &shown->tensor, &error) != EVN_OK) Throw(c.instance, error);
  // On the CPU a map is free, and the memory stays where it is: the view of the tensor keeps it.
  void* data = nullptr;
  const uint32_t flags = (info.flags & EVN_TENSOR_READ_ONLY) != 0 ? EVN_MAP_READ : EVN_MAP_READ | EVN_MAP_WRITE;
  evn_status status = c.api->tensor_map(shown->tensor, flags, &data, nullptr, &error);
  if (status == EVN_OK) status = c.api->tensor_unmap(shown->tensor, &error);
  if (status == EVN_OK && napi_create_external_arraybuffer(c.env, data, info.size_bytes, Hidden, shown.get(), &made) == napi_ok) {
    shown.release();
    double id = -1;
    Check(c.env, napi_get_value_double(c.env, c.arguments[0], &id));
    c.instance.Forget(id);  // V8 counts the bytes of its buffers
    return made;
  }
  c.api->tensor_release(shown->tensor);
  if (status != EVN_OK) Throw(c.instance, error);
  c.Refuse("this Node cannot show memory of the library's in an ArrayBuffer: read() copies it");
}

// (tensor, strings)
napi_value SetStrings(Call& c) {
  auto tensor = c.Handle<evn_tensor>(0);
  std::vector<std::string> strings;
  c.Each(c.arguments[1], [&](napi_value value) { strings.push_back(TextOf(c.env, value, "an element")); });
  std::vector<const char*> data;
  std::vector<size_t> sizes;
  for (const std::string& string : strings) {
    data.push_back(string.data());
    sizes.push_back(string.size());
  }
  evn_error error = EVN_ERROR_INIT;
  if (c.api->tensor_set_strings(tensor, data.data(), sizes.data(), data.size(), &error) != EVN_OK) Throw(c.instance, error);
  return c.Undefined();
}

// (tensor): its strings.
napi_value GetStrings(Call& c) {
  auto tensor = c.Handle<evn_tensor>(0);
  evn_tensor_info info = EVN_TENSOR_INFO_INIT;
  evn_error error = EVN_ERROR_INIT;
  if (c.api->tensor_get_info(tensor, &info, &error) != EVN_OK) Throw(c.instance, error);
  size_t count = 1;
  for (uint32_t i = 0; i < info.rank; ++i) count *= static_cast<size_t>(info.dims[i]);
  std::vector<size_t> offsets(count + 1);
  TextOut text;
  text.bytes.resize(256);
  if (text.Read([&](char* buffer, size_t capacity, size_t* size,
                    evn_error* e) { return c.api->tensor_get_strings(tensor, buffer, capacity, offsets.data(), count, size, e); },
                &error) != EVN_OK) {
    Throw(c.instance, error);
  }
  napi_value array = c.Array(count);
  for (uint32_t i = 0; i < count; ++i) {
    napi_value string;
    Check(c.env, napi_create_string_utf8(c.env, text.bytes.data() + offsets[i], offsets[i + 1] - offsets[i] - 1, &string));
    c.Put(array, i, string);
  }
  return array;
}

}  // namespace

const Entry kTensorEntries[] = {
    {"tensor_wrap", Wrap, false},
    {"tensor_map", Show, false},
    {"tensor_set_strings", SetStrings, false},
    {"tensor_get_strings", GetStrings, false},
    {nullptr, nullptr, false},
};

}  // namespace evn_node
