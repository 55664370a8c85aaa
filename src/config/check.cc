#include "config/check.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/text.h"

namespace evn {
namespace {

// Short enough for evn_device_info.name, and nothing that device strings such as "gpu:1" or a terminal could misread.
void check_name(const YamlSource& source, const char* what, const std::string& name, std::size_t offset) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const bool letters =
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == std::string::npos;
  if (!letters || kLetters.find(name[0]) == std::string_view::npos || name.size() > 63) {
    source.fail_at(offset, "the %s name \"%s\" must begin with a letter and have at most 63 letters, digits and _ . -", what,
                   shorten(name, 80).c_str());
  }
}

void check_devices(const YamlSource& source, ConfigDraft& draft) {
  const DeviceConfig* cpu = nullptr;
  for (std::size_t i = 0; i < draft.config.devices.size(); ++i) {
    const DeviceConfig& device = draft.config.devices[i];
    check_name(source, "device", device.name, draft.device_places[i]);
    if (device.name == "auto") {
      source.fail_at(draft.device_places[i], "a device cannot be called \"auto\": placement.default uses that word");
    }
    if (device.type != "cpu") {
      if (device.name != "cpu") continue;
      source.fail_at(draft.device_places[i], "the name \"cpu\" is for the device of type cpu, not for one of type %s",
                     device.type.c_str());
    }
    if (cpu != nullptr) {
      source.fail_at(draft.device_places[i], "the CPU is one device: \"%s\" at line %d is of type cpu already", cpu->name.c_str(),
                     cpu->line);
    }
    cpu = &device;
  }
  if (cpu != nullptr) return;
  DeviceConfig implied;
  implied.name = "cpu";
  implied.type = "cpu";
  draft.config.devices.insert(draft.config.devices.begin(), implied);
  draft.device_places.insert(draft.device_places.begin(), 0);
}

void check_reference(const YamlSource& source, const Config& config, const std::string& name, std::size_t offset) {
  if (config.find_device(name) != nullptr) return;
  if (name == kAutoDevice) {
    source.fail_at(offset, "\"auto\" stands alone, as the default or as a model's device: the placement is searched for");
  }
  std::vector<std::string_view> names;
  std::string list;
  for (const DeviceConfig& device : config.devices) {
    names.push_back(device.name);
    if (list.size() < 120) list += (list.empty() ? "" : ", ") + device.name;
  }
  const std::string near(nearest(name, names));
  const bool guess = !near.empty();
  source.fail_at(offset, "unknown device \"%s\"; %s%s%s", shorten(name, 60).c_str(),
                 guess ? "did you mean \"" : "there are: ", guess ? near.c_str() : list.c_str(), guess ? "\"?" : "");
}

// A list of preference, or, where `may_be_auto`, "auto" alone.
void check_references(const YamlSource& source, const Config& config, const std::vector<std::string>& names, std::size_t offset,
                      bool may_be_auto) {
  if (may_be_auto && names.size() == 1 && names[0] == kAutoDevice) return;
  for (auto name = names.begin(); name != names.end(); ++name) {
    check_reference(source, config, *name, offset);
    if (std::find(names.begin(), name, *name) != name) source.fail_at(offset, "the device \"%s\" is named twice", name->c_str());
  }
}

// Sees to `measure: true`, which stands at `place`.
void check_measure(const YamlSource& source, std::size_t place, Products* products) {
  if (place == 0) return;
  if (*products != Products::kDefault && *products != Products::kAuto) {
    source.fail_at(place, "\"measure\" is for \"products: auto\", not for %s", products_name(*products));
  }
  *products = Products::kMeasured;
}

// Texts of a rule's match in an order and form that two equal matches share.
std::string match_key(const PlacementRule& rule) {
  std::string key;
  for (const std::vector<std::string>* list : {&rule.ops, &rule.names, &rule.models}) {
    std::vector<std::string> sorted = *list;
    std::ranges::sort(sorted);
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    for (const std::string& text : sorted) key.append(text).push_back('\0');
    key.push_back('\1');
  }
  return key;
}

// The first match wins, so a second rule with the same match can only add a device to avoid, or say what the first does not.
bool contradict(const PlacementRule& a, const PlacementRule& b) {
  if (a.precision != Precision::kDefault && b.precision != Precision::kDefault) return true;
  if (a.numerics != Numerics::kDefault && b.numerics != Numerics::kDefault) return true;
  if (a.products != Products::kDefault && b.products != Products::kDefault) return true;
  const auto places = [](const PlacementRule& rule) { return !rule.devices.empty() || !rule.split.empty(); };
  if (!places(a) || !places(b)) return false;
  if (!a.split.empty() || !b.split.empty()) return true;
  if (a.policy != Policy::kForbid && b.policy != Policy::kForbid) return true;
  return a.devices == b.devices;
}

const char* subject(const PlacementRule& rule) {
  if (!rule.devices.empty()) return rule.devices[0].c_str();
  if (!rule.split.empty()) return rule.split[0].c_str();
  if (rule.products != Products::kDefault) return products_name(rule.products);
  return rule.precision != Precision::kDefault ? precision_name(rule.precision) : numerics_name(rule.numerics);
}

// The devices that share a node.
void check_split(const YamlSource& source, const Config& config, const PlacementRule& rule, const ConfigDraft::RulePlaces& places) {
  if (!rule.devices.empty()) source.fail_at(places.split, "a rule has a \"device\" or a \"split\", not both");
  if (rule.policy == Policy::kForbid) source.fail_at(places.policy, "\"policy: forbid\" is for rules with a \"device\"");
  check_references(source, config, rule.split, places.split, true);
  const bool is_auto = rule.split[0] == kAutoDevice;
  if (rule.split.size() == 1 && !is_auto)
    source.fail_at(places.split, "\"split\" needs two devices at least: [%s, ...], or auto", rule.split[0].c_str());
  if (rule.split.size() > kMostSplitDevices) source.fail_at(places.split, "\"split\" takes at most %zu devices", kMostSplitDevices);
}

void check_rules(const YamlSource& source, ConfigDraft& draft) {
  std::multimap<std::string, const PlacementRule*> seen;
  for (std::size_t i = 0; i < draft.config.rules.size(); ++i) {
    PlacementRule& rule = draft.config.rules[i];
    const ConfigDraft::RulePlaces& places = draft.rule_places[i];
    check_measure(source, places.measure, &rule.products);
    const bool has_products = rule.products != Products::kDefault;
    const bool has_place = !rule.devices.empty() || !rule.split.empty();
    if (!has_place && rule.precision == Precision::kDefault && rule.numerics == Numerics::kDefault && !has_products) {
      source.fail_at(places.rule, "the rule needs a \"device\", a \"split\", a \"precision\", \"numerics\" or \"products\"");
    }
    if (!rule.split.empty()) check_split(source, draft.config, rule, places);
    if (!has_place && places.policy != 0 && !has_products)
      source.fail_at(places.policy, "\"policy\" is for rules with a \"device\", a \"split\" or \"products\"");
    if (rule.policy == Policy::kForbid && has_products)
      source.fail_at(places.policy, "\"policy: forbid\" is for rules without \"products\"");
    check_references(source, draft.config, rule.devices, places.device, false);
    for (const std::string& op : rule.ops) {
      if (op.find_first_of("*?") == std::string::npos) continue;
      source.fail_at(places.rule, "\"op\" takes names of operators, not patterns: \"%s\"", shorten(op, 60).c_str());
    }
    const std::string key = match_key(rule);
    const auto [begin, end] = seen.equal_range(key);
    for (auto other = begin; other != end; ++other) {
      if (!contradict(*other->second, rule)) continue;
      source.fail_at(places.rule,
                     "conflicting rules: lines %d and %d have the same match, for \"%s\" and \"%s\"; the first match wins, so this "
                     "one would never count",
                     other->second->line, rule.line, subject(*other->second), subject(rule));
    }
    seen.emplace(key, &rule);
  }
}

// A relative path below the configuration's folder without its parts that are . or .., but for a / at its end. Links are found
// when it is opened.
std::string path_beneath(const YamlSource& source, const char* key, const std::string& text, std::size_t offset) {
  constexpr std::size_t kMostBytes = 4000;
  constexpr std::size_t kMostParts = 64;
  const auto refuse = [&](const char* why) { source.fail_at(offset, "\"%s\" %s: \"%s\"", key, why, shorten(text, 60).c_str()); };
  if (text[0] == '/') refuse("is an absolute path, and must be one below the folder of the configuration");
  if (text.size() > kMostBytes) refuse("is too long a path");
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      parts.push_back(part);
    } else if (parts.empty()) {
      refuse("leaves the folder of the configuration");
    } else {
      parts.pop_back();
    }
  }
  if (parts.size() > kMostParts) refuse("has too many parts");
  std::string path;
  for (const std::string_view part : parts) path.append(path.empty() ? "" : "/").append(part);
  const bool names_folder = text.back() == '/' || parts.empty() || text.ends_with("/.") || text.ends_with("/..");
  return path.empty() ? "./" : names_folder ? path + "/" : path;
}

void check_batching(const YamlSource& source, const BatchingConfig& batching, std::size_t offset) {
  if (batching.max_batch == 0) source.fail_at(offset, "\"batching\" needs a \"max_batch\"");
  if (const char* why = batching.why_wrong()) source.fail_at(offset, "\"batching\": %s", why);
}

void check_models(const YamlSource& source, ConfigDraft& draft) {
  for (std::size_t i = 0; i < draft.config.models.size(); ++i) {
    ModelConfig& model = draft.config.models[i];
    const ConfigDraft::ModelPlaces& places = draft.model_places[i];
    check_name(source, "model", model.name, places.name);
    if (model.path.empty()) source.fail_at(places.name, "the model \"%s\" needs a \"path\"", model.name.c_str());
    model.path = path_beneath(source, "path", model.path, places.path);
    if (model.path.back() == '/') source.fail_at(places.path, "\"path\" names a folder: \"%s\"", shorten(model.path, 60).c_str());
    check_references(source, draft.config, model.devices, places.device, true);
    check_measure(source, places.measure, &model.session.products);
    if (places.batching != 0) check_batching(source, model.session.batching, places.batching);
    if (!model.cache) continue;
    if (places.cache == 0) source.fail_at(places.name, "\"cache_write\" and \"cache_map\" are for models with a \"cache\"");
    if (!model.cache->file.empty()) model.cache->file = path_beneath(source, "cache", model.cache->file, places.cache);
  }
}

}  // namespace

void check_config(const YamlSource& source, ConfigDraft& draft) {
  check_devices(source, draft);
  check_references(source, draft.config, draft.config.default_devices, draft.default_place, true);
  check_references(source, draft.config, draft.config.split_devices, draft.split_place, false);
  if (draft.config.split_devices.size() == 1)
    source.fail_at(draft.split_place, "\"split\" needs two devices at least: [%s, ...]", draft.config.split_devices[0].c_str());
  check_rules(source, draft);
  check_measure(source, draft.measure_place, &draft.config.session.products);
  check_models(source, draft);
  if (const char* const why = draft.config.session.batching.why_wrong()) source.fail_at(draft.buckets_place, "%s", why);
}

}  // namespace evn
