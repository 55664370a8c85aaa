// evn_loader_*.
#include "api/barrier.h"
#include "base/user_data.h"
#include "train/loader.h"
#include "train/owned_handle.h"

namespace evn {
namespace {

// Object behind an evn_loader handle.
struct LoaderObject {
  UserData context;  // of produce
  evn_train::OwnedHandle runtime, cancel;
  Heap* heap = nullptr;  // of the runtime
  std::unique_ptr<evn_train::Loader> loader;
};
using LoaderPtr = std::shared_ptr<LoaderObject>;

}  // namespace

template <>
struct HandleTraits<LoaderPtr> {
  static constexpr HandleKind kind = HandleKind::kLoader;
  static constexpr const char* name = "loader";
  static Heap* heap(const LoaderPtr& v) { return v->heap; }
};

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
    auto made = std::make_shared<LoaderObject>();
    made->runtime = evn_train::OwnedHandle(make_handle(*r), HandleKind::kRuntime);
    made->heap = heap_of(*r);
    if (o.cancel != nullptr) {
      made->cancel = evn_train::OwnedHandle(make_handle(*Pin<CancelPtr>(o.cancel)), HandleKind::kCancel);
      o.cancel = static_cast<evn_cancel>(made->cancel.get());
    }
    made->loader = std::make_unique<evn_train::Loader>(static_cast<evn_runtime>(made->runtime.get()), o);
    *loader = static_cast<evn_loader>(make_handle(made));
    made->context.adopt(o.produce_release, o.produce_context);
  });
}

evn_status evn_loader_start_epoch(evn_loader loader, uint64_t epoch, uint64_t first_batch, evn_error* error) {
  return guarded(error, [&] { (*Pin<LoaderPtr>(loader))->loader->start_epoch(epoch, first_batch); });
}

evn_status evn_loader_next(evn_loader loader, evn_tensor* tensors, uint32_t tensor_count, uint32_t* samples, evn_error* error) {
  return guarded(error, [&] {
    const Pin<LoaderPtr> pin(loader);
    require(tensors != nullptr, "tensors");
    require(samples != nullptr, "samples");
    *samples = (*pin)->loader->next({tensors, tensor_count});
  });
}

evn_status evn_loader_batch_count(evn_loader loader, uint64_t* count, evn_error* error) {
  return guarded(error, [&] {
    const Pin<LoaderPtr> pin(loader);
    require(count != nullptr, "count");
    *count = (*pin)->loader->batch_count();
  });
}

evn_status evn_loader_release(evn_loader loader) {
  if (loader == nullptr) return EVN_OK;
  return guarded(nullptr, [&] {
    {
      const Pin<LoaderPtr> pin(loader);
      (*pin)->loader->stop();
    }
    if (!g_handles.release(loader, HandleKind::kLoader)) fail(EVN_ERROR_INVALID_HANDLE, "the loader has been released");
  });
}

}  // extern "C"
