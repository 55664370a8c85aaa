// The walk from a YAML tree to a Config, by the table in schema.cc and those of the device types.
#include "config/config.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/os/beneath.h"
#include "base/os/os.h"
#include "base/text.h"
#include "config/check.h"
#include "config/schema.h"
#include "config/value.h"
#include "config/yaml.h"

namespace evn {
namespace {

constexpr char kDevicePath[] = "devices.*.";  // what options of device types stand below
constexpr char kRulesPath[] = "placement.rules";
constexpr std::string_view kBatchingPath = "models.*.batching";

class ConfigReader {
 public:
  ConfigReader(const YamlSource& source, std::span<const DeviceType> types) : source_(source), types_(types) {}

  ConfigDraft read(const YamlNode& root) {
    if (root.kind != YamlNode::Kind::kMap && root.kind != YamlNode::Kind::kNull) {
      source_.fail_at(root.offset, "a configuration is a map of keys such as \"devices\" and \"placement\"");
    }
    read_map("", root);
    check_config(source_, draft_);
    return std::move(draft_);
  }

 private:
  // Adds the last part of a path that is one below `parent`.
  static void add_below(std::string_view parent, std::string_view path, std::vector<std::string_view>* names) {
    const std::size_t dot = path.rfind('.');
    const std::string_view above = dot == std::string_view::npos ? "" : path.substr(0, dot);
    if (above == parent) names->push_back(dot == std::string_view::npos ? path : path.substr(dot + 1));
  }

  static std::vector<std::string_view> names_below(std::string_view parent) {
    std::vector<std::string_view> names;
    for (const KeyRow& row : config_schema()) add_below(parent, row.setting.name, &names);
    return names;
  }

  static void add_options(const DeviceType& type, std::string_view parent, std::vector<std::string_view>* names) {
    for (const DeviceOption& option : type.options) add_below(parent, option.setting.name, names);
  }

  static const KeyRow* find_row(std::string_view path) {
    for (const KeyRow& row : config_schema()) {
      if (row.setting.name == path) return &row;
    }
    return nullptr;
  }

  // "devices.*.threads" as "devices.NAME.threads".
  static std::string readable(std::string_view path) {
    std::string text(path);
    if (const std::size_t star = text.find(".*"); star != std::string::npos) {
      text.replace(star, 2, text.starts_with("devices") || text.starts_with("models") ? ".NAME" : "[]");
    }
    return text;
  }

  // `names`: what may stand here.
  [[noreturn]] void fail_unknown(const std::vector<std::string_view>& names, const YamlNode& key) const {
    const std::string shown = shorten(key.text, 60);
    const std::string near(nearest(key.text, names));
    if (!near.empty()) source_.fail_at(key.offset, "unknown key \"%s\"; did you mean \"%s\"?", shown.c_str(), near.c_str());
    const auto check = [&](const std::string& path) {
      if (path.substr(path.rfind('.') + 1) != key.text) return;
      source_.fail_at(key.offset, "unknown key \"%s\" here; it belongs to %s", shown.c_str(), readable(path).c_str());
    };
    for (const KeyRow& row : config_schema()) check(row.setting.name);
    for (const DeviceType& type : types_) {
      for (const DeviceOption& option : type.options) check(std::string(kDevicePath) + option.setting.name);
    }
    std::string list;
    for (const std::string_view name : names) list += (list.empty() ? "" : ", ") + std::string(name);
    source_.fail_at(key.offset, "unknown key \"%s\"; here may stand: %s", shown.c_str(), list.c_str());
  }

  // Else it could name a row further down.
  static bool is_plain(const YamlNode& key) { return key.text.find_first_of(".*") == std::string::npos; }

  void read_map(const std::string& path, const YamlNode& map) {
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const YamlNode& key = map.items[i];
      const KeyRow* const row = is_plain(key) ? find_row(path.empty() ? key.text : path + "." + key.text) : nullptr;
      if (row == nullptr) fail_unknown(names_below(path), key);
      if (row->setting.name == kBatchingPath) draft_.model_places.back().batching = key.offset;
      read_entry(*row, key, map.items[i + 1]);
    }
  }

  static bool is_empty(const YamlNode& value) { return value.kind == YamlNode::Kind::kNull; }

  // A section without a value ("limits:") is an empty one.
  void check_map(const char* path, const YamlNode& value) const {
    if (!is_empty(value) && value.kind != YamlNode::Kind::kMap) source_.fail_at(value.offset, "\"%s\" must be a map", path);
  }

  void read_entry(const KeyRow& row, const YamlNode& key, const YamlNode& value) {
    const char* const path = row.setting.name;
    switch (row.setting.type) {
      case SettingType::kMap: check_map(path, value); return read_map(path, value);
      case SettingType::kNames:
        check_map(path, value);
        return std::string_view(path) == "devices" ? read_devices(value) : read_models(value);
      case SettingType::kList:
        if (!is_empty(value) && value.kind != YamlNode::Kind::kList) source_.fail_at(value.offset, "\"%s\" must be a list", path);
        return std::string_view(path) == kRulesPath ? read_rules(value) : read_warm(value);
      default: {
        const KeyValue read = read_value(source_, row.setting, key, value);
        if (row.store != nullptr) row.store(draft_, read);
      }
    }
  }

  std::string type_names(const char* between) const {
    std::string names;
    for (const DeviceType& type : types_) {
      names += (names.empty() ? "" : &type == &types_.back() && *between == ',' ? " or " : between) + std::string(type.name);
    }
    return names;
  }

  // Read before the device's other keys, which are its options.
  const DeviceType& read_type(const std::string& name, const YamlNode& name_key, const YamlNode& map) {
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      if (map.items[i].text != "type") continue;
      const std::string words = type_names("|");
      const KeyRow& row = *find_row("devices.*.type");
      Setting setting = row.setting;
      setting.words = words.c_str();
      const KeyValue read = read_value(source_, setting, map.items[i], map.items[i + 1]);
      row.store(draft_, read);
      return types_[read.number];
    }
    source_.fail_at(name_key.offset, "the device \"%s\" needs a \"type\": %s", name.c_str(), type_names(", ").c_str());
  }

  static const DeviceOption* find_option(const DeviceType& type, std::string_view name) {
    for (const DeviceOption& option : type.options) {
      if (option.setting.name == name) return &option;
    }
    return nullptr;
  }

  [[noreturn]] void fail_unknown_option(const DeviceType& type, const std::string& parent, const YamlNode& key,
                                        const YamlNode& value) const {
    const std::string name = parent.empty() ? key.text : parent + "." + key.text;
    for (const DeviceType& other : types_) {
      if (!is_plain(key) || find_option(other, name) == nullptr) continue;
      source_.fail_at(value.offset, "\"%s\" is for devices of type %s; \"%s\" is of type %s", name.c_str(), other.name,
                      draft_.config.devices.back().name.c_str(), type.name);
    }
    std::vector<std::string_view> names = names_below(parent.empty() ? "devices.*" : kDevicePath + parent);
    add_options(type, parent, &names);
    fail_unknown(names, key);
  }

  // `parent`: "" for the keys of the device itself, "match" for those below it.
  void read_device(const DeviceType& type, const std::string& parent, const YamlNode& map) {
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const YamlNode& key = map.items[i];
      const YamlNode& value = map.items[i + 1];
      const std::string name = parent.empty() ? key.text : parent + "." + key.text;
      const std::string path = kDevicePath + name;
      if (const KeyRow* const row = is_plain(key) ? find_row(path) : nullptr) {
        if (path != "devices.*.type") read_entry(*row, key, value);
        continue;
      }
      const DeviceOption* const option = is_plain(key) ? find_option(type, name) : nullptr;
      if (option == nullptr) fail_unknown_option(type, parent, key, value);
      if (option->setting.type == SettingType::kMap) {
        check_map(path.c_str(), value);
        read_device(type, name, value);
        continue;
      }
      Setting setting = option->setting;
      setting.name = path.c_str();
      draft_.config.devices.back().settings.set(option->setting.name, read_value(source_, setting, key, value));
    }
  }

  void read_devices(const YamlNode& map) {
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const YamlNode& key = map.items[i];
      const YamlNode& value = map.items[i + 1];
      DeviceConfig device;
      device.name = read_text(source_, "a name of devices", key);
      device.line = key.line;
      if (!is_empty(value) && value.kind != YamlNode::Kind::kMap) {
        source_.fail_at(value.offset, "the device \"%s\" must be a map with a \"type\"", shorten(device.name, 60).c_str());
      }
      const std::string shown = shorten(device.name, 60);
      draft_.config.devices.push_back(std::move(device));
      draft_.device_places.push_back(key.offset);
      read_device(read_type(shown, key, value), "", value);
    }
  }

  void read_models(const YamlNode& map) {
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const YamlNode& key = map.items[i];
      const YamlNode& value = map.items[i + 1];
      ModelConfig model;
      model.name = read_text(source_, "a name of models", key);
      model.line = key.line;
      model.session.idle_arena_bytes = 0;
      if (!is_empty(value) && value.kind != YamlNode::Kind::kMap) {
        source_.fail_at(value.offset, "the model \"%s\" must be a map with a \"path\"", shorten(model.name, 60).c_str());
      }
      draft_.config.models.push_back(std::move(model));
      draft_.model_places.emplace_back();
      draft_.model_places.back().name = key.offset;
      read_map("models.*", value);
    }
  }

  void read_warm(const YamlNode& list) {
    const Setting& dims = find_row("models.*.warm.*.*")->setting;
    for (const YamlNode& item : list.items) {
      if (item.kind != YamlNode::Kind::kMap) {
        source_.fail_at(item.offset, "an element of \"warm\" must be a map from inputs to their dims, as in {x: [1, 3, 640, 640]}");
      }
      WarmRun run;
      run.line = item.line;
      for (std::size_t i = 0; i + 1 < item.items.size(); i += 2) {
        const YamlNode& key = item.items[i];
        WarmRun::Input input;
        input.name = read_text(source_, "a name of inputs", key);
        Setting setting = dims;
        const std::string shown = shorten(input.name, 60);
        setting.name = shown.c_str();
        const KeyValue read = read_value(source_, setting, key, item.items[i + 1]);
        input.dims.assign(read.numbers.begin(), read.numbers.end());
        run.inputs.push_back(std::move(input));
      }
      draft_.config.models.back().warm.push_back(std::move(run));
    }
  }

  void read_rules(const YamlNode& list) {
    std::string element(kRulesPath);
    element += ".*";
    for (const YamlNode& item : list.items) {
      if (item.kind != YamlNode::Kind::kMap)
        source_.fail_at(item.offset, "a rule must be a map with a \"device\", a \"precision\", \"numerics\" or \"products\"");
      PlacementRule rule;
      rule.line = item.line;
      draft_.config.rules.push_back(std::move(rule));
      draft_.rule_places.push_back({item.offset, 0, 0, 0});
      read_map(element, item);
    }
  }

  const YamlSource& source_;
  const std::span<const DeviceType> types_;
  ConfigDraft draft_;
};

Config read_config(const std::string& text, const std::string& source, std::span<const DeviceType> types) {
  const std::string name = source.empty() ? "<text>" : source;
  const YamlSource checked = check_yaml_text(text, name);
  ConfigReader reader(checked, types);
  Config config = reader.read(parse_yaml(checked)).config;
  config.source = source;
  return config;
}

// Makes relative paths begin in `folder`, which ends in /, also if the process changes its folder later.
void set_folder(Config& config, const std::string& folder) {
  for (std::string& root : config.files.allowed_roots) {
    if (root[0] != '/') root.insert(0, folder);
  }
  if (!config.models.empty()) config.folder = folder;
}

}  // namespace

Config parse_config(const std::string& text, const std::string& source, std::span<const DeviceType> types) {
  Config config = read_config(text, source, types);
  set_folder(config, os::current_folder() + "/");
  return config;
}

Config load_config(const std::string& path, std::span<const DeviceType> types) {
  const os::FileBytes file = os::read_file(path, kMaxYamlBytes, nullptr, MemoryClass::kLoading);
  Config config = read_config(std::string(static_cast<const char*>(file.data.get()), file.size), path, types);
  const std::size_t slash = path.rfind('/');
  for (std::string* own : {&config.cache.file, &config.recording.folder}) {
    if (!own->empty() && (*own)[0] != '/' && slash != std::string::npos) own->insert(0, path, 0, slash + 1);
  }
  std::string folder = path[0] == '/' ? std::string() : os::current_folder() + "/";
  if (slash != std::string::npos) folder.append(path, 0, slash + 1);
  set_folder(config, folder);
  return config;
}

}  // namespace evn
