// Sessions of one identity in which other inputs with a default are open. docs/decisions/0091-inputs-with-a-default.md
#include <algorithm>

#include "base/error.h"
#include "core/name_map.h"
#include "runtime/session/session.h"

namespace evn {
namespace {

constexpr std::size_t kMostOpened = 8;  // kept by a session

}  // namespace

// Values of open inputs for runs that do not give them, and what it takes to open others.
void Session::set_default_values(const SessionRequest& request) {
  const std::vector<InputDefault>& defaults = compiled_.model->model.defaults;
  if (defaults.empty() || request.is_body || request.is_part) return;
  request_ = std::make_unique<const SessionRequest>(request);
  default_values_.resize(defaults.size());
  for (std::size_t d = 0; d < defaults.size(); ++d) {
    if (defaults[d].value == nullptr) continue;
    auto value = std::make_shared<RuntimeValue>();
    value->desc = defaults[d].value->desc;
    value->data = defaults[d].value->data;
    default_values_[d] = tensor_of(runtime(), value);
  }
}

std::vector<std::shared_ptr<Session>> Session::opened() const {
  const std::lock_guard<Mutex> lock(opened_mutex_);
  return opened_;
}

std::shared_ptr<Session> Session::with_inputs(std::span<const std::uint8_t> given) {
  const std::vector<InputDefault>& defaults = compiled_.model->model.defaults;
  std::vector<std::string> names;
  for (std::size_t d = 0; d < given.size(); ++d) {
    if (given[d] != 0 && defaults[d].input < 0) names.push_back(defaults[d].declared.name);
  }
  return with_open_inputs(names);
}

// In the model's order; without those that have lost a device.
std::shared_ptr<Session> Session::find_opened(std::span<const std::string> names) {
  const auto fits = [&](const std::shared_ptr<Session>& s) {
    const std::vector<std::string>& open = s->compiled_.model->open_inputs;
    const std::vector<Device*> used = s->devices();
    return std::equal(open.begin(), open.end(), names.begin(), names.end()) &&
           std::none_of(used.begin(), used.end(), [](const Device* d) { return d->is_out(); });
  };
  const std::lock_guard<Mutex> lock(opened_mutex_);
  const auto it = std::find_if(opened_.begin(), opened_.end(), fits);
  if (it == opened_.end()) return nullptr;
  std::rotate(opened_.begin(), it, it + 1);
  return opened_.front();
}

std::shared_ptr<Session> Session::with_open_inputs(std::span<const std::string> names) {
  const NameViewSet own = set_of(compiled_.model->open_inputs), asked = set_of(names);
  const auto is_open = [&](const std::string& name) {
    cancellation_point(kNameWork);
    return own.contains(name);
  };
  if (std::all_of(names.begin(), names.end(), is_open)) return shared_from_this();
  std::vector<std::string> wanted;
  for (const InputDefault& d : compiled_.model->model.defaults) {
    const std::string& name = d.declared.name;
    if (is_open(name) || asked.contains(name)) wanted.push_back(name);
  }
  if (std::shared_ptr<Session> found = find_opened(wanted)) return found;
  EVN_CHECK(request_ != nullptr);
  const std::uint64_t begin_ns = os::now_ns();
  SessionRequest request = *request_;
  request.identity = identity_;
  const std::shared_ptr<Session> made(
      new Session(evn::with_open_inputs(compiled_.model, wanted), request, {}, arenas_, group_, begin_ns));
  made->tracing_ = tracing_;
  if (std::shared_ptr<Session> found = find_opened(wanted)) return found;  // another thread was first
  std::shared_ptr<Session> dropped;                                        // goes without the lock
  const std::lock_guard<Mutex> lock(opened_mutex_);
  opened_.insert(opened_.begin(), made);
  if (opened_.size() > kMostOpened) {
    dropped = std::move(opened_.back());
    opened_.pop_back();
  }
  return made;
}

}  // namespace evn
