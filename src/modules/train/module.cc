// libevener_train.so: the table of device/train_module.h. Nothing is thrown across it.
#include <algorithm>

#include "base/fault.h"
#include "base/guarded.h"
#include "base/heap.h"
#include "modules/train/loader.h"
#include "modules/train/trainer.h"

namespace evn_train {

const evn_train_host* g_host = nullptr;

namespace {

using evn::guarded;

Trainer& of(void* trainer) { return *static_cast<Trainer*>(trainer); }

void require(const void* pointer, const char* what) {
  if (pointer == nullptr) fail(EVN_ERROR_INVALID_ARGUMENT, "%s is NULL", what);
}

std::span<const evn_tensor> span_of(const evn_tensor* tensors, std::uint32_t count) {
  if (tensors == nullptr && count > 0) fail(EVN_ERROR_INVALID_ARGUMENT, "inputs is NULL");
  return {tensors, count};
}

evn_status create(evn_runtime runtime, const char* path, const evn_trainer_options* options, void** trainer, evn_error* error) {
  return guarded(error, [&] { *trainer = new Trainer(runtime, path, *options); });
}

void release(void* trainer) { delete static_cast<Trainer*>(trainer); }

evn_status input_count(void* trainer, std::uint32_t* count, evn_error* error) {
  return guarded(error, [&] {
    require(count, "count");
    *count = static_cast<std::uint32_t>(of(trainer).inputs().size());
  });
}

evn_status find_input(void* trainer, const char* name, std::uint32_t* index, evn_error* error) {
  return guarded(error, [&] {
    require(name, "name");
    require(index, "index");
    const auto& inputs = of(trainer).inputs();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].name != name) continue;
      *index = static_cast<std::uint32_t>(i);
      return;
    }
    constexpr std::size_t kMostShown = 300;
    std::string names;
    for (const auto& input : inputs) {
      if (names.size() > kMostShown) break;
      names += (names.empty() ? "" : ", ") + input.name;
    }
    const auto& defaults = of(trainer).defaults();
    if (std::any_of(defaults.begin(), defaults.end(), [&](const OnnxValue& d) { return d.name == name; })) {
      fail(EVN_ERROR_INVALID_ARGUMENT,
           "input \"%.128s\" has a default, which counts in all batches: a trainer takes no other values", name);
    }
    fail(EVN_ERROR_INVALID_ARGUMENT, "there is no input \"%.128s\"; there are: %.300s", name, names.c_str());
  });
}

evn_status step(void* trainer, const evn_tensor* inputs, std::uint32_t count, evn_tensor labels, evn_step_info* info,
                evn_error* error) {
  return guarded(error, [&] { of(trainer).step(span_of(inputs, count), labels, info); });
}

evn_status evaluate(void* trainer, const evn_tensor* inputs, std::uint32_t count, evn_tensor labels, evn_evaluation* evaluation,
                    evn_error* error) {
  return guarded(error, [&] { of(trainer).evaluate(span_of(inputs, count), labels, evaluation); });
}

evn_status note_metric(void* trainer, double value, evn_error* error) {
  return guarded(error, [&] { of(trainer).note_metric(value); });
}

evn_status set_learning_rate(void* trainer, double rate, evn_error* error) {
  return guarded(error, [&] { of(trainer).set_learning_rate(rate); });
}

evn_status parameter_count(void* trainer, std::uint32_t* count, evn_error* error) {
  return guarded(error, [&] {
    require(count, "count");
    *count = static_cast<std::uint32_t>(of(trainer).parameters().size());
  });
}

evn_status parameter_name(void* trainer, std::uint32_t index, const char** name, evn_error* error) {
  return guarded(error, [&] {
    const auto& all = of(trainer).parameters();
    if (index >= all.size()) fail(EVN_ERROR_INVALID_ARGUMENT, "there is no parameter %u, there are %zu", index, all.size());
    *name = all[index].name.c_str();
  });
}

evn_status get_parameter(void* trainer, std::uint32_t index, evn_parameter_part part, evn_tensor* tensor, evn_error* error) {
  return guarded(error, [&] {
    require(tensor, "tensor");
    *tensor = of(trainer).copy_of(index, part);
  });
}

evn_status save(void* trainer, const char* path, evn_error* error) {
  return guarded(error, [&] {
    require(path, "path");
    of(trainer).save(path);
  });
}

evn_status restore(void* trainer, const char* path, evn_error* error) {
  return guarded(error, [&] {
    require(path, "path");
    of(trainer).restore(path);
  });
}

evn_status finish(void* trainer, evn_model* model, evn_error* error) {
  return guarded(error, [&] {
    require(model, "model");
    *model = of(trainer).finish();
  });
}

evn_status write_model(void* trainer, const char* path, evn_error* error) {
  return guarded(error, [&] {
    require(path, "path");
    of(trainer).write_model(path);
  });
}

evn_status describe(void* trainer, evn_format format, const char** text, std::size_t* size, evn_error* error) {
  return guarded(error, [&] {
    const std::string& made = of(trainer).describe(format);
    *text = made.c_str();
    *size = made.size();
  });
}

Loader& loader_of(void* loader) { return *static_cast<Loader*>(loader); }

evn_status loader_create(evn_runtime runtime, const evn_loader_options* options, void** loader, evn_error* error) {
  return guarded(error, [&] { *loader = new Loader(runtime, *options); });
}

evn_status loader_start_epoch(void* loader, std::uint64_t epoch, std::uint64_t first_batch, evn_error* error) {
  return guarded(error, [&] { loader_of(loader).start_epoch(epoch, first_batch); });
}

evn_status loader_next(void* loader, evn_tensor* tensors, std::uint32_t tensor_count, std::uint32_t* samples, evn_error* error) {
  return guarded(error, [&] {
    require(tensors, "tensors");
    require(samples, "samples");
    *samples = loader_of(loader).next({tensors, tensor_count});
  });
}

evn_status loader_batch_count(void* loader, std::uint64_t* count, evn_error* error) {
  return guarded(error, [&] {
    require(count, "count");
    *count = loader_of(loader).batch_count();
  });
}

evn_status loader_stop(void* loader, evn_error* error) {
  return guarded(error, [&] { loader_of(loader).stop(); });
}

void loader_release(void* loader) { delete static_cast<Loader*>(loader); }

constexpr evn_train_module_table kTable = {
    .abi = EVN_TRAIN_MODULE_ABI,
    .version = EVN_VERSION_NUMBER,
    .create = create,
    .release = release,
    .input_count = input_count,
    .find_input = find_input,
    .step = step,
    .evaluate = evaluate,
    .note_metric = note_metric,
    .set_learning_rate = set_learning_rate,
    .parameter_count = parameter_count,
    .parameter_name = parameter_name,
    .get_parameter = get_parameter,
    .save = save,
    .restore = restore,
    .finish = finish,
    .write_model = write_model,
    .describe = describe,
    .loader_create = loader_create,
    .loader_start_epoch = loader_start_epoch,
    .loader_next = loader_next,
    .loader_batch_count = loader_batch_count,
    .loader_stop = loader_stop,
    .loader_release = loader_release,
};

}  // namespace
}  // namespace evn_train

extern "C" __attribute__((visibility("default"))) void evn_fault_seams(void* seams) { evn::fault_take_seams(seams); }
extern "C" __attribute__((visibility("default"))) void evn_heap_meters(evn::HeapMeterOf meters) { evn::heap_use_meters(meters); }

extern "C" __attribute__((visibility("default"))) const evn_train_module_table* evn_train_module(const evn_train_host* host) {
  evn_train::g_host = host;
  return &evn_train::kTable;
}
