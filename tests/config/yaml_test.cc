// Hostile YAML: the rows C01 to C05 and C09 to C12 and C14, texts of a size to hurt, and failing allocations.
#include "config/yaml.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <new>

#include "base/fault.h"
#include "tests/config/support.h"
#include "tests/support/sanitized.h"

namespace evn {
namespace {

std::string repeat(const std::string& text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

// The error of a text that is read on a thread with a stack of 128 KiB.
Error error_on_small_stack(const std::string& text) {
  struct Job {
    const std::string* text;
    Error error;
  } job{&text, {}};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 128 * 1024);
  pthread_t thread;
  const int refused = pthread_create(
      &thread, &attributes,
      [](void* argument) -> void* {
        auto* j = static_cast<Job*>(argument);
        j->error = config_error(*j->text);
        return nullptr;
      },
      &job);
  pthread_attr_destroy(&attributes);
  if (refused != 0) {
    ADD_FAILURE() << "no thread: " << refused;
    return {};
  }
  pthread_join(thread, nullptr);
  return job.error;
}

TEST(ConfigYaml, C01NothingMeansTheDefaults) {
  for (const char* text :
       {"", "# only a comment\n", "\xef\xbb\xbf", "\xef\xbb\xbf# c\n", "\r\n\r\n", "---\n", "---\n...\n", "   \n", "~"}) {
    const Config c = parse_config(text, "");
    EXPECT_EQ(c.limits.model_bytes, Limits{}.model_bytes) << text;
    EXPECT_EQ(c.limits.run_time_ns, 0u) << text;
    EXPECT_TRUE(c.default_devices.empty()) << text;
    EXPECT_TRUE(c.rules.empty()) << text;
    ASSERT_EQ(c.devices.size(), 1u) << text;
    EXPECT_EQ(c.devices[0].type, "cpu") << text;
    EXPECT_EQ(c.devices[0].settings.number("threads", 0), 0u) << text;
  }
}

TEST(ConfigYaml, C01ByteOrderMarkAndCrLfAreAccepted) {
  const Config c = parse_config("\xef\xbb\xbflimits:\r\n  nodes: 5\r\n  nesting: 7\r\n", "");
  EXPECT_EQ(c.limits.nodes, 5u);
  EXPECT_EQ(c.limits.nesting, 7u);
  EXPECT_TRUE(
      fails_with("\xef\xbb\xbflimits:\r\n  nodes: x\r\n", "2:10: \"limits.nodes\" must be a whole decimal number, not text \"x\""));
}

TEST(ConfigYaml, C02DeepNestingIsRefusedOnASmallStack) {
  for (const char* unit : {"[", "{a:", "- ", "{", "[a: ", "? ", "{? ", "[\n", "{a: [", "- - {b: "}) {
    const Error e = error_on_small_stack(repeat(unit, 10000));
    EXPECT_EQ(e.status, EVN_ERROR_CONFIG) << unit;
    EXPECT_NE(std::string(e.message).find(":"), std::string::npos) << unit;
  }
  EXPECT_NE(std::string(error_on_small_stack(repeat("[", 10000)).message).find("nested deeper than 32 levels"), std::string::npos);
  EXPECT_NE(std::string(error_on_small_stack(repeat("- ", 10000)).message).find("1:65: nested deeper than 32 levels"),
            std::string::npos);
  EXPECT_NE(std::string(error_on_small_stack(repeat("{a:", 10000)).message).find("nested deeper than 32 levels"),
            std::string::npos);
}

TEST(ConfigYaml, C02IndentedMapsAreRefusedAtDepth32) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_NE(std::string(error_on_small_stack(text).message).find("33:33: nested deeper than 32 levels"), std::string::npos)
      << error_on_small_stack(text).message;
}

TEST(ConfigYaml, C02BracketsInCommentsAndTextAreNoNesting) {
  const std::string brackets(100, '[');
  const std::string rule = "placement: {rules: [{device: cpu, match: {name: ";
  EXPECT_EQ(config_error("# " + brackets + "\nversion: 1 # " + brackets + "\n").status, EVN_OK);
  EXPECT_EQ(parse_config(rule + "\"" + brackets + "\"}}]}", "").rules[0].names[0], brackets);
  EXPECT_EQ(parse_config(rule + "'it''s " + brackets + "'}}]}", "").rules[0].names[0], "it's " + brackets);
  EXPECT_EQ(parse_config(rule + "\"\\\"" + brackets + "\"}}]}", "").rules[0].names[0], "\"" + brackets);
}

TEST(ConfigYaml, C02Depth32ItselfIsRead) {
  const YamlSource source = check_yaml_text("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", "t");
  const YamlNode root = parse_yaml(source);
  int depth = 0;
  const YamlNode* node = &root;
  for (; node->kind == YamlNode::Kind::kList; node = &node->items.at(0)) ++depth;
  EXPECT_EQ(depth, 32);
  EXPECT_EQ(node->text, "x");
}

TEST(ConfigYaml, C02LongTextsOfOneKindEndWithAnError) {
  const std::size_t kMax = kMaxYamlBytes / (test::kIsSanitized ? 8 : 1);
  for (const char* unit :
       {"[",     "{a:",    "- ",           "{",   "? ",    "- [",     "[a,",         "a: ",        "'",      "\"",
        "!",     "&a ",    "*a ",          "|\n", "---\n", "...\n",   "%YAML 1.2\n", "%TAG ! a\n", ":",      "a: b\n",
        "{},",   "[? ",    "a, ",          "\\",  ">\n",   "{a: b, ", "[] ",         "''\n",       "[:",     "{,",
        "&a\n",  "\"a\":", ": ",           "a",   "a ",    "a\n",     "\"a\" ",      "\xc3\xa9",   "x: |\n", "-\n",
        "- a\n", "? a\n",  "%TAG !a! b\n", "a#",  "\\x41"}) {
    for (const char* before : {"", "[", "a: ", "\"", "- "}) {
      const std::string text = before + repeat(unit, kMax / std::string(unit).size() - 8);
      const Error e = error_on_small_stack(text);
      // Document ends and directives alone are an empty document.
      const bool empty = std::string(before).empty() && (unit[0] == '%' || unit[0] == '.') && e.status == EVN_OK;
      const bool ok = e.status == EVN_ERROR_CONFIG || e.status == EVN_ERROR_LIMIT || empty;
      EXPECT_TRUE(ok) << before << unit << ": " << e.status << " " << e.message;
    }
  }
}

TEST(ConfigYaml, C02LongBlanksBetweenManyWordsAreALimit) {
  const std::size_t n = 400000;
  const std::string lines(n, '\n');
  for (const std::string& text :
       {"a: \"x" + std::string(n, ' ') + repeat("b ", n / 2) + "\"", "a: x" + lines + repeat(" b\n", n / 4),
        "a: |\n x" + lines + repeat(" b\n", n / 4), "a: 'x" + repeat("\xe2\x80\xa8", n / 3) + repeat("b ", n / 2)}) {
    const Error e = config_error(text);
    EXPECT_EQ(e.status, EVN_ERROR_LIMIT) << e.message;
    EXPECT_EQ(e.bytes_available, kMaxYamlBlanks);
    EXPECT_GT(e.bytes_requested, kMaxYamlBlanks);
  }
  EXPECT_EQ(config_error("version: 1\n" + lines + "limits: {nodes: 5}  # " + std::string(n, ' ')).status, EVN_OK);
}

TEST(ConfigYaml, C02ManyDirectivesAreRefused) {
  std::string text;
  for (int i = 0; i < 30000; ++i) text += "%TAG !a" + std::to_string(i) + "! x\n";
  EXPECT_TRUE(fails_with(text + "---\nversion: 1\n", "17:1: more than 16 directives (lines that begin with %)"));
  EXPECT_EQ(config_error("%YAML 1.2\n%TAG !a! x\n---\nversion: 1\n").status, EVN_OK);
}

TEST(ConfigYaml, C03AliasBombIsRefused) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i <= 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before + repeat(", " + before, 8) + "]\n";
  }
  EXPECT_TRUE(fails_with(text, "1:5: anchors (&name) are not allowed"));
  EXPECT_TRUE(fails_with("a: *b\n", "1:4: aliases (*name) are not allowed; a pattern that begins with * needs quotes"));
}

TEST(ConfigYaml, C03PatternWithoutQuotesGetsAHint) {
  for (const char* text : {"devices: {g: {type: opencl, match: {vendor: *}}}", "a: *", "a: *det*", "- *.onnx"}) {
    EXPECT_TRUE(fails_about(text, "a pattern that begins with * needs quotes")) << text;
  }
}

TEST(ConfigYaml, C04AnchorsAndMergeKeysAreRefused) {
  EXPECT_TRUE(fails_with("&x [*x]", "1:1: anchors (&name) are not allowed"));
  EXPECT_TRUE(fails_with("a: &q 1", "1:4: anchors (&name) are not allowed"));
  EXPECT_TRUE(fails_with("a: &q", "1:4: anchors (&name) are not allowed"));
  EXPECT_TRUE(fails_with("&k a: 1", "1:1: anchors (&name) are not allowed"));
  EXPECT_TRUE(fails_with("limits:\n  <<: {nodes: 5}", "2:3: merge keys (<<) are not allowed"));
  EXPECT_TRUE(fails_with("{<<: {nodes: 5}}", "1:2: merge keys (<<) are not allowed"));
  EXPECT_TRUE(
      fails_with("\"<<\": 1",
                 "1:1: unknown key \"<<\"; here may stand: version, limits, probe, devices, placement, session, passes, cache, "
                 "recording, files, models"));
}

TEST(ConfigYaml, C05DuplicateKeysNameBothLines) {
  EXPECT_TRUE(fails_with("limits:\n  nodes: 5\n  nesting: 6\n  nodes: 7\n",
                         "4:3: duplicate key \"nodes\": it is set at line 2 and again at line 4"));
  EXPECT_TRUE(fails_about("{version: 1, \"version\": 1}", "duplicate key \"version\": it is set at line 1 and again at line 1"));
  EXPECT_TRUE(fails_about("devices:\n  cpu: {type: cpu}\n  cpu: {type: cpu}\n", "duplicate key \"cpu\""));
}

TEST(ConfigYaml, C05ManyKeysAreComparedInTime) {
  std::string text = "devices:\n";
  for (int i = 0; i < 30000; ++i) text += "  d" + std::to_string(i) + ": {}\n";
  EXPECT_TRUE(fails_about(text, "the device \"d0\" needs a \"type\""));
  EXPECT_TRUE(fails_about(text + "  d7: {}\n", "duplicate key \"d7\": it is set at line 9 and again at line 30002"));
}

TEST(ConfigYaml, KeysAreText) {
  for (const char* text : {"? [a]\n: b", "{[a]: b}", "{{a: b}: c}", ": b", "? \n", "{~: b}"}) {
    EXPECT_TRUE(fails_about(text, "a key must be text")) << text;
  }
}

TEST(ConfigYaml, C09TagsAreRefused) {
  for (const char* tag : {"!!python/object:os.system", "!!binary", "!foo", "!!str", "!", "!<tag:yaml.org,2002:int>", "!!map"}) {
    EXPECT_TRUE(fails_with(std::string("version: ") + tag + " 1", "1:10: tags (!name) are not allowed")) << tag;
    EXPECT_TRUE(fails_with(std::string(tag) + " {a: b}", "1:1: tags (!name) are not allowed")) << tag;
    EXPECT_TRUE(fails_with(std::string("a: ") + tag + " [b]", "1:4: tags (!name) are not allowed")) << tag;
  }
  EXPECT_TRUE(fails_about("%TAG ! tag:x,2000:\n---\nversion: !a 1", "3:10: tags (!name) are not allowed"));
}

TEST(ConfigYaml, C10OnlyOneDocument) {
  const char* const kMore = "the document ends before this";
  EXPECT_TRUE(fails_about("version: 1\n---\nversion: 1\n", std::string("2:1: ") + kMore));
  EXPECT_TRUE(fails_about("version: 1\n...\njunk", std::string("3:1: ") + kMore));
  EXPECT_TRUE(fails_about("{}, x", kMore));
  EXPECT_TRUE(fails_about("{},{},{}", kMore));
  EXPECT_TRUE(fails_about("---\n---\n", kMore));
  EXPECT_TRUE(fails_about("{version: 1} {version: 1}", kMore));
  EXPECT_EQ(config_error("---\nversion: 1\n...\n").status, EVN_OK);
}

TEST(ConfigYaml, C11OtherEncodingsAreRefused) {
  const std::string utf16_le("v\0e\0r\0", 6);
  const std::string utf16_be("\0v\0e\0r", 6);
  for (const std::string& text : {utf16_le, utf16_be, "\xff\xfe" + utf16_le, "\xfe\xff" + utf16_be}) {
    EXPECT_TRUE(fails_with(text, "1:1: this is UTF-16: a configuration is UTF-8"));
  }
  EXPECT_TRUE(fails_with("version: 1\n# caf\xe9\n", "2:6: the byte 0xe9 is not valid UTF-8 here"));
  EXPECT_TRUE(fails_with("# \xc3\xa9\xc3\xa9 \xed\xa0\x80\n", "1:6: the byte 0xed is not valid UTF-8 here"));
  EXPECT_TRUE(fails_about("a: \"\xc0\x80\"", "1:5: the byte 0xc0 is not valid UTF-8"));
}

TEST(ConfigYaml, C11NulAndControlCharactersAreRefused) {
  EXPECT_TRUE(fails_with(std::string("version: 1\n\0", 12), "2:1: the control character 0x00 is not allowed"));
  EXPECT_TRUE(fails_with("version: \x1b[2J", "1:10: the control character 0x1b is not allowed"));
  EXPECT_TRUE(fails_about("placement: {rules: [{match: {name: \"a\\0b\"}, device: cpu}]}", "must not contain a NUL"));
}

TEST(ConfigYaml, C11CharactersThatYamlHasNotAreRefused) {
  EXPECT_TRUE(fails_with("# \xc3\xa9\nversion: \x7f", "2:10: the control character 0x7f is not allowed"));
  EXPECT_TRUE(fails_with("# \xc3\xa9\n# \xc3\xa9\xc2\x80", "2:4: the control character 0x80 is not allowed"));
  EXPECT_TRUE(fails_with("\xef\xbb\xbf\xef\xbb\xbfversion: 1", "1:1: a byte-order mark can only begin the text, once"));
  EXPECT_TRUE(fails_with("version: 1\n\xef\xbb\xbflimits: {}", "2:1: a byte-order mark can only begin the text, once"));
}

TEST(ConfigYaml, C11TabsAreNoIndentation) {
  EXPECT_TRUE(fails_with("limits:\n\tnodes: 5\n", "2:1: a tab is no indentation: use spaces"));
  EXPECT_TRUE(fails_with("limits:\n  \tnodes: 5\n", "2:3: a tab is no indentation: use spaces"));
  EXPECT_EQ(parse_config("placement:\n  rules:\n    -\t{device: cpu}\n", "").rules.size(), 1u);
  EXPECT_EQ(parse_config("limits:\n  nodes:\t5\t# five\n", "").limits.nodes, 5u);
}

TEST(ConfigYaml, SyntaxErrorsHaveAPlace) {
  EXPECT_TRUE(
      fails_with("limits: {nodes: 5", "1:18: not valid YAML: end of map flow not found (in the map that begins in line 1)"));
  EXPECT_TRUE(fails_about("a: b: c", "1:5: not valid YAML: "));
  EXPECT_TRUE(fails_about("version: 1\n]", "2:1: not valid YAML: "));
  EXPECT_TRUE(fails_about("# \xc3\xa9\na: `x`", "2:4: not valid YAML: "));
  EXPECT_TRUE(fails_about("a: \"\\q\"", "not valid YAML: "));
  EXPECT_TRUE(fails_about("%YAML 7.0\n---\n", "not valid YAML: "));
  EXPECT_TRUE(fails_with("limits:\n  nodes: 5\n  values\n  nesting: 5\n",
                         "3:3: not valid YAML: a \":\" must follow this key, in its line"));
  EXPECT_TRUE(fails_with("limits: {nodes:[5]}", "1:15: not valid YAML: a blank must follow this \":\""));
  EXPECT_TRUE(fails_with("limits:\n  nodes: 5\n  values\n", "3:3: not valid YAML: a \":\" must follow this key, in its line"));
  for (const char* text : {"\"", "'", "'x\n", "version: \"1", "{a: 'x"}) EXPECT_TRUE(fails_about(text, "not valid YAML: ")) << text;
  for (const char* text : {"%foo\n---\nversion: 1\n", "version: 1\n%foo\n", "%"})
    EXPECT_TRUE(fails_about(text, "only the directives")) << text;
  EXPECT_TRUE(fails_about("version: 1\nlimits: [a\n\nb: c", "(in the list that begins in line 2)"));
}

TEST(ConfigYaml, QuestionMarksArePartOfWords) {
  for (const char* name : {"det?", "d?t", "?et", "d??", "?", "??"}) {
    const std::string plain = std::string("placement: {rules: [{device: cpu, match: {name: ") + name + "}}]}";
    const std::string quoted = std::string("placement: {rules: [{device: cpu, match: {name: \"") + name + "\"}}]}";
    const std::string block = std::string("placement:\n  rules:\n    - device: cpu\n      match:\n        name: ") + name + "\n";
    EXPECT_EQ(parse_config(quoted, "").rules[0].names[0], name);
    if (std::string(name) == "?") continue;  // alone it is YAML's own
    EXPECT_EQ(parse_config(block, "").rules[0].names[0], name);
    if (std::string(name) == "??") continue;
    EXPECT_EQ(parse_config(plain, "").rules[0].names[0], name);
  }
}

TEST(ConfigYaml, ACarriageReturnIsALineBreak) {
  EXPECT_EQ(parse_config("limits:\r  nodes: 5\r  nesting: 7\r", "").limits.nesting, 7u);
}

TEST(ConfigYaml, ColumnsCountCharacters) { EXPECT_TRUE(fails_about("{\"\xc3\xa9\": 1, \"\xe6\x96\x87\": *x}", "1:15: aliases")); }

TEST(ConfigYaml, C12LargerTextsAreALimit) {
  const std::string comment = "#" + std::string(kMaxYamlBytes - 1, ' ');
  EXPECT_EQ(config_error(comment).status, EVN_OK);
  const Error e = config_error(comment + " ");
  EXPECT_EQ(e.status, EVN_ERROR_LIMIT);
  EXPECT_EQ(e.bytes_requested, kMaxYamlBytes + 1);
  EXPECT_EQ(e.bytes_available, kMaxYamlBytes);
}

class ConfigFile : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/evener-config-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static Error load_error(const std::string& path) {
    try {
      load_config(path);
    } catch (const Error& e) {
      return e;
    }
    Error none;
    none.status = EVN_OK;
    return none;
  }

  std::string folder_;
};

TEST_F(ConfigFile, IsReadWithItsNameInMessages) {
  const std::string path = folder_ + "/c.yaml";
  std::ofstream(path) << "limits: {nodes: 5}\n";
  EXPECT_EQ(load_config(path).limits.nodes, 5u);
  EXPECT_EQ(load_config(path).source, path);
  std::ofstream(path) << "limits: {node: 5}\n";
  EXPECT_EQ(load_error(path).message, path + ":1:10: unknown key \"node\"; did you mean \"nodes\"?");
}

TEST_F(ConfigFile, C12OfAHundredMebibytesIsALimit) {
  const std::string path = folder_ + "/large.yaml";
  std::ofstream(path) << "a";
  std::filesystem::resize_file(path, 100u << 20);
  EXPECT_EQ(load_error(path).status, EVN_ERROR_LIMIT);
}

TEST_F(ConfigFile, C14ThatIsNoRegularFileIsAnIoErrorAtOnce) {
  EXPECT_EQ(load_error(folder_).status, EVN_ERROR_IO);
  EXPECT_EQ(load_error(folder_ + "/absent.yaml").status, EVN_ERROR_IO);
  ASSERT_EQ(mkfifo((folder_ + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(load_error(folder_ + "/fifo").status, EVN_ERROR_IO);
  EXPECT_EQ(load_error("/dev/zero").status, EVN_ERROR_IO);
}

TEST(ConfigFaults, EachFailingAllocationIsBadAllocAndNothingElse) {
  // Directives, quoted texts longer than a short string, and keys in a line are what yaml-cpp keeps in containers.
  const std::string text =
      "%TAG !a! b\n---\nlimits: {nodes: 5}\ndevices:\n  g: {type: opencl, match: {vendor: \"a long enough text for the heap\"}}\n"
      "placement:\n  default: g\n  rules:\n    - {match: {op: [Conv, ConvTranspose]}, device: g}\n";
  int failures = 0;
  for (std::int64_t k = 1; k < 100000; ++k) {
    bool threw = false;
    fault_arm(Seam::kAlloc, k, false);
    try {
      const Config c = parse_config(text, "c.yaml");
      fault_arm(Seam::kAlloc, 0, false);
      EXPECT_EQ(c.limits.nodes, 5u);
    } catch (const std::bad_alloc&) {
      threw = true;
    } catch (const Error& e) {
      threw = e.status == EVN_ERROR_OUT_OF_MEMORY;
      EXPECT_TRUE(threw) << k << ": " << e.message;
    }
    fault_arm(Seam::kAlloc, 0, false);
    if (!threw) break;
    ++failures;
  }
  EXPECT_GT(failures, 50);
  EXPECT_LT(failures, 90000);
}

TEST(ConfigFaults, YamlCppHasItsMemoryFromTheSeam) {
  const std::string text = "\"" + std::string(5000, 'a') + "\"";
  const YamlSource source = check_yaml_text(text, "t");
  fault_arm(Seam::kAlloc, INT64_MAX, false);
  fault_count_reset(Seam::kAlloc);
  EXPECT_EQ(parse_yaml(source).text, std::string(5000, 'a'));
  EXPECT_GT(fault_count(Seam::kAlloc), 20);  // our own copies are two: the rest are the scanner's and the stream's
  fault_arm(Seam::kAlloc, 0, false);
}

}  // namespace
}  // namespace evn
