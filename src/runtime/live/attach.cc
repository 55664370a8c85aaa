// Devices that the host has opened itself, and shares with the runtime.
#include <algorithm>

#include "base/error.h"
#include "runtime/live/device_request.h"
#include "runtime/objects/runtime.h"

namespace evn {

void Runtime::require_free_name(const std::string& name) const {
  std::string why;
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  constexpr std::string_view kRest = "0123456789_.-";
  const auto is_letter = [&](char c) { return kLetters.find(c) != std::string_view::npos; };
  const bool known = std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || kRest.find(c) != kRest.npos; });
  if (name.empty() || name.size() >= sizeof(evn_device_info::name) || !known || !is_letter(name[0]))
    fail(EVN_ERROR_INVALID_ARGUMENT, "a device's name begins with a letter and has at most 63 letters, digits and _ . -");
  const SettingsPtr settings = this->settings();
  if (known_device(name, *settings, &why) != nullptr || settings->config.find_device(name) != nullptr)
    fail(EVN_ERROR_INVALID_ARGUMENT, "there is a device %s already", name.c_str());
  const bool is_type = means_device(name);
  if (is_type || name == "auto") fail(EVN_ERROR_INVALID_ARGUMENT, "the name %s means something else", name.c_str());
}

Device* Runtime::attach(const std::string& type, const std::string& name, const NativeObjects& objects,
                        std::uint64_t memory_limit) {
  const Backend* const b = backend(type);
  if (b == nullptr || b->attach == nullptr)
    fail(EVN_ERROR_UNSUPPORTED, "this build has no devices of type %s that a host can attach", type.c_str());
  const std::lock_guard<Mutex> one(
      live_.reconfiguring_);  // each makes settings from those that the other must not replace meanwhile
  const std::lock_guard<Mutex> opening(opening_);
  const SettingsPtr before = settings();
  const DeviceConfig* const named = before->config.find_device(name);
  std::string why;
  const bool is_expected = named != nullptr && named->type == type && is_attached(*named) && before->find(name, &why) == nullptr;
  DeviceRequest request;
  if (is_expected) {
    request = request_of(*named);
  } else {
    require_free_name(name);
    request.name = name;
  }
  if (memory_limit != 0) request.memory_limit = memory_limit;
  for (const Opened& o : opened_) {
    if (o.backend != b || o.identity != objects.device) continue;
    throw make_error(EVN_ERROR_WRONG_STATE,
                     "the device is open already, as %s, with a context of its own: attach it before it is first named",
                     o.device->name().c_str())
        .with_device(name.c_str());
  }
  // Sessions that are made from now on know the device; those that exist stay as they are.
  auto after = std::make_shared<Settings>(*before);
  after->generation = Settings::next_generation();
  std::erase_if(after->absent, [&](const Settings::Absent& a) { return a.name == name; });
  after->devices.push_back({name, nullptr});
  std::optional<DeviceConfig> configured;
  if (is_expected) configured = *named;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    devices_.reserve(devices_.size() + 1);
    asked_for_.reserve(asked_for_.size() + 1);
  }
  // Nothing fails behind open_new: a device that is open is one that the host can use.
  Opened& opened = open_new(*b, objects.device, std::move(request), &objects);
  opened.configured = std::move(configured);
  Device* const device = publish(opened);
  if (!is_expected) {
    note_asked_for(*before, device);
    return device;
  }
  after->devices.back().device = device;
  const std::lock_guard<std::mutex> lock(mutex_);
  settings_ = std::move(after);
  return device;
}

}  // namespace evn
