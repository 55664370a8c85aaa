// evn_model_*.
#include "api/barrier.h"
#include "api/model_source.h"
#include "api/objects.h"
#include "runtime/inspect.h"

namespace {

evn_model_options read(const evn_model_options* options) {
  const evn_model_options defaults = EVN_MODEL_OPTIONS_INIT;
  const evn_model_options o = evn::read_options(options, defaults, sizeof(evn_model_options));
  if (o.reserved != 0) evn::fail(EVN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
  return o;
}

evn::InspectRequest read_request(const char* path, const evn_inspect_options* options) {
  const evn_inspect_options defaults = EVN_INSPECT_OPTIONS_INIT;
  const evn_inspect_options o = evn::read_options(options, defaults, sizeof(evn_inspect_options));
  evn::InspectRequest request;
  request.source = evn::read_source(path, o);
  evn::require(o.shapes != nullptr || o.shape_count == 0, "shapes");
  for (uint32_t i = 0; i < o.shape_count; ++i) {
    const evn_input_shape& s = o.shapes[i];
    evn::require(s.name != nullptr, "the name of a shape");
    evn::require(s.dims != nullptr || s.rank == 0, "dims");
    if (s.reserved != 0) evn::fail(EVN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    if (s.rank > EVN_MAX_RANK) evn::fail(EVN_ERROR_LIMIT, "rank is %u, the most is %d", s.rank, EVN_MAX_RANK);
    const evn::Shape shape(std::span<const std::int64_t>(s.dims, s.rank));
    if (!shape.is_known()) evn::fail(EVN_ERROR_INVALID_ARGUMENT, "a dim of input \"%s\" is negative", s.name);
    request.shapes.emplace_back(s.name, shape);
  }
  return request;
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

evn_status evn_model_inspect(evn_runtime runtime, const char* path, const evn_inspect_options* options, evn_format format, char* buffer,
                             size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    if (buffer == nullptr) require(size != nullptr, "size");
    write_text(render_inspection(inspect_model(**r, read_request(path, options)), format), buffer, capacity, size);
  });
}

}  // extern "C"
