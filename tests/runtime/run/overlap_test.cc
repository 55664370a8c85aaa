// RunRequest::overwrite_inputs: outputs in the memory of inputs. Whatever a graph does with its inputs, the run gives the bits that
// it gives into memory of their own; it computes in place where nothing reads the input later, and by a copy elsewhere.
#include <functional>

#include "runtime/run/overlap.h"
#include "tests/runtime/run/outputs_support.h"

namespace evn::test::overlap_test {
namespace {

struct OverlapTest : RuntimeTest {
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<Session> session;

  void make(const OnnxWriter& model, Config config = {}) {
    session = nullptr;
    runtime = make_runtime(std::move(config));
    session = make_session(load(runtime, model), "");
  }
  TensorPtr on(const std::string& device, const HostTensor& t) {
    auto tensor = std::make_shared<Tensor>(runtime, runtime->find_device(device), t.desc, false);
    copy_tensor(*to_tensor(runtime, t), *tensor);
    return tensor;
  }
  // Runs with output j in the memory of input over[j] (-1: in its own), which lies on `device`.
  std::vector<HostTensor> run_over(const std::vector<HostTensor>& inputs, const std::vector<int>& over, const std::string& device) {
    std::vector<RunValue> in, out(over.size());
    for (const HostTensor& t : inputs) in.push_back({on(device, t), nullptr});
    for (std::size_t j = 0; j < over.size(); ++j) {
      if (over[j] >= 0) out[j] = in[static_cast<std::size_t>(over[j])];
    }
    RunRequest request;
    request.allow_copies = true;
    request.overwrite_inputs = true;
    session->run(in, out, request);
    std::vector<HostTensor> results;
    for (std::size_t j = 0; j < over.size(); ++j) {
      if (over[j] >= 0) {
        EXPECT_EQ(out[j].tensor, in[static_cast<std::size_t>(over[j])].tensor);
      }
      results.push_back(to_host(runtime, out[j].tensor));
    }
    return results;
  }
  // All ways to put the outputs over the inputs, each input at most once.
  void expect_all_ways(const std::vector<HostTensor>& inputs, const std::vector<std::string>& devices) {
    std::vector<int> over(session->graph().outputs.size(), -1);
    const std::vector<HostTensor> want = run_over(inputs, over, "cpu");
    const std::function<void(std::size_t)> place = [&](std::size_t j) {
      if (j == over.size()) {
        for (const std::string& device : devices) {
          const std::vector<HostTensor> got = run_over(inputs, over, device);
          for (std::size_t k = 0; k < got.size(); ++k)
            expect_same_bits(got[k], want[k], device + ", output " + std::to_string(k) + " over " + std::to_string(over[k]));
        }
        return;
      }
      for (int i = -1; i < static_cast<int>(inputs.size()); ++i) {
        if (i >= 0 && std::find(over.begin(), over.begin() + static_cast<std::ptrdiff_t>(j), i) !=
                          over.begin() + static_cast<std::ptrdiff_t>(j))
          continue;
        if (i >= 0 && !(inputs[static_cast<std::size_t>(i)].desc == want[j].desc)) continue;
        over[j] = i;
        place(j + 1);
      }
      over[j] = -1;
    };
    place(0);
  }
  // The bytes that a run over inputs takes beyond those that the session has kept of an earlier one, whose other outputs it gets.
  std::uint64_t bytes_taken(const std::vector<HostTensor>& inputs, const std::vector<int>& over) {
    std::vector<RunValue> in, out(over.size());
    for (const HostTensor& t : inputs) in.push_back({on("cpu", t), nullptr});
    for (std::size_t j = 0; j < over.size(); ++j) {
      if (over[j] >= 0) out[j] = in[static_cast<std::size_t>(over[j])];
    }
    RunRequest request;
    request.overwrite_inputs = true;
    session->run(in, out, request);  // what the session keeps is there now
    Pool& pool = runtime->cpu().pool();
    pool.reset_peak();
    const std::uint64_t before = pool.stats().current;
    session->run(in, out, request);
    return pool.stats().peak - before;
  }
};

OnnxWriter unary_chain() {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"n"}).add_output("y");
  return w.add_node("Neg", {"x"}, {"a"}).add_node("Exp", {"a"}, {"b"}).add_node("Sqrt", {"b"}, {"y"});
}

TEST_F(OverlapTest, ComputesInPlaceWhereNothingReadsTheInputLater) {
  const HostTensor x = random_tensor({1 << 16}, 1);
  make(unary_chain());
  EXPECT_LT(bytes_taken({x}, {0}), x.desc.size_bytes());
  OnnxWriter later(13);  // y is written before x is read for the last time
  later.add_input("x", kF32, {"n"}).add_output("y").add_output("z").add_initializer("w", {1}, std::vector<float>{2});
  later.add_node("Neg", {"x"}, {"y"}).add_node("Exp", {"y"}, {"e"}).add_node("Mul", {"e", "x"}, {"z"});
  make(later);
  EXPECT_GE(bytes_taken({x}, {0, -1}), x.desc.size_bytes());  // y's staged copy
  EXPECT_LT(bytes_taken({x}, {-1, 0}), x.desc.size_bytes());
}

TEST_F(OverlapTest, OfWhatReadsOtherElementsThanItWrites) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"n", "n"})
      .add_output("y")
      .add_node("Transpose", {"x"}, {"y"}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  make(w);
  expect_all_ways({random_tensor({9, 9}, 1)}, {"cpu"});
  OnnxWriter product(13);
  product.add_input("a", kF32, {8, 8}).add_input("b", kF32, {8, 8}).add_output("y").add_output("z");
  product.add_node("MatMul", {"a", "b"}, {"y"}).add_node("MatMul", {"y", "a"}, {"z"});
  make(product);
  expect_all_ways({random_tensor({8, 8}, 1), random_tensor({8, 8}, 2)}, {"cpu"});
}

TEST_F(OverlapTest, OfInputsThatAreOutputs) {
  OnnxWriter w(13);
  w.add_input("a", kF32, {6}).add_input("b", kF32, {6}).add_output("b").add_output("a").add_output("s");
  w.add_node("Add", {"a", "b"}, {"s"});
  make(w);  // the first two change places
  expect_all_ways({random_tensor({6}, 1), random_tensor({6}, 2)}, {"cpu"});
}

TEST_F(OverlapTest, OfOneTensorForTwoInputs) {
  OnnxWriter w(13);
  w.add_input("a", kF32, {6})
      .add_input("b", kF32, {6})
      .add_output("y")
      .add_node("Neg", {"a"}, {"n"})
      .add_node("Sub", {"n", "b"}, {"y"});
  make(w);
  const HostTensor x = random_tensor({6}, 1);
  const TensorPtr both = on("cpu", x);
  std::vector<RunValue> in = {{both, nullptr}, {both, nullptr}}, out = {{both, nullptr}};
  RunRequest request;
  request.overwrite_inputs = true;
  session->run(in, out, request);
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(static_cast<const float*>(both->buffer().address())[i], -x.as<float>()[i] - x.as<float>()[i]);
}

TEST_F(OverlapTest, OfRunsOfSeveralParts) {
  OnnxWriter body(13);
  body.add_input("i", kI64, {}).add_input("on", kBool, {}).add_input("v", kF32, {4});
  body.add_node("Add", {"v", "x"}, {"w"}).add_node("Identity", {"on"}, {"go"}).add_output("go", kBool).add_output("w");
  OnnxWriter w(13);
  w.add_input("x", kF32, {4})
      .add_input("z", kF32, {4})
      .add_input("turns", kI64, {})
      .add_output("a")
      .add_output("y")
      .add_output("b");
  w.add_node("Abs", {"x"}, {"a"});
  w.add_node("Loop", {"turns", "", "a"}, {"y"}, {Attr::graph("body", body.graph())}, "turning");
  w.add_node("Add", {"y", "z"}, {"s"}).add_node("Sub", {"s", "x"}, {"b"});
  make(w);
  HostTensor turns({DType::kInt64, {}});
  turns.as<std::int64_t>()[0] = 3;
  expect_all_ways({random_tensor({4}, 1), random_tensor({4}, 2), turns}, {"cpu"});
}

TEST_F(OverlapTest, OfOtherDevices) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {5}).add_input("y", kF32, {5}).add_output("a").add_output("b").add_output("c");
  w.add_node("Relu", {"x"}, {"a"})
      .add_node("Neg", {"y"}, {"n"})
      .add_node("Sub", {"n", "a"}, {"b"})
      .add_node("Mul", {"x", "y"}, {"c"});
  const std::vector<HostTensor> in = {random_tensor({5}, 1), random_tensor({5}, 2)};
  for (const char* relu : {"cpu", "m", "n"}) {
    for (const char* neg : {"cpu", "m"}) {
      for (const char* mul : {"cpu", "m", "n"}) {
        Config config = two_mocks();
        config.rules = {rule({"Relu"}, {}, relu, Policy::kRequire, 1), rule({"Neg"}, {}, neg, Policy::kRequire, 2),
                        rule({"Mul"}, {}, mul, Policy::kRequire, 3)};
        make(w, config);
        expect_all_ways(in, {"cpu", "m", "n"});
      }
    }
  }
}

// Graphs of operators of two operands that are drawn, whose outputs are any of their values.
TEST_F(OverlapTest, OfDrawnGraphs) {
  const char* const ops[] = {"Add", "Sub", "Mul", "Max", "Min"};
  const char* const unary[] = {"Relu", "Neg", "Abs", "Sigmoid"};
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    OnnxWriter w(13);
    std::vector<std::string> values = {"x0", "x1"};
    for (const std::string& x : values) w.add_input(x, kF32, {3, 3});
    for (int node = 0; node < 6; ++node) {
      const std::string y = "v" + std::to_string(node);
      const std::string a = values[random() % values.size()], b = values[random() % values.size()];
      if (random() % 8 == 0) {
        w.add_node("Transpose", {a}, {y}, {{"perm", std::vector<std::int64_t>{1, 0}}});
      } else if (random() % 3 == 0) {
        w.add_node(unary[random() % 4], {a}, {y});
      } else {
        w.add_node(ops[random() % 5], {a, b}, {y});
      }
      values.push_back(y);
    }
    for (std::size_t j = 3; j < values.size(); j += 1 + random() % 3) w.add_output(values[j]);
    Config config = two_mocks();
    if (seed % 3 != 0)
      config.rules = {rule({"Add", "Relu"}, {}, "m", Policy::kPrefer, 1),
                      rule({"Mul"}, {}, seed % 3 == 1 ? "m" : "n", Policy::kPrefer, 2)};
    make(w, config);
    expect_all_ways({random_tensor({3, 3}, seed), random_tensor({3, 3}, seed + 100)}, {"cpu", "m"});
    if (HasFailure()) {
      ADD_FAILURE() << "seed " << seed;
      return;
    }
  }
}

// A kernel with several outputs, of which each may lie over an input of its own.
TEST_F(OverlapTest, MomentsOfATrainingAreMovedOnInPlace) {
  constexpr std::int64_t kChannels = 1 << 14;
  OnnxWriter w(15);
  w.add_input("x", kF32, {2, kChannels}).add_input("scale", kF32, {kChannels}).add_input("bias", kF32, {kChannels});
  w.add_input("mean", kF32, {kChannels}).add_input("variance", kF32, {kChannels});
  w.add_output("y").add_output("new_mean").add_output("new_variance");
  w.add_node("BatchNormalization", {"x", "scale", "bias", "mean", "variance"}, {"y", "new_mean", "new_variance"},
             {{"training_mode", 1}});
  make(w);
  const auto vector = [](std::uint64_t seed) { return random_tensor({kChannels}, seed, 0.5f, 2); };
  const std::vector<HostTensor> inputs = {random_tensor({2, kChannels}, 1), vector(2), vector(3), vector(4), vector(5)};
  expect_all_ways(inputs, {"cpu"});
  const std::uint64_t bytes = inputs[3].desc.size_bytes();
  EXPECT_LT(bytes_taken(inputs, {0, 3, 4}), bytes);
  EXPECT_GE(bytes_taken(inputs, {0, 4, 3}), bytes) << "each over the other's input, which is staged";
}

TEST_F(OverlapTest, IsRefusedWithoutTheFlagAndWhereItIsOfAPart) {
  make(unary_chain());
  const auto status_of = [&](const TensorPtr& in, const TensorPtr& out, bool flag) -> evn_status {
    std::vector<RunValue> inputs = {{in, nullptr}}, outputs = {{out, nullptr}};
    RunRequest request;
    request.overwrite_inputs = flag;
    try {
      session->run(inputs, outputs, request);
      return EVN_OK;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.message).find("output 0 overlaps"), std::string::npos) << e.message;
      return e.status;
    }
  };
  const TensorPtr whole = on("cpu", random_tensor({12}, 1));
  const TensorDesc eight{DType::kFloat32, {8}};
  const TensorPtr first = Tensor::part(whole, 0, eight), same = Tensor::part(whole, 0, eight),
                  later = Tensor::part(whole, 16, eight);
  EXPECT_EQ(status_of(whole, whole, false), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(first, same, false), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(first, later, true), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(later, first, true), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(whole, first, true), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(first, same, true), EVN_OK);
  EXPECT_EQ(status_of(whole, whole, true), EVN_OK);
}

TEST_F(OverlapTest, OfTwoOutputsIsRefused) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {4}).add_output("a").add_output("b").add_node("Neg", {"x"}, {"a"}).add_node("Exp", {"x"}, {"b"});
  make(w);
  const TensorPtr x = on("cpu", random_tensor({4}, 1));
  std::vector<RunValue> in = {{x, nullptr}}, out = {{x, nullptr}, {x, nullptr}};
  RunRequest request;
  request.overwrite_inputs = true;
  EXPECT_THROW(session->run(in, out, request), Error);
}

// Message of the first overlap by a comparison of all pairs; "" if there is none.
std::string first_overlap(const std::vector<RunValue>& inputs, const std::vector<RunValue>& outputs, bool over_inputs) {
  const auto overlap = [](const RunValue& a, const RunValue& b) {
    return a.tensor != nullptr && b.tensor != nullptr ? overlap_of(*a.tensor, *b.tensor) : Overlap::kNone;
  };
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    const std::string output = "output " + std::to_string(j) + " overlaps ";
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Overlap o = overlap(inputs[i], outputs[j]);
      if (o == Overlap::kSome || (o == Overlap::kAll && !over_inputs))
        return output + (over_inputs ? "a part of " : "") + "input " + std::to_string(i);
    }
    for (std::size_t k = 0; k < j; ++k) {
      if (overlap(outputs[k], outputs[j]) != Overlap::kNone) return output + "output " + std::to_string(k);
    }
  }
  return "";
}

// Few tensors are compared pair by pair, many are sorted by their addresses.
TEST_F(OverlapTest, TheFirstOverlapOfFewAndOfManyTensorsIsReported) {
  runtime = make_runtime(two_mocks());
  constexpr std::int64_t kPlaces = 400;
  int refused = 0, accepted = 0;
  for (const int count : {3, 40}) {
    for (std::uint32_t seed = 0; seed < 60; ++seed) {
      std::mt19937 random(seed);
      std::vector<TensorPtr> wholes;
      for (const char* device : {"cpu", "cpu", "m", "n"})
        wholes.push_back(
            std::make_shared<Tensor>(runtime, runtime->find_device(device), TensorDesc{DType::kFloat32, {kPlaces * 64}}, false));
      // One of `places` places of 256 bytes: all of it, or sometimes less or nothing.
      const auto draw = [&](std::int64_t places) -> RunValue {
        if (random() % 8 == 0) return {};
        const std::int64_t size = random() % 16 != 0 ? 64 : random() % 4 == 0 ? 0 : 32;
        const auto at = static_cast<std::size_t>(random() % static_cast<std::uint32_t>(places)) * 256;
        return {Tensor::part(wholes[random() % wholes.size()], at, {DType::kFloat32, {size}}), nullptr};
      };
      std::vector<RunValue> inputs, outputs;
      for (int i = 0; i < count; ++i) inputs.push_back(draw(kPlaces / 2));
      // Even seeds: outputs in order, or over inputs, so that all of them may be accepted.
      for (int j = 0; j < count; ++j) {
        const auto place = static_cast<std::size_t>(kPlaces / 2 + j) * 256;
        outputs.push_back(seed % 2 != 0 ? draw(kPlaces)
                          : j == 0      ? inputs[random() % inputs.size()]
                                        : RunValue{Tensor::part(wholes[0], place, {DType::kFloat32, {64}}), nullptr});
      }
      std::shuffle(outputs.begin(), outputs.end(), random);
      for (const bool over_inputs : {false, true}) {
        const std::string want = first_overlap(inputs, outputs, over_inputs);
        std::string got;
        try {
          check_overlap(inputs, outputs, over_inputs, nullptr);
        } catch (const Error& e) {
          EXPECT_EQ(e.status, EVN_ERROR_INVALID_ARGUMENT);
          got = e.message;
        }
        EXPECT_EQ(got, want) << count << " tensors, seed " << seed;
        ++(want.empty() ? accepted : refused);
        EXPECT_EQ(any_overlap(inputs, outputs), !first_overlap(inputs, outputs, false).empty());
      }
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(accepted, 20);
}

// As many inputs as to be sorted, each of which another output overwrites.
TEST_F(OverlapTest, OfManyInputs) {
  constexpr int kCount = 40;
  OnnxWriter w(13);
  for (int i = 0; i < kCount; ++i) w.add_input("x" + std::to_string(i), kF32, {8});
  for (int i = 0; i < kCount; ++i) {
    const std::string n = std::to_string(i), next = std::to_string((i + 1) % kCount);
    w.add_node(i % 2 != 0 ? "Sub" : "Neg", i % 2 != 0 ? std::vector<std::string>{"x" + n, "x" + next} : std::vector{"x" + n},
               {"y" + n});
    w.add_output("y" + n);
  }
  make(w);
  std::vector<HostTensor> inputs;
  std::vector<int> none(kCount, -1), same, turned;
  for (int i = 0; i < kCount; ++i) {
    inputs.push_back(random_tensor({8}, static_cast<std::uint64_t>(i)));
    same.push_back(i);
    turned.push_back((i + 7) % kCount);
  }
  const std::vector<HostTensor> want = run_over(inputs, none, "cpu");
  for (const std::vector<int>& over : {same, turned}) {
    const std::vector<HostTensor> got = run_over(inputs, over, "cpu");
    for (std::size_t k = 0; k < got.size(); ++k) expect_same_bits(got[k], want[k], "output " + std::to_string(k));
  }
}

}  // namespace
}  // namespace evn::test::overlap_test
