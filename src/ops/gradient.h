// The operators that graph/gradient puts into graphs where ONNX has none for a derivative. All are of the domain of Merge: no model
// has them. Input 0 is what the result has the shape of, where it is no more than that (recurrent_gradient.h has those of recurrent
// layers); those with the flag kOpShapeOnly do not read its bytes.
#pragma once

namespace evn {

inline constexpr const char kSumTo[] = "SumTo";  // sum_to.cc
inline constexpr const char kRepeatTo[] = "RepeatTo";
inline constexpr const char kConvInputGradient[] = "ConvInputGradient";  // conv_gradient.cc
inline constexpr const char kConvWeightGradient[] = "ConvWeightGradient";
inline constexpr const char kMaxPoolGradient[] = "MaxPoolGradient";  // pool_gradient.cc
inline constexpr const char kAveragePoolGradient[] = "AveragePoolGradient";
inline constexpr const char kGatherGradient[] = "GatherGradient";  // index_gradient.cc
inline constexpr const char kSliceGradient[] = "SliceGradient";
inline constexpr const char kResizeGradient[] = "ResizeGradient";  // resize.cc
inline constexpr const char kLossGradient[] = "LossGradient";      // loss_gradient.cc
inline constexpr const char kCrossEntropyGradient[] = "CrossEntropyGradient";
inline constexpr const char kReluGradient[] = "ReluGradient";  // activation_gradient.cc
inline constexpr const char kSigmoidGradient[] = "SigmoidGradient";
inline constexpr const char kTanhGradient[] = "TanhGradient";
inline constexpr const char kHardSwishGradient[] = "HardSwishGradient";
inline constexpr const char kErfGradient[] = "ErfGradient";
inline constexpr const char kGeluGradient[] = "GeluGradient";
inline constexpr const char kBatchNormGradient[] = "BatchNormalizationGradient";  // norm_gradient.cc
inline constexpr const char kLayerNormGradient[] = "LayerNormalizationGradient";

}  // namespace evn
