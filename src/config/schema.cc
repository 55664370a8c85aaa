#include "config/schema.h"

namespace evn {
namespace {

constexpr std::uint64_t kMaxNumber = INT64_MAX;

DeviceConfig& device(ConfigDraft& d) { return d.config.devices.back(); }
PlacementRule& rule(ConfigDraft& d) { return d.config.rules.back(); }

using Draft = ConfigDraft&;
using Value = const KeyValue&;

constexpr KeyRow map_row(const char* path) { return {path, KeyType::kMap, "", 0, 0, "", 0, nullptr}; }
constexpr KeyRow text_row(const char* path, const char* fallback, void (*store)(Draft, Value)) {
  return {path, KeyType::kString, fallback, 0, 0, "", 0, store};
}
constexpr KeyRow texts_row(const char* path, void (*store)(Draft, Value)) {
  return {path, KeyType::kStrings, "", 0, 0, "", 0, store};
}
constexpr KeyRow flag_row(const char* path, const char* fallback, void (*store)(Draft, Value)) {
  return {path, KeyType::kBoolean, fallback, 0, 0, "", 0, store};
}
constexpr KeyRow limit_row(const char* path, KeyType type, const char* fallback, std::uint64_t max, void (*store)(Draft, Value)) {
  return {path, type, fallback, 1, max, "", 0, store};
}

constexpr KeyRow precision_row(const char* path, void (*store)(Draft, Value)) {
  return {path, KeyType::kChoice, "", 0, 0, kPrecisionWords, 0, store};
}
Precision precision_of(Value v) { return static_cast<Precision>(v.number + static_cast<std::uint64_t>(Precision::kFloat32)); }
constexpr KeyRow numerics_row(const char* path, void (*store)(Draft, Value)) {
  return {path, KeyType::kChoice, "", 0, 0, kNumericsWords, 0, store};
}
Numerics numerics_of(Value v) { return static_cast<Numerics>(v.number + static_cast<std::uint64_t>(Numerics::kFast)); }

constexpr KeyRow kRows[] = {
    {"version", KeyType::kInteger, "1", 1, 1, "", 0, nullptr},

    map_row("limits"),
    limit_row("limits.model_bytes", KeyType::kBytes, "2GiB", kMaxNumber,
              [](Draft d, Value v) { d.config.limits.model_bytes = v.number; }),
    limit_row("limits.nodes", KeyType::kInteger, "1000000", 1'000'000'000,
              [](Draft d, Value v) { d.config.limits.nodes = v.number; }),
    limit_row("limits.nesting", KeyType::kInteger, "64", 256, [](Draft d, Value v) { d.config.limits.nesting = v.number; }),
    limit_row("limits.tensor_bytes", KeyType::kBytes, "8GiB", kMaxNumber,
              [](Draft d, Value v) { d.config.limits.tensor_bytes = v.number; }),
    limit_row("limits.load_time", KeyType::kDuration, "5min", kMaxNumber,
              [](Draft d, Value v) { d.config.limits.load_time_ns = v.number; }),
    limit_row("limits.loop_iterations", KeyType::kInteger, "1000000", kMaxNumber,
              [](Draft d, Value v) { d.config.limits.loop_iterations = v.number; }),
    {"limits.run_time", KeyType::kDuration, "none", 1, kMaxNumber, "none", 0,
     [](Draft d, Value v) { d.config.limits.run_time_ns = v.number; }},

    {"devices", KeyType::kNames, "", 0, 0, "", 0, nullptr},
    map_row("devices.*"),
    {"devices.*.type", KeyType::kChoice, nullptr, 0, 0, "cpu|opencl", 0, [](Draft d, Value v) { device(d).type = v.text; }},
    {"devices.*.match", KeyType::kMap, "", 0, 0, "", 0, [](Draft d, Value v) { d.device_places.back().match = v.offset; }},
    text_row("devices.*.match.vendor", "\"*\"", [](Draft d, Value v) { device(d).match_vendor = v.text; }),
    text_row("devices.*.match.device", "\"*\"", [](Draft d, Value v) { device(d).match_device = v.text; }),
    text_row("devices.*.match.platform", "\"*\"", [](Draft d, Value v) { device(d).match_platform = v.text; }),
    {"devices.*.match.kind", KeyType::kChoice, "any", 0, 0, "any|gpu|cpu|accelerator", 0,
     [](Draft d, Value v) { device(d).match_kind = v.text; }},
    {"devices.*.match.index", KeyType::kInteger, "0", 0, 255, "", 0,
     [](Draft d, Value v) { device(d).match_index = static_cast<int>(v.number); }},
    {"devices.*.threads", KeyType::kInteger, "auto", 1, 1024, "auto", 0,
     [](Draft d, Value v) {
       device(d).threads = static_cast<int>(v.number);
       d.device_places.back().threads = v.offset;
     }},
    {"devices.*.spin", KeyType::kDuration, "30us", 1, 10'000'000, "none", 0,
     [](Draft d, Value v) {
       device(d).spin_ns = v.number;
       d.device_places.back().spin = v.offset;
     }},
    {"devices.*.memory_limit", KeyType::kBytes, "none", 4096, kMaxNumber, "none", UINT64_MAX,
     [](Draft d, Value v) { device(d).memory_limit = v.number; }},
    {"devices.*.clblast", KeyType::kChoice, "auto", 0, 0, "auto|always|never", 0,
     [](Draft d, Value v) {
       device(d).clblast = v.text;
       d.device_places.back().clblast = v.offset;
     }},
    precision_row("devices.*.precision", [](Draft d, Value v) { device(d).precision = precision_of(v); }),
    flag_row("devices.*.optional", "false", [](Draft d, Value v) { device(d).optional = v.number != 0; }),

    map_row("placement"),
    text_row("placement.default", "auto",
             [](Draft d, Value v) {
               d.config.default_device = v.text == "auto" ? "" : v.text;
               d.config.default_line = v.line;
               d.default_place = v.offset;
             }),
    {"placement.rules", KeyType::kList, "", 0, 0, "", 0, nullptr},
    map_row("placement.rules.*"),
    map_row("placement.rules.*.match"),
    texts_row("placement.rules.*.match.op", [](Draft d, Value v) { rule(d).ops = v.texts; }),
    texts_row("placement.rules.*.match.name", [](Draft d, Value v) { rule(d).names = v.texts; }),
    texts_row("placement.rules.*.match.model", [](Draft d, Value v) { rule(d).models = v.texts; }),
    text_row("placement.rules.*.device", "",
             [](Draft d, Value v) {
               rule(d).device = v.text;
               d.rule_places.back().device = v.offset;
             }),
    {"placement.rules.*.policy", KeyType::kChoice, "require", 0, 0, "require|prefer|forbid", 0,
     [](Draft d, Value v) {
       rule(d).policy = static_cast<Policy>(v.number);
       d.rule_places.back().policy = v.offset;
     }},
    precision_row("placement.rules.*.precision", [](Draft d, Value v) { rule(d).precision = precision_of(v); }),
    numerics_row("placement.rules.*.numerics", [](Draft d, Value v) { rule(d).numerics = numerics_of(v); }),

    map_row("session"),
    precision_row("session.precision", [](Draft d, Value v) { d.config.session.precision = precision_of(v); }),
    numerics_row("session.numerics", [](Draft d, Value v) { d.config.session.numerics = numerics_of(v); }),
    texts_row("session.keep_fp32", [](Draft d, Value v) { d.config.session.keep_fp32 = v.texts; }),

    map_row("passes"),
    texts_row("passes.disable",
              [](Draft d, Value v) {
                d.config.disabled_passes = v.texts;
                d.config.passes_line = v.line;
              }),

    map_row("cache"),
    text_row("cache.file", "none", [](Draft d, Value v) { d.config.cache.file = v.text == "none" ? "" : v.text; }),
    flag_row("cache.write", "true", [](Draft d, Value v) { d.config.cache.write = v.number != 0; }),
    flag_row("cache.map", "false", [](Draft d, Value v) { d.config.cache.map = v.number != 0; }),
};

}  // namespace

std::span<const KeyRow> config_schema() { return kRows; }

const char* key_type_name(KeyType type) {
  switch (type) {
    case KeyType::kMap: return "map";
    case KeyType::kNames: return "names";
    case KeyType::kList: return "list";
    case KeyType::kInteger: return "integer";
    case KeyType::kBytes: return "bytes";
    case KeyType::kDuration: return "duration";
    case KeyType::kBoolean: return "boolean";
    case KeyType::kString: return "string";
    case KeyType::kStrings: return "strings";
    case KeyType::kChoice: return "choice";
  }
  return "";
}

}  // namespace evn
