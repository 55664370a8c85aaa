// evn_trainer_*: through the module (train_module.h).
#include <mutex>

#include "api/barrier.h"
#include "api/model_source.h"
#include "api/objects.h"
#include "api/train_host.h"
#include "base/mutex.h"

namespace evn {
namespace {

// A handle of the module's own: the host may release what it has given.
class OwnHandle {
 public:
  OwnHandle() = default;
  OwnHandle(void* handle, HandleKind kind) : handle_(handle), kind_(kind) {}
  OwnHandle(OwnHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), kind_(other.kind_) {}
  OwnHandle& operator=(OwnHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(kind_, other.kind_);
    return *this;
  }
  ~OwnHandle() {
    if (handle_ != nullptr) g_handles.release(handle_, kind_);
  }
  void* get() const { return handle_; }

 private:
  void* handle_ = nullptr;
  HandleKind kind_ = HandleKind::kRuntime;
};

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
  Mutex mutex;
  void* trainer = nullptr;
};
using TrainerPtr = std::shared_ptr<TrainerObject>;

// Throws what a function of the module has reported.
void check(evn_status status, const evn_error& reported) {
  if (status == EVN_OK) return;
  throw make_error(status, "%s", reported.message)
      .with_node(reported.node)
      .with_device(reported.device)
      .with_bytes(reported.bytes_requested, reported.bytes_available);
}

}  // namespace

template <>
struct HandleTraits<TrainerPtr> {
  static constexpr HandleKind kind = HandleKind::kTrainer;
  static constexpr const char* name = "trainer";
};

namespace {

// Calls a function of the module for the trainer behind the handle.
template <typename F, typename... Args>
void forward(evn_trainer trainer, F evn_train_module_table::*function, Args... args) {
  const Pin<TrainerPtr> pin(trainer);
  TrainerObject& t = **pin;
  const std::lock_guard<Mutex> lock(t.mutex);
  evn_error reported = EVN_ERROR_INIT;
  check((t.table.*function)(t.trainer, args..., &reported), reported);
}

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
    made->runtime = OwnHandle(make_handle(*r), HandleKind::kRuntime);
    if (o.cancel != nullptr) {
      made->cancel = OwnHandle(make_handle(*Pin<CancelPtr>(o.cancel)), HandleKind::kCancel);
      o.cancel = static_cast<evn_cancel>(made->cancel.get());
    }
    evn_error reported = EVN_ERROR_INIT;
    check(made->table.create(static_cast<evn_runtime>(made->runtime.get()), path, &o, &made->trainer, &reported), reported);
    *trainer = static_cast<evn_trainer>(make_handle(std::move(made)));
  });
}

evn_status evn_trainer_release(evn_trainer trainer) {
  if (trainer == nullptr) return EVN_OK;
  return g_handles.release(trainer, HandleKind::kTrainer) ? EVN_OK : EVN_ERROR_INVALID_HANDLE;
}

evn_status evn_trainer_input_count(evn_trainer trainer, uint32_t* count, evn_error* error) {
  return guarded(error, [&] {
    require(count != nullptr, "count");
    forward(trainer, &evn_train_module_table::input_count, count);
  });
}

evn_status evn_trainer_find_input(evn_trainer trainer, const char* name, uint32_t* index, evn_error* error) {
  return guarded(error, [&] {
    require(name != nullptr, "name");
    require(index != nullptr, "index");
    forward(trainer, &evn_train_module_table::find_input, name, index);
  });
}

evn_status evn_trainer_step(evn_trainer trainer, const evn_tensor* inputs, uint32_t input_count, evn_tensor labels,
                            evn_step_info* info, evn_error* error) {
  return guarded(error, [&] {
    evn_step_info full = EVN_STEP_INFO_INIT;
    if (info != nullptr) write_info(info, full);  // its size is right before anything is done
    forward(trainer, &evn_train_module_table::step, inputs, input_count, labels, &full);
    if (info != nullptr) write_info(info, full);
  });
}

evn_status evn_trainer_evaluate(evn_trainer trainer, const evn_tensor* inputs, uint32_t input_count, evn_tensor labels,
                                evn_evaluation* evaluation, evn_error* error) {
  return guarded(error, [&] {
    evn_evaluation full = EVN_EVALUATION_INIT;
    write_info(evaluation, full);
    forward(trainer, &evn_train_module_table::evaluate, inputs, input_count, labels, &full);
    write_info(evaluation, full);
  });
}

evn_status evn_trainer_note_metric(evn_trainer trainer, double value, evn_error* error) {
  return guarded(error, [&] { forward(trainer, &evn_train_module_table::note_metric, value); });
}

evn_status evn_trainer_set_learning_rate(evn_trainer trainer, double rate, evn_error* error) {
  return guarded(error, [&] { forward(trainer, &evn_train_module_table::set_learning_rate, rate); });
}

evn_status evn_trainer_parameter_count(evn_trainer trainer, uint32_t* count, evn_error* error) {
  return guarded(error, [&] {
    require(count != nullptr, "count");
    forward(trainer, &evn_train_module_table::parameter_count, count);
  });
}

evn_status evn_trainer_parameter_name(evn_trainer trainer, uint32_t index, char* buffer, size_t capacity, size_t* size,
                                      evn_error* error) {
  return guarded(error, [&] {
    const char* name = nullptr;
    forward(trainer, &evn_train_module_table::parameter_name, index, &name);
    write_text(name, buffer, capacity, size);
  });
}

evn_status evn_trainer_get_parameter(evn_trainer trainer, uint32_t index, evn_parameter_part part, evn_tensor* tensor,
                                     evn_error* error) {
  return guarded(error, [&] {
    require(tensor != nullptr, "tensor");
    forward(trainer, &evn_train_module_table::get_parameter, index, part, tensor);
  });
}

evn_status evn_trainer_save(evn_trainer trainer, const char* path, evn_error* error) {
  return guarded(error, [&] {
    require(path != nullptr, "path");
    forward(trainer, &evn_train_module_table::save, path);
  });
}

evn_status evn_trainer_restore(evn_trainer trainer, const char* path, evn_error* error) {
  return guarded(error, [&] {
    require(path != nullptr, "path");
    forward(trainer, &evn_train_module_table::restore, path);
  });
}

evn_status evn_trainer_finish(evn_trainer trainer, evn_model* model, evn_error* error) {
  return guarded(error, [&] {
    require(model != nullptr, "model");
    forward(trainer, &evn_train_module_table::finish, model);
  });
}

evn_status evn_trainer_export(evn_trainer trainer, const char* path, evn_error* error) {
  return guarded(error, [&] {
    require(path != nullptr, "path");
    forward(trainer, &evn_train_module_table::write_model, path);
  });
}

evn_status evn_trainer_describe(evn_trainer trainer, evn_format format, char* buffer, size_t capacity, size_t* size,
                                evn_error* error) {
  return guarded(error, [&] {
    const Pin<TrainerPtr> pin(trainer);
    TrainerObject& t = **pin;
    const std::lock_guard<Mutex> lock(t.mutex);
    const char* text = nullptr;
    size_t length = 0;
    evn_error reported = EVN_ERROR_INIT;
    check(t.table.describe(t.trainer, format, &text, &length, &reported), reported);
    write_text(std::string(text, length), buffer, capacity, size);
  });
}

}  // extern "C"
