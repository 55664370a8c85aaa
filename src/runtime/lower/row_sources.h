// Constants that stay in a file while runs read rows of them: those of external data that CPU kernels only gather.
// docs/decisions/0090-external-tensors.md
#pragma once

#include "runtime/lower/compile.h"

namespace evn {

// Smaller ones fit in the caches of a core, where a call of the system for each row would cost more than they do.
inline constexpr std::size_t kLeastRowsBytes = std::size_t{64} << 10;

// In the place of the packed copy of input k: where the node's kernel reads rows of it (Kernel::reads_rows). No memory: it reads
// the constant as it does others.
Buffer row_source(const CompiledNode& node, const OpDesc& desc, std::size_t k);

}  // namespace evn
