// Compiled graphs that sessions share.
#pragma once

#include "runtime/lower/compile.h"

namespace evn {

// Returns the compiled graph of a session of the model that was made with the same options, else a new one. Compiles in any case if
// a cache file may have to be written.
std::shared_ptr<const CompiledGraph> compile_shared(const ModelPtr& loaded, const SessionRequest& asked, const CacheConfig& cache);

}  // namespace evn
