// Who wants to know of outputs before a run has ended.
#pragma once

#include <cstdint>

namespace evn {

// Is told during a run that an output which the host writes where its caller wants it is complete, and that no later step reads it;
// nothing is said about other outputs. Throws nothing, and takes little time: the run goes on when it returns.
struct OutputListener {
  void (*ready)(void* context, std::uint32_t output) = nullptr;
  void* context = nullptr;
};

}  // namespace evn
