// evn_model_*.
#include "api/barrier.h"
#include "api/objects.h"

namespace {

evn_model_options read(const evn_model_options* options) {
  const evn_model_options defaults = EVN_MODEL_OPTIONS_INIT;
  const evn_model_options o = evn::read_options(options, defaults, sizeof(evn_model_options));
  if (o.reserved != 0) evn::fail(EVN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
  return o;
}

}  // namespace

using namespace evn;

extern "C" {

evn_status evn_model_load_file(evn_runtime runtime, const char* path, const evn_model_options* options, evn_model* model, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(path != nullptr, "path");
    require(model != nullptr, "model");
    if (read(options).external_dir != nullptr) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "external_dir is for models from buffers; a file's external data lies in its own folder");
    }
    *model = static_cast<evn_model>(make_handle(load_model_file(*r, path)));
  });
}

evn_status evn_model_load_buffer(evn_runtime runtime, const void* data, size_t size, const evn_model_options* options, evn_model* model,
                                 evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(data != nullptr || size == 0, "data");
    require(model != nullptr, "model");
    const evn_model_options o = read(options);
    *model = static_cast<evn_model>(make_handle(load_model_buffer(*r, data, size, o.external_dir != nullptr ? o.external_dir : "")));
  });
}

evn_status evn_model_release(evn_model model) {
  if (model == nullptr) return EVN_OK;
  return release_handle(model, HandleKind::kModel) ? EVN_OK : EVN_ERROR_INVALID_HANDLE;
}

evn_status evn_model_describe(evn_model model, evn_format format, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] {
    const Pin<ModelPtr> m(model);
    if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    write_text(describe_model(**m, format), buffer, capacity, size);
  });
}

evn_status evn_model_get_metadata(evn_model model, const char* key, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] {
    const Pin<ModelPtr> m(model);
    require(key != nullptr, "key");
    for (const MetadataEntry& entry : (*m)->model.metadata) {
      if (entry.key == key) return write_text(entry.value, buffer, capacity, size);
    }
    fail(EVN_ERROR_INVALID_ARGUMENT, "the model has no metadata \"%s\"", key);
  });
}

}  // extern "C"
