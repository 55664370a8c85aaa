// Part that an initializer had in the network that was exported.
#pragma once

#include <cstdint>
#include <string_view>

namespace evn {

// kUnknown: the model does not say it. kOther: a buffer, or a number of the program.
enum class Origin : std::uint8_t { kUnknown, kParameter, kOther };

// Key by which torch.onnx writes the kind of a value into metadata_props of ValueInfoProto. save_onnx writes it into those of
// TensorProto.
inline constexpr std::string_view kOriginKey = "pkg.torch.export.graph_signature.InputSpec.kind";

inline Origin origin_of(std::string_view kind) {
  return kind.empty() ? Origin::kUnknown : kind == "PARAMETER" ? Origin::kParameter : Origin::kOther;
}
inline std::string_view origin_kind(Origin origin) { return origin == Origin::kParameter ? "PARAMETER" : "CONSTANT_TENSOR"; }

}  // namespace evn
