// The inputs and attributes of GroupQueryAttention (com.microsoft), in the order of its schema.
#pragma once

namespace evn {

struct GroupQueryInput {
  enum : int {
    kQuery,
    kKey,
    kValue,
    kPastKey,
    kPastValue,
    kLengths,
    kTotal,
    kCosine,
    kSine,
    kPositions,
    kBias,
    kSink,
    kKeyScale,
    kValueScale,
    kFirstRefused
  };
};
struct GroupQueryAttr {
  enum : int {
    kHeads,
    kGroups,
    kScale,
    kSoftcap,
    kDoRotary,
    kInterleaved,
    kWindow,
    kSmooth,
    kCausal,
    kQkOutput,
    kSlidingCache,
    kKeyQuantized,
    kValueQuantized,
    kBitWidth
  };
};

}  // namespace evn
