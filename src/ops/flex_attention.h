// The operators that graph/inline_if leaves in the place of a FlexAttention (ai.onnx.preview, version 1), around its bodies.
#pragma once

namespace evn {

inline constexpr const char kFlexScores[] = "FlexScores";  // of the domain of Merge
inline constexpr const char kFlexOutput[] = "FlexOutput";

}  // namespace evn
