// evn_trainer_*: through the module (train_module.h).
#include <mutex>
#include <optional>

#include "api/barrier.h"
#include "api/model_source.h"
#include "api/train_objects.h"
#include "base/mutex.h"

namespace evn {
namespace {

// What an evn_trainer refers to. One call at a time uses it.
struct TrainerObject {
  explicit TrainerObject(const evn_train_module_table& t) : table(t) {}
  ~TrainerObject() {
    if (trainer != nullptr) table.release(trainer);
  }
  TrainerObject(const TrainerObject&) = delete;
  TrainerObject& operator=(const TrainerObject&) = delete;

  const evn_train_module_table& table;
  OwnHandle runtime, cancel;
  Heap* heap = nullptr;  // of the runtime
  Mutex mutex;
  evn_reduce reduce = nullptr;
  void* reduce_context = nullptr;
  void* trainer = nullptr;
};

// All-reduce of the host, called in the host's floating-point environment.
evn_status reduce_by_host(void* context, void* data, uint64_t count, evn_dtype dtype, evn_error* error) {
  const auto& trainer = *static_cast<const TrainerObject*>(context);
  const HostFloatEnvironment hosts;
  return trainer.reduce(trainer.reduce_context, data, count, dtype, error);
}

using TrainerPtr = std::shared_ptr<TrainerObject>;

}  // namespace

template <>
struct HandleTraits<TrainerPtr> {
  static constexpr HandleKind kind = HandleKind::kTrainer;
  static constexpr const char* name = "trainer";
  static Heap* heap(const TrainerPtr& v) { return v->heap; }
};

namespace {

// A call of the module for the trainer behind a handle, which is pinned and nobody else's meanwhile. The module reports into the
// caller's error itself, and checks what it is given.
class Call {
 public:
  Call(evn_trainer trainer, evn_error* error) noexcept {
    status_ = guarded(error, [&] {
      pin_.emplace(trainer);
      lock_ = std::unique_lock<Mutex>((**pin_)->mutex);
    });
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Calls the function, unless the handle is not valid.
  template <typename F, typename... Args>
  evn_status operator()(F evn_train_module_table::*function, Args... args) const noexcept {
    return status_ != EVN_OK ? status_ : ((**pin_)->table.*function)((**pin_)->trainer, args...);
  }

 private:
  const LibraryFloatEnvironment floats_;  // first: the last pin of a trainer destroys it
  std::optional<Pin<TrainerPtr>> pin_;
  std::unique_lock<Mutex> lock_;
  evn_status status_;
};

}  // namespace
}  // namespace evn

using namespace evn;

extern "C" {

evn_status evn_trainer_create(evn_runtime runtime, const char* path, const evn_trainer_options* options, evn_trainer* trainer,
                              evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(trainer != nullptr, "trainer");
    static constexpr evn_trainer_options defaults = EVN_TRAINER_OPTIONS_INIT;
    evn_trainer_options o = read_options(options, defaults, sizeof(evn_trainer_options));
    read_source(path, o);  // checks it
    auto made = std::make_shared<TrainerObject>(train_module());
    (*r)->cpu().prepare_training();
    made->runtime = OwnHandle(make_handle(*r), HandleKind::kRuntime);
    made->heap = heap_of(*r);
    if (o.cancel != nullptr) {
      made->cancel = OwnHandle(make_handle(*Pin<CancelPtr>(o.cancel)), HandleKind::kCancel);
      o.cancel = static_cast<evn_cancel>(made->cancel.get());
    }
    if (o.reduce != nullptr) {
      made->reduce = std::exchange(o.reduce, reduce_by_host);
      made->reduce_context = std::exchange(o.reduce_context, made.get());
    }
    evn_error reported = EVN_ERROR_INIT;
    check_reported(made->table.create(static_cast<evn_runtime>(made->runtime.get()), path, &o, &made->trainer, &reported),
                   reported);
    *trainer = static_cast<evn_trainer>(make_handle(std::move(made)));
  });
}

evn_status evn_trainer_release(evn_trainer trainer) { return release_handle(trainer, HandleKind::kTrainer); }

evn_status evn_trainer_input_count(evn_trainer trainer, uint32_t* count, evn_error* error) {
  return Call(trainer, error)(&evn_train_module_table::input_count, count, error);
}

evn_status evn_trainer_find_input(evn_trainer trainer, const char* name, uint32_t* index, evn_error* error) {
  return Call(trainer, error)(&evn_train_module_table::find_input, name, index, error);
}

evn_status evn_trainer_step(evn_trainer trainer, const evn_tensor* inputs, uint32_t input_count, evn_tensor labels,
                            evn_step_info* info, evn_error* error) {
  evn_step_info full = EVN_STEP_INFO_INIT;
  const Call call(trainer, error);
  evn_status status = info == nullptr ? EVN_OK : guarded(error, [&] { check_info(info); });
  if (status == EVN_OK) status = call(&evn_train_module_table::step, inputs, input_count, labels, &full, error);
  if (status == EVN_OK && info != nullptr) write_info(info, full);
  return status;
}

evn_status evn_trainer_evaluate(evn_trainer trainer, const evn_tensor* inputs, uint32_t input_count, evn_tensor labels,
                                evn_evaluation* evaluation, evn_error* error) {
  evn_evaluation full = EVN_EVALUATION_INIT;
  const Call call(trainer, error);
  evn_status status = guarded(error, [&] { check_info(evaluation); });
  if (status == EVN_OK) status = call(&evn_train_module_table::evaluate, inputs, input_count, labels, &full, error);
  if (status == EVN_OK) write_info(evaluation, full);
  return status;
}

evn_status evn_trainer_note_metric(evn_trainer trainer, double value, evn_error* error) {
  return Call(trainer, error)(&evn_train_module_table::note_metric, value, error);
}

evn_status evn_trainer_set_learning_rate(evn_trainer trainer, double rate, evn_error* error) {
  return Call(trainer, error)(&evn_train_module_table::set_learning_rate, rate, error);
}

evn_status evn_trainer_parameter_count(evn_trainer trainer, uint32_t* count, evn_error* error) {
  return Call(trainer, error)(&evn_train_module_table::parameter_count, count, error);
}

evn_status evn_trainer_parameter_name(evn_trainer trainer, uint32_t index, char* buffer, size_t capacity, size_t* size,
                                      evn_error* error) {
  const Call call(trainer, error);
  const char* name = nullptr;
  const evn_status status = call(&evn_train_module_table::parameter_name, index, &name, error);
  return status != EVN_OK ? status : guarded(error, [&] { write_text(name, buffer, capacity, size); });
}

evn_status evn_trainer_get_parameter(evn_trainer trainer, uint32_t index, evn_parameter_part part, evn_tensor* tensor,
                                     evn_error* error) {
  return Call(trainer, error)(&evn_train_module_table::get_parameter, index, part, tensor, error);
}

evn_status evn_trainer_save(evn_trainer trainer, const char* path, evn_error* error) {
  return Call(trainer, error)(&evn_train_module_table::save, path, error);
}

evn_status evn_trainer_restore(evn_trainer trainer, const char* path, evn_error* error) {
  return Call(trainer, error)(&evn_train_module_table::restore, path, error);
}

evn_status evn_trainer_finish(evn_trainer trainer, evn_model* model, evn_error* error) {
  return Call(trainer, error)(&evn_train_module_table::finish, model, error);
}

evn_status evn_trainer_export(evn_trainer trainer, const char* path, evn_error* error) {
  return Call(trainer, error)(&evn_train_module_table::write_model, path, error);
}

evn_status evn_trainer_describe(evn_trainer trainer, evn_format format, char* buffer, size_t capacity, size_t* size,
                                evn_error* error) {
  const Call call(trainer, error);
  const char* text = nullptr;
  size_t length = 0;
  const evn_status status = call(&evn_train_module_table::describe, format, &text, &length, error);
  return status != EVN_OK ? status : guarded(error, [&] { write_text(std::string(text, length), buffer, capacity, size); });
}

}  // extern "C"
