// Rows of the project's list of hostile inputs whose answer shows only when a model is run: values as the operators document them,
// or a status that names the node. What each operator does with damaged arities, attributes and shapes is
// tests/conformance/hostile_test.cc.
#include <cmath>
#include <limits>

#include "tests/api/support.h"

namespace evn::test::hostile_rows_test {
namespace {

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using Ints = std::vector<std::int64_t>;
using Floats = std::vector<float>;

// A tensor that a node reads: in the model, or brought by the run.
struct Operand {
  int dtype;
  Ints dims;
  std::string bytes;
};
template <typename T>
Operand tensor(const Ints& dims, const std::vector<T>& values, int dtype = onnx_type<T>()) {
  return {dtype, dims, std::string(bytes_of(values))};
}
Operand floats(const Ints& dims, const Floats& values) { return tensor(dims, values); }
Operand list(const Ints& values) { return tensor({static_cast<std::int64_t>(values.size())}, values); }
Operand scalar(float v) { return floats({}, {v}); }
Operand scalar(std::int64_t v) { return tensor<std::int64_t>({}, {v}); }

class HostileRow : public testing::Test {
 protected:
  enum Stage { kLoad, kRun };

  void SetUp() override {
    static const char kYaml[] =
        "limits: {run_time: 2s, load_time: 5s, tensor_bytes: 16MiB}\ndevices:\n  cpu: {type: cpu, threads: 1, memory_limit: "
        "64MiB}\n";
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.config_text = kYaml;
    options.config_size = sizeof kYaml - 1;
    ASSERT_OK(evn_runtime_create(&options, &runtime_, &error));
    ASSERT_OK(evn_runtime_device_at(runtime_, 0, &cpu_, &error));
  }
  void TearDown() override {
    evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
    EXPECT_OK(evn_device_get_memory_stats(cpu_, &stats, &error));
    EXPECT_LE(stats.peak, 64u << 20);
    evn_device_release(cpu_);
    evn_runtime_release(runtime_);
  }

  // Loads and runs; `error`, `stage` and `outputs` say what came of it.
  evn_status run_model(const std::string& bytes, const std::vector<Operand>& inputs, std::size_t output_count = 1) {
    evn_model model = nullptr;
    evn_session session = nullptr;
    error = EVN_ERROR_INIT;
    stage = kLoad;
    outputs.clear();
    evn_status s = evn_model_load_buffer(runtime_, bytes.data(), bytes.size(), nullptr, &model, &error);
    if (s == EVN_OK) s = evn_session_create(runtime_, model, nullptr, &session, &error);
    if (s == EVN_OK) {
      stage = kRun;
      s = run(session, inputs, output_count);
    }
    evn_session_release(session);
    evn_model_release(model);
    return s;
  }

  // One node "n"; bit i of `constants` puts input i into the model. Shapes of the others are not declared.
  evn_status run_node(const char* op, const std::vector<Operand>& operands, const std::vector<Attr>& attributes, unsigned constants,
                      std::int64_t opset = 21, std::size_t output_count = 1) {
    OnnxWriter w(opset, 10);
    std::vector<std::string> in, out;
    std::vector<Operand> inputs;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Operand& x = operands[i];
      in.push_back(x.dtype == 0 ? "" : "x" + std::to_string(i));
      if (x.dtype == 0) continue;
      if ((constants >> i & 1) != 0) {
        w.add_initializer(tensor_proto(in.back(), x.dtype, x.dims, x.bytes));
      } else {
        std::vector<Dim> dims;
        for (std::size_t d = 0; d < x.dims.size(); ++d) dims.push_back((in.back() + "_" + std::to_string(d)).c_str());
        w.add_input(in.back(), x.dtype, dims);
        inputs.push_back(x);
      }
    }
    for (std::size_t k = 0; k < output_count; ++k) out.push_back("y" + std::to_string(k));
    w.add_node(op, in, out, attributes, "n");
    // What the node makes is no output of the graph: then it is computed while loading when all operands are there.
    for (const std::string& y : out) w.add_node("Reshape", {y, "other"}, {y + "_out"}).add_output(y + "_out", 0);
    w.add_initializer("other", {3}, Ints{1, -1, 1});
    return run_model(w.serialize(), inputs, output_count);
  }

  // All ways to bring the operands: refused as INVALID_MODEL while loading, as INVALID_ARGUMENT when the run brings the fault.
  void expect_refused(const char* op, const std::vector<Operand>& operands, const std::vector<Attr>& attributes = {},
                      std::int64_t opset = 21) {
    const unsigned all = (1u << operands.size()) - 1;
    for (unsigned constants = 0; constants <= all; ++constants) {
      const evn_status s = run_node(op, operands, attributes, constants, opset);
      const std::string where =
          std::string(op) + ", constants " + std::to_string(constants) + ": " + std::to_string(s) + " " + error.message;
      EXPECT_TRUE(s == EVN_ERROR_INVALID_MODEL || s == EVN_ERROR_INVALID_ARGUMENT) << where;
      if (constants == all) {
        EXPECT_EQ(s, EVN_ERROR_INVALID_MODEL) << where;
      }
      if (stage == kRun) {
        EXPECT_EQ(s, EVN_ERROR_INVALID_ARGUMENT) << where;
      }
      EXPECT_STREQ(error.node, "n") << where;
    }
  }
  void expect_limit(const char* op, const std::vector<Operand>& operands, const std::vector<Attr>& attributes = {}) {
    for (unsigned constants = 0; constants < 1u << operands.size(); ++constants) {
      EXPECT_EQ(run_node(op, operands, attributes, constants), EVN_ERROR_LIMIT)
          << op << ", constants " << constants << ": " << error.message;
    }
  }

  template <typename T = float>
  std::vector<T> output(std::size_t k = 0) const {
    std::vector<T> values(outputs.at(k).size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), outputs[k].data(), outputs[k].size());
    return values;
  }
  // The first output, whichever operands are constant.
  template <typename T = float>
  void expect_values(const char* op, const std::vector<Operand>& operands, const std::vector<Attr>& attributes,
                     const std::vector<T>& wanted, std::int64_t opset = 21) {
    for (unsigned constants = 0; constants < 1u << operands.size(); ++constants) {
      ASSERT_EQ(run_node(op, operands, attributes, constants, opset), EVN_OK) << op << ": " << error.message;
      const std::vector<T> actual = output<T>();
      ASSERT_EQ(actual.size(), wanted.size()) << op;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const bool both_nan = wanted[i] != wanted[i] && actual[i] != actual[i];
        EXPECT_TRUE(both_nan || actual[i] == wanted[i])
            << op << "[" << i << "]: " << +actual[i] << ", not " << +wanted[i] << "; constants " << constants;
      }
    }
  }

  evn_error error = EVN_ERROR_INIT;
  Stage stage = kLoad;
  std::vector<std::string> outputs;

 private:
  evn_runtime runtime_ = nullptr;
  evn_device cpu_ = nullptr;

  evn_status run(evn_session session, const std::vector<Operand>& inputs, std::size_t output_count) {
    std::vector<evn_tensor> in, out(output_count);
    evn_status s = EVN_OK;
    for (const Operand& x : inputs) {
      evn_tensor t = nullptr;
      s = evn_tensor_create(cpu_, static_cast<evn_dtype>(x.dtype), x.dims.data(), static_cast<uint32_t>(x.dims.size()), 0, &t,
                            &error);
      void* data = nullptr;
      size_t size = 0;
      if (s == EVN_OK) s = evn_tensor_map(t, EVN_MAP_WRITE, &data, &size, &error);
      EXPECT_EQ(size, x.bytes.size());
      if (s == EVN_OK && size > 0) std::memcpy(data, x.bytes.data(), size);
      if (s == EVN_OK) s = evn_tensor_unmap(t, &error);
      in.push_back(t);
    }
    if (s == EVN_OK) {
      s = evn_session_run(session, in.data(), static_cast<uint32_t>(in.size()), out.data(), static_cast<uint32_t>(out.size()),
                          nullptr, &error);
    }
    for (evn_tensor t : out) {
      void* data = nullptr;
      size_t size = 0;
      if (s == EVN_OK && evn_tensor_map(t, EVN_MAP_READ, &data, &size, &error) == EVN_OK) {
        outputs.emplace_back(static_cast<const char*>(data), size);
        evn_tensor_unmap(t, &error);
      }
      evn_tensor_release(t);
    }
    for (evn_tensor t : in) evn_tensor_release(t);
    return s;
  }
};

Floats ramp(std::size_t n) {
  Floats v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>(i);
  return v;
}

// ------------------------------------------------------------------------------------------------- H21: small types --

TEST_F(HostileRow, H21_ElementsOfFourBitsInOddNumbers) {
  constexpr int kInt4 = 22;
  for (const std::int64_t count : {1, 3, 5, 7, 127}) {
    std::string packed(static_cast<std::size_t>((count + 1) / 2), '\0');
    Floats wanted;
    for (std::int64_t i = 0; i < count; ++i) {
      const int v = static_cast<int>(i % 16) - 8;
      packed[static_cast<std::size_t>(i / 2)] =
          static_cast<char>(packed[static_cast<std::size_t>(i / 2)] | (v & 15) << (i % 2 * 4));
      wanted.push_back(0.5f * static_cast<float>(v));
    }
    expect_values("DequantizeLinear", {{kInt4, {count}, packed}, scalar(0.5f)}, {}, wanted);
  }
}

// ----------------------------------------------------------------------------------------------- H40: windows, convs --

TEST_F(HostileRow, H40_WindowsThatDoNotFit) {
  const Operand x = floats({1, 4, 6, 6}, ramp(144)), w = floats({4, 4, 3, 3}, ramp(144));
  const auto conv = [&](const Attr& attribute) { expect_refused("Conv", {x, w}, {attribute}); };
  ASSERT_EQ(run_node("Conv", {x, w}, {{"pads", Ints{1, 1, 1, 1}}}, 2), EVN_OK) << error.message;
  for (const Ints& two : {Ints{}, Ints{1}, Ints{1, 1, 1}, Ints{0, 1}, Ints{1, -1}, Ints{kMin, 1}}) {
    if (two.empty()) continue;  // the same as none
    conv({"strides", two});
    conv({"dilations", two});
  }
  conv({"kernel_shape", Ints{3}});
  conv({"kernel_shape", Ints{3, 2}});  // not the weight's
  conv({"kernel_shape", Ints{3, 0}});
  conv({"pads", Ints{1, 1}});
  conv({"pads", Ints{0, 0, 0, -1'000'000'000}});
  conv({"dilations", Ints{1ll << 31, 1}});  // no output is left
  conv({"dilations", Ints{3, 3}});
  for (const int group : {0, -1, 3, 5}) conv({"group", group});
  const auto pool = [&](const std::vector<Attr>& attributes) {
    for (const char* op : {"MaxPool", "AveragePool"}) expect_refused(op, {x}, attributes);
  };
  pool({});
  pool({{"kernel_shape", Ints{2}}});
  pool({{"kernel_shape", Ints{0, 2}}});
  pool({{"kernel_shape", Ints{7, 7}}});
  pool({{"kernel_shape", Ints{2, 2}}, {"strides", Ints{0, 1}}});
  pool({{"kernel_shape", Ints{2, 2}}, {"dilations", Ints{1ll << 31, 1}}});
  pool({{"kernel_shape", Ints{2, 2}}, {"pads", Ints{-1'000'000'000, 0, 0, 0}}});
}

// -------------------------------------------------------------------------------------------------------- H41: indices --

TEST_F(HostileRow, H41_IndicesOutOfRange) {
  const Operand x = floats({3, 4}, ramp(12)), one = floats({1, 4}, ramp(4)), row = floats({4}, ramp(4));
  for (const std::int64_t i : {std::int64_t{3}, std::int64_t{-4}, kMin, kMax}) {
    expect_refused("Gather", {x, list({i})});
    expect_refused("Gather", {x, scalar(i)});
    expect_refused("GatherElements", {x, tensor<std::int64_t>({1, 2}, {0, i})});
    expect_refused("GatherND", {x, tensor<std::int64_t>({1, 1}, {i})});
    expect_refused("ScatterElements", {x, tensor<std::int64_t>({1, 2}, {0, i}), floats({1, 2}, {1, 2})});
    expect_refused("ScatterND", {x, tensor<std::int64_t>({1, 1}, {i}), one});
    expect_refused("Scatter", {x, tensor<std::int64_t>({1, 2}, {0, i}), floats({1, 2}, {1, 2})}, {}, 9);
  }
  expect_values<float>("Gather", {x, list({-3, 2})}, {}, {0, 1, 2, 3, 8, 9, 10, 11});
  // OneHot leaves rows of indices outside its depth off, as ONNX has it.
  expect_values<float>("OneHot", {list({1, 3, -3, -4, kMin}), scalar(std::int64_t{3}), floats({2}, {0, 1})}, {},
                       {0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0});
  const Operand image = floats({1, 1, 4, 4}, ramp(16)), roi = floats({1, 4}, {0, 0, 2, 2});
  for (const std::int64_t i : {std::int64_t{1}, std::int64_t{-1}, kMin, kMax}) expect_refused("RoiAlign", {image, roi, list({i})});
}

// ---------------------------------------------------------------------------------------------------- H42: mismatches --

TEST_F(HostileRow, H42_ShapesThatDoNotFitEachOther) {
  const Operand a = floats({2, 3}, ramp(6)), b = floats({4, 2}, ramp(8));
  expect_refused("MatMul", {a, b});
  expect_refused("Gemm", {a, b, floats({1}, {0})});
  expect_refused("Concat", {a, b}, {{"axis", 0}});
  expect_refused("Concat", {a, floats({6}, ramp(6))}, {{"axis", 0}});
  expect_refused("Add", {a, b});
  expect_refused("Where", {tensor<std::uint8_t>({2, 3}, {1, 0, 1, 0, 1, 0}, kBool), a, b});
  expect_refused("GatherND", {floats({2, 3}, ramp(6)), tensor<std::int64_t>({3, 1}, {0, 0, 0})}, {{"batch_dims", 1}});
  expect_refused("ScatterND", {a, tensor<std::int64_t>({1, 1}, {0}), floats({1, 4}, ramp(4))});
}

// ------------------------------------------------------------------------------------------------------- H43: shapes --

TEST_F(HostileRow, H43_ShapeArgumentsThatMeanNothing) {
  const Operand x = floats({2, 6}, ramp(12));
  for (const Ints& shape : {Ints{-1, -1}, Ints{5, 2}, Ints{-2, 6}, Ints{-1, 5}, Ints{kMin}, Ints{0, 0, 2}})
    expect_refused("Reshape", {x, list(shape)});
  expect_refused("Slice", {x, list({0}), list({2}), list({1}), list({0})});
  EXPECT_EQ(run_node("Slice", {x, list({kMin}), list({kMax}), list({1}), list({kMax})}, {}, 14), EVN_OK) << error.message;
  EXPECT_EQ(output().size(), 2u);
  EXPECT_EQ(run_node("Slice", {x, list({kMax}), list({kMin}), list({1}), list({kMin})}, {}, 30), EVN_OK) << error.message;
  EXPECT_EQ(output(), (Floats{5, 11}));
  expect_refused("Split", {x, list({2, 3})}, {{"axis", 1}});
  expect_refused("Split", {x, list({7, -1})}, {{"axis", 1}});
  expect_refused("Split", {x}, {{"axis", 0}, {"num_outputs", 3}});
  for (const std::int64_t k : {std::int64_t{-1}, std::int64_t{7}, kMin, kMax}) expect_refused("TopK", {x, list({k})});
}

TEST_F(HostileRow, H44_FewBytesThatAskForTerabytes) {
  const Operand one = floats({1}, {1});
  expect_limit("Expand", {one, list({1ll << 20, 1ll << 20})});
  expect_limit("ConstantOfShape", {list({1ll << 40})});
  expect_limit("Tile", {one, list({1ll << 40})});
  expect_limit("OneHot", {list({0}), scalar(std::int64_t{1} << 40), floats({2}, {0, 1})});
  expect_limit("Pad", {one, list({1ll << 40, 0})});
  expect_limit("Range", {scalar(std::int64_t{0}), scalar(std::int64_t{1} << 40), scalar(std::int64_t{1})});
  expect_refused("Tile", {one, list({-1})});
  expect_refused("ConstantOfShape", {list({-1})});
  expect_refused("Pad", {one, list({-2, 0})});
  expect_refused("Expand", {one, list({-1})});
  for (const Ints& shape : {Ints{kMax, kMax}, Ints{kMax, 2}, Ints{1ll << 32, 1ll << 32}})
    expect_limit("ConstantOfShape", {list(shape)});
}

TEST_F(HostileRow, H45_ScalesAndStepsThatMeanNothing) {
  const Operand x = floats({1, 1, 2, 2}, ramp(4));
  const Operand none{0, {}, ""};
  for (const float scale : {0.0f, -1.0f, kNan, -kInf}) expect_refused("Resize", {x, none, floats({4}, {1, 1, scale, 1})});
  for (const Ints& sizes : {Ints{1, 1, 0, 2}, Ints{1, 1, -3, 2}}) expect_refused("Resize", {x, none, none, list(sizes)});
  for (const unsigned constants : {0u, 4u, 5u}) {
    for (const float scale : {1e20f, kInf}) {
      const evn_status s = run_node("Resize", {x, none, floats({4}, {1, 1, scale, 1})}, {}, constants);
      EXPECT_TRUE(s == EVN_ERROR_LIMIT || s == EVN_ERROR_INVALID_MODEL || s == EVN_ERROR_INVALID_ARGUMENT)
          << s << " " << error.message;
    }
  }
  expect_refused("Range", {scalar(0.0f), scalar(1.0f), scalar(0.0f)});
  expect_refused("Range", {scalar(0.0f), scalar(1.0f), scalar(kNan)});
  expect_refused("Range", {scalar(std::int64_t{0}), scalar(std::int64_t{5}), scalar(std::int64_t{0})});
}

// ------------------------------------------------------------------------------------------------------ H46: numbers --

TEST_F(HostileRow, H46_IntegersThatOverflow) {
  constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();
  const auto i32 = [](const std::vector<std::int32_t>& v) { return tensor({static_cast<std::int64_t>(v.size())}, v); };
  expect_values<std::int32_t>("Div", {i32({kLeast, 7, -7}), i32({-1, -1, 2})}, {}, {kLeast, -7, -3});
  expect_values<std::int32_t>("Mod", {i32({kLeast, 7, -7}), i32({-1, -1, 2})}, {}, {0, 0, 1});
  expect_values<std::int32_t>("Add", {i32({kLeast}), i32({-1})}, {}, {std::numeric_limits<std::int32_t>::max()});
  expect_values<std::int32_t>("Neg", {i32({kLeast})}, {}, {kLeast});
  expect_values<std::int32_t>("Abs", {i32({kLeast})}, {}, {kLeast});
  expect_values<std::int32_t>("Mul", {i32({kLeast}), i32({-1})}, {}, {kLeast});
  for (const char* op : {"Div", "Mod"}) {
    for (unsigned constants = 0; constants < 4; ++constants) {
      const evn_status s = run_node(op, {i32({1, 2}), i32({1, 0})}, {}, constants);
      EXPECT_TRUE(s == EVN_OK || s == EVN_ERROR_INVALID_ARGUMENT || s == EVN_ERROR_INVALID_MODEL) << op << s;
    }
  }
  const auto u8 = [](const std::vector<std::uint8_t>& v) { return tensor({static_cast<std::int64_t>(v.size())}, v); };
  expect_values<std::uint8_t>("BitShift", {u8({255, 255, 255}), u8({7, 8, 255})}, {{"direction", "LEFT"}}, {128, 0, 0});
  expect_values<std::uint8_t>("BitShift", {u8({255, 255, 255}), u8({7, 8, 255})}, {{"direction", "RIGHT"}}, {1, 0, 0});
}

TEST_F(HostileRow, H46_NumbersThatATypeDoesNotHold) {
  const Operand wild = floats({6}, {kNan, kInf, -kInf, 1e30f, -1e30f, 300});
  for (const int type : {kI8, kU8, kI16, kU16, kI32, kU32, kI64, kU64}) {
    for (const unsigned constant : {0u, 1u})
      EXPECT_EQ(run_node("Cast", {wild}, {{"to", type}}, constant), EVN_OK) << type << error.message;
    // The same whether it is folded or run.
    const std::string folded = outputs.at(0);
    run_node("Cast", {wild}, {{"to", type}}, 0);
    EXPECT_EQ(outputs.at(0), folded) << type;
  }
  const auto i32 = [](const std::vector<std::int32_t>& v) { return tensor({static_cast<std::int64_t>(v.size())}, v); };
  expect_values<std::int32_t>("Pow", {i32({2, -1, 1}), i32({-1, -1, -3})}, {}, {0, -1, 1});
  expect_refused("Pow", {i32({0}), i32({-1})});
}

// ---------------------------------------------------------------------------------------------------------- H47, H48 --

TEST_F(HostileRow, H47_ConstantsThatDoubleFortyTimes) {
  OnnxWriter w;
  w.add_initializer("t0", {1}, Floats{1}).add_initializer("two", {1}, Ints{2});
  for (int i = 0; i < 40; ++i) w.add_node("Tile", {"t" + std::to_string(i), "two"}, {"t" + std::to_string(i + 1)});
  EXPECT_EQ(run_model(w.add_output("t40").serialize(), {}), EVN_ERROR_LIMIT) << error.message;
  EXPECT_EQ(stage, kLoad);
}

TEST_F(HostileRow, H48_RankMayGrow) {
  expect_values<float>("Reshape", {floats({4}, ramp(4)), list({1, 2, 1, 1, 2, 1})}, {}, ramp(4));
  expect_values<float>("Reshape", {floats({4}, ramp(4)), list({1, 1, 1, 1, 1, 1, 1, 4})}, {}, ramp(4));
  EXPECT_EQ(run_node("Reshape", {floats({4}, ramp(4)), list({1, 1, 1, 1, 1, 1, 1, 1, 4})}, {}, 0), EVN_ERROR_LIMIT);
}

// ------------------------------------------------------------------------------------------------ H49: nothing to count --

TEST_F(HostileRow, H49_NothingToAverage) {
  const Operand none = floats({1, 2, 0, 3}, {});
  const Operand axes = list({2});
  expect_values<float>("ReduceSum", {none, axes}, {}, Floats(6, 0));
  expect_values<float>("ReduceMean", {none, axes}, {}, Floats(6, kNan));
  expect_values<float>("ReduceMax", {none, axes}, {}, Floats(6, -kInf));
  expect_values<float>("ReduceProd", {none, axes}, {}, Floats(6, 1));
  expect_values<float>("Softmax", {none}, {{"axis", 2}}, {});
  const evn_status s = run_node("GlobalAveragePool", {none}, {}, 0);
  EXPECT_TRUE(s == EVN_OK || s == EVN_ERROR_INVALID_ARGUMENT) << error.message;
  if (s == EVN_OK) {
    for (const float v : output()) EXPECT_TRUE(std::isnan(v));
  }
  expect_values<float>("LayerNormalization", {floats({1, 3}, {2, 2, 2}), floats({3}, {1, 1, 1})}, {{"epsilon", 0.0f}},
                       Floats(3, kNan));
}

// ---------------------------------------------------------------------------------------------------- H50: quantization --

TEST_F(HostileRow, H50_ZeroPointsOfAnotherTypeOrLength) {
  const Operand x = floats({2, 3}, ramp(6)), q = tensor<std::uint8_t>({2, 3}, {1, 2, 3, 4, 5, 6});
  expect_refused("QuantizeLinear", {x, floats({4}, ramp(4)), tensor<std::uint8_t>({4}, {0, 0, 0, 0})}, {{"axis", 0}});
  expect_refused("QuantizeLinear", {x, floats({2}, ramp(2)), tensor<std::uint8_t>({3}, {0, 0, 0})}, {{"axis", 0}});
  expect_refused("DequantizeLinear", {q, scalar(1.0f), tensor<std::int8_t>({}, {0})});
  expect_refused("DequantizeLinear", {q, floats({2}, ramp(2))}, {{"axis", 2}});
  expect_refused("DequantizeLinear", {q, floats({2}, ramp(2))}, {{"axis", -3}});
  // A scale may be anything: the results are those of the arithmetic.
  for (const float scale : {0.0f, -1.0f, kNan, kInf, 1e-45f}) {
    for (unsigned constants = 0; constants < 4; ++constants) {
      EXPECT_EQ(run_node("QuantizeLinear", {x, scalar(scale)}, {}, constants), EVN_OK) << error.message;
      EXPECT_EQ(run_node("DequantizeLinear", {q, scalar(scale)}, {}, constants), EVN_OK) << error.message;
    }
  }
}

TEST_F(HostileRow, H51_SumsOfProductsAreWideEnough) {
  // -128 * -128 * 131,072 is 2^31: one more than int32 has; it wraps as ONNX's int32 does, or is refused; it is never a crash.
  constexpr std::int64_t kLength = 131'071;
  const Operand a = tensor<std::int8_t>({1, kLength}, std::vector<std::int8_t>(kLength, -128));
  const Operand b = tensor<std::int8_t>({kLength, 1}, std::vector<std::int8_t>(kLength, -128));
  expect_values<std::int32_t>("MatMulInteger", {a, b}, {}, {2147467264});
  const Operand u = tensor<std::uint8_t>({1, 65'793}, std::vector<std::uint8_t>(65'793, 255));
  const Operand s = tensor<std::int8_t>({65'793, 1}, std::vector<std::int8_t>(65'793, -128));
  expect_values<std::int32_t>("MatMulInteger", {u, s}, {}, {-2147483520});
}

// ------------------------------------------------------------------------------------------------------ H52: bodies --

Proto branch_of(const Proto& node, const char* output) { return OnnxWriter().add_node(node).add_output(output, 0).graph(); }

TEST_F(HostileRow, H52_BranchesThatAreNestedMissingOrWhereTheyDoNotBelong) {
  const auto model = [](const std::vector<Attr>& attributes, const char* op = "If") {
    OnnxWriter w;
    return w.add_input("c", kBool, {}).add_node(op, {"c"}, {"y"}, attributes, "n").add_output("y", 0).serialize();
  };
  const Operand yes = tensor<std::uint8_t>({}, {1}, kBool);
  Proto body = branch_of(node_proto("Identity", {"c"}, {"t"}), "t");
  const Attr plain = Attr::graph("then_branch", body), other = Attr::graph("else_branch", body);
  EXPECT_EQ(run_model(model({plain, other}), {yes}), EVN_OK) << error.message;
  for (const std::vector<Attr>& attributes : {std::vector<Attr>{plain}, {other}, {}, {plain, plain}, {plain, other, other}}) {
    EXPECT_EQ(run_model(model(attributes), {yes}), EVN_ERROR_INVALID_MODEL);
    EXPECT_STREQ(error.node, "n");
  }
  EXPECT_EQ(run_model(model({plain}, "Not"), {yes}), EVN_ERROR_INVALID_MODEL);
  EXPECT_STREQ(error.node, "n");
  for (int i = 0; i < 500; ++i) body = branch_of(node_proto("If", {"c"}, {"t"}, {Attr::graph("then_branch", body), other}), "t");
  EXPECT_EQ(run_model(model({Attr::graph("then_branch", body), other}), {yes}), EVN_ERROR_LIMIT);
}

// A Loop "n" over M turns (nothing: no bound) whose body makes `next` out of `state`.
std::string loop_model(const std::vector<Attr>& attributes) {
  OnnxWriter w(21, 10);
  w.add_input("m", kI64, {}).add_input("c", kBool, {}).add_input("x", kF32, {"N"});
  return w.add_node("Loop", {"m", "c", "x"}, {"y"}, attributes, "n").add_output("y", 0).serialize();
}
OnnxWriter loop_body(const Proto& node) {
  OnnxWriter body;
  body.add_input("i", kI64, {}).add_input("on", kBool, {}).add_input("state", kF32, {"K"});
  body.add_node("Identity", {"on"}, {"on_out"}).add_node(node);
  return body.add_output("on_out", kBool).add_output("next", 0);
}

TEST_F(HostileRow, H52_LoopsThatDoNotEndOrGrow) {
  const std::vector<Operand> forever = {scalar(kMax), tensor<std::uint8_t>({}, {1}, kBool), floats({1}, {1})};
  const OnnxWriter stays = loop_body(node_proto("Identity", {"state"}, {"next"}));
  const evn_status s = run_model(loop_model({Attr::graph("body", OnnxWriter(stays).graph())}), forever);
  EXPECT_TRUE(s == EVN_ERROR_TIMEOUT || s == EVN_ERROR_LIMIT) << s << " " << error.message;
  OnnxWriter doubles = loop_body(node_proto("Concat", {"state", "state"}, {"next"}, {{"axis", 0}}));
  const evn_status grown = run_model(loop_model({Attr::graph("body", doubles.graph())}), forever);
  EXPECT_TRUE(grown == EVN_ERROR_LIMIT || grown == EVN_ERROR_OUT_OF_MEMORY) << grown << " " << error.message;
}

TEST_F(HostileRow, H52_LoopsWithoutABodyOrWithOneThatContradictsItself) {
  const std::vector<Operand> once = {scalar(std::int64_t{1}), tensor<std::uint8_t>({}, {1}, kBool), floats({1}, {1})};
  EXPECT_EQ(run_model(loop_model({}), once), EVN_ERROR_INVALID_MODEL) << error.message;
  OnnxWriter body = loop_body(node_proto("Identity", {"state"}, {"next"}));
  EXPECT_EQ(run_model(loop_model({Attr::graph("body", body.graph())}), once), EVN_OK) << error.message;
  EXPECT_EQ(run_model(loop_model({Attr::graph("body", body.graph()), Attr::graph("body", body.graph())}), once),
            EVN_ERROR_INVALID_MODEL);
  body.add_initializer("state", {1}, Floats{1});
  EXPECT_EQ(run_model(loop_model({Attr::graph("body", body.graph())}), once), EVN_ERROR_INVALID_MODEL) << error.message;
}

// ------------------------------------------------------------------------------------------------------ H57: callers --

TEST_F(HostileRow, H57_TensorsThatTheModelDidNotDeclare) {
  OnnxWriter w;
  w.add_input("a", kF32, {"N", 3})
      .add_input("b", kF32, {"N", 2})
      .add_node("Concat", {"a", "b"}, {"y"}, {{"axis", 1}}, "n")
      .add_output("y");
  const auto run = [&](const Ints& a, const Ints& b) {
    const auto zeros = [](const Ints& dims) {
      std::size_t n = 1;
      for (const std::int64_t d : dims) n *= static_cast<std::size_t>(d);
      return floats(dims, Floats(n, 0));
    };
    return run_model(w.serialize(), {zeros(a), zeros(b)});
  };
  EXPECT_EQ(run({4, 3}, {4, 2}), EVN_OK) << error.message;
  EXPECT_EQ(run({4, 3}, {5, 2}), EVN_ERROR_INVALID_ARGUMENT) << error.message;  // N is 4 and 5
  EXPECT_EQ(run({4, 2}, {4, 2}), EVN_ERROR_INVALID_ARGUMENT) << error.message;
  EXPECT_EQ(run({4, 3, 1}, {4, 2}), EVN_ERROR_INVALID_ARGUMENT) << error.message;
  EXPECT_EQ(run({12}, {4, 2}), EVN_ERROR_INVALID_ARGUMENT) << error.message;
}

// ------------------------------------------------------------------------------------------------------- H58: memory --

TEST_F(HostileRow, H58_WidthsThatShareAPlaceInTheArena) {
  // Each step's input is dead after it: the planner puts results of 32, 16, 8 and 4 bits over one another.
  constexpr int kInt4 = 22;
  OnnxWriter w(21, 10);
  w.add_input("x", kF32, {"N"});
  const int widths[] = {kF16, kI8, kInt4, kF32, kU8, kF64, kInt4, kI32, kF16, kF32};
  std::string last = "x";
  for (std::size_t i = 0; i < std::size(widths); ++i) {
    w.add_node("Cast", {last}, {"t" + std::to_string(i)}, {{"to", widths[i]}});
    last = "t" + std::to_string(i);
  }
  w.add_output(last);
  for (const std::int64_t n : {1, 2, 7, 1023, 4097}) {
    Floats values;
    for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(i % 8));
    ASSERT_EQ(run_model(w.serialize(), {floats({n}, values)}), EVN_OK) << error.message;
    EXPECT_EQ(output(), values) << n;
  }
}

TEST_F(HostileRow, H58_BytesOfOneSessionAreNotSeenByTheNext) {
  constexpr int kInt4 = 22;
  const std::string secret(1 << 12, '\xee');
  ASSERT_EQ(run_node("Identity", {{kU8, {1 << 12}, secret}}, {}, 0), EVN_OK) << error.message;
  // Half a byte of the last one belongs to nobody.
  ASSERT_EQ(run_node("Cast", {floats({4095}, Floats(4095, 1))}, {{"to", kInt4}}, 0), EVN_OK) << error.message;
  EXPECT_EQ(outputs.at(0), std::string(2047, '\x11') + '\x01');
  // And what no input reaches is zero or as the operator says.
  ASSERT_EQ(run_node("ReduceSum", {floats({4, 0}, {}), list({1})}, {}, 0), EVN_OK) << error.message;
  EXPECT_EQ(output(), Floats(4, 0));
}

}  // namespace
}  // namespace evn::test::hostile_rows_test
