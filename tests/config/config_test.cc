// What a correct configuration means, and what the checks beyond types refuse.
#include "config/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/config/support.h"

namespace evn {
namespace {

TEST(Config, EveryKeyReachesItsField) {
  const Config c = parse_config(R"(
version: 1
limits:
  model_bytes: 3MiB
  nodes: 11
  nesting: 12
  tensor_bytes: 4KiB
  load_time: 2s
  loop_iterations: 13
  run_time: 100us
devices:
  host: {type: cpu, threads: 3, memory_limit: 512MiB, cache_limit: 8MiB, trim: always}
  gpu:
    type: opencl
    match: {vendor: "*V*", device: "D?", platform: P*, kind: accelerator, index: 2}
    optional: true
placement:
  default: gpu
  rules:
    - match: {op: [Conv, "Gemm"], name: "decoder/*", model: [a*, b]}
      device: gpu
      policy: prefer
    - {device: host}
    - {match: {op: Relu}, device: gpu, policy: forbid}
)",
                                "x.yaml");
  EXPECT_EQ(c.source, "x.yaml");
  EXPECT_EQ(c.limits.model_bytes, 3u << 20);
  EXPECT_EQ(c.limits.nodes, 11u);
  EXPECT_EQ(c.limits.nesting, 12u);
  EXPECT_EQ(c.limits.tensor_bytes, 4096u);
  EXPECT_EQ(c.limits.load_time_ns, 2'000'000'000u);
  EXPECT_EQ(c.limits.loop_iterations, 13u);
  EXPECT_EQ(c.limits.run_time_ns, 100'000u);
  ASSERT_EQ(c.devices.size(), 2u);
  EXPECT_EQ(c.devices[0].name, "host");
  EXPECT_EQ(c.devices[0].type, "cpu");
  EXPECT_EQ(c.devices[0].settings.number("threads", 0), 3u);
  EXPECT_EQ(c.devices[0].memory_limit, 512u << 20);
  EXPECT_EQ(c.devices[0].cache_limit, 8u << 20);
  EXPECT_EQ(c.devices[0].trim, 2u);
  EXPECT_FALSE(c.devices[0].optional);
  EXPECT_EQ(c.devices[0].line, 12);
  const DeviceConfig& gpu = c.devices[1];
  EXPECT_EQ(gpu.type, "opencl");
  EXPECT_EQ(c.devices[0].settings.find("spin"), nullptr);
  EXPECT_EQ(gpu.settings.text("match.vendor", ""), "*V*");
  EXPECT_EQ(gpu.settings.text("match.device", ""), "D?");
  EXPECT_EQ(gpu.settings.text("match.platform", ""), "P*");
  EXPECT_EQ(gpu.settings.text("match.kind", ""), "accelerator");
  EXPECT_EQ(gpu.settings.number("match.index", 0), 2u);
  EXPECT_TRUE(gpu.optional);
  EXPECT_EQ(gpu.memory_limit, UINT64_MAX);
  EXPECT_EQ(gpu.cache_limit, UINT64_MAX);
  EXPECT_EQ(gpu.trim, 0u);
  EXPECT_EQ(c.find_device("gpu"), &gpu);
  EXPECT_EQ(c.find_device("npu"), nullptr);
  EXPECT_EQ(c.default_devices, std::vector<std::string>{"gpu"});
  EXPECT_EQ(c.default_line, 18);
  ASSERT_EQ(c.rules.size(), 3u);
  EXPECT_EQ(c.rules[0].ops, (std::vector<std::string>{"Conv", "Gemm"}));
  EXPECT_EQ(c.rules[0].names, std::vector<std::string>{"decoder/*"});
  EXPECT_EQ(c.rules[0].models, (std::vector<std::string>{"a*", "b"}));
  EXPECT_EQ(c.rules[0].devices, std::vector<std::string>{"gpu"});
  EXPECT_EQ(c.rules[0].policy, Policy::kPrefer);
  EXPECT_EQ(c.rules[0].line, 20);
  EXPECT_TRUE(c.rules[1].ops.empty() && c.rules[1].names.empty() && c.rules[1].models.empty());
  EXPECT_EQ(c.rules[1].policy, Policy::kRequire);
  EXPECT_EQ(c.rules[2].policy, Policy::kForbid);
}

TEST(Config, TheCacheIsInTheFolderOfTheFile) {
  const auto file_of = [](const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
    return load_config(path).cache.file;
  };
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  const std::string path = (folder / ("evener_config_" + std::to_string(getpid()) + ".yaml")).string();
  EXPECT_EQ(file_of(path, "cache: {file: a/b.evc}"), (folder / "a/b.evc").string());
  EXPECT_EQ(file_of(path, "cache: {file: /a/b.evc}"), "/a/b.evc");
  EXPECT_EQ(file_of(path, "cache: {map: true}"), "");
  std::filesystem::remove(path);
  const Config c = parse_config("cache: {file: a.evc, write: false, map: true}", "");
  EXPECT_EQ(c.cache.file, "a.evc");
  EXPECT_FALSE(c.cache.write);
  EXPECT_TRUE(c.cache.map);
}

TEST(Config, DevicesMayBeListsOfPreference) {
  const std::string devices = "devices: {g: {type: opencl}, h: {type: opencl}}\n";
  const Config c = parse_config(devices +
                                    "placement: {default: [h, cpu], rules: [{device: [g, h], policy: prefer}]}\n"
                                    "models: {det: {path: m.onnx, device: [g, cpu]}, rec: {path: n.onnx, device: auto}}",
                                "");
  EXPECT_EQ(c.default_devices, (std::vector<std::string>{"h", "cpu"}));
  EXPECT_EQ(c.rules[0].devices, (std::vector<std::string>{"g", "h"}));
  EXPECT_EQ(c.models[0].devices, (std::vector<std::string>{"g", "cpu"}));
  EXPECT_EQ(c.models[1].devices, std::vector<std::string>{kAutoDevice});
  EXPECT_EQ(parse_config(devices + "placement: {split: [g, cpu]}", "").split_devices, (std::vector<std::string>{"g", "cpu"}));
  EXPECT_TRUE(fails_about(devices + "placement: {split: g}", "\"split\" needs two devices at least: [g, ...]"));
  EXPECT_TRUE(fails_about(devices + "placement: {split: [g, auto]}", "\"auto\" stands alone"));
  EXPECT_TRUE(fails_about(devices + "placement: {default: [g, auto]}", "\"auto\" stands alone"));
  EXPECT_TRUE(fails_about(devices + "placement: {rules: [{device: auto}]}", "\"auto\" stands alone"));
  EXPECT_TRUE(fails_about(devices + "placement: {rules: [{device: [g, g]}]}", "\"g\" is named twice"));
  EXPECT_TRUE(fails_about(devices + "placement: {default: [g, hh]}", "unknown device \"hh\""));
}

TEST(Config, AutoAndNoneAreTheDefaults) {
  const Config c = parse_config(
      "limits: {run_time: none}\ndevices: {cpu: {type: cpu, threads: auto, memory_limit: none}}\n"
      "placement: {default: auto}",
      "");
  EXPECT_EQ(c.limits.run_time_ns, 0u);
  EXPECT_EQ(c.devices[0].settings.number("threads", 0), 0u);
  EXPECT_EQ(c.devices[0].memory_limit, UINT64_MAX);
  EXPECT_EQ(c.default_devices, std::vector<std::string>{kAutoDevice});
}

TEST(Config, BatchingHasAllItsKeys) {
  const BatchingConfig b =
      parse_config("session: {batching: {max_batch: 16, max_delay: 2ms, mask: attention_mask, buckets: [8, 32]}}", "")
          .session.batching;
  EXPECT_EQ(b.max_batch, 16);
  EXPECT_EQ(b.max_delay_ns, 2'000'000u);
  EXPECT_EQ(b.mask, "attention_mask");
  EXPECT_EQ(b.buckets, (std::vector<std::int64_t>{8, 32}));
  EXPECT_EQ(parse_config("session: {batching: {}}", "").session.batching.max_batch, 0);
  EXPECT_EQ(parse_config("session: {batching: {max_delay: none}}", "").session.batching.max_batch, 8);
  EXPECT_EQ(parse_config("session: {batching: {mask: m, buckets: 7}}", "").session.batching.buckets, std::vector<std::int64_t>{7});
  EXPECT_TRUE(
      fails_with("session: {batching: {max_batch: 1}}", "1:33: \"session.batching.max_batch\" must be from 2 to 65536, not 1"));
  EXPECT_TRUE(fails_with("session: {batching: {buckets: [1, 2]}}", "1:31: buckets need a mask"));
  EXPECT_TRUE(fails_with("session: {batching: {mask: m, buckets: [2, 2]}}", "1:40: buckets must be in rising order"));
  EXPECT_TRUE(fails_with("session: {batching: {mask: m, buckets: [0]}}",
                         "1:41: \"session.batching.buckets\" must be from 1 to 9223372036854775807, not 0"));
  EXPECT_TRUE(fails_about("session: {batching: {mask: m, buckets: [x]}}",
                          "\"session.batching.buckets\" must be a whole decimal number or a list of them, not text"));
  EXPECT_TRUE(fails_about("session: {batching: {mask: m, buckets: {a: 1}}}",
                          "\"session.batching.buckets\" must be a whole decimal number or a list of them, not a map"));
}

TEST(Config, SectionsMayBeEmpty) {
  const Config c = parse_config("limits:\ndevices:\nplacement:\n", "");
  EXPECT_EQ(c.limits.nodes, Limits{}.nodes);
  EXPECT_EQ(config_error("placement:\n  rules:\n").status, EVN_OK);
}

TEST(Config, TheCpuIsAlwaysThere) {
  const Config c = parse_config("devices: {gpu: {type: opencl}}\nplacement: {default: cpu}", "");
  ASSERT_EQ(c.devices.size(), 2u);
  EXPECT_EQ(c.devices[0].name, "cpu");
  EXPECT_EQ(c.devices[0].type, "cpu");
  EXPECT_EQ(c.devices[0].settings.number("threads", 0), 0u);
  EXPECT_TRUE(
      fails_with("devices: {host: {type: cpu}}\nplacement: {default: cpu}", "2:22: unknown device \"cpu\"; there are: host"));
}

TEST(Config, NothingIsExpanded) {  // C18
  const Config c = parse_config("devices: {g: {type: opencl, match: {vendor: \"${HOME}\", device: ~/x}}}", "");
  EXPECT_EQ(c.devices[1].settings.text("match.vendor", ""), "${HOME}");
  EXPECT_EQ(c.devices[1].settings.text("match.device", ""), "~/x");
}

TEST(Config, UnknownKeysAreErrorsWithTheNearestOne) {
  EXPECT_TRUE(fails_with("devices:\n  cpu: {type: cpu, thread: 2}", "2:20: unknown key \"thread\"; did you mean \"threads\"?"));
  EXPECT_TRUE(fails_with("device: {}", "1:1: unknown key \"device\"; did you mean \"devices\"?"));
  EXPECT_TRUE(fails_with("threads: 2", "1:1: unknown key \"threads\" here; it belongs to devices.NAME.threads"));
  EXPECT_TRUE(fails_with("placement:\n  rules:\n  - {device: cpu, name: x}",
                         "3:19: unknown key \"name\" here; it belongs to placement.rules[].match.name"));
  EXPECT_TRUE(
      fails_with("wibble: 1",
                 "1:1: unknown key \"wibble\"; here may stand: version, limits, probe, devices, placement, session, passes, cache, "
                 "recording, files, models"));
}

TEST(Config, KeysOfLaterVersionsAreUnknown) {
  for (const char* text : {"placement: {deadline: 5ms}", "session: {batching: {pad: true}}",
                           "placement: {rules: [{match: {between: [a, b]}, device: cpu}]}"}) {
    EXPECT_TRUE(fails_about(text, "unknown key")) << text;
  }
}

TEST(Config, KeysCannotNameWhatIsFurtherDown) {
  EXPECT_TRUE(fails_about("limits.nodes: 5", "unknown key \"limits.nodes\""));
  EXPECT_TRUE(fails_about("devices: {\"*\": {type: cpu}}", "must begin with a letter"));
  EXPECT_TRUE(fails_about("devices: {g: {type: opencl, match.index: 1}}", "unknown key \"match.index\""));
  EXPECT_TRUE(fails_about("placement: {rules.*: 1}", "unknown key"));
}

TEST(Config, UnknownDevicesAreErrorsWithTheNearestOne) {
  EXPECT_TRUE(fails_with("devices: {gpu: {type: opencl}}\nplacement: {default: gqu}",
                         "2:22: unknown device \"gqu\"; did you mean \"gpu\"?"));
  EXPECT_TRUE(fails_with("devices: {accel: {type: opencl}}\nplacement:\n  rules:\n    - {match: {op: Conv}, device: acel}",
                         "4:35: unknown device \"acel\"; did you mean \"accel\"?"));
  EXPECT_TRUE(fails_with("placement: {default: npu7}", "1:22: unknown device \"npu7\"; there are: cpu"));
}

TEST(Config, DevicesNeedATypeThatFits) {
  EXPECT_TRUE(fails_with("devices:\n  cpu: {threads: 2}", "2:3: the device \"cpu\" needs a \"type\": cpu or opencl"));
  EXPECT_TRUE(fails_with("devices:\n  cpu:", "2:3: the device \"cpu\" needs a \"type\": cpu or opencl"));
  EXPECT_TRUE(fails_about("devices: {x: {type: opencll}}", "did you mean \"opencl\"?"));
  EXPECT_TRUE(fails_about("devices: {cpu: {type: opencl}}", "the name \"cpu\" is for the device of type cpu"));
  EXPECT_TRUE(fails_with("devices:\n  g: {type: opencl, threads: 2}",
                         "2:30: \"threads\" is for devices of type cpu; \"g\" is of type opencl"));
  EXPECT_TRUE(fails_about("devices: {h: {match: {index: 0}, type: cpu}}", "\"match\" is for devices of type opencl"));
  EXPECT_TRUE(fails_about("devices: {h: {type: cpu, clblast: never}}", "\"clblast\" is for devices of type opencl"));
  EXPECT_TRUE(fails_with("devices:\n  a: {type: cpu}\n  b: {type: cpu}",
                         "3:3: the CPU is one device: \"a\" at line 2 is of type cpu already"));
}

TEST(Config, DeviceNamesAreShortAndPlain) {
  EXPECT_EQ(config_error("devices: {" + std::string(63, 'a') + ": {type: opencl}}").status, EVN_OK);
  EXPECT_TRUE(fails_about("devices: {" + std::string(64, 'a') + ": {type: opencl}}", "must begin with a letter"));
  for (const char* name : {"\"gpu:1\"", "1gpu", "\"a b\"", "\"\\x1b[2J\"", "\xc3\xa9", "\"a/b\""}) {
    EXPECT_TRUE(fails_about(std::string("devices: {") + name + ": {type: opencl}}", "must begin with a letter")) << name;
  }
  EXPECT_TRUE(fails_about("devices: {auto: {type: opencl}}", "cannot be called \"auto\""));
  EXPECT_TRUE(fails_about("devices: {no: {type: opencl}}", "must be text, not a boolean"));
  EXPECT_TRUE(fails_about("devices: {\"\": {type: opencl}}", "must not be empty"));
}

TEST(Config, RulesWithTheSameMatchConflict) {
  EXPECT_TRUE(
      fails_with("devices: {g: {type: opencl}}\nplacement:\n  rules:\n  - {match: {op: [A, B]}, device: g}\n  - {device: g}\n"
                 "  - {match: {op: [B, A]}, device: cpu, policy: prefer}",
                 "6:5: conflicting rules: lines 4 and 6 have the same match, for \"g\" and \"cpu\"; the first match wins, so "
                 "this one would never count"));
  EXPECT_TRUE(fails_about("placement: {rules: [{device: cpu}, {device: cpu}]}", "conflicting rules"));
  EXPECT_TRUE(fails_about("devices: {g: {type: opencl}}\nplacement: {rules: [{device: g, policy: forbid}, {device: g}]}",
                          "conflicting rules"));
}

TEST(Config, RulesMayHaveDevicesShareNodes) {
  const std::string devices = "devices: {g: {type: opencl}, h: {type: opencl}}\n";
  const Config c =
      parse_config(devices + "placement: {rules: [{match: {op: Conv}, split: [g, cpu], policy: prefer}, {split: auto}]}", "");
  EXPECT_EQ(c.rules[0].split, (std::vector<std::string>{"g", "cpu"}));
  EXPECT_TRUE(c.rules[0].devices.empty());
  EXPECT_EQ(c.rules[1].split, std::vector<std::string>{kAutoDevice});
  const auto fails = [&](const std::string& rule, const char* word) {
    return fails_about(devices + "placement: {rules: [" + rule + "]}", word);
  };
  EXPECT_TRUE(fails("{split: g}", "\"split\" needs two devices at least: [g, ...], or auto"));
  EXPECT_TRUE(fails("{split: [g, hh]}", "unknown device \"hh\""));
  EXPECT_TRUE(fails("{split: [g, g]}", "\"g\" is named twice"));
  EXPECT_TRUE(fails("{split: [g, auto]}", "\"auto\" stands alone"));
  EXPECT_TRUE(fails("{split: [g, h], device: g}", "a rule has a \"device\" or a \"split\", not both"));
  EXPECT_TRUE(fails("{split: [g, h], policy: forbid}", "\"policy: forbid\" is for rules with a \"device\""));
  EXPECT_TRUE(fails("{split: [g, h]}, {device: g}", "conflicting rules"));
  EXPECT_TRUE(fails("{split: [g, h]}, {split: [h, g]}", "conflicting rules"));
}

TEST(Config, RulesThatDifferOrForbidDoNotConflict) {
  EXPECT_EQ(config_error("devices: {g: {type: opencl}, h: {type: opencl}}\nplacement:\n  rules:\n"
                         "  - {match: {op: A}, device: g, policy: forbid}\n"
                         "  - {match: {op: A}, device: h, policy: forbid}\n"
                         "  - {match: {op: A}, device: cpu}\n"
                         "  - {match: {name: A}, device: g}\n"
                         "  - {match: {model: A}, device: h}\n")
                .status,
            EVN_OK);
}

TEST(Config, RulesNeedADevice) {
  EXPECT_TRUE(fails_with("placement:\n  rules:\n    - {match: {op: Conv}}",
                         "3:7: the rule needs a \"device\", a \"split\", a \"precision\", \"numerics\" or \"products\""));
  EXPECT_TRUE(fails_about("placement: {rules: [cpu]}", "a rule must be a map"));
  EXPECT_TRUE(fails_about("placement: {rules: {device: cpu}}", "\"placement.rules\" must be a list"));
}

TEST(Config, PrecisionStandsOnDevicesRulesAndSessions) {
  const Config c = parse_config(
      "devices: {cpu: {type: cpu, precision: fp16}}\nplacement:\n  rules:\n  - {match: {op: Conv}, precision: bf16}\n"
      "  - {match: {op: Conv}, device: cpu}\nsession: {precision: auto, keep_fp32: [\"head/*\", \"type:Gemm\"]}\n",
      "");
  EXPECT_EQ(c.find_device("cpu")->precision, Precision::kFloat16);
  ASSERT_EQ(c.rules.size(), 2u);
  EXPECT_EQ(c.rules[0].precision, Precision::kBfloat16);
  EXPECT_TRUE(c.rules[0].devices.empty());
  EXPECT_EQ(c.rules[1].precision, Precision::kDefault);
  EXPECT_EQ(c.session.precision, Precision::kAuto);
  EXPECT_EQ(c.session.keep_fp32, (std::vector<std::string>{"head/*", "type:Gemm"}));
  EXPECT_EQ(Config{}.session.precision, Precision::kDefault);
}

TEST(Config, NumericsStandOnRulesAndSessions) {
  const Config c = parse_config(
      "placement:\n  rules:\n  - {match: {op: Conv}, numerics: strict}\n  - {match: {op: Conv}, precision: bf16}\nsession: "
      "{numerics: fast}\n",
      "");
  ASSERT_EQ(c.rules.size(), 2u);
  EXPECT_EQ(c.rules[0].numerics, Numerics::kStrict);
  EXPECT_TRUE(c.rules[0].devices.empty());
  EXPECT_EQ(c.rules[1].numerics, Numerics::kDefault);
  EXPECT_EQ(c.session.numerics, Numerics::kFast);
  EXPECT_EQ(Config{}.session.numerics, Numerics::kDefault);
  for (const char* text : {"session: {numerics: exact}", "placement: {rules: [{match: {op: Conv}, numerics: exact}]}"}) {
    EXPECT_TRUE(fails_about(text, "must be fast or strict")) << text;
  }
  EXPECT_TRUE(fails_about("placement: {rules: [{numerics: strict}, {numerics: fast}]}", "for \"strict\" and \"fast\""));
  EXPECT_TRUE(fails_about("devices: {cpu: {type: cpu, numerics: strict}}", "unknown key"));
}

TEST(Config, MistakesInPrecisionNameThePlaceAndTheWords) {
  for (const char* text : {"session: {precision: int8}", "devices: {cpu: {type: cpu, precision: int8}}",
                           "placement: {rules: [{match: {op: Conv}, precision: int8}]}"}) {
    EXPECT_TRUE(fails_about(text, "must be fp32, bf16, fp16 or auto")) << text;
  }
  EXPECT_TRUE(fails_about("session: {precision: int8}", "1:22: "));
  EXPECT_TRUE(fails_about("session: {precison: bf16}", "did you mean \"precision\""));
  EXPECT_TRUE(fails_with("placement: {rules: [{precision: bf16, policy: prefer}]}",
                         "1:47: \"policy\" is for rules with a \"device\", a \"split\" or \"products\""));
  EXPECT_TRUE(fails_about("placement: {rules: [{match: {op: A}, precision: bf16}, {match: {op: A}, precision: fp32}]}",
                          "conflicting rules"));
}

TEST(Config, ProductsStandOnDevicesRulesSessionsAndModels) {
  const Config c = parse_config(
      "devices: {cpu: {type: cpu, products: own}}\nplacement:\n  rules:\n"
      "  - {match: {op: MatMul}, products: openblas, policy: prefer}\n  - {match: {op: Gemm}, measure: true}\n"
      "  - {match: {op: Gemm}, device: cpu}\nsession: {measure: true, products: auto}\n"
      "models: {m: {path: m.onnx, products: clblast}, o: {path: o.onnx, measure: false}}\n",
      "");
  EXPECT_EQ(c.find_device("cpu")->products, Products::kOwn);
  ASSERT_EQ(c.rules.size(), 3u);
  EXPECT_EQ(c.rules[0].products, Products::kOpenBlas);
  EXPECT_EQ(c.rules[0].policy, Policy::kPrefer);
  EXPECT_TRUE(c.rules[0].devices.empty());
  EXPECT_EQ(c.rules[1].products, Products::kMeasured);
  EXPECT_EQ(c.rules[2].products, Products::kDefault);
  EXPECT_EQ(c.session.products, Products::kMeasured);
  EXPECT_EQ(c.models[0].session.products, Products::kClBlast);
  EXPECT_EQ(c.models[1].session.products, Products::kDefault);
  EXPECT_EQ(Config{}.session.products, Products::kDefault);
}

TEST(Config, MistakesInProductsNameThePlaceAndTheWords) {
  for (const char* text :
       {"session: {products: mkl}", "devices: {cpu: {type: cpu, products: mkl}}",
        "placement: {rules: [{match: {op: Gemm}, products: mkl}]}", "models: {m: {path: m.onnx, products: 1}}"}) {
    EXPECT_TRUE(fails_about(text, "own, openblas, clblast or auto")) << text;
  }
  EXPECT_TRUE(fails_about("session: {products: mkl}", "1:21: "));
  EXPECT_TRUE(fails_about("session: {product: own}", "did you mean \"products\""));
  EXPECT_TRUE(fails_with("session: {products: own, measure: true}", "1:35: \"measure\" is for \"products: auto\", not for own"));
  EXPECT_TRUE(fails_with("placement: {rules: [{measure: true, products: openblas}]}",
                         "1:31: \"measure\" is for \"products: auto\", not for openblas"));
  EXPECT_TRUE(fails_about("models: {m: {path: m.onnx, products: clblast, measure: true}}", "not for clblast"));
  EXPECT_TRUE(fails_about("session: {measure: 1}", "true or false"));
  EXPECT_TRUE(fails_about("placement: {rules: [{match: {op: Gemm}, measure: false}]}", "the rule needs a \"device\""));
  EXPECT_TRUE(fails_with("placement: {rules: [{products: own, policy: forbid}]}",
                         "1:45: \"policy: forbid\" is for rules without \"products\""));
  EXPECT_TRUE(fails_about("placement: {rules: [{device: cpu, products: own, policy: forbid}]}", "without \"products\""));
  EXPECT_TRUE(fails_about("placement: {rules: [{match: {op: A}, products: own}, {match: {op: A}, measure: true}]}",
                          "for \"own\" and \"measured\""));
  EXPECT_TRUE(fails_about("devices: {cpu: {type: cpu, measure: true}}", "unknown key"));
}

TEST(Config, OperatorsAreNamesAndListsAreNotEmpty) {
  EXPECT_TRUE(fails_about("placement: {rules: [{match: {op: \"Conv*\"}, device: cpu}]}", "not patterns: \"Conv*\""));
  EXPECT_TRUE(fails_about("placement: {rules: [{match: {op: []}, device: cpu}]}", "empty list"));
  EXPECT_TRUE(fails_about("placement: {rules: [{match: {op: [[Conv]]}, device: cpu}]}", "must be text, not a list"));
}

TEST(Config, TheRootIsAMap) {
  EXPECT_TRUE(fails_about("[]", "a configuration is a map"));
  EXPECT_TRUE(fails_about("cpu", "a configuration is a map"));
}

TEST(Config, ALongPathKeepsItsEndAndTheMessage) {
  const Error e = config_error("a: 1", std::string(4000, 'd') + "/name.yaml");
  const std::string message = e.message;
  EXPECT_NE(message.find("/name.yaml:1:1: unknown key \"a\""), std::string::npos) << message;
  EXPECT_EQ(message.substr(0, 4), "...d");
}

TEST(Config, MessagesEscapeControlCharacters) {
  const Error e = config_error("\"\\e[2J\": 1");
  EXPECT_NE(std::string(e.message).find("\\x1b[2J"), std::string::npos) << e.message;
}

TEST(ConfigMemory, SessionsMayBeSmallAndShareArenas) {
  const Config c = parse_config("session: {memory: small, share_arenas: true}", "");
  EXPECT_EQ(c.session.memory, MemoryPlan::kSmall);
  EXPECT_TRUE(c.session.share_arenas);
  EXPECT_EQ(parse_config("session: {memory: fast}", "").session.memory, MemoryPlan::kFast);
  EXPECT_EQ(parse_config("version: 1", "").session.memory, MemoryPlan::kDefault);
  EXPECT_FALSE(parse_config("version: 1", "").session.share_arenas);
}

}  // namespace
}  // namespace evn
