// A backend's own options reach its devices from YAML text, though nothing in src/ knows the mock backend.
#include "tests/runtime/support.h"

namespace evn::test {
namespace {

const DeviceType kTypes[] = {cpu_backend.type, mock_backend.type};

Error parse_error(const std::string& text) {
  try {
    parse_config(text, "c.yaml", kTypes);
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "it parses: " << text;
  return {};
}

using BackendOptions = RuntimeTest;

TEST_F(BackendOptions, AnOptionOfTheMockSaysWhatItRefuses) {
  const Config config = parse_config(
      "devices:\n  m: {type: mock, refuse: [Conv]}\n  other: {type: mock}\n"
      "placement:\n  rules:\n    - {match: {op: [Conv, Relu]}, device: m, policy: prefer}\n",
      "c.yaml", kTypes);
  EXPECT_EQ(config.find_device("m")->settings.find("refuse")->texts, std::vector<std::string>{"Conv"});
  const auto runtime = make_runtime(config);
  const ModelPtr model = load(runtime, small_network());
  const Placement placement = place(*model, "");
  for (std::size_t i = 0; i < model->graph().nodes.size(); ++i) {
    const Node& node = model->graph().nodes[i];
    if (node.op_type == "Conv") {
      EXPECT_EQ(placement.nodes[i].device->name(), "cpu");
      EXPECT_EQ(placement.nodes[i].refused, "m: mock: refused by the test");
    }
    if (node.op_type == "Relu") {
      EXPECT_EQ(placement.nodes[i].device->name(), "m");
    }
  }
}

TEST_F(BackendOptions, AnOptionIsForDevicesOfItsTypeAlone) {
  EXPECT_STREQ(parse_error("devices: {m: {type: mock, threads: 2}}").message,
               "c.yaml:1:36: \"threads\" is for devices of type cpu; \"m\" is of type mock");
  EXPECT_STREQ(parse_error("devices: {cpu: {refuse: Add, type: cpu}}").message,
               "c.yaml:1:25: \"refuse\" is for devices of type mock; \"cpu\" is of type cpu");
  EXPECT_STREQ(parse_error("devices: {m: {type: mock, refusee: Add}}").message,
               "c.yaml:1:27: unknown key \"refusee\"; did you mean \"refuse\"?");
  EXPECT_STREQ(parse_error("refuse: Add").message, "c.yaml:1:1: unknown key \"refuse\" here; it belongs to devices.NAME.refuse");
  EXPECT_STREQ(parse_error("devices: {m: {type: mock, wibble: 1}}").message,
               "c.yaml:1:27: unknown key \"wibble\"; here may stand: type, memory_limit, cache_limit, trim, precision, products, "
               "optional, refuse");
  EXPECT_STREQ(parse_error("devices: {m: {type: opencl}}").message,
               "c.yaml:1:21: \"devices.*.type\" must be cpu or mock, not text \"opencl\"");
  EXPECT_STREQ(parse_error("devices: {m: {type: mock, refuse: 3}}").message,
               "c.yaml:1:35: \"devices.*.refuse\" must be text, not a number \"3\" (quote it if it is meant as text)");
}

TEST_F(BackendOptions, TheThreadsOfTheRuntimeComeBeforeThoseOfTheConfiguration) {
  const Config config = parse_config("devices: {cpu: {type: cpu, threads: 3}}", "c.yaml", kTypes);
  EXPECT_EQ(make_runtime(config, 0, 0)->cpu().traits().compute_units, 3u);
  EXPECT_EQ(make_runtime(config, 0, 2)->cpu().traits().compute_units, 2u);
}

}  // namespace
}  // namespace evn::test
