#include "config/schema.h"

namespace evn {
namespace {

constexpr std::uint64_t kMaxNumber = INT64_MAX;

DeviceConfig& device(ConfigDraft& d) { return d.config.devices.back(); }
PlacementRule& rule(ConfigDraft& d) { return d.config.rules.back(); }
ModelConfig& model(ConfigDraft& d) { return d.config.models.back(); }
BatchingConfig& model_batching(ConfigDraft& d) { return model(d).session.batching; }
CacheConfig& cache(ConfigDraft& d) {
  std::optional<CacheConfig>& own = model(d).cache;
  return own ? *own : own.emplace();
}

// A map that has any key has them all.
BatchingConfig& batching(ConfigDraft& d) {
  BatchingConfig& b = d.config.session.batching;
  if (b.max_batch == 0) b.max_batch = kDefaultMaxBatch;
  return b;
}

using Draft = ConfigDraft&;
using Value = const KeyValue&;

constexpr KeyRow map_row(const char* path) { return {{path, SettingType::kMap}}; }
constexpr KeyRow text_row(const char* path, const char* fallback, void (*store)(Draft, Value)) {
  return {{path, SettingType::kText, fallback}, store};
}
constexpr KeyRow texts_row(const char* path, void (*store)(Draft, Value)) { return {{path, SettingType::kTexts}, store}; }
constexpr KeyRow flag_row(const char* path, const char* fallback, void (*store)(Draft, Value)) {
  return {{path, SettingType::kBoolean, fallback}, store};
}
constexpr KeyRow limit_row(const char* path, SettingType type, const char* fallback, std::uint64_t max,
                           void (*store)(Draft, Value)) {
  return {{path, type, fallback, 1, max}, store};
}
constexpr KeyRow choice_row(const char* path, const char* fallback, const char* words, void (*store)(Draft, Value)) {
  return {{.name = path, .type = SettingType::kChoice, .fallback = fallback, .words = words}, store};
}
constexpr KeyRow precision_row(const char* path, void (*store)(Draft, Value)) {
  return choice_row(path, "", kPrecisionWords, store);
}
Precision precision_of(Value v) { return static_cast<Precision>(v.number + static_cast<std::uint64_t>(Precision::kFloat32)); }
constexpr KeyRow numerics_row(const char* path, void (*store)(Draft, Value)) { return choice_row(path, "", kNumericsWords, store); }
Numerics numerics_of(Value v) { return static_cast<Numerics>(v.number + static_cast<std::uint64_t>(Numerics::kFast)); }
constexpr KeyRow products_row(const char* path, void (*store)(Draft, Value)) { return choice_row(path, "", kProductsWords, store); }
Products products_of(Value v) { return static_cast<Products>(v.number + static_cast<std::uint64_t>(Products::kOwn)); }
constexpr KeyRow memory_row(const char* path, void (*store)(Draft, Value)) { return choice_row(path, "", kMemoryPlanWords, store); }
MemoryPlan memory_of(Value v) { return static_cast<MemoryPlan>(v.number + static_cast<std::uint64_t>(MemoryPlan::kFast)); }
std::size_t place_if_true(Value v) { return v.number != 0 ? v.offset : 0; }

constexpr KeyRow
    kRows[] =
        {
            {{"version", SettingType::kInteger, "1", 1, 1}},

            map_row("limits"),
            limit_row("limits.model_bytes", SettingType::kBytes, "2GiB", kMaxNumber,
                      [](Draft d, Value v) { d.config.limits.model_bytes = v.number; }),
            limit_row("limits.nodes", SettingType::kInteger, "1000000", 1'000'000'000,
                      [](Draft d, Value v) { d.config.limits.nodes = v.number; }),
            limit_row("limits.nesting", SettingType::kInteger, "64", 256,
                      [](Draft d, Value v) { d.config.limits.nesting = v.number; }),
            limit_row("limits.tensor_bytes", SettingType::kBytes, "8GiB", kMaxNumber,
                      [](Draft d, Value v) { d.config.limits.tensor_bytes = v.number; }),
            limit_row("limits.load_time", SettingType::kDuration, "5min", kMaxNumber,
                      [](Draft d, Value v) { d.config.limits.load_time_ns = v.number; }),
            limit_row("limits.loop_iterations", SettingType::kInteger, "1000000", kMaxNumber,
                      [](Draft d, Value v) { d.config.limits.loop_iterations = v.number; }),
            {{"limits.run_time", SettingType::kDuration, "none", 1, kMaxNumber, "none", 0},
             [](Draft d, Value v) { d.config.limits.run_time_ns = v.number; }},
            limit_row("limits.queued_requests", SettingType::kInteger, "65536", 1'000'000'000,
                      [](Draft d, Value v) { d.config.limits.queued_requests = v.number; }),
            limit_row("limits.overdue_time", SettingType::kDuration, "1s", kMaxNumber,
                      [](Draft d, Value v) { d.config.limits.overdue_time_ns = v.number; }),

            map_row("probe"),
            text_row("probe.program", "none", [](Draft d, Value v) { d.config.probe.program = v.text == "none" ? "" : v.text; }),
            limit_row("probe.timeout", SettingType::kDuration, "5s", kMaxNumber,
                      [](Draft d, Value v) { d.config.probe.timeout_ns = v.number; }),

            {{"devices", SettingType::kNames}},
            map_row("devices.*"),
            choice_row("devices.*.type", nullptr, "", [](Draft d, Value v) { device(d).type = v.text; }),
            {{"devices.*.memory_limit", SettingType::kBytes, "none", 4096, kMaxNumber, "none", UINT64_MAX},
             [](Draft d, Value v) { device(d).memory_limit = v.number; }},
            {{"devices.*.cache_limit", SettingType::kBytes, "none", 0, kMaxNumber, "none", UINT64_MAX},
             [](Draft d, Value v) { device(d).cache_limit = v.number; }},
            choice_row("devices.*.trim", "never", "never|idle|always", [](Draft d, Value v) { device(d).trim = v.number; }),
            precision_row("devices.*.precision", [](Draft d, Value v) { device(d).precision = precision_of(v); }),
            products_row("devices.*.products", [](Draft d, Value v) { device(d).products = products_of(v); }),
            flag_row("devices.*.optional", "false", [](Draft d, Value v) { device(d).optional = v.number != 0; }),

            map_row("placement"),
            texts_row("placement.default",
                      [](Draft d, Value v) {
                        d.config.default_devices = v.texts;
                        d.config.default_line = v.line;
                        d.default_place = v.offset;
                      }),
            texts_row("placement.split",
                      [](Draft d, Value v) {
                        d.config.split_devices = v.texts;
                        d.config.split_line = v.line;
                        d.split_place = v.offset;
                      }),
            choice_row("placement.on_device_lost", "fail", "fail|move",
                       [](Draft d, Value v) { d.config.moves_off_lost_devices = v.number == 1; }),
            choice_row("placement.objective", "latency", "latency|throughput|memory",
                       [](Draft d, Value v) { d.config.objective = static_cast<Objective>(v.number); }),
            flag_row("placement.measure", "true", [](Draft d, Value v) { d.config.measure_costs = v.number != 0; }),
            {{"placement.rules", SettingType::kList}},
            map_row("placement.rules.*"),
            map_row("placement.rules.*.match"),
            texts_row("placement.rules.*.match.op", [](Draft d, Value v) { rule(d).ops = v.texts; }),
            texts_row("placement.rules.*.match.name", [](Draft d, Value v) { rule(d).names = v.texts; }),
            texts_row("placement.rules.*.match.model", [](Draft d, Value v) { rule(d).models = v.texts; }),
            texts_row("placement.rules.*.device",
                      [](Draft d, Value v) {
                        rule(d).devices = v.texts;
                        d.rule_places.back().device = v.offset;
                      }),
            texts_row("placement.rules.*.split",
                      [](Draft d, Value v) {
                        rule(d).split = v.texts;
                        d.rule_places.back().split = v.offset;
                      }),
            choice_row("placement.rules.*.policy", "require", "require|prefer|forbid",
                       [](Draft d, Value v) {
                         rule(d).policy = static_cast<Policy>(v.number);
                         d.rule_places.back().policy = v.offset;
                       }),
            precision_row("placement.rules.*.precision", [](Draft d, Value v) { rule(d).precision = precision_of(v); }),
            numerics_row("placement.rules.*.numerics", [](Draft d, Value v) { rule(d).numerics = numerics_of(v); }),
            products_row("placement.rules.*.products", [](Draft d, Value v) { rule(d).products = products_of(v); }),
            flag_row("placement.rules.*.measure",
                     "false", [](Draft d, Value v) { d.rule_places.back().measure = place_if_true(v); }),

            map_row("session"),
            precision_row("session.precision", [](Draft d, Value v) { d.config.session.precision = precision_of(v); }),
            numerics_row("session.numerics", [](Draft d, Value v) { d.config.session.numerics = numerics_of(v); }),
            products_row("session.products", [](Draft d, Value v) { d.config.session.products = products_of(v); }),
            flag_row("session.measure", "false", [](Draft d, Value v) { d.measure_place = place_if_true(v); }),
            {{"session.concurrency", SettingType::kInteger, "auto", 1, 1024, "auto", 0},
             [](Draft d, Value v) { d.config.session.concurrency = static_cast<int>(v.number); }},
            {{"session.idle_arena_bytes", SettingType::kBytes, "1GiB", 1, kMaxNumber},
             [](Draft d, Value v) { d.config.session.idle_arena_bytes = v.number; }},
            memory_row("session.memory", [](Draft d, Value v) { d.config.session.memory = memory_of(v); }),
            flag_row("session.share_arenas", "false", [](Draft d, Value v) { d.config.session.share_arenas = v.number != 0; }),
            map_row("session.batching"),
            {{"session.batching.max_batch", SettingType::kInteger, "8", 2, kMostMaxBatch},
             [](Draft d, Value v) { batching(d).max_batch = static_cast<int>(v.number); }},
            {{"session.batching.max_delay", SettingType::kDuration, "none", 1, kMaxNumber, "none", 0},
             [](Draft d, Value v) { batching(d).max_delay_ns = v.number; }},
            text_row("session.batching.mask", "", [](Draft d, Value v) { batching(d).mask = v.text; }),
            {{.name = "session.batching.buckets", .type = SettingType::kIntegers, .min = 1, .max = kMaxNumber},
             [](Draft d, Value v) {
               batching(d).buckets.assign(v.numbers.begin(), v.numbers.end());
               d.buckets_place = v.offset;
             }},
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

            map_row("recording"),
            text_row("recording.folder", "none",
                     [](Draft d, Value v) { d.config.recording.folder = v.text == "none" ? "" : v.text; }),
            limit_row("recording.runs", SettingType::kInteger, "100", 1'000'000,
                      [](Draft d, Value v) { d.config.recording.runs = v.number; }),

            map_row("files"),
            texts_row("files.allowed_roots", [](Draft d, Value v) { d.config.files.allowed_roots = v.texts; }),
            flag_row("files.map", "false", [](Draft d, Value v) { d.config.files.map = v.number != 0; }),

            {{"models", SettingType::kNames}},
            map_row("models.*"),
            text_row("models.*.path", nullptr,
                     [](Draft d, Value v) {
                       model(d).path = v.text;
                       d.model_places.back().path = v.offset;
                     }),
            texts_row("models.*.device",
                      [](Draft d, Value v) {
                        model(d).devices = v.texts;
                        d.model_places.back().device = v.offset;
                      }),
            precision_row("models.*.precision", [](Draft d, Value v) { model(d).session.precision = precision_of(v); }),
            numerics_row("models.*.numerics", [](Draft d, Value v) { model(d).session.numerics = numerics_of(v); }),
            products_row("models.*.products", [](Draft d, Value v) { model(d).session.products = products_of(v); }),
            flag_row("models.*.measure", "false", [](Draft d, Value v) { d.model_places.back().measure = place_if_true(v); }),
            texts_row("models.*.keep_fp32", [](Draft d, Value v) { model(d).session.keep_fp32 = v.texts; }),
            texts_row("models.*.disabled_passes", [](Draft d, Value v) { model(d).disabled_passes = v.texts; }),
            texts_row("models.*.overridable", [](Draft d, Value v) { model(d).overridable = v.texts; }),
            {{"models.*.concurrency", SettingType::kInteger, "", 1, 1024},
             [](Draft d, Value v) { model(d).session.concurrency = static_cast<int>(v.number); }},
            map_row("models.*.batching"),
            {{"models.*.batching.max_batch", SettingType::kInteger, "", 2, 65536},
             [](Draft d, Value v) { model_batching(d).max_batch = static_cast<int>(v.number); }},
            {{"models.*.batching.max_delay", SettingType::kDuration, "none", 1, kMaxNumber, "none", 0},
             [](Draft d, Value v) { model_batching(d).max_delay_ns = v.number; }},
            text_row("models.*.batching.mask", "", [](Draft d, Value v) { model_batching(d).mask = v.text; }),
            {{"models.*.batching.buckets", SettingType::kIntegers, "", 1, kMaxNumber},
             [](Draft d, Value v) { model_batching(d).buckets.assign(v.numbers.begin(), v.numbers.end()); }},
            {{"models.*.idle_arena_bytes", SettingType::kBytes, "", 1, kMaxNumber},
             [](Draft d, Value v) { model(d).session.idle_arena_bytes = v.number; }},
            memory_row("models.*.memory", [](Draft d, Value v) { model(d).session.memory = memory_of(v); }),
            text_row("models.*.cache", "",
                     [](Draft d, Value v) {
                       cache(d).file = v.text == "none" ? "" : v.text;
                       d.model_places.back().cache = v.offset;
                     }),
            flag_row("models.*.cache_write", "true", [](Draft d, Value v) { cache(d).write = v.number != 0; }),
            flag_row("models.*.cache_map", "false", [](Draft d, Value v) { cache(d).map = v.number != 0; }),
            {{"models.*.warm", SettingType::kList}},
            {{"models.*.warm.*", SettingType::kNames}},
            {{"models.*.warm.*.*", SettingType::kIntegers, "", 0, kMaxNumber}},
};

}  // namespace

std::span<const KeyRow> config_schema() { return kRows; }

const char* setting_type_name(SettingType type) {
  switch (type) {
    case SettingType::kMap: return "map";
    case SettingType::kNames: return "names";
    case SettingType::kList: return "list";
    case SettingType::kInteger: return "integer";
    case SettingType::kBytes: return "bytes";
    case SettingType::kDuration: return "duration";
    case SettingType::kBoolean: return "boolean";
    case SettingType::kText: return "string";
    case SettingType::kTexts: return "strings";
    case SettingType::kIntegers: return "integers";
    case SettingType::kChoice: return "choice";
  }
  return "";
}

}  // namespace evn
