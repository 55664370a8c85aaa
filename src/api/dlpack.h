// The structs of the DLPack ABI, versions 0.x ("legacy") and 1.x, laid out as its specification says (dmlc.github.io/dlpack).
// What they point to comes from another library: nothing in them is trusted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace evn::dlpack {

inline constexpr std::uint32_t kMajor = 1;
inline constexpr std::uint32_t kMinor = 0;
inline constexpr std::uint64_t kReadOnly = 1;

// Device types whose memory the host can address.
inline constexpr std::int32_t kCpu = 1;
inline constexpr std::int32_t kCudaHost = 3;
inline constexpr std::int32_t kRocmHost = 11;

enum TypeCode : std::uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct TensorView {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; nullptr: dense row-major
  std::uint64_t byte_offset;
};

struct Managed {
  TensorView view;
  void* context;
  void (*deleter)(Managed*);  // may be nullptr
};

struct ManagedVersioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(ManagedVersioned*);  // may be nullptr
  std::uint64_t flags;
  TensorView view;
};

static_assert(sizeof(DataType) == 4);
static_assert(sizeof(void*) != 8 || (sizeof(TensorView) == 48 && sizeof(Managed) == 64 && sizeof(ManagedVersioned) == 80));
static_assert(sizeof(void*) != 8 || (offsetof(TensorView, shape) == 24 && offsetof(ManagedVersioned, view) == 32));

}  // namespace evn::dlpack
