// Compiled graphs that sessions share.
#pragma once

#include <functional>

#include "runtime/lower/compile.h"

namespace evn {

// Places the nodes of the model that no rule places. Nullable: it is not searched for.
using FindPlaces = std::function<std::shared_ptr<const Assignment>()>;

// Returns the compiled graph of a session of the model that was made with the same options, else a new one, with the places that
// `find_places` says. Compiles in any case if a cache file may have to be written, or the request assigns the nodes' places.
std::shared_ptr<const CompiledGraph> compile_shared(const ModelPtr& model, const SessionRequest& request, const CacheConfig& cache,
                                                    const FindPlaces& find_places = nullptr);

}  // namespace evn
