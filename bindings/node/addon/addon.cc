// The addon itself: what JavaScript's side gets of it. Each environment (the main thread, each worker) has an instance of its own.
#include "hand.h"

namespace evn_node {
namespace {

napi_value Invoke(napi_env env, napi_callback_info info) {
  void* data = nullptr;
  try {
    size_t count = Call::kArguments;
    napi_value arguments[Call::kArguments];
    Check(env, napi_get_cb_info(env, info, &count, arguments, nullptr, &data));
    auto* bound = static_cast<Bound*>(data);
    if (bound->instance->api == nullptr) Throw(*bound->instance, EVN_ERROR_WRONG_STATE, "no library is open");
    if (!bound->is_async) {
      Call call(*bound->instance, false);
      std::copy_n(arguments, Call::kArguments, call.arguments);
      return bound->entry->function(call);
    }
    auto call = std::make_shared<Call>(*bound->instance, true);
    std::copy_n(arguments, Call::kArguments, call->arguments);
    return bound->entry->function(*call);
  } catch (const Thrown&) {
  } catch (const std::bad_alloc&) {
    napi_throw_error(env, "EVN_ERROR_OUT_OF_MEMORY", "there is no memory for the call");
  }
  return nullptr;
}

// (slot): keeps its handle until `end_use`, also if the slot is closed meanwhile.
napi_value Use(Call& c) {
  if (!c.instance.Use(c.Double(0))) Throw(c.instance, EVN_ERROR_INVALID_HANDLE, "an object that is closed");
  return c.Undefined();
}

napi_value EndUse(Call& c) {
  c.instance.EndUse(c.Double(0));
  return c.Undefined();
}

const Entry kUseEntries[] = {
    {"use", Use, false},
    {"end_use", EndUse, false},
    {nullptr, nullptr, false},
};

// (path, function that makes an error, Float64Array for slots)
napi_value Open(napi_env env, napi_callback_info info) {
  try {
    size_t count = 3;
    napi_value arguments[3];
    void* data = nullptr;
    Check(env, napi_get_cb_info(env, info, &count, arguments, nullptr, &data));
    auto& instance = *static_cast<Instance*>(data);
    if (instance.make_error == nullptr) {
      napi_ref scratch;
      void* memory = nullptr;
      Check(env, napi_create_reference(env, arguments[1], 1, &instance.make_error));
      Check(env, napi_create_reference(env, arguments[2], 1, &scratch));
      Check(env, napi_get_typedarray_info(env, arguments[2], nullptr, &instance.scratch_count, &memory, nullptr, nullptr));
      instance.scratch = static_cast<double*>(memory);
    }
    const std::string path = TextOf(env, arguments[0], "the path of the library");
    instance.api = OpenLibrary(instance, path);
  } catch (const Thrown&) {
  } catch (const std::bad_alloc&) {
    napi_throw_error(env, "EVN_ERROR_OUT_OF_MEMORY", "there is no memory for the call");
  }
  return nullptr;
}

void Export(napi_env env, napi_value exports, const std::string& name, napi_callback function, void* data) {
  napi_value made;
  Check(env, napi_create_function(env, name.c_str(), name.size(), function, data, &made));
  Check(env, napi_set_named_property(env, exports, name.c_str(), made));
}

void ExportAll(napi_env env, napi_value exports, Instance* instance, const Entry* entries) {
  for (const Entry* entry = entries; entry->name != nullptr; ++entry) {
    // They live as long as the functions, which is as long as the instance.
    Export(env, exports, entry->name, Invoke, instance->Bind(entry, false));
    if (entry->with_error) Export(env, exports, std::string(entry->name) + "_promised", Invoke, instance->Bind(entry, true));
  }
}

}  // namespace
}  // namespace evn_node

extern "C" NAPI_MODULE_EXPORT napi_value napi_register_module_v1(napi_env env, napi_value exports) {
  using namespace evn_node;
  try {
    auto instance = Instance::Make(env);
    napi_value declarations;
    Check(env, napi_create_string_utf8(env, kDeclarations, NAPI_AUTO_LENGTH, &declarations));
    Check(env, napi_set_named_property(env, exports, "declarations", declarations));
    Export(env, exports, "open", Open, instance.get());
    Export(env, exports, "session_run", RunWith, instance.get());
    for (const Entry* const* entries = kEntries; *entries != nullptr; ++entries) ExportAll(env, exports, instance.get(), *entries);
    for (const Entry* entries : {kUseEntries, kRequestEntries, kTensorEntries, kCallbackEntries, kOperatorEntries})
      ExportAll(env, exports, instance.get(), entries);
    return exports;
  } catch (const Thrown&) {
  } catch (const std::bad_alloc&) {
    napi_throw_error(env, "EVN_ERROR_OUT_OF_MEMORY", "there is no memory for the addon");
  }
  return nullptr;
}

extern "C" NAPI_MODULE_EXPORT int32_t node_api_module_get_api_version_v1() { return 8; }
