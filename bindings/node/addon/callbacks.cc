// What the library tells while it works: the log of a runtime and the progress of a quantizer. Its threads only post.
#include "hand.h"

namespace evn_node {
namespace {

// A function of JavaScript that the library has as the `user` of a callback.
struct Target {
  std::shared_ptr<Instance> instance;
  napi_ref function;
};

void Released(void* user) {
  auto* target = static_cast<Target*>(user);
  target->instance->Delete(target->function, true);
  delete target;
}

std::unique_ptr<Target> TargetOf(Call& c, napi_value function) {
  napi_valuetype type;
  Check(c.env, napi_typeof(c.env, function, &type));
  if (type != napi_function) c.Refuse("a function is wanted");
  auto target = std::make_unique<Target>(Target{c.instance.shared_from_this(), nullptr});
  Check(c.env, napi_create_reference(c.env, function, 1, &target->function));
  return target;
}

// Calls a function of a target that is there yet: messages come before the one that deletes it, as the queue keeps their order.
void CallTarget(Instance& instance, napi_ref function, size_t count, const napi_value* arguments) {
  napi_value called = nullptr, self, result;
  Check(instance.env, napi_get_reference_value(instance.env, function, &called));
  Check(instance.env, napi_get_undefined(instance.env, &self));
  if (called != nullptr) Check(instance.env, napi_call_function(instance.env, self, called, count, arguments, &result));
}

struct Record : Message {
  void Deliver(Instance& instance) override {
    Call call(instance, false);
    napi_value object = call.Object(kStruct_evn_log_record, &record), values;
    Check(instance.env, napi_create_object(instance.env, &values));
    for (const auto& [key, value] : fields)
      Check(instance.env, napi_set_named_property(instance.env, values, key.c_str(), call.Name(value.c_str())));
    Check(instance.env, napi_set_named_property(instance.env, object, "fields", values));
    CallTarget(instance, function, 1, &object);
  }
  napi_ref function;
  evn_log_record record{};
  std::string message, event, device, node;
  std::vector<std::pair<std::string, std::string>> fields;
};

void Log(void* user, const evn_log_record* given) {
  auto* target = static_cast<Target*>(user);
  try {
    auto record = std::make_unique<Record>();
    record->function = target->function;
    record->record.level = given->level;
    record->record.timestamp_ns = given->timestamp_ns;
    record->record.message = (record->message = given->message).c_str();
    record->record.event = (record->event = given->event).c_str();
    record->record.device = (record->device = given->device).c_str();
    record->record.node = (record->node = given->node).c_str();
    for (uint32_t i = 0; i < given->field_count; ++i) record->fields.emplace_back(given->fields[i].key, given->fields[i].value);
    target->instance->Post(std::move(record));
  } catch (const std::bad_alloc&) {
    // A line of the log is lost where there is no memory for it.
  }
}

struct Progress : Message {
  void Deliver(Instance& instance) override {
    napi_value arguments[3];
    Check(instance.env, napi_create_string_utf8(instance.env, what.c_str(), what.size(), &arguments[0]));
    arguments[1] = NumberOf(instance.env, done);
    arguments[2] = NumberOf(instance.env, total);
    CallTarget(instance, function, 3, arguments);
  }
  napi_ref function;
  std::string what;
  uint64_t done, total;
};

int32_t Tell(void* user, const char* what, uint64_t done, uint64_t total) {
  auto* target = static_cast<Target*>(user);
  try {
    auto progress = std::make_unique<Progress>();
    progress->function = target->function;
    progress->what = what;
    progress->done = done;
    progress->total = total;
    target->instance->Post(std::move(progress));
  } catch (const std::bad_alloc&) {
    // A step is not told where there is no memory for it.
  }
  return 0;
}

// Keeps a target until the library has taken it over.
struct Offered : Kept {
  ~Offered() override {
    if (target != nullptr) Released(target.release());
  }
  std::unique_ptr<Target> target;
};

// (options, function of the log or nothing)
napi_value CreateRuntime(Call& c) {
  auto* options = static_cast<evn_runtime_options*>(const_cast<void*>(c.Options(kStruct_evn_runtime_options, 0)));
  auto* offered = c.Keep<Offered>();
  if (!IsNothing(c.env, c.arguments[1])) {
    offered->target = TargetOf(c, c.arguments[1]);
    options->log_sink = Log;
    options->log_sink_user = offered->target.get();
    options->log_sink_release = Released;
  }
  auto* runtime = c.Out<evn_runtime>();
  return c.Finish(
      [=, api = c.api](evn_error* error) {
        const evn_status status = api->runtime_create(options, runtime, error);
        if (status == EVN_OK) offered->target.release();
        return status;
      },
      [=](Call& call) { return call.Made(runtime); });
}

// (runtime, path or nothing, options, function of the progress or nothing)
napi_value CreateQuantizer(Call& c) {
  auto runtime = c.Handle<evn_runtime>(0);
  auto* path = c.Chars(1);
  auto* options = static_cast<evn_quantizer_options*>(const_cast<void*>(c.Options(kStruct_evn_quantizer_options, 2)));
  auto* offered = c.Keep<Offered>();
  if (!IsNothing(c.env, c.arguments[3])) {
    offered->target = TargetOf(c, c.arguments[3]);
    options->progress = Tell;
    options->progress_user = offered->target.get();
    options->progress_release = Released;
  }
  auto* quantizer = c.Out<evn_quantizer>();
  return c.Finish(
      [=, api = c.api](evn_error* error) {
        const evn_status status = api->quantizer_create(runtime, path, options, quantizer, error);
        if (status == EVN_OK) offered->target.release();
        return status;
      },
      [=](Call& call) { return call.Made(quantizer); });
}

}  // namespace

const Entry kCallbackEntries[] = {
    {"runtime_create", CreateRuntime, true},
    {"quantizer_create", CreateQuantizer, true},
    {nullptr, nullptr, false},
};

}  // namespace evn_node
