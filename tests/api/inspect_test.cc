// evn_model_inspect: what it says of models that load, of models that do not, and of bytes that mean harm.
#include <algorithm>

#include "base/fault.h"
#include "tests/api/support.h"

namespace evn::test {
namespace {

using Floats = std::vector<float>;

struct Inspect : ApiTest {
  evn_status last = EVN_OK;

  std::string inspect(const std::string& model_bytes, std::vector<evn_input_shape> shapes = {},
                      evn_format format = EVN_FORMAT_JSON) {
    evn_inspect_options o = EVN_INSPECT_OPTIONS_INIT;
    o.data = model_bytes.data();
    o.size = model_bytes.size();
    o.shapes = shapes.data();
    o.shape_count = static_cast<uint32_t>(shapes.size());
    std::string text(1 << 20, '\0');
    size_t size = 0;
    error = EVN_ERROR_INIT;
    last = evn_model_inspect(runtime, nullptr, &o, format, text.data(), text.size(), &size, &error);
    text.resize(last == EVN_OK ? size - 1 : 0);
    return text;
  }
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
  // The number behind "key": in the text.
  static double number(const std::string& json, const std::string& key) {
    const std::size_t at = json.find("\"" + key + "\":");
    EXPECT_NE(at, std::string::npos) << key;
    return at == std::string::npos ? -1 : std::strtod(json.c_str() + at + key.size() + 3, nullptr);
  }
};

// y = strange(conv(x)) where `Strange` is not known; the branches of an If have another one each.
std::string strange_model() {
  OnnxWriter then_body;
  then_body.add_node("Neg", {"c"}, {"n"}).add_node("Odd", {"n"}, {"t"}, {}, "odd_one").add_output("t");
  OnnxWriter else_body;
  else_body.add_node("Odd", {"c"}, {"e"}).add_output("e");
  OnnxWriter w(17);
  w.import("my.domain", 3);
  w.add_input("x", kF32, {1, 3, 8, 8}).add_input("which", kBool, {}).add_output("y").add_output("z");
  w.add_initializer("w", {4, 3, 3, 3}, Floats(4 * 27, 0.5f));
  w.add_node("Conv", {"x", "w"}, {"c"}, {}, "conv");
  w.add_node("Strange", {"c"}, {"s"}, {}, "strange_1", "my.domain");
  w.add_node("Relu", {"s"}, {"y"});
  w.add_node("If", {"which"}, {"z"}, {Attr::graph("then_branch", then_body.graph()), Attr::graph("else_branch", else_body.graph())},
             "choice");
  return w.serialize();
}

TEST_F(Inspect, SaysWhatAModelIsMadeOf) {
  const std::string json = inspect(bytes);
  ASSERT_EQ(last, EVN_OK) << error.message;
  EXPECT_TRUE(has(json, R"("inputs":[{"name":"x","type":"float32","dims":["N",3,8,8]}])")) << json;
  EXPECT_TRUE(has(json, R"("opsets":{"ai.onnx":13})"));
  EXPECT_TRUE(has(json, R"({"domain":"ai.onnx","name":"Conv","opset":13,"since":1,"count":1,"supported":true})")) << json;
  EXPECT_TRUE(has(json, R"({"domain":"ai.onnx","name":"Reshape","opset":13,"since":5,"count":1,"supported":true})")) << json;
  EXPECT_TRUE(has(json, R"("unsupported":[],"loads":true,"error":null)"));
  EXPECT_EQ(number(json, "node_count"), 7);
  EXPECT_EQ(number(json, "parameters"), 8 * 27 + 8 + 80 + 10 + 2);
  EXPECT_EQ(number(json, "weight_bytes"), 4 * (8 * 27 + 8 + 80 + 10) + 8 * 2);
  EXPECT_TRUE(has(json, R"({"dtype":"int64","tensors":1,"parameters":2,"bytes":16})"));
  EXPECT_TRUE(has(json, R"("complete":false)")) << "N is not known";
  EXPECT_TRUE(has(inspect(bytes, {}, EVN_FORMAT_TEXT), "it loads"));
}

TEST_F(Inspect, ListsInputsWithADefault) {
  for (const int64_t ir_version : {3, 8}) {
    OnnxWriter w(13, ir_version);
    w.add_input("k", kF32, {}).add_input("x", kF32, {"n"}).add_input("b", kF32, {"m"}).add_output("y", kF32);
    w.add_initializer("k", {}, Floats{2}).add_initializer("b", {1}, Floats{1});
    w.add_node("Mul", {"x", "k"}, {"s"}).add_node("Add", {"s", "b"}, {"y"});
    const bool has_defaults = ir_version >= 4;
    const std::string json = inspect(w.serialize()), text = inspect(w.serialize(), {}, EVN_FORMAT_TEXT);
    EXPECT_TRUE(has(json, R"("inputs":[{"name":"x","type":"float32","dims":["n"]}],"defaults":[)")) << json;
    EXPECT_EQ(has(json, R"([{"name":"k","type":"float32","dims":[]},{"name":"b","type":"float32","dims":["m"]}])"), has_defaults);
    EXPECT_EQ(has(text, "  default  k  float32[]\n  default  b  float32[m]\n"), has_defaults) << text;
    // The same of a model that is loaded.
    evn_model loaded = nullptr;
    const std::string file = w.serialize();
    ASSERT_OK(evn_model_load_buffer(runtime, file.data(), file.size(), nullptr, &loaded, &error));
    std::string described(1 << 16, '\0');
    EXPECT_OK(evn_model_describe(loaded, EVN_FORMAT_JSON, described.data(), described.size(), nullptr, &error));
    EXPECT_TRUE(has(described, R"("inputs":[{"name":"x","dtype":"float32","dims":["n"]}],"defaults":[)")) << described;
    EXPECT_EQ(has(described, R"([{"name":"k","dtype":"float32","dims":[]},{"name":"b","dtype":"float32","dims":["m"]}])"),
              has_defaults);
    EXPECT_EQ(evn_model_release(loaded), EVN_OK);
  }
}

TEST_F(Inspect, EstimatesWhatARunTakes) {
  const int64_t x[4] = {64, 3, 8, 8};
  const std::string json = inspect(bytes, {{"x", x, 4, 0}});
  ASSERT_EQ(last, EVN_OK) << error.message;
  EXPECT_TRUE(has(json, R"("shapes":{"x":[64,3,8,8]},"complete":true)")) << json;
  EXPECT_EQ(number(json, "Conv"), 64.0 * 8 * 4 * 4 * 27);
  EXPECT_EQ(number(json, "Gemm"), 64.0 * 10 * 8);
  EXPECT_EQ(number(json, "multiply_adds"), 64.0 * (8 * 4 * 4 * 27 + 80));
  EXPECT_EQ(number(json, "input_bytes"), 64 * 3 * 64 * 4);
  EXPECT_EQ(number(json, "output_bytes"), 64 * 10 * 4);

  // A run of it, in a runtime of its own.
  evn_runtime fresh = nullptr;
  evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
  o.cache_dir = "";
  o.thread_count = 2;
  ASSERT_OK(evn_runtime_create(&o, &fresh, &error));
  evn_device device = nullptr;
  evn_model m = nullptr;
  evn_session s = nullptr;
  evn_tensor in = nullptr;
  evn_tensor out = nullptr;
  ASSERT_OK(evn_runtime_device_at(fresh, 0, &device, &error));
  ASSERT_OK(evn_model_load_buffer(fresh, bytes.data(), bytes.size(), nullptr, &m, &error));
  ASSERT_OK(evn_session_create(fresh, m, nullptr, &s, &error));
  ASSERT_OK(evn_tensor_create(device, EVN_DTYPE_FLOAT32, x, 4, 0, &in, &error));
  ASSERT_OK(evn_session_run(s, &in, 1, &out, 1, nullptr, &error));
  evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
  ASSERT_OK(evn_device_get_memory_stats(device, &stats, &error));
  EXPECT_EQ(number(json, "arena_bytes"), static_cast<double>(stats.by_class[EVN_MEMORY_ARENAS]));
  EXPECT_EQ(number(json, "packed_bytes"), static_cast<double>(stats.by_class[EVN_MEMORY_PACKED]));
  const auto planned = static_cast<double>(stats.current - stats.by_class[EVN_MEMORY_HEAP]);  // graphs and plans are not estimated
  EXPECT_NEAR(number(json, "peak_bytes"), planned, 0.05 * planned);
  for (evn_tensor t : {in, out}) evn_tensor_release(t);
  evn_session_release(s);
  evn_model_release(m);
  evn_device_release(device);
  evn_runtime_release(fresh);
}

TEST_F(Inspect, NamesEveryNodeThatIsNotSupportedAndGoesOn) {
  const std::string json = inspect(strange_model());
  ASSERT_EQ(last, EVN_OK) << error.message;
  EXPECT_TRUE(has(
      json,
      R"({"domain":"ai.onnx","name":"Odd","count":2,"reason":"not supported","nodes":["choice/then/odd_one","choice/else/Odd_0"]})"))
      << json;
  EXPECT_TRUE(has(json, R"({"domain":"my.domain","name":"Strange","count":1,"reason":"not supported","nodes":["strange_1"]})"))
      << json;
  EXPECT_TRUE(has(json, R"("loads":false,"error":{"status":"EVN_ERROR_UNSUPPORTED")"));
  EXPECT_TRUE(has(json, R"("complete":false,"nodes_left_out":3)")) << json;
  EXPECT_EQ(number(json, "Conv"), 4.0 * 36 * 27) << "the rest is followed";
  EXPECT_EQ(number(json, "node_count"), 7);
  EXPECT_TRUE(has(inspect(strange_model(), {}, EVN_FORMAT_TEXT), "choice/then/odd_one"));
}

TEST_F(Inspect, ALongNameIsNotRepeatedForEachNodeOfABranch) {
  constexpr int kNodes = 2000;
  constexpr uint64_t kLimit = 64u << 20;
  const std::string name(kLimit / 512, 'a');
  OnnxWriter then_body, else_body, w(17);
  for (int i = 0; i < kNodes; ++i)
    then_body.add_node("Neg", {i == 0 ? "x" : "v" + std::to_string(i - 1)}, {"v" + std::to_string(i)});
  then_body.add_output("v" + std::to_string(kNodes - 1));
  else_body.add_node("Neg", {"x"}, {"e"}).add_output("e");
  w.import("my.domain", 3).add_input("x", kF32, {4}).add_input("which", kBool, {}).add_output("y").add_output("z");
  w.add_node("Strange", {"x"}, {"z"}, {}, "strange_1", "my.domain");
  w.add_node("If", {"which"}, {"y"}, {Attr::graph("then_branch", then_body.graph()), Attr::graph("else_branch", else_body.graph())},
             name);
  ASSERT_OK(evn_device_set_memory_limit(cpu, kLimit, &error));
  const std::string json = inspect(w.serialize());
  ASSERT_EQ(last, EVN_OK) << error.message;
  EXPECT_TRUE(has(json, R"("complete":false,"nodes_left_out":1)")) << json;
}

TEST_F(Inspect, CollectsNodesThatAreRefusedForTheirTypes) {
  OnnxWriter w(17);
  w.add_input("a", kI64, {4}).add_input("x", kF32, {4, 4}).add_output("b", kI64).add_output("d", kI64).add_output("y");
  w.add_node("Sin", {"a"}, {"b"}, {}, "sin_of_int")
      .add_node("Erf", {"a"}, {"d"}, {}, "erf_of_int")
      .add_node("MatMul", {"x", "x"}, {"y"});
  const std::string json = inspect(w.serialize());
  ASSERT_EQ(last, EVN_OK) << error.message;
  EXPECT_TRUE(has(json, R"("nodes":["sin_of_int"])")) << json;
  EXPECT_EQ(number(json, "MatMul"), 64) << json;
}

TEST_F(Inspect, TellsOfModelsThatCannotEvenBeRead) {
  OnnxWriter sequence(17);
  Proto type;
  type.message(4, Proto().message(1, Proto().message(1, Proto().varint(1, kI64))));
  sequence.graph().message(11, Proto().bytes(1, "s").message(2, type));
  sequence.add_output("y", kI64).add_node("SequenceLength", {"s"}, {"y"});
  std::string json = inspect(sequence.serialize());
  ASSERT_EQ(last, EVN_OK) << error.message;
  EXPECT_TRUE(has(json, R"j({"name":"s","type":"sequence(int64)","dims":null})j")) << json;

  OnnxWriter newer(29);
  newer.add_input("x", kF32, {2}).add_output("y").add_node("Relu", {"x"}, {"y"});
  json = inspect(newer.serialize());
  ASSERT_EQ(last, EVN_OK) << error.message;
  EXPECT_TRUE(has(json, R"("loads":false)") && has(json, "opset 29 is newer")) << json;

  OnnxWriter function(17);
  function.import("mine", 1);
  function.add_input("x", kF32, {2}).add_output("y").add_node("Twice", {"x"}, {"y"}, {}, "call", "mine");
  Proto body;
  body.bytes(1, "Twice").bytes(10, "mine").bytes(4, "a").bytes(5, "b").message(9, Proto().bytes(1, "").varint(2, 17));
  body.message(7, Proto().bytes(1, "a").bytes(1, "a").bytes(2, "b").bytes(4, "Add").bytes(3, "inner"));
  Proto unused;
  unused.bytes(1, "Unused").bytes(10, "mine").message(7, Proto().bytes(2, "b").bytes(4, "Nothing"));
  function.model().message(25, body).message(25, unused);
  json = inspect(function.serialize());
  ASSERT_EQ(last, EVN_OK) << error.message;
  EXPECT_TRUE(has(json, R"("functions":[{"domain":"mine","name":"Twice","overload":""}])")) << json;
  EXPECT_TRUE(has(json, R"({"domain":"ai.onnx","name":"Add","opset":17,"since":7,"count":1,"supported":true})")) << json;
  EXPECT_FALSE(has(json, "Nothing"));
  EXPECT_TRUE(has(json, R"("unsupported":[],"loads":true)")) << json;
}

TEST_F(Inspect, ExternalDataIsCountedWithoutBeingThere) {
  OnnxWriter w(17);
  Proto t;
  t.varint(1, 1000).varint(2, kF32).bytes(8, "w").varint(14, 1);
  t.message(13, Proto().bytes(1, "location").bytes(2, "weights.bin"));
  w.add_input("x", kF32, {1000}).add_output("y").add_initializer(t).add_node("Add", {"x", "w"}, {"y"});
  const std::string json = inspect(w.serialize());
  ASSERT_EQ(last, EVN_OK) << error.message;
  EXPECT_TRUE(has(json, R"("external_data":{"bytes":4000,"files":["weights.bin"]})")) << json;
  EXPECT_TRUE(has(json, R"("loads":false)"));
}

TEST_F(Inspect, ShapesThatTheModelCannotHaveAreRefused) {
  const int64_t good[4] = {2, 3, 8, 8};
  const int64_t four[4] = {2, 4, 8, 8};
  const int64_t negative[4] = {-1, 3, 8, 8};
  const auto refused = [&](evn_input_shape s, const char* part) {
    inspect(bytes, {s});
    EXPECT_EQ(last, EVN_ERROR_INVALID_ARGUMENT) << part;
    EXPECT_TRUE(has(error.message, part)) << error.message;
  };
  refused({"z", good, 4, 0}, "there are: x");
  refused({"x", good, 3, 0}, "cannot have the shape [2,3,8]");
  refused({"x", four, 4, 0}, "cannot have the shape [2,4,8,8]");
  refused({"x", negative, 4, 0}, "negative");
  refused({"x", nullptr, 4, 0}, "dims");
  refused({nullptr, good, 4, 0}, "name");
  refused({"x", good, 4, 1}, "reserved");
  inspect(bytes, {{"x", good, 4, 0}, {"x", good, 4, 0}});
  EXPECT_EQ(last, EVN_ERROR_INVALID_ARGUMENT);
  inspect(bytes, {{"x", good, 9, 0}});
  EXPECT_EQ(last, EVN_ERROR_LIMIT);

  OnnxWriter w(17);  // both take n; the shapes of y depend on it
  w.add_input("a", kF32, {"n", 2}).add_input("b", kF32, {"n", 2}).add_output("y").add_initializer("w", {2, 3}, Floats(6, 1));
  w.add_node("Add", {"a", "b"}, {"s"}).add_node("MatMul", {"s", "w"}, {"y"});
  const int64_t five[2] = {5, 2};
  const int64_t six[2] = {6, 2};
  EXPECT_EQ(number(inspect(w.serialize(), {{"b", five, 2, 0}}), "MatMul"), 5 * 2 * 3) << "n is one dim";
  inspect(w.serialize(), {{"a", five, 2, 0}, {"b", six, 2, 0}});
  EXPECT_EQ(last, EVN_ERROR_INVALID_ARGUMENT);
  OnnxWriter free(17);
  free.add_input("a", kF32, {"n", 2}).add_input("b", kF32, {"m", 2}).add_output("y").add_node("Add", {"a", "b"}, {"y"}, {}, "sum");
  inspect(free.serialize(), {{"a", five, 2, 0}, {"b", six, 2, 0}});
  EXPECT_EQ(last, EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(error.node, "sum");
}

TEST_F(Inspect, ArgumentsAreChecked) {
  size_t size = 0;
  evn_inspect_options o = EVN_INSPECT_OPTIONS_INIT;
  EXPECT_EQ(evn_model_inspect(nullptr, "x", nullptr, EVN_FORMAT_JSON, nullptr, 0, &size, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_model_inspect(runtime, nullptr, nullptr, EVN_FORMAT_JSON, nullptr, 0, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_model_inspect(runtime, "", nullptr, EVN_FORMAT_JSON, nullptr, 0, &size, &error), EVN_ERROR_IO);
  EXPECT_EQ(evn_model_inspect(runtime, "no-such.onnx", nullptr, EVN_FORMAT_JSON, nullptr, 0, &size, &error), EVN_ERROR_IO);
  EXPECT_EQ(evn_model_inspect(runtime, "no-such.onnx", nullptr, EVN_FORMAT_DOT, nullptr, 0, &size, &error),
            EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_model_inspect(runtime, "no-such.onnx", nullptr, EVN_FORMAT_JSON, nullptr, 0, nullptr, &error),
            EVN_ERROR_INVALID_ARGUMENT);
  o.data = bytes.data();
  o.size = bytes.size();
  EXPECT_EQ(evn_model_inspect(runtime, "x", &o, EVN_FORMAT_JSON, nullptr, 0, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  o.shape_count = 1;
  EXPECT_EQ(evn_model_inspect(runtime, nullptr, &o, EVN_FORMAT_JSON, nullptr, 0, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  o.shape_count = 0;
  o.struct_size = 12;
  EXPECT_EQ(evn_model_inspect(runtime, nullptr, &o, EVN_FORMAT_JSON, nullptr, 0, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  o.struct_size = sizeof o;
  EXPECT_EQ(size, 0u);
  EXPECT_OK(evn_model_inspect(runtime, nullptr, &o, EVN_FORMAT_JSON, nullptr, 0, &size, &error));
  char small[4];
  EXPECT_EQ(evn_model_inspect(runtime, nullptr, &o, EVN_FORMAT_JSON, small, sizeof small, &size, &error),
            EVN_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(error.bytes_requested, size);
}

// Every byte changed, and every cut: what loads is said to load, and what is refused is refused or explained.
TEST_F(Inspect, HostileBytesAreAsHarmlessAsInLoading) {
  const auto agree = [&](const std::string& changed, std::size_t at) {
    evn_model m = nullptr;
    const evn_status loaded = evn_model_load_buffer(runtime, changed.data(), changed.size(), nullptr, &m, nullptr);
    evn_model_release(m);
    const std::string json = inspect(changed);
    if (last == EVN_OK) {
      EXPECT_EQ(has(json, "\"loads\":true"), loaded == EVN_OK) << at;
    } else {
      // A size of 0 is a missing one.
      EXPECT_TRUE(last == EVN_ERROR_INVALID_MODEL || last == EVN_ERROR_LIMIT ||
                  (changed.empty() && last == EVN_ERROR_INVALID_ARGUMENT))
          << at << ": " << last;
      EXPECT_TRUE(loaded != EVN_OK || has(error.message, "TypeProto.")) << at << ": " << error.message;  // loading skips some types
    }
  };
  const std::string whole = strange_model();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
    agree(changed, i);
    agree(whole.substr(0, i), i);
  }
  const std::string network = small_network().serialize();
  for (std::size_t i = 0; i < network.size(); i += 3) {
    std::string changed = network;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
    agree(changed, i);
  }
}

TEST_F(Inspect, DeepBodiesAreALimit) {
  Proto body;
  body.message(1, Proto().bytes(4, "Relu"));
  for (int i = 0; i < 200; ++i) {
    const Proto attribute = Proto().bytes(1, "body").message(6, body).varint(20, 5);
    body = Proto().message(1, Proto().bytes(4, "Loop").message(5, attribute));
  }
  const std::string deep = Proto().varint(1, 8).message(7, body).message(8, Proto().bytes(1, "").varint(2, 17)).str();
  inspect(deep);
  EXPECT_EQ(last, EVN_ERROR_LIMIT) << error.message;
}

TEST_F(Inspect, EachFailingAllocationIsAStatus) {
  const std::string whole = strange_model();
  const std::string want = inspect(whole);
  evn_inspect_options o = EVN_INSPECT_OPTIONS_INIT;
  o.data = whole.data();
  o.size = whole.size();
  std::string text(want.size() + 1, '\0');
  int refused = 0;
  for (int k = 1; k < 100000; ++k) {
    size_t size = 0;
    fault_arm(Seam::kAlloc, k, false);
    const evn_status status = evn_model_inspect(runtime, nullptr, &o, EVN_FORMAT_JSON, text.data(), text.size(), &size, &error);
    fault_arm(Seam::kAlloc, 0, false);
    if (status == EVN_OK) break;
    ++refused;
    ASSERT_EQ(status, EVN_ERROR_OUT_OF_MEMORY) << k << ": " << error.message;
    ASSERT_EQ(size, 0u);
  }
  EXPECT_GT(refused, 100);
  EXPECT_STREQ(text.c_str(), want.c_str());
}

}  // namespace
}  // namespace evn::test
