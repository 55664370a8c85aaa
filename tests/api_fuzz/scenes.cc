#include "tests/api_fuzz/scenes.h"

#include <cstdlib>

#include "api/dlpack.h"
#include "evener/opencl.h"
#include "evener/state.h"
#include "evener/train.h"
#include "tests/api_fuzz/models.h"

namespace evn::fuzz {
namespace {

void free_data(void*, void* data) { free(data); }

evn_state make_state(evn_session session, std::int64_t capacity, const evn_state_options* options) {
  const evn_state_pair cache[] = {{"present", "past", capacity}};
  const evn_state_pair recurrent[] = {{"h1", "h0", 0}, {"c1", "c0", 0}};
  std::uint32_t index = 0;
  evn_state state = nullptr;
  if (evn_session_find_input(session, "past", &index, nullptr) == EVN_OK)
    evn_state_create(session, cache, 1, options, &state, nullptr);
  else if (evn_session_find_input(session, "h0", &index, nullptr) == EVN_OK)
    evn_state_create(session, recurrent, 2, options, &state, nullptr);
  return state;
}

}  // namespace

void make_objects(Random& random) {
  evn_runtime runtime = nullptr;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.cache_dir = "";
  options.thread_count = 2;
  options.cpu_memory_limit_bytes = 64u << 20;
  if (random.chance(50)) options.config_path = guarded_text(folder() + (random.chance(50) ? "models.yaml" : "batching.yaml"));
  if (evn_runtime_create(&options, &runtime, nullptr) != EVN_OK) return;
  begin_call(runtime);
  keep(random, runtime);
  evn_operator op = EVN_OPERATOR_INIT;
  fill(random, op);
  op.domain = "my.domain";
  op.name = "Twice";
  op.min_inputs = op.max_inputs = 1;
  evn_runtime_register_operator(runtime, &op, nullptr);
  evn_device device = nullptr;
  if (evn_runtime_device_at(runtime, 0, &device, nullptr) == EVN_OK) keep(random, device);
  for (const NamedModel& m : models()) {
    evn_model model = nullptr;
    evn_session session = nullptr;
    if (evn_model_load_buffer(runtime, m.bytes.data(), m.bytes.size(), nullptr, &model, nullptr) != EVN_OK) continue;
    keep(random, model);
    if (evn_session_create(runtime, model, nullptr, &session, nullptr) != EVN_OK) continue;
    keep(random, session);
    keep(random, make_state(session, 16, nullptr));
  }
  for (int i = 0; i < 3; ++i) {
    evn_cancel cancel = nullptr;
    if (evn_cancel_create(&cancel, nullptr) == EVN_OK) keep(random, cancel);
  }
  evn_queue queue = nullptr;
  if (evn_queue_create(&queue, nullptr) == EVN_OK) keep(random, queue);
}

void run_with_state(Random& random) {
  begin_call();
  const auto session = pick<evn_session>(random);
  const evn_state state = make_state(session, static_cast<std::int64_t>(1 + random.below(20)),
                                     filled_options<evn_state_options>(random, EVN_STATE_OPTIONS_INIT));
  keep(random, state);
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  fill(random, options);
  options.state = random.chance(50) && state != nullptr ? state : pick<evn_state>(random);
  evn_tensor inputs[kMostArguments], outputs[kMostArguments] = {};
  fill_inputs(random, inputs, session, kind_evn_session);
  std::uint32_t input_count = 0, output_count = 0;
  evn_session_input_count(session, &input_count, nullptr);
  evn_session_output_count(session, &output_count, nullptr);
  if (input_count > kMostArguments || output_count > kMostArguments) return;
  for (std::uint32_t i = 0; i < input_count; ++i) {
    evn_value_info info = EVN_VALUE_INFO_INIT;
    if (evn_session_get_input_info(session, i, &info, nullptr) != EVN_OK) continue;
    const std::string name = info.name;
    if (name == "past" || name == "h0" || name == "c0") inputs[i] = nullptr;
  }
  const ErrorArgument error(random);
  const evn_status status =
      evn_session_run(session, inputs, input_count, outputs, output_count, options_argument(random, options), error.get());
  note("evn_session_run", status);
  error.check("evn_session_run", status);
  for (evn_tensor t : outputs) keep(random, t);
}

void train_step(Random& random) {
  begin_call();
  const auto trainer = pick<evn_trainer>(random);
  evn_tensor inputs[kMostArguments];
  fill_inputs(random, inputs, trainer, kind_evn_trainer);
  evn_device device = nullptr;
  if (runtime_of_call() == nullptr || evn_runtime_device_at(runtime_of_call(), 0, &device, nullptr) != EVN_OK) return;
  const bool has_classes = random.chance(50);
  const std::int64_t dims[] = {2, 3};
  evn_tensor labels = nullptr;
  if (evn_tensor_create(device, has_classes ? EVN_DTYPE_INT64 : EVN_DTYPE_FLOAT32, dims, has_classes ? 1 : 2, 0, &labels,
                        nullptr) == EVN_OK) {
    std::uint32_t count = 0;
    evn_trainer_input_count(trainer, &count, nullptr);
    const InfoArgument<evn_step_info> info(random);
    const ErrorArgument error(random);
    const evn_status status = evn_trainer_step(trainer, inputs, count < kMostArguments ? count : 1,
                                               random.chance(90) ? labels : nullptr, info.get(), error.get());
    note("evn_trainer_step", status);
    error.check("evn_trainer_step", status);
    info.check("evn_trainer_step", status);
    evn_tensor_release(labels);
  }
  evn_device_release(device);
}

void call_evn_tensor_wrap(Random& random) {
  begin_call();
  const auto runtime = pick<evn_runtime>(random);
  const Dims dims(random);
  const std::size_t size = random.chance(70) ? 64 : random.below(300);
  void* const data = calloc(1, size + 1);
  evn_tensor tensor = nullptr;
  const ErrorArgument error(random);
  const evn_status status =
      evn_tensor_wrap(runtime, data, size, random.chance(60) ? EVN_DTYPE_FLOAT32 : random.mostly<evn_dtype>(random.below(28)),
                      dims.values, dims.rank, free_data, nullptr, &tensor, error.get());
  note("evn_tensor_wrap", status);
  error.check("evn_tensor_wrap", status);
  if (status != EVN_OK) free(data);
  keep(random, tensor);
}

void call_evn_tensor_to_dlpack(Random& random) {
  begin_call();
  const auto tensor = pick<evn_tensor>(random);
  void* managed = nullptr;
  const std::uint32_t flags = random.mostly(static_cast<std::uint32_t>(random.below(2)));
  const ErrorArgument error(random);
  const evn_status status = evn_tensor_to_dlpack(tensor, flags, &managed, error.get());
  note("evn_tensor_to_dlpack", status);
  error.check("evn_tensor_to_dlpack", status);
  if (status != EVN_OK) return;
  evn_tensor back = nullptr;
  if (evn_tensor_from_dlpack(pick<evn_runtime>(random), managed, flags, &back, nullptr) == EVN_OK) return keep(random, back);
  if ((flags & EVN_DLPACK_LEGACY) != 0) {
    auto* const m = static_cast<dlpack::Managed*>(managed);
    m->deleter(m);
  } else {
    auto* const m = static_cast<dlpack::ManagedVersioned*>(managed);
    m->deleter(m);
  }
}

void call_evn_tensor_from_dlpack(Random& random) {
  begin_call();
  evn_tensor tensor = nullptr;
  note("evn_tensor_from_dlpack",
       evn_tensor_from_dlpack(pick<evn_runtime>(random), nullptr, static_cast<std::uint32_t>(random.odd()), &tensor, nullptr));
}

void call_evn_opencl_wrap_buffer(Random& random) {
  begin_call();
  const Dims dims(random);
  evn_tensor tensor = nullptr;
  const ErrorArgument error(random);
  const evn_status status = evn_opencl_wrap_buffer(pick<evn_device>(random), nullptr, random.odd(), EVN_DTYPE_FLOAT32, dims.values,
                                                   dims.rank, 0, nullptr, nullptr, &tensor, error.get());
  note("evn_opencl_wrap_buffer", status);
  error.check("evn_opencl_wrap_buffer", status);
}

void call_evn_opencl_import_event(Random& random) {
  begin_call();
  evn_event event = nullptr;
  note("evn_opencl_import_event", evn_opencl_import_event(pick<evn_device>(random), nullptr, &event, nullptr));
}

void call_evn_opencl_export_event(Random& random) {
  begin_call();
  void* event = nullptr;
  note("evn_opencl_export_event",
       evn_opencl_export_event(pick<evn_event>(random), pick<evn_device>(random), random.chance(50) ? nullptr : &event, nullptr));
}

}  // namespace evn::fuzz
