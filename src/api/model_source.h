// Where a model comes from, as options that have `data`, `size` and `external_dir` beside a path give it.
#pragma once

#include "api/barrier.h"
#include "runtime/loaded/model.h"

namespace evn {

// Throws EVN_ERROR_INVALID_ARGUMENT where both or none are given, EVN_ERROR_IO for an empty path.
template <typename Options>
ModelSource read_source(const char* path, const Options& options) {
  ModelSource source;
  if (path == nullptr) {
    require(options.data != nullptr, "path, and data of the options,");
    if (options.size == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "data of the options is given, but size is 0");
    source.data = options.data;
    source.size = options.size;
    if (options.external_dir != nullptr) source.external_dir = options.external_dir;
    return source;
  }
  if (options.data != nullptr || options.size != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "path and data are both given");
  if (options.external_dir != nullptr) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "external_dir is for models from buffers; a file's external data lies in its own folder");
  }
  if (path[0] == '\0') fail(EVN_ERROR_IO, "the path is empty");
  source.path = path;
  return source;
}

}  // namespace evn
