// Compiled graphs that sessions share.
#pragma once

#include "runtime/lower/compile.h"

namespace evn {

// What a session of the model that was made with the same has, or what compile (lower/compile.h) makes. Where a cache file may
// have to be written it compiles all the same, since that is when it is written.
std::shared_ptr<const CompiledGraph> compile_shared(const ModelPtr& loaded, const SessionRequest& asked, const CacheConfig& cache);

}  // namespace evn
