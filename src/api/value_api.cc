// evn_value_*.
#include "api/barrier.h"
#include "api/objects.h"

using namespace evn;

namespace {

// The value as a runtime value that may be part of another. The elements of a string tensor may be replaced: it is copied.
RuntimeValuePtr part_of(const ValueObject& v) {
  if (v.value.tensor == nullptr) return v.value.runtime_value;
  const Tensor& t = *v.value.tensor;
  if (!t.on_host()) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "a tensor on another device cannot be a part of a value: evn_tensor_copy_to")
        .with_device(t.device()->name().c_str());
  }
  if (t.desc().dtype != DType::kString) return runtime_value_of(v.value.tensor);
  auto copy = std::make_shared<Tensor>(v.runtime, &v.runtime->cpu(), t.desc(), false);
  copy_tensor(t, *copy);
  return runtime_value_of(copy);
}

const TensorDesc& desc_of(const RunValue& v) { return v.tensor != nullptr ? v.tensor->desc() : v.runtime_value->desc; }

}  // namespace

extern "C" {

evn_status evn_value_from_tensor(evn_tensor tensor, evn_value* value, evn_error* error) {
  return guarded(error, [&] {
    const Pin<TensorPtr> t(tensor);
    require(value != nullptr, "value");
    *value = static_cast<evn_value>(make_handle<ValueObject>({(*t)->runtime(), {*t, nullptr}}));
  });
}

evn_status evn_value_create(evn_runtime runtime, const char* type, const evn_value* parts, uint32_t part_count, evn_value* value,
                            evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(type != nullptr, "type");
    require(value != nullptr, "value");
    require(parts != nullptr || part_count == 0, "parts");
    auto runtime_value = std::make_shared<RuntimeValue>();
    runtime_value->desc = parse_type(type);
    if (!runtime_value->desc.wraps) fail(EVN_ERROR_INVALID_ARGUMENT, "evn_value_from_tensor makes values of tensors");
    std::vector<RuntimeValuePtr> all;
    for (uint32_t i = 0; i < part_count; ++i) {
      const Pin<ValueObject> part(parts[i]);
      if ((*part).runtime != *r) fail(EVN_ERROR_INVALID_ARGUMENT, "a part belongs to another runtime");
      all.push_back(part_of(*part));
    }
    runtime_value->parts = all;
    check_runtime_value(*runtime_value);
    *value = static_cast<evn_value>(make_handle<ValueObject>({*r, {nullptr, std::move(runtime_value)}}));
  });
}

evn_status evn_value_release(evn_value value) { return release_handle(value, HandleKind::kValue); }

evn_status evn_value_get_type(evn_value value, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] {
    const Pin<ValueObject> v(value);
    write_text(desc_of((*v).value).type_string(), buffer, capacity, size);
  });
}

evn_status evn_value_part_count(evn_value value, uint32_t* count, evn_error* error) {
  return guarded(error, [&] {
    const Pin<ValueObject> v(value);
    require(count != nullptr, "count");
    *count = (*v).value.runtime_value != nullptr ? static_cast<uint32_t>((*v).value.runtime_value->parts.size()) : 0;
  });
}

evn_status evn_value_part_at(evn_value value, uint32_t index, evn_value* part, evn_error* error) {
  return guarded(error, [&] {
    const Pin<ValueObject> v(value);
    require(part != nullptr, "part");
    const std::size_t count = (*v).value.runtime_value != nullptr ? (*v).value.runtime_value->parts.size() : 0;
    if (index >= count) fail(EVN_ERROR_INVALID_ARGUMENT, "index is %u, there are %zu parts", index, count);
    const RuntimeValuePtr& runtime_value = (*v).value.runtime_value->parts[index];
    RunValue made;
    if (runtime_value->is_tensor()) {
      made.tensor = tensor_of((*v).runtime, runtime_value);
    } else {
      made.runtime_value = runtime_value;
    }
    *part = static_cast<evn_value>(make_handle<ValueObject>({(*v).runtime, std::move(made)}));
  });
}

evn_status evn_value_get_tensor(evn_value value, evn_tensor* tensor, evn_error* error) {
  return guarded(error, [&] {
    const Pin<ValueObject> v(value);
    require(tensor != nullptr, "tensor");
    if ((*v).value.tensor == nullptr) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "the value is of type %s", desc_of((*v).value).type_string().c_str());
    }
    *tensor = static_cast<evn_tensor>(make_handle<TensorPtr>((*v).value.tensor));
  });
}

}  // extern "C"
