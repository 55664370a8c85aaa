// evn_tensor_*.
#include "api/barrier.h"
#include "api/objects.h"

using namespace evn;

namespace {

// What a view of the tensor is, and its first byte there.
struct ViewPlace {
  TensorDesc desc;
  std::size_t begin_bytes = 0;
};

ViewPlace place_of_view(const Tensor& whole, uint64_t first, const int64_t* dims, uint32_t rank) {
  ViewPlace place{{whole.desc().dtype, {}}};
  if (place.desc.dtype == DType::kString) fail(EVN_ERROR_UNSUPPORTED, "string tensors have no views");
  if (rank > EVN_MAX_RANK) fail(EVN_ERROR_LIMIT, "rank %u is above the limit of %d", rank, EVN_MAX_RANK);
  require(dims != nullptr || rank == 0, "dims");
  uint64_t count = 1;
  bool overflows = false, is_empty = false;
  for (uint32_t i = 0; i < rank; ++i) {
    if (dims[i] < 0) fail(EVN_ERROR_INVALID_ARGUMENT, "dims[%u] is %lld", i, static_cast<long long>(dims[i]));
    place.desc.shape.push_back(dims[i]);
    overflows |= __builtin_mul_overflow(count, static_cast<uint64_t>(dims[i]), &count);
    is_empty |= dims[i] == 0;
  }
  if (is_empty) count = 0;
  const auto all = static_cast<uint64_t>(whole.desc().shape.elements());
  if ((overflows && !is_empty) || first > all || count > all - first) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "a view of dims %s from element %llu on ends beyond the tensor, which has %llu elements",
         place.desc.shape.to_string().c_str(), static_cast<unsigned long long>(first), static_cast<unsigned long long>(all));
  }
  // Both ends: the rest of a view's last byte is its own, which nothing else may have.
  const uint64_t bits = dtype_bits(place.desc.dtype), end = first + count;
  if (first * bits % 8 != 0 || (count > 0 && end != all && end * bits % 8 != 0)) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "a view of elements [%llu, %llu) of %s, of %llu bits, begins or ends within a byte",
         static_cast<unsigned long long>(first), static_cast<unsigned long long>(end), dtype_name(place.desc.dtype),
         static_cast<unsigned long long>(bits));
  }
  place.begin_bytes = static_cast<std::size_t>(first * bits / 8);
  return place;
}

}  // namespace

extern "C" {

evn_status evn_tensor_create(evn_device device, evn_dtype dtype, const int64_t* dims, uint32_t rank, uint32_t flags,
                             evn_tensor* tensor, evn_error* error) {
  return guarded(error, [&] {
    const Pin<DeviceView> d(device);
    require(tensor != nullptr, "tensor");
    if ((flags & ~static_cast<uint32_t>(EVN_TENSOR_PINNED)) != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %u", flags);
    const DeviceView& view = *d;
    const TensorDesc desc = checked_desc(view.runtime->settings()->config.limits, dtype, dims, rank);
    *tensor = static_cast<evn_tensor>(
        make_handle<TensorPtr>(std::make_shared<Tensor>(view.runtime, view.device, desc, (flags & EVN_TENSOR_PINNED) != 0)));
  });
}

evn_status evn_tensor_wrap(evn_runtime runtime, void* data, size_t size_bytes, evn_dtype dtype, const int64_t* dims, uint32_t rank,
                           evn_deleter deleter, void* user, evn_tensor* tensor, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(tensor != nullptr, "tensor");
    const TensorDesc desc = checked_desc((*r)->settings()->config.limits, dtype, dims, rank);
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

evn_status evn_tensor_create_view(evn_tensor tensor, uint64_t first, const int64_t* dims, uint32_t rank, evn_tensor* view,
                                  evn_error* error) {
  return guarded(error, [&] {
    const Pin<TensorPtr> t(tensor);
    require(view != nullptr, "view");
    const ViewPlace place = place_of_view(**t, first, dims, rank);
    *view = static_cast<evn_tensor>(make_handle<TensorPtr>(Tensor::part(*t, place.begin_bytes, place.desc)));
  });
}

evn_status evn_tensor_release(evn_tensor tensor) { return release_handle(tensor, HandleKind::kTensor); }

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

evn_status evn_tensor_get_strings(evn_tensor tensor, char* buffer, size_t capacity, size_t* offsets, size_t count, size_t* size,
                                  evn_error* error) {
  return guarded(error, [&] {
    const Pin<TensorPtr> t(tensor);
    require(size != nullptr || buffer != nullptr, "size");
    if (buffer == nullptr && capacity != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "buffer is NULL, but capacity is %zu", capacity);
    const std::size_t bytes = (*t)->get_strings(count, buffer, capacity, offsets);
    if (size != nullptr) *size = bytes;
  });
}

}  // extern "C"
