// evn_trainer_*.
#include <algorithm>
#include <mutex>

#include "api/barrier.h"
#include "api/model_source.h"
#include "base/mutex.h"
#include "train/owned_handle.h"
#include "train/trainer.h"

namespace evn {
namespace {

// Object behind an evn_trainer handle. One call at a time uses it.
struct TrainerObject {
  evn_train::OwnedHandle runtime, cancel;
  Heap* heap = nullptr;  // of the runtime
  Mutex mutex;
  evn_reduce reduce = nullptr;
  void* reduce_context = nullptr;
  std::unique_ptr<evn_train::Trainer> trainer;
};
using TrainerPtr = std::shared_ptr<TrainerObject>;

// All-reduce of the host, called in the host's floating-point environment.
evn_status reduce_by_host(void* context, void* data, uint64_t count, evn_dtype dtype, evn_error* error) {
  const auto& trainer = *static_cast<const TrainerObject*>(context);
  const HostFloatEnvironment hosts;
  return trainer.reduce(trainer.reduce_context, data, count, dtype, error);
}

}  // namespace

template <>
struct HandleTraits<TrainerPtr> {
  static constexpr HandleKind kind = HandleKind::kTrainer;
  static constexpr const char* name = "trainer";
  static Heap* heap(const TrainerPtr& v) { return v->heap; }
};

namespace {

// Calls `f` with the trainer behind a handle, which is pinned and nobody else's meanwhile.
template <typename F>
evn_status with_trainer(evn_trainer handle, evn_error* error, F&& f) noexcept {
  return guarded(error, [&] {
    const Pin<TrainerPtr> pin(handle);
    const std::lock_guard<Mutex> lock((*pin)->mutex);
    f(*(*pin)->trainer);
  });
}

std::span<const evn_tensor> inputs_of(const evn_tensor* tensors, uint32_t count) {
  require(tensors != nullptr || count == 0, "inputs");
  return {tensors, count};
}

uint32_t find_input(const evn_train::Trainer& trainer, const char* name) {
  const std::vector<std::string> inputs = trainer.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == name) return static_cast<uint32_t>(i);
  }
  constexpr std::size_t kMostShown = 300;
  std::string names;
  for (const std::string& input : inputs) {
    if (names.size() > kMostShown) break;
    names += (names.empty() ? "" : ", ") + input;
  }
  const std::vector<std::string> defaults = trainer.defaults();
  if (std::ranges::find(defaults, name) != defaults.end()) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "input \"%.128s\" has a default, which counts in all batches: a trainer takes no other values",
         name);
  }
  fail(EVN_ERROR_INVALID_ARGUMENT, "there is no input \"%.128s\"; there are: %.300s", name, names.c_str());
}

}  // namespace
}  // namespace evn

using namespace evn;
using evn_train::Trainer;

extern "C" {

evn_status evn_trainer_create(evn_runtime runtime, const char* path, const evn_trainer_options* options, evn_trainer* trainer,
                              evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(trainer != nullptr, "trainer");
    static constexpr evn_trainer_options defaults = EVN_TRAINER_OPTIONS_INIT;
    evn_trainer_options o = read_options(options, defaults, sizeof(evn_trainer_options));
    read_source(path, o);  // checks it
    auto made = std::make_shared<TrainerObject>();
    made->runtime = evn_train::OwnedHandle(make_handle(*r), HandleKind::kRuntime);
    made->heap = heap_of(*r);
    if (o.cancel != nullptr) {
      made->cancel = evn_train::OwnedHandle(make_handle(*Pin<CancelPtr>(o.cancel)), HandleKind::kCancel);
      o.cancel = static_cast<evn_cancel>(made->cancel.get());
    }
    if (o.reduce != nullptr) {
      made->reduce = std::exchange(o.reduce, reduce_by_host);
      made->reduce_context = std::exchange(o.reduce_context, made.get());
    }
    made->trainer = std::make_unique<Trainer>(static_cast<evn_runtime>(made->runtime.get()), path, o);
    *trainer = static_cast<evn_trainer>(make_handle(std::move(made)));
  });
}

evn_status evn_trainer_release(evn_trainer trainer) { return release_handle(trainer, HandleKind::kTrainer); }

evn_status evn_trainer_input_count(evn_trainer trainer, uint32_t* count, evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) {
    require(count != nullptr, "count");
    *count = static_cast<uint32_t>(t.input_count());
  });
}

evn_status evn_trainer_find_input(evn_trainer trainer, const char* name, uint32_t* index, evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) {
    require(name != nullptr, "name");
    require(index != nullptr, "index");
    *index = find_input(t, name);
  });
}

evn_status evn_trainer_step(evn_trainer trainer, const evn_tensor* inputs, uint32_t input_count, evn_tensor labels,
                            evn_step_info* info, evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) {
    if (info != nullptr) check_info(info);
    evn_step_info full = EVN_STEP_INFO_INIT;
    t.step(inputs_of(inputs, input_count), labels, &full);
    if (info != nullptr) write_info(info, full);
  });
}

evn_status evn_trainer_evaluate(evn_trainer trainer, const evn_tensor* inputs, uint32_t input_count, evn_tensor labels,
                                evn_evaluation* evaluation, evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) {
    check_info(evaluation);
    evn_evaluation full = EVN_EVALUATION_INIT;
    t.evaluate(inputs_of(inputs, input_count), labels, &full);
    write_info(evaluation, full);
  });
}

evn_status evn_trainer_note_metric(evn_trainer trainer, double value, evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) { t.note_metric(value); });
}

evn_status evn_trainer_set_learning_rate(evn_trainer trainer, double rate, evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) { t.set_learning_rate(rate); });
}

evn_status evn_trainer_parameter_count(evn_trainer trainer, uint32_t* count, evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) {
    require(count != nullptr, "count");
    *count = static_cast<uint32_t>(t.parameters().size());
  });
}

evn_status evn_trainer_parameter_name(evn_trainer trainer, uint32_t index, char* buffer, size_t capacity, size_t* size,
                                      evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) {
    const auto& all = t.parameters();
    if (index >= all.size()) fail(EVN_ERROR_INVALID_ARGUMENT, "there is no parameter %u, there are %zu", index, all.size());
    write_text(all[index].name, buffer, capacity, size);
  });
}

evn_status evn_trainer_get_parameter(evn_trainer trainer, uint32_t index, evn_parameter_part part, evn_tensor* tensor,
                                     evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) {
    require(tensor != nullptr, "tensor");
    *tensor = t.copy_of(index, part);
  });
}

evn_status evn_trainer_save(evn_trainer trainer, const char* path, evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) {
    require(path != nullptr, "path");
    t.save(path);
  });
}

evn_status evn_trainer_restore(evn_trainer trainer, const char* path, evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) {
    require(path != nullptr, "path");
    t.restore(path);
  });
}

evn_status evn_trainer_finish(evn_trainer trainer, evn_model* model, evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) {
    require(model != nullptr, "model");
    *model = t.finish();
  });
}

evn_status evn_trainer_export(evn_trainer trainer, const char* path, evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) {
    require(path != nullptr, "path");
    t.write_model(path);
  });
}

evn_status evn_trainer_describe(evn_trainer trainer, evn_format format, char* buffer, size_t capacity, size_t* size,
                                evn_error* error) {
  return with_trainer(trainer, error, [&](Trainer& t) { write_text(t.describe(format), buffer, capacity, size); });
}

}  // extern "C"
