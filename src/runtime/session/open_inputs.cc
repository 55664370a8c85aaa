#include "runtime/session/open_inputs.h"

#include <algorithm>

#include "base/error.h"
#include "core/name_map.h"
#include "runtime/session/session.h"

namespace evn {
namespace {

constexpr std::size_t kMostOpened = 8;  // kept by a session

}  // namespace

OpenInputs::OpenInputs(Session& of, const LoadedModel& model, MakeOpened make) : of_(of), make_(std::move(make)) {
  const std::vector<InputDefault>& defaults = model.model.defaults;
  if (make_ == nullptr) return;
  default_values_.resize(defaults.size());
  for (std::size_t d = 0; d < defaults.size(); ++d) {
    if (defaults[d].value == nullptr) continue;
    auto value = std::make_shared<RuntimeValue>();
    value->desc = defaults[d].value->desc;
    value->data = defaults[d].value->data;
    default_values_[d] = tensor_of(model.runtime, value);
  }
}

std::vector<std::shared_ptr<Session>> OpenInputs::opened() const {
  const std::lock_guard<Mutex> lock(mutex_);
  return opened_;
}

std::shared_ptr<Session> OpenInputs::with(std::span<const std::uint8_t> given) {
  const std::vector<InputDefault>& defaults = of_.compiled().model->model.defaults;
  std::vector<std::string> names;
  for (std::size_t d = 0; d < given.size(); ++d) {
    if (given[d] != 0 && defaults[d].input < 0) names.push_back(defaults[d].declared.name);
  }
  return with(names);
}

// In the model's order; without those that have lost a device.
std::shared_ptr<Session> OpenInputs::find(std::span<const std::string> names) {
  const auto fits = [&](const std::shared_ptr<Session>& s) {
    const std::vector<std::string>& open = s->compiled().model->open_inputs;
    const std::vector<Device*> used = s->devices();
    return std::equal(open.begin(), open.end(), names.begin(), names.end()) &&
           std::none_of(used.begin(), used.end(), [](const Device* d) { return d->is_out(); });
  };
  const std::lock_guard<Mutex> lock(mutex_);
  const auto it = std::find_if(opened_.begin(), opened_.end(), fits);
  if (it == opened_.end()) return nullptr;
  std::rotate(opened_.begin(), it, it + 1);
  return opened_.front();
}

std::shared_ptr<Session> OpenInputs::with(std::span<const std::string> names) {
  const ModelPtr& model = of_.compiled().model;
  const NameViewSet own = set_of(model->open_inputs), asked = set_of(names);
  const auto is_open = [&](const std::string& name) {
    cancellation_point(kNameWork);
    return own.contains(name);
  };
  if (std::all_of(names.begin(), names.end(), is_open)) return of_.shared_from_this();
  std::vector<std::string> wanted;
  for (const InputDefault& d : model->model.defaults) {
    const std::string& name = d.declared.name;
    if (is_open(name) || asked.contains(name)) wanted.push_back(name);
  }
  if (std::shared_ptr<Session> found = find(wanted)) return found;
  EVN_CHECK(make_ != nullptr);
  const std::shared_ptr<Session> made = make_(with_open_inputs(model, wanted));
  if (std::shared_ptr<Session> found = find(wanted)) return found;  // another thread was first
  std::shared_ptr<Session> dropped;                                 // goes without the lock
  const std::lock_guard<Mutex> lock(mutex_);
  opened_.insert(opened_.begin(), made);
  if (opened_.size() > kMostOpened) {
    dropped = std::move(opened_.back());
    opened_.pop_back();
  }
  return made;
}

}  // namespace evn
