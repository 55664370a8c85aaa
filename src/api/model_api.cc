// evn_model_*.
#include "api/barrier.h"
#include "api/model_source.h"
#include "api/objects.h"
#include "api/value_info.h"
#include "api/work_scope.h"

namespace {

evn_model_options read(const evn_model_options* options) {
  const evn_model_options defaults = EVN_MODEL_OPTIONS_INIT;
  const evn_model_options o = evn::read_options(options, defaults, offsetof(evn_model_options, cancel));
  if (o.reserved != 0) evn::fail(EVN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
  if ((o.flags & ~static_cast<uint32_t>(EVN_MODEL_MAP)) != 0) evn::fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %u", o.flags);
  return o;
}

evn::os::FileAccess access_of(const evn_model_options& o) {
  evn::os::FileAccess access;
  evn::require(o.allowed_roots != nullptr || o.allowed_root_count == 0, "allowed_roots");
  for (uint32_t i = 0; i < o.allowed_root_count; ++i) {
    evn::require(o.allowed_roots[i] != nullptr, "an entry of allowed_roots");
    if (o.allowed_roots[i][0] == '\0') evn::fail(EVN_ERROR_INVALID_ARGUMENT, "entry %u of allowed_roots is empty", i);
    access.allowed_roots.emplace_back(o.allowed_roots[i]);
  }
  access.map = (o.flags & EVN_MODEL_MAP) != 0;
  return access;
}

evn::WorkScope scope_of(const evn_model_options& o) {
  return {evn::WorkScope::token_of(o.cancel), o.deadline_ns, "the time to load the model is over", "the load was cancelled"};
}

// The model's name of a dim of an input or output.
void write_symbol(evn_model model, bool inputs, uint32_t index, uint32_t axis, char* buffer, size_t capacity, size_t* size) {
  const evn::Pin<evn::ModelPtr> m(model);
  const evn::Value& v = evn::value_at(**m, inputs, index);
  const uint32_t rank = v.has_shape ? static_cast<uint32_t>(v.shape.rank()) : 0;
  if (axis >= rank) evn::fail(EVN_ERROR_INVALID_ARGUMENT, "axis is %u, the known rank is %u", axis, rank);
  const bool named = v.shape[static_cast<int>(axis)] < 0 && axis < v.symbols.size();
  evn::write_text(named ? v.symbols[axis] : std::string(), buffer, capacity, size);
}

}  // namespace

using namespace evn;

extern "C" {

evn_status evn_model_load_file(evn_runtime runtime, const char* path, const evn_model_options* options, evn_model* model,
                               evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(path != nullptr, "path");
    require(model != nullptr, "model");
    const evn_model_options o = read(options);
    if (o.external_dir != nullptr) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "external_dir is for models from buffers; a file's external data lies in its own folder");
    }
    const WorkScope scope = scope_of(o);
    *model = static_cast<evn_model>(make_handle(load_model_file(*r, path, access_of(o))));
  });
}

evn_status evn_model_load_buffer(evn_runtime runtime, const void* data, size_t size, const evn_model_options* options,
                                 evn_model* model, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(data != nullptr || size == 0, "data");
    require(model != nullptr, "model");
    const evn_model_options o = read(options);
    const WorkScope scope = scope_of(o);
    const char* const folder = o.external_dir != nullptr ? o.external_dir : "";
    *model = static_cast<evn_model>(make_handle(load_model_buffer(*r, data, size, folder, access_of(o))));
  });
}

evn_status evn_model_release(evn_model model) { return release_handle(model, HandleKind::kModel); }

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

evn_status evn_model_metadata_count(evn_model model, uint32_t* count, evn_error* error) {
  return guarded(error, [&] {
    const Pin<ModelPtr> m(model);
    require(count != nullptr, "count");
    *count = static_cast<uint32_t>((*m)->model.metadata.size());
  });
}

evn_status evn_model_metadata_key(evn_model model, uint32_t index, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] {
    const Pin<ModelPtr> m(model);
    const auto& entries = (*m)->model.metadata;
    if (index >= entries.size())
      fail(EVN_ERROR_INVALID_ARGUMENT, "index is %u, there are %zu entries of metadata", index, entries.size());
    write_text(entries[index].key, buffer, capacity, size);
  });
}

evn_status evn_model_input_count(evn_model model, uint32_t* count, evn_error* error) {
  return guarded(error, [&] { count_values(**Pin<ModelPtr>(model), true, count); });
}

evn_status evn_model_output_count(evn_model model, uint32_t* count, evn_error* error) {
  return guarded(error, [&] { count_values(**Pin<ModelPtr>(model), false, count); });
}

evn_status evn_model_default_count(evn_model model, uint32_t* count, evn_error* error) {
  return guarded(error, [&] { count_defaults(**Pin<ModelPtr>(model), count); });
}

evn_status evn_model_get_input_info(evn_model model, uint32_t index, evn_value_info* info, evn_error* error) {
  return guarded(error, [&] { describe_value(**Pin<ModelPtr>(model), true, index, info); });
}

evn_status evn_model_get_output_info(evn_model model, uint32_t index, evn_value_info* info, evn_error* error) {
  return guarded(error, [&] { describe_value(**Pin<ModelPtr>(model), false, index, info); });
}

evn_status evn_model_input_name(evn_model model, uint32_t index, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] { write_text(value_at(**Pin<ModelPtr>(model), true, index).name, buffer, capacity, size); });
}

evn_status evn_model_output_name(evn_model model, uint32_t index, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] { write_text(value_at(**Pin<ModelPtr>(model), false, index).name, buffer, capacity, size); });
}

evn_status evn_model_input_symbol(evn_model model, uint32_t index, uint32_t axis, char* buffer, size_t capacity, size_t* size,
                                  evn_error* error) {
  return guarded(error, [&] { write_symbol(model, true, index, axis, buffer, capacity, size); });
}

evn_status evn_model_output_symbol(evn_model model, uint32_t index, uint32_t axis, char* buffer, size_t capacity, size_t* size,
                                   evn_error* error) {
  return guarded(error, [&] { write_symbol(model, false, index, axis, buffer, capacity, size); });
}

}  // extern "C"
