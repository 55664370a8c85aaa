// The walk from a YAML tree to a Config, by the table in schema.cc.
#include "config/config.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/os/os.h"
#include "base/text.h"
#include "config/check.h"
#include "config/schema.h"
#include "config/value.h"
#include "config/yaml.h"

namespace evn {
namespace {

class ConfigReader {
 public:
  explicit ConfigReader(const YamlSource& source) : source_(source) {}

  ConfigDraft read(const YamlNode& root) {
    if (root.kind != YamlNode::Kind::kMap && root.kind != YamlNode::Kind::kNull) {
      source_.fail_at(root.offset, "a configuration is a map of keys such as \"devices\" and \"placement\"");
    }
    read_map("", root);
    check_config(source_, draft_);
    return std::move(draft_);
  }

 private:
  // Paths of table rows below `parent`, without it.
  static std::vector<std::string_view> names_below(std::string_view parent) {
    std::vector<std::string_view> names;
    for (const KeyRow& row : config_schema()) {
      const std::string_view path = row.path;
      const std::size_t dot = path.rfind('.');
      const std::string_view above = dot == std::string_view::npos ? "" : path.substr(0, dot);
      if (above == parent) names.push_back(dot == std::string_view::npos ? path : path.substr(dot + 1));
    }
    return names;
  }

  static const KeyRow* find_row(std::string_view path) {
    for (const KeyRow& row : config_schema()) {
      if (row.path == path) return &row;
    }
    return nullptr;
  }

  // "devices.*.threads" as "devices.NAME.threads".
  static std::string readable(std::string_view path) {
    std::string text(path);
    if (const std::size_t star = text.find(".*"); star != std::string::npos) {
      text.replace(star, 2, text.compare(0, 7, "devices") == 0 ? ".NAME" : "[]");
    }
    return text;
  }

  [[noreturn]] void fail_unknown(std::string_view parent, const YamlNode& key) const {
    const std::string shown = shorten(key.text, 60);
    const std::vector<std::string_view> names = names_below(parent);
    const std::string near(nearest(key.text, names));
    if (!near.empty()) source_.fail_at(key.offset, "unknown key \"%s\"; did you mean \"%s\"?", shown.c_str(), near.c_str());
    for (const KeyRow& row : config_schema()) {
      const std::string_view path = row.path;
      if (path.substr(path.rfind('.') + 1) != key.text) continue;
      source_.fail_at(key.offset, "unknown key \"%s\" here; it belongs to %s", shown.c_str(), readable(path).c_str());
    }
    std::string list;
    for (const std::string_view name : names) list += (list.empty() ? "" : ", ") + std::string(name);
    source_.fail_at(key.offset, "unknown key \"%s\"; here may stand: %s", shown.c_str(), list.c_str());
  }

  void read_map(const std::string& path, const YamlNode& map) {
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const YamlNode& key = map.items[i];
      const bool plain = key.text.find_first_of(".*") == std::string::npos;  // else it could name a row further down
      const KeyRow* const row = plain ? find_row(path.empty() ? key.text : path + "." + key.text) : nullptr;
      if (row == nullptr) fail_unknown(path, key);
      read_entry(*row, key, map.items[i + 1]);
    }
  }

  void read_entry(const KeyRow& row, const YamlNode& key, const YamlNode& value) {
    // A section without a value ("limits:") is an empty one.
    const bool empty = value.kind == YamlNode::Kind::kNull;
    switch (row.type) {
      case KeyType::kMap:
      case KeyType::kNames:
        if (!empty && value.kind != YamlNode::Kind::kMap) source_.fail_at(value.offset, "\"%s\" must be a map", row.path);
        if (row.store != nullptr) row.store(draft_, read_value(source_, row, key, value));
        if (row.type == KeyType::kMap) {
          read_map(row.path, value);
        } else {
          read_devices(row, value);
        }
        break;
      case KeyType::kList:
        if (!empty && value.kind != YamlNode::Kind::kList) source_.fail_at(value.offset, "\"%s\" must be a list", row.path);
        read_rules(row, value);
        break;
      default: {
        const KeyValue read = read_value(source_, row, key, value);
        if (row.store != nullptr) row.store(draft_, read);
      }
    }
  }

  void read_devices(const KeyRow& row, const YamlNode& map) {
    const std::string path = std::string(row.path) + ".*";
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const YamlNode& key = map.items[i];
      const YamlNode& value = map.items[i + 1];
      DeviceConfig device;
      device.name = read_text(source_, "a name of devices", key);
      device.line = key.line;
      if (value.kind != YamlNode::Kind::kMap && value.kind != YamlNode::Kind::kNull) {
        source_.fail_at(value.offset, "the device \"%s\" must be a map with a \"type\"", shorten(device.name, 60).c_str());
      }
      draft_.config.devices.push_back(std::move(device));
      draft_.device_places.push_back({key.offset, 0, 0, 0});
      read_map(path, value);
    }
  }

  void read_rules(const KeyRow& row, const YamlNode& list) {
    const std::string path = std::string(row.path) + ".*";
    for (const YamlNode& item : list.items) {
      if (item.kind != YamlNode::Kind::kMap)
        source_.fail_at(item.offset, "a rule must be a map with a \"device\", a \"precision\" or \"numerics\"");
      PlacementRule rule;
      rule.line = item.line;
      draft_.config.rules.push_back(std::move(rule));
      draft_.rule_places.push_back({item.offset, 0, 0});
      read_map(path, item);
    }
  }

  const YamlSource& source_;
  ConfigDraft draft_;
};

}  // namespace

const DeviceConfig* Config::find_device(const std::string& name) const {
  const auto found = std::find_if(devices.begin(), devices.end(), [&](const DeviceConfig& d) { return d.name == name; });
  return found == devices.end() ? nullptr : &*found;
}

Config parse_config(const std::string& text, const std::string& source) {
  const std::string name = source.empty() ? "<text>" : source;
  const YamlSource checked = check_yaml_text(text, name);
  ConfigReader reader(checked);
  Config config = reader.read(parse_yaml(checked)).config;
  config.source = source;
  return config;
}

Config load_config(const std::string& path) {
  const os::FileBytes file = os::read_file(path, kMaxYamlBytes, nullptr, MemoryClass::kLoading);
  Config config = parse_config(std::string(static_cast<const char*>(file.data.get()), file.size), path);
  const std::size_t slash = path.rfind('/');
  if (!config.cache.file.empty() && config.cache.file[0] != '/' && slash != std::string::npos) {
    config.cache.file.insert(0, path, 0, slash + 1);
  }
  return config;
}

}  // namespace evn
