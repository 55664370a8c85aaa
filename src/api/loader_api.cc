// evn_loader_*: through the module (train_module.h).
#include "api/barrier.h"
#include "api/train_objects.h"
#include "base/user_data.h"

namespace evn {
namespace {

// What an evn_loader refers to.
struct LoaderObject {
  explicit LoaderObject(const evn_train_module_table& t) : table(t) {}
  ~LoaderObject() {
    if (loader != nullptr) table.loader_release(loader);
  }
  LoaderObject(const LoaderObject&) = delete;
  LoaderObject& operator=(const LoaderObject&) = delete;

  const evn_train_module_table& table;
  UserData context;  // of produce
  OwnHandle runtime, cancel;
  Heap* heap = nullptr;  // of the runtime
  void* loader = nullptr;
};
using LoaderPtr = std::shared_ptr<LoaderObject>;

}  // namespace

template <>
struct HandleTraits<LoaderPtr> {
  static constexpr HandleKind kind = HandleKind::kLoader;
  static constexpr const char* name = "loader";
  static Heap* heap(const LoaderPtr& v) { return v->heap; }
};

namespace {

// Calls a function of the module for the loader behind a handle.
template <typename F, typename... Args>
void call(const LoaderObject& object, F evn_train_module_table::*function, Args... args) {
  evn_error reported = EVN_ERROR_INIT;
  check_reported((object.table.*function)(object.loader, args..., &reported), reported);
}

}  // namespace
}  // namespace evn

using namespace evn;

extern "C" {

evn_status evn_loader_create(evn_runtime runtime, const evn_loader_options* options, evn_loader* loader, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(options != nullptr, "options");
    require(loader != nullptr, "loader");
    static constexpr evn_loader_options defaults = EVN_LOADER_OPTIONS_INIT;
    evn_loader_options o = read_options(options, defaults, sizeof(evn_loader_options));
    auto made = std::make_shared<LoaderObject>(train_module());
    made->runtime = OwnHandle(make_handle(*r), HandleKind::kRuntime);
    made->heap = heap_of(*r);
    if (o.cancel != nullptr) {
      made->cancel = OwnHandle(make_handle(*Pin<CancelPtr>(o.cancel)), HandleKind::kCancel);
      o.cancel = static_cast<evn_cancel>(made->cancel.get());
    }
    evn_error reported = EVN_ERROR_INIT;
    check_reported(made->table.loader_create(static_cast<evn_runtime>(made->runtime.get()), &o, &made->loader, &reported),
                   reported);
    *loader = static_cast<evn_loader>(make_handle(made));
    made->context.adopt(o.produce_release, o.produce_context);
  });
}

evn_status evn_loader_start_epoch(evn_loader loader, uint64_t epoch, uint64_t first_batch, evn_error* error) {
  return guarded(error, [&] { call(**Pin<LoaderPtr>(loader), &evn_train_module_table::loader_start_epoch, epoch, first_batch); });
}

evn_status evn_loader_next(evn_loader loader, evn_tensor* tensors, uint32_t tensor_count, uint32_t* samples, evn_error* error) {
  return guarded(error,
                 [&] { call(**Pin<LoaderPtr>(loader), &evn_train_module_table::loader_next, tensors, tensor_count, samples); });
}

evn_status evn_loader_batch_count(evn_loader loader, uint64_t* count, evn_error* error) {
  return guarded(error, [&] { call(**Pin<LoaderPtr>(loader), &evn_train_module_table::loader_batch_count, count); });
}

evn_status evn_loader_release(evn_loader loader) {
  if (loader == nullptr) return EVN_OK;
  return guarded(nullptr, [&] {
    {
      const Pin<LoaderPtr> pin(loader);
      call(**pin, &evn_train_module_table::loader_stop);
    }
    if (!g_handles.release(loader, HandleKind::kLoader)) fail(EVN_ERROR_INVALID_HANDLE, "the loader has been released");
  });
}

}  // extern "C"
