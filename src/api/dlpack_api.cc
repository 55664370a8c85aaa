// evn_tensor_to_dlpack and evn_tensor_from_dlpack: tensors out of and into other libraries, without copies.
#include "api/barrier.h"
#include "api/dlpack.h"
#include "api/objects.h"

namespace evn {
namespace {

struct TypeRow {
  DType dtype;
  std::uint8_t code;
  std::uint8_t bits;
};

constexpr TypeRow kTypes[] = {
    {DType::kInt8, dlpack::kInt, 8},       {DType::kInt16, dlpack::kInt, 16},         {DType::kInt32, dlpack::kInt, 32},
    {DType::kInt64, dlpack::kInt, 64},     {DType::kUint8, dlpack::kUint, 8},         {DType::kUint16, dlpack::kUint, 16},
    {DType::kUint32, dlpack::kUint, 32},   {DType::kUint64, dlpack::kUint, 64},       {DType::kFloat16, dlpack::kFloat, 16},
    {DType::kFloat32, dlpack::kFloat, 32}, {DType::kFloat64, dlpack::kFloat, 64},     {DType::kBfloat16, dlpack::kBfloat, 16},
    {DType::kBool, dlpack::kBool, 8},      {DType::kComplex64, dlpack::kComplex, 64}, {DType::kComplex128, dlpack::kComplex, 128},
};

bool is_legacy(std::uint32_t flags) {
  if ((flags & ~static_cast<std::uint32_t>(EVN_DLPACK_LEGACY)) != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %u", flags);
  return flags != 0;
}

// ------------------------------------------------------------------------------------------------------------------ out --

// What an exported tensor owns: a hold of the tensor, and the arrays that the view points to.
template <typename M>
struct Exported {
  M managed{};
  TensorPtr tensor;
  std::int64_t shape[EVN_MAX_RANK] = {};
  std::int64_t strides[EVN_MAX_RANK] = {};

  static void destroy(M* managed) {
    static_cast<void>(guarded(nullptr, [&] { delete static_cast<Exported*>(managed->context); }));
  }
};

template <typename M>
std::unique_ptr<Exported<M>> export_tensor(const TensorPtr& tensor) {
  auto out = std::make_unique<Exported<M>>();
  const TensorDesc& desc = tensor->desc();
  dlpack::TensorView& view = out->managed.view;
  const auto* row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& r) { return r.dtype == desc.dtype; });
  if (row == std::end(kTypes)) fail(EVN_ERROR_UNSUPPORTED, "DLPack has no dtype %s", dtype_name(desc.dtype));
  view.dtype = {row->code, row->bits, 1};
  view.data = tensor->size_bytes() > 0 ? tensor->buffer().address() : nullptr;
  view.device_type = dlpack::kCpu;
  view.ndim = desc.shape.rank();
  view.shape = out->shape;
  view.strides = out->strides;
  const bool empty = tensor->size_bytes() == 0;
  std::int64_t stride = 1;
  for (int i = desc.shape.rank() - 1; i >= 0; --i) {
    out->shape[i] = desc.shape[i];
    out->strides[i] = stride;
    if (!empty) stride *= desc.shape[i];  // ends at the number of elements, which fits
  }
  out->managed.context = out.get();
  out->managed.deleter = &Exported<M>::destroy;
  out->tensor = tensor;
  return out;
}

void* to_dlpack(const TensorPtr& tensor, bool legacy) {
  if (!tensor->on_host()) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "the tensor lies on device %s; DLPack gets host memory only: copy it to the CPU first",
                     tensor->device()->name().c_str())
        .with_device(tensor->device()->name().c_str());
  }
  if (legacy) {
    if (tensor->read_only()) fail(EVN_ERROR_UNSUPPORTED, "the tensor is read-only, which legacy DLPack cannot say");
    return &export_tensor<dlpack::Managed>(tensor).release()->managed;
  }
  auto out = export_tensor<dlpack::ManagedVersioned>(tensor);
  out->managed.major = dlpack::kMajor;
  out->managed.minor = dlpack::kMinor;
  out->managed.flags = tensor->read_only() ? dlpack::kReadOnly : 0;
  return &out.release()->managed;
}

// ------------------------------------------------------------------------------------------------------------------- in --

// Calls the producer's deleter. The managed struct itself is the producer's too.
template <typename M>
void release_managed(void* managed, void*) {
  auto* m = static_cast<M*>(managed);
  if (m->deleter != nullptr) m->deleter(m);
}

DType dtype_of(const dlpack::DataType& type) {
  const unsigned lanes = type.lanes;
  if (lanes != 1) fail(EVN_ERROR_UNSUPPORTED, "the elements have %u lanes; only 1 is supported", lanes);
  for (const TypeRow& row : kTypes) {
    if (row.code == type.code && row.bits == type.bits) return row.dtype;
  }
  fail(EVN_ERROR_UNSUPPORTED, "DLPack elements of type code %u with %u bits are not supported", static_cast<unsigned>(type.code),
       static_cast<unsigned>(type.bits));
}

// Strides of axes of one element, and of tensors without elements, say nothing.
void require_dense(const dlpack::TensorView& view, const TensorDesc& desc) {
  if (view.strides == nullptr || desc.size_bytes() == 0) return;
  std::int64_t want = 1;
  for (int i = desc.shape.rank() - 1; i >= 0; --i) {
    if (desc.shape[i] != 1 && view.strides[i] != want) {
      fail(EVN_ERROR_UNSUPPORTED, "strides[%d] is %lld, a dense row-major tensor of shape %s has %lld: make it contiguous first", i,
           static_cast<long long>(view.strides[i]), desc.shape.to_string().c_str(), static_cast<long long>(want));
    }
    want *= desc.shape[i];
  }
}

struct Checked {
  TensorDesc desc;
  void* data;
};

Checked check_view(const Limits& limits, const dlpack::TensorView& view) {
  if (view.device_type != dlpack::kCpu && view.device_type != dlpack::kCudaHost && view.device_type != dlpack::kRocmHost) {
    fail(EVN_ERROR_UNSUPPORTED,
         "the memory is of DLPack device type %d; only host memory is supported: kDLCPU, kDLCUDAHost, kDLROCMHost",
         static_cast<int>(view.device_type));
  }
  if (view.ndim < 0) fail(EVN_ERROR_INVALID_ARGUMENT, "ndim is %d", static_cast<int>(view.ndim));
  const auto dtype = static_cast<evn_dtype>(dtype_of(view.dtype));
  const TensorDesc desc = checked_desc(limits, dtype, view.shape, static_cast<std::uint32_t>(view.ndim));
  require_dense(view, desc);
  const std::size_t size = desc.size_bytes();
  if (size == 0) return {desc, nullptr};
  require(view.data != nullptr, "data");
  const auto base = reinterpret_cast<std::uintptr_t>(view.data);
  if (view.byte_offset > UINTPTR_MAX - base || size > UINTPTR_MAX - base - view.byte_offset) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "byte_offset %llu leaves the address space",
         static_cast<unsigned long long>(view.byte_offset));
  }
  return {desc, reinterpret_cast<void*>(base + static_cast<std::uintptr_t>(view.byte_offset))};
}

template <typename M>
evn_tensor adopt(const RuntimePtr& runtime, M* managed, bool read_only) {
  const Checked checked = check_view(runtime->settings()->config.limits, managed->view);
  auto tensor = std::make_shared<Tensor>(runtime, checked.data, checked.desc);
  if (read_only) tensor->set_read_only();
  const auto handle = static_cast<evn_tensor>(make_handle<TensorPtr>(tensor));
  tensor->adopt(&release_managed<M>, managed);  // nothing can fail from here on
  return handle;
}

evn_tensor from_dlpack(const RuntimePtr& runtime, void* managed, bool legacy) {
  if (legacy) return adopt(runtime, static_cast<dlpack::Managed*>(managed), false);
  auto* m = static_cast<dlpack::ManagedVersioned*>(managed);
  if (m->major != dlpack::kMajor) {
    fail(EVN_ERROR_VERSION, "the tensor is of DLPack %u.%u, this library knows %u.x", m->major, m->minor, dlpack::kMajor);
  }
  return adopt(runtime, m, (m->flags & dlpack::kReadOnly) != 0);
}

}  // namespace
}  // namespace evn

using namespace evn;

extern "C" {

evn_status evn_tensor_to_dlpack(evn_tensor tensor, uint32_t flags, void** managed, evn_error* error) {
  return guarded(error, [&] {
    const Pin<TensorPtr> t(tensor);
    require(managed != nullptr, "managed");
    *managed = to_dlpack(*t, is_legacy(flags));
  });
}

evn_status evn_tensor_from_dlpack(evn_runtime runtime, void* managed, uint32_t flags, evn_tensor* tensor, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(managed != nullptr, "managed");
    require(tensor != nullptr, "tensor");
    *tensor = from_dlpack(*r, managed, is_legacy(flags));
  });
}

}  // extern "C"
