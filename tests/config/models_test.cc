// `models:`: what its keys mean, and what is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/config/support.h"

namespace evn {
namespace {

TEST(ConfigModels, EveryKeyReachesItsField) {
  const Config c = parse_config(R"(
devices: {gpu: {type: opencl}}
models:
  ocr_det:
    path: models/det.onnx
    device: gpu
    precision: bf16
    numerics: strict
    keep_fp32: ["head/*", "type:Gemm"]
    disabled_passes: [cascade]
    concurrency: 2
    batching: {max_batch: 16, max_delay: 2ms, mask: attention_mask, buckets: [16, 32, 64]}
    idle_arena_bytes: 64MiB
    memory: small
    cache: cache/
    cache_write: false
    cache_map: true
    warm:
      - {x: [1, 3, 640, 640], "0": []}
      - {}
  rec: {path: rec.onnx}
)",
                                "");
  ASSERT_EQ(c.models.size(), 2u);
  const ModelConfig& det = c.models[0];
  EXPECT_EQ(det.name, "ocr_det");
  EXPECT_EQ(det.line, 4);
  EXPECT_EQ(det.path, "models/det.onnx");
  EXPECT_EQ(det.devices, std::vector<std::string>{"gpu"});
  EXPECT_EQ(det.session.precision, Precision::kBfloat16);
  EXPECT_EQ(det.session.numerics, Numerics::kStrict);
  EXPECT_EQ(det.session.keep_fp32, (std::vector<std::string>{"head/*", "type:Gemm"}));
  EXPECT_EQ(det.disabled_passes, std::vector<std::string>{"cascade"});
  EXPECT_EQ(det.session.concurrency, 2);
  EXPECT_EQ(det.session.batching.max_batch, 16);
  EXPECT_EQ(det.session.batching.max_delay_ns, 2'000'000u);
  EXPECT_EQ(det.session.batching.mask, "attention_mask");
  EXPECT_EQ(det.session.batching.buckets, (std::vector<std::int64_t>{16, 32, 64}));
  EXPECT_EQ(det.session.idle_arena_bytes, 64u << 20);
  EXPECT_EQ(det.session.memory, MemoryPlan::kSmall);
  ASSERT_TRUE(det.cache.has_value());
  EXPECT_EQ(det.cache->file, "cache/");
  EXPECT_FALSE(det.cache->write);
  EXPECT_TRUE(det.cache->map);
  ASSERT_EQ(det.warm.size(), 2u);
  EXPECT_EQ(det.warm[0].line, 19);
  ASSERT_EQ(det.warm[0].inputs.size(), 2u);
  EXPECT_EQ(det.warm[0].inputs[0].name, "x");
  EXPECT_EQ(det.warm[0].inputs[0].dims, (std::vector<std::int64_t>{1, 3, 640, 640}));
  EXPECT_EQ(det.warm[0].inputs[1].name, "0");
  EXPECT_TRUE(det.warm[0].inputs[1].dims.empty());
  EXPECT_TRUE(det.warm[1].inputs.empty());

  const ModelConfig& rec = c.models[1];
  EXPECT_EQ(rec.path, "rec.onnx");
  EXPECT_TRUE(rec.devices.empty());
  EXPECT_EQ(rec.session.precision, Precision::kDefault);
  EXPECT_EQ(rec.session.concurrency, 0);
  EXPECT_EQ(rec.session.batching.max_batch, 0);
  EXPECT_EQ(rec.session.idle_arena_bytes, 0u);
  EXPECT_EQ(rec.session.memory, MemoryPlan::kDefault);
  EXPECT_FALSE(rec.cache.has_value());
}

TEST(ConfigModels, PathsBeginAtTheFolderOfTheFile) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("evener_models_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "c.yaml") << "models: {m: {path: a.onnx}}";
  const std::string here = std::filesystem::current_path().string() + "/";
  EXPECT_EQ(load_config((folder / "c.yaml").string()).folder, folder.string() + "/");
  const std::string relative = std::filesystem::relative(folder).string();
  EXPECT_EQ(load_config(relative + "/c.yaml").folder, here + relative + "/");
  EXPECT_EQ(parse_config("models: {m: {path: a.onnx}}", "").folder, here);
  std::ofstream(folder / "r.yaml") << "files: {allowed_roots: [hub, /mnt]}";
  using Roots = std::vector<std::string>;
  EXPECT_EQ(load_config((folder / "r.yaml").string()).files.allowed_roots, (Roots{folder.string() + "/hub", "/mnt"}));
  EXPECT_EQ(load_config(relative + "/r.yaml").files.allowed_roots, (Roots{here + relative + "/hub", "/mnt"}));
  EXPECT_EQ(parse_config("files: {allowed_roots: hub}", "").files.allowed_roots, Roots{here + "hub"});
  EXPECT_EQ(parse_config("", "").folder, "");
  std::filesystem::remove_all(folder);
}

TEST(ConfigModels, PathsStayBelowTheFolder) {
  const auto path_of = [](const std::string& path) {
    return parse_config("models: {m: {path: \"" + path + "\"}}", "").models[0].path;
  };
  EXPECT_EQ(path_of("./a/.//b/../c.onnx"), "a/c.onnx");
  EXPECT_EQ(path_of("..a/b..onnx"), "..a/b..onnx");
  const std::string model = "models: {m: {path: ";
  EXPECT_TRUE(
      fails_with(model + "/etc/passwd}}",
                 "1:20: \"path\" is an absolute path, and must be one below the folder of the configuration: \"/etc/passwd\""));
  for (const char* path : {"../a.onnx", "a/../../b/a.onnx", "..", "./.."}) {
    EXPECT_TRUE(fails_about(model + path + "}}", "\"path\" leaves the folder of the configuration")) << path;
  }
  for (const char* path : {"a/", ".", "a/..", "a/b/."})
    EXPECT_TRUE(fails_about(model + path + "}}", "\"path\" names a folder")) << path;
  EXPECT_TRUE(fails_about(model + "\"a\\0b\"}}", "must not contain a NUL"));
  EXPECT_TRUE(fails_about(model + std::string(5000, 'a') + "}}", "is too long a path"));
  std::string deep;
  for (int i = 0; i < 65; ++i) deep += "a/";
  EXPECT_TRUE(fails_about(model + deep + "b}}", "has too many parts"));
  EXPECT_TRUE(fails_about(model + "a, cache: ../c/}}", "\"cache\" leaves the folder of the configuration"));
  EXPECT_TRUE(fails_about(model + "a, cache: /c}}", "\"cache\" is an absolute path"));
  EXPECT_EQ(parse_config(model + "a, cache: none}}", "").models[0].cache->file, "");
  EXPECT_EQ(parse_config(model + "a, cache: ./}}", "").models[0].cache->file, "./");
}

TEST(ConfigModels, UnknownKeysAndDevicesAreErrorsWithTheNearestOne) {
  EXPECT_TRUE(fails_with("models:\n  m: {pat: a.onnx}", "2:7: unknown key \"pat\"; did you mean \"path\"?"));
  EXPECT_TRUE(fails_with("models:\n  m: {path: a, batching: {max_bath: 2}}",
                         "2:27: unknown key \"max_bath\"; did you mean \"max_batch\"?"));
  EXPECT_TRUE(fails_with("model: {}", "1:1: unknown key \"model\"; did you mean \"models\"?"));
  EXPECT_TRUE(fails_with("warm: []", "1:1: unknown key \"warm\" here; it belongs to models.NAME.warm"));
  EXPECT_TRUE(fails_with("devices: {gpu: {type: opencl}}\nmodels:\n  m: {path: a, device: gqu}",
                         "3:24: unknown device \"gqu\"; did you mean \"gpu\"?"));
}

TEST(ConfigModels, NamesAreShortAndPlain) {
  EXPECT_EQ(config_error("models: {" + std::string(63, 'a') + ": {path: a}}").status, EVN_OK);
  for (const std::string& name : {std::string(64, 'a'), std::string("\"a/b\""), std::string("\"a b\""), std::string("_a")}) {
    EXPECT_TRUE(fails_about("models: {" + name + ": {path: a}}", "must begin with a letter")) << name;
  }
  EXPECT_TRUE(fails_about("models: {1: {path: a}}", "\"a name of models\" must be text, not a number"));
  EXPECT_TRUE(fails_about("models: {m: {path: a}, m: {path: b}}", "duplicate key \"m\""));
}

TEST(ConfigModels, WhatIsMissingOrContradictsIsNamed) {
  EXPECT_TRUE(fails_with("models:\n  m: {device: cpu}", "2:3: the model \"m\" needs a \"path\""));
  EXPECT_TRUE(fails_with("models:\n  m:", "2:3: the model \"m\" needs a \"path\""));
  EXPECT_TRUE(fails_with("models: {m: a.onnx}", "1:13: the model \"m\" must be a map with a \"path\""));
  EXPECT_TRUE(fails_about("models: [a]", "\"models\" must be a map"));
  const std::string model = "models:\n  m: {path: a, ";
  EXPECT_TRUE(fails_with(model + "batching: {max_delay: 1ms}}", "2:16: \"batching\" needs a \"max_batch\""));
  EXPECT_TRUE(fails_about(model + "batching: {max_batch: 2, buckets: [1]}}", "\"batching\": buckets need a mask"));
  EXPECT_TRUE(fails_about(model + "batching: {max_batch: 2, mask: m, buckets: [2, 2]}}", "buckets must be in rising order"));
  EXPECT_TRUE(fails_about(model + "batching: {max_batch: 1}}", "must be from 2 to 65536, not 1"));
  EXPECT_TRUE(fails_about(model + "cache_map: true}", "are for models with a \"cache\""));
}

TEST(ConfigModels, DimsAreListsOfWholeNumbers) {
  const std::string warm = "models:\n  m: {path: a, warm: ";
  EXPECT_EQ(parse_config(warm + "[{x: 3}]}", "").models[0].warm[0].inputs[0].dims, std::vector<std::int64_t>{3});
  EXPECT_TRUE(fails_with(warm + "[{x: {}}]}", "2:27: \"x\" must be a whole decimal number or a list of them, not a map"));
  EXPECT_TRUE(fails_about(warm + "[{x: }]}", "must be a whole decimal number or a list of them, not nothing"));
  EXPECT_TRUE(fails_with(warm + "[{x: [1, -1]}]}", "2:31: \"x\" must be from 0 to 9223372036854775807, not -1"));
  for (const char* value : {"[n]", "[1.5]", "[\"1\"]", "[[1]]", "[~]", "[0x1]"}) {
    EXPECT_TRUE(fails_about(warm + "[{x: " + value + "}]}", "\"x\" must be a whole decimal number or a list of them, not "))
        << value;
  }
  EXPECT_TRUE(fails_about(warm + "[{x: [9223372036854775808]}]}", "must be from 0 to"));
  EXPECT_TRUE(fails_about(warm + "{x: [1]}}", "\"models.*.warm\" must be a list"));
  EXPECT_TRUE(fails_about(warm + "[x]}", "an element of \"warm\" must be a map from inputs to their dims"));
}

}  // namespace
}  // namespace evn
