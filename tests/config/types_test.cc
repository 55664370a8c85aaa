// How single values are read: the hostile rows C06 to C08 and C15, and the types' own rules.
#include <gtest/gtest.h>

#include "tests/config/support.h"

namespace evn {
namespace {

std::string threads(const std::string& value) { return "devices: {cpu: {type: cpu, threads: " + value + "}}"; }
std::string cap(const std::string& value) { return "devices: {cpu: {type: cpu, memory_limit: " + value + "}}"; }

TEST(ConfigTypes, C06UnknownKeyThreadSuggestsThreads) {
  EXPECT_TRUE(
      fails_with("devices:\n  cpu:\n    type: cpu\n    thread: 4\n", "4:5: unknown key \"thread\"; did you mean \"threads\"?"));
}

TEST(ConfigTypes, C07ThreadCountsOutOfRangeNameTheRange) {
  for (const char* value : {"-1", "0", "1025", "1000000000", "18446744073709551616", "-18446744073709551615"}) {
    EXPECT_TRUE(
        fails_with(threads(value), std::string("1:37: \"devices.*.threads\" must be from 1 to 1024, or auto, not ") + value));
  }
}

TEST(ConfigTypes, C07ThreadCountsOfAnotherTypeAreErrors) {
  for (const char* value : {"4.5", "\"4\"", "0x10", "1_000", ".nan", "0o17", "010", "1e3", "+4", "yes", "four", "[4]", "{a: 4}",
                            "~", "99999999999999999999.0", "\xd9\xa1"}) {
    EXPECT_TRUE(fails_about(threads(value), "\"devices.*.threads\" must be a whole decimal number or auto, not ")) << value;
  }
  EXPECT_TRUE(
      fails_with(threads("\"4\""), "1:37: \"devices.*.threads\" must be a whole decimal number or auto, not quoted text \"4\""));
  EXPECT_TRUE(fails_with(threads("~"), "1:28: \"devices.*.threads\" must be a whole decimal number or auto, not nothing (null)"));
}

TEST(ConfigTypes, C07EdgesOfTheRangeAreIn) {
  EXPECT_EQ(parse_config(threads("1"), "").devices[0].settings.number("threads", 0), 1u);
  EXPECT_EQ(parse_config(threads("1024"), "").devices[0].settings.number("threads", 0), 1024u);
}

TEST(ConfigTypes, C08PlainBooleansAndNullAreNoNames) {
  const std::string rule = "placement:\n  rules:\n    - device: ";
  EXPECT_TRUE(fails_with(rule + "no",
                         "3:15: \"placement.rules.*.device\" must be text, not a boolean \"no\" (quote it if it is meant "
                         "as text)"));
  EXPECT_TRUE(fails_about(rule + "on", "must be text, not a boolean \"on\""));
  EXPECT_TRUE(fails_about(rule + "True", "must be text, not a boolean \"True\""));
  EXPECT_TRUE(fails_with(rule + "~", "3:7: \"placement.rules.*.device\" must be text or a list of texts, not nothing (null)"));
  EXPECT_TRUE(fails_about(rule, "must be text or a list of texts, not nothing (null)"));
  EXPECT_TRUE(fails_about(rule + "1", "must be text, not a number \"1\""));
  EXPECT_TRUE(fails_about(rule + "-.5e3", "must be text, not a number"));
  EXPECT_TRUE(fails_about(rule + ".NaN", "must be text, not a number"));
  EXPECT_TRUE(fails_about(rule + "0xff", "must be text, not a number"));
  EXPECT_TRUE(fails_about(rule + "{a: b}", "must be text or a list of texts, not a map"));
}

TEST(ConfigTypes, QuotedBooleansAreNames) {
  const Config c = parse_config("placement: {rules: [{match: {name: ['no', \"1\", \"~\"]}, device: cpu}]}", "");
  EXPECT_EQ(c.rules[0].names, (std::vector<std::string>{"no", "1", "~"}));
}

TEST(ConfigTypes, BooleansAreTrueAndFalseOnly) {
  const std::string optional = "devices: {g: {type: opencl, optional: ";
  EXPECT_TRUE(parse_config(optional + "true}}", "").devices[1].optional);
  EXPECT_FALSE(parse_config(optional + "false}}", "").devices[1].optional);
  for (const char* value : {"yes", "no", "on", "off", "True", "FALSE", "y"}) {
    EXPECT_TRUE(fails_with(optional + value + "}}", std::string("1:39: \"devices.*.optional\" must be true or false; \"") + value +
                                                        "\" is a boolean in YAML 1.1 only"));
  }
  for (const char* value : {"\"true\"", "1", "~", "[true]", "maybe"}) {
    EXPECT_TRUE(fails_about(optional + value + "}}", "\"devices.*.optional\" must be true or false, not")) << value;
  }
}

TEST(ConfigTypes, C15SizesNeedAKnownUnitAndASaneRange) {
  EXPECT_EQ(parse_config(cap("512MiB"), "").devices[0].memory_limit, 512u << 20);
  EXPECT_EQ(parse_config(cap("\"512MiB\""), "").devices[0].memory_limit, 512u << 20);
  EXPECT_EQ(parse_config(cap("4096"), "").devices[0].memory_limit, 4096u);
  for (const char* value : {"16E", "10 gb", "10GB", "1.5GiB", "1 MiB", "512mib", "~", "[1]", "0x1000", "16777216TiB"}) {
    EXPECT_TRUE(fails_about(cap(value), "must be a size such as 1048576, 64KiB")) << value;
  }
  for (const char* value : {"0", "1", "-1", "9223372036854775808", "99999999999999999999"}) {
    EXPECT_TRUE(fails_about(cap(value), "must be from 4KiB to 9223372036854775807, or none, not ")) << value;
  }
}

TEST(ConfigTypes, TimesNeedAUnit) {
  for (const char* value : {"5", "5 s", "0.5s", "s", "~", "5S", "[5s]", "9999999999h"}) {
    EXPECT_TRUE(fails_about(std::string("limits: {run_time: ") + value + "}", "must be a time such as 100us, 2ms, 5s or 1min"))
        << value;
  }
  for (const char* value : {"0s", "-5s", "18446744073709551615ns"}) {
    EXPECT_TRUE(fails_about(std::string("limits: {run_time: ") + value + "}", "must be from 1ns to ")) << value;
  }
  EXPECT_TRUE(fails_about("limits: {load_time: none}", "must be a time"));
}

TEST(ConfigTypes, ChoicesNameTheirWords) {
  EXPECT_TRUE(fails_with("placement: {rules: [{device: cpu, policy: preffer}]}",
                         "1:43: \"placement.rules.*.policy\" must be require, prefer or forbid, not text \"preffer\"; did you mean "
                         "\"prefer\"?"));
  EXPECT_TRUE(fails_about("placement: {rules: [{device: cpu, policy: no}]}", "not a boolean \"no\""));
  EXPECT_TRUE(
      fails_about("placement: {rules: [{device: cpu, policy: ~}]}", "must be require, prefer or forbid, not nothing (null)"));
}

TEST(ConfigTypes, OnlyVersionOneIsKnown) {
  EXPECT_EQ(config_error("version: 1").status, EVN_OK);
  EXPECT_TRUE(fails_with("version: 2", "1:10: \"version\" must be from 1 to 1, not 2"));
  EXPECT_TRUE(fails_about("version: \"1\"", "must be a whole decimal number"));
}

TEST(ConfigTypes, SectionsMustBeMaps) {
  EXPECT_TRUE(fails_with("limits: 5", "1:9: \"limits\" must be a map"));
  EXPECT_TRUE(fails_with("devices: [cpu]", "1:10: \"devices\" must be a map"));
  EXPECT_TRUE(fails_about("devices: {cpu: cpu}", "the device \"cpu\" must be a map"));
}

}  // namespace
}  // namespace evn
