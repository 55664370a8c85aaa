// evn_tensor_*.
#include "api/barrier.h"
#include "api/objects.h"

using namespace evn;

extern "C" {

evn_status evn_tensor_create(evn_device device, evn_dtype dtype, const int64_t* dims, uint32_t rank, uint32_t flags,
                             evn_tensor* tensor, evn_error* error) {
  return guarded(error, [&] {
    const Pin<DeviceView> d(device);
    require(tensor != nullptr, "tensor");
    if ((flags & ~static_cast<uint32_t>(EVN_TENSOR_PINNED)) != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %u", flags);
    const DeviceView& view = *d;
    const TensorDesc desc = checked_desc(view.runtime->config().limits, dtype, dims, rank);
    *tensor = static_cast<evn_tensor>(
        make_handle<TensorPtr>(std::make_shared<Tensor>(view.runtime, view.device, desc, (flags & EVN_TENSOR_PINNED) != 0)));
  });
}

evn_status evn_tensor_wrap(evn_runtime runtime, void* data, size_t size_bytes, evn_dtype dtype, const int64_t* dims, uint32_t rank,
                           evn_deleter deleter, void* user, evn_tensor* tensor, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(tensor != nullptr, "tensor");
    const TensorDesc desc = checked_desc((*r)->config().limits, dtype, dims, rank);
    if (desc.dtype == DType::kString)
      fail(EVN_ERROR_UNSUPPORTED, "strings are no memory to wrap: evn_tensor_create, evn_tensor_set_strings");
    if (desc.size_bytes() != size_bytes) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "size_bytes is %zu, dtype and dims %s give %zu", size_bytes, desc.shape.to_string().c_str(),
           desc.size_bytes());
    }
    if (size_bytes > 0) require(data != nullptr, "data");
    auto wrapped = std::make_shared<Tensor>(*r, data, desc);
    evn_tensor handle = static_cast<evn_tensor>(make_handle<TensorPtr>(wrapped));
    wrapped->adopt(deleter, user);  // nothing can fail from here on
    *tensor = handle;
  });
}

evn_status evn_tensor_release(evn_tensor tensor) {
  if (tensor == nullptr) return EVN_OK;
  return g_handles.release(tensor, HandleKind::kTensor) ? EVN_OK : EVN_ERROR_INVALID_HANDLE;
}

evn_status evn_tensor_get_info(evn_tensor tensor, evn_tensor_info* info, evn_error* error) {
  return guarded(error, [&] {
    const Pin<TensorPtr> t(tensor);
    const Tensor& inner = **t;
    evn_tensor_info full = EVN_TENSOR_INFO_INIT;
    full.dtype = static_cast<evn_dtype>(inner.desc().dtype);
    full.rank = static_cast<uint32_t>(inner.desc().shape.rank());
    if (inner.pinned()) full.flags |= EVN_TENSOR_PINNED;
    if (inner.read_only()) full.flags |= EVN_TENSOR_READ_ONLY;
    for (int i = 0; i < inner.desc().shape.rank(); ++i) full.dims[i] = inner.desc().shape[i];
    full.size_bytes = inner.size_bytes();
    copy_text(full.device, inner.device()->name());
    write_info(info, full);
  });
}

evn_status evn_tensor_copy(evn_tensor source, evn_tensor target, evn_error* error) {
  return guarded(error, [&] {
    const Pin<TensorPtr> from(source);
    const Pin<TensorPtr> to(target);
    copy_tensor(**from, **to);
  });
}

evn_status evn_tensor_copy_to(evn_tensor source, evn_device device, evn_tensor* tensor, evn_error* error) {
  return guarded(error, [&] {
    const Pin<TensorPtr> from(source);
    const Pin<DeviceView> d(device);
    require(tensor != nullptr, "tensor");
    const DeviceView& view = *d;
    auto to = std::make_shared<Tensor>(view.runtime, view.device, (*from)->desc(), false, Tensor::Fill::kNone);
    copy_tensor(**from, *to);
    *tensor = static_cast<evn_tensor>(make_handle<TensorPtr>(std::move(to)));
  });
}

evn_status evn_tensor_map(evn_tensor tensor, uint32_t flags, void** data, size_t* size_bytes, evn_error* error) {
  return guarded(error, [&] {
    const Pin<TensorPtr> t(tensor);
    require(data != nullptr, "data");
    if (flags == 0 || (flags & ~static_cast<uint32_t>(EVN_MAP_READ | EVN_MAP_WRITE)) != 0) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %u", flags);
    }
    *data = (*t)->map(flags);
    if (size_bytes != nullptr) *size_bytes = (*t)->size_bytes();
  });
}

evn_status evn_tensor_unmap(evn_tensor tensor, evn_error* error) {
  return guarded(error, [&] { (*Pin<TensorPtr>(tensor))->unmap(); });
}

evn_status evn_tensor_set_strings(evn_tensor tensor, const char* const* strings, const size_t* sizes, size_t count,
                                  evn_error* error) {
  return guarded(error, [&] {
    const Pin<TensorPtr> t(tensor);
    require(strings != nullptr || count == 0, "strings");
    if (count != static_cast<std::size_t>((*t)->desc().shape.elements())) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "%zu strings are given, the tensor has %lld elements", count,
           static_cast<long long>((*t)->desc().shape.elements()));
    }
    std::vector<std::string_view> views(count);
    for (std::size_t i = 0; i < count; ++i) {
      require(strings[i] != nullptr || (sizes != nullptr && sizes[i] == 0), "one of strings");
      if (strings[i] != nullptr)
        views[i] = sizes != nullptr ? std::string_view(strings[i], sizes[i]) : std::string_view(strings[i]);
    }
    (*t)->set_strings(views);
  });
}

evn_status evn_tensor_get_string(evn_tensor tensor, size_t index, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] {
    const Pin<TensorPtr> t(tensor);
    write_text((*t)->string_at(index), buffer, capacity, size);
  });
}

}  // extern "C"
