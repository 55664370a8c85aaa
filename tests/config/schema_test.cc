// config/schema.yaml and config/examples/ against the table that the library reads by.
#include "config/schema.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "config/yaml.h"
#include "tests/config/support.h"

namespace evn {
namespace {

std::string read_text_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream.good()) << path;
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::filesystem::path config_folder() { return std::filesystem::path(EVN_SOURCE_DIR) / "config"; }

// The entries of schema.yaml in order: the texts of each by key.
std::vector<std::map<std::string, std::string>> documented_keys() {
  const std::string text = read_text_file(config_folder() / "schema.yaml");
  const YamlSource source = check_yaml_text(text, "schema.yaml");
  const YamlNode root = parse_yaml(source);
  std::vector<std::map<std::string, std::string>> entries;
  for (const YamlNode& item : root.items.at(1).items) {
    std::map<std::string, std::string> entry;
    for (std::size_t i = 0; i + 1 < item.items.size(); i += 2) entry[item.items[i].text] = item.items[i + 1].text;
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string words_of(std::string words) {
  for (std::size_t bar = words.find('|'); bar != std::string::npos; bar = words.find('|', bar + 3)) words.replace(bar, 1, " | ");
  return words;
}

std::string range_of(const Setting& setting) {
  if (setting.max == 0) return "";
  const std::string unit = setting.type == SettingType::kDuration ? "ns" : "";
  return std::to_string(setting.min) + unit + " .. " + std::to_string(setting.max) + unit;
}

// All keys: those of the configuration, and behind those of every device the options of each device type.
struct Key {
  std::string path;
  std::string device_type;  // "": of the configuration
  Setting setting;
};

std::vector<Key> all_keys() {
  std::vector<Key> keys;
  for (const KeyRow& row : config_schema()) {
    keys.push_back({row.setting.name, "", row.setting});
    if (keys.back().path != "devices.*.optional") continue;
    for (const DeviceType& type : builtin_device_types()) {
      for (const DeviceOption& option : type.options) {
        keys.push_back({std::string("devices.*.") + option.setting.name, type.name, option.setting});
      }
    }
  }
  return keys;
}

TEST(ConfigSchema, DocumentsExactlyTheKeysOfTheTables) {
  const auto documented = documented_keys();
  const std::vector<Key> keys = all_keys();
  ASSERT_EQ(documented.size(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Setting& setting = keys[i].setting;
    const std::string& path = keys[i].path;
    auto entry = documented[i];
    EXPECT_EQ(entry["path"], path);
    EXPECT_EQ(entry["type"], setting_type_name(setting.type)) << path;
    EXPECT_EQ(entry["device_type"], keys[i].device_type) << path;
    EXPECT_EQ(entry["default"], setting.fallback == nullptr ? "(required)" : setting.fallback) << path;
    EXPECT_EQ(entry["range"], range_of(setting)) << path;
    EXPECT_EQ(entry["words"], path == "devices.*.type" ? "cpu | opencl" : words_of(setting.words)) << path;
    EXPECT_GT(entry["about"].size(), 10u) << path;
  }
}

TEST(ConfigSchema, ExamplesOfKeysParseAndUseTheKey) {
  for (auto& entry : documented_keys()) {
    const Error e = config_error(entry["example"]);
    EXPECT_EQ(e.status, EVN_OK) << entry["path"] << ": " << e.message;
    const std::string path = entry["path"];
    const std::string name = path.substr(path.rfind('.') + 1);
    if (name != "*") {
      EXPECT_NE(entry["example"].find(name + ":"), std::string::npos) << path;
    }
  }
}

// A configuration that writes the defaults out means the same as one that does not.
TEST(ConfigSchema, DocumentedDefaultsAreTheStructs) {
  std::map<std::string, std::string> fallback;
  for (const Key& key : all_keys()) fallback[key.path] = key.setting.fallback == nullptr ? "" : key.setting.fallback;
  const auto entry = [&](const std::string& path) { return path.substr(path.rfind('.') + 1) + ": " + fallback.at(path); };
  std::string text = "limits: {";
  for (const char* key : {"model_bytes", "nodes", "nesting", "tensor_bytes", "load_time", "loop_iterations", "run_time"}) {
    text += entry(std::string("limits.") + key) + ", ";
  }
  text += "}\ndevices:\n  g:\n    type: opencl\n    " + entry("devices.*.memory_limit") + "\n    " + entry("devices.*.optional") +
          "\n    match: {";
  for (const char* key : {"vendor", "device", "platform", "kind", "index"})
    text += entry(std::string("devices.*.match.") + key) + ", ";
  text += "}\n  cpu: {type: cpu, " + entry("devices.*.threads") + "}\nplacement:\n  " + entry("placement.objective") + "\n  " +
          entry("placement.measure") + "\n  rules: [{device: g, " + entry("placement.rules.*.policy") + "}]\ncache: {";
  for (const char* key : {"file", "write", "map"}) text += entry(std::string("cache.") + key) + ", ";
  text += "}\n";
  const Error e = config_error(text);
  ASSERT_EQ(e.status, EVN_OK) << text << e.message;

  const Config c = parse_config(text, "");
  const Limits limits;
  EXPECT_EQ(c.limits.model_bytes, limits.model_bytes);
  EXPECT_EQ(c.limits.nodes, limits.nodes);
  EXPECT_EQ(c.limits.nesting, limits.nesting);
  EXPECT_EQ(c.limits.tensor_bytes, limits.tensor_bytes);
  EXPECT_EQ(c.limits.load_time_ns, limits.load_time_ns);
  EXPECT_EQ(c.limits.loop_iterations, limits.loop_iterations);
  EXPECT_EQ(c.limits.run_time_ns, limits.run_time_ns);
  const DeviceConfig device;
  const DeviceConfig& g = *c.find_device("g");
  EXPECT_EQ(g.memory_limit, device.memory_limit);
  EXPECT_EQ(g.optional, device.optional);
  for (const char* key : {"match.vendor", "match.device", "match.platform"}) EXPECT_EQ(g.settings.text(key, ""), "*");
  EXPECT_EQ(g.settings.text("match.kind", ""), "any");
  EXPECT_EQ(g.settings.number("match.index", 7), 0u);
  EXPECT_EQ(c.find_device("cpu")->settings.number("threads", 7), 0u);  // which is what DeviceRequest says without it
  EXPECT_EQ(c.default_devices, Config{}.default_devices);
  EXPECT_EQ(c.objective, Config{}.objective);
  EXPECT_EQ(c.measure_costs, Config{}.measure_costs);
  EXPECT_EQ(c.rules[0].policy, PlacementRule{}.policy);
  EXPECT_EQ(c.cache.file, CacheConfig{}.file);
  EXPECT_EQ(c.cache.write, CacheConfig{}.write);
  EXPECT_EQ(c.cache.map, CacheConfig{}.map);
}

TEST(ConfigSchema, EveryExampleFileLoads) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(config_folder() / "examples")) {
    ASSERT_EQ(entry.path().extension(), ".yaml");
    EXPECT_NO_THROW(load_config(entry.path().string()))
        << entry.path() << ": " << config_error(read_text_file(entry.path())).message;
    ++files;
  }
  EXPECT_GE(files, 5);
}

TEST(ConfigSchema, OcrExamplePutsTheDetectorOnOpenClOnly) {
  const Config c = load_config((config_folder() / "examples" / "ocr-cpu-opencl.yaml").string());
  ASSERT_EQ(c.rules.size(), 1u);
  EXPECT_EQ(c.default_devices, std::vector<std::string>{"cpu"});
  EXPECT_EQ(c.find_device(c.rules[0].devices.at(0))->type, "opencl");
  EXPECT_EQ(c.rules[0].policy, Policy::kRequire);
  EXPECT_EQ(c.rules[0].models, std::vector<std::string>{"*det*"});
}

}  // namespace
}  // namespace evn
