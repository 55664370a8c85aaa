// Every version of every operator in models that mean harm, through the C API: a status that names the node, never a crash, never
// an internal error, never more memory than allowed. Names carry the ids of the project's list of hostile inputs.
#include <gtest/gtest.h>

#include <limits>

#include "ops/merge.h"
#include "tests/conformance/damage.h"

namespace evn::conformance {
namespace {

using test::Bytes;
using test::Proto;

class HostileOperator : public testing::Test {
 protected:
  template <typename F>
  void for_each_sample(F&& f) {
    for (const OpFamily* family : op_families()) {
      for (const OpDef& op : family->ops) {
        if (std::string_view(op.domain) == kInternalDomain) continue;  // no model has it
        for (const Case* c : samples(op)) f(make_draft(*c));
      }
    }
  }
  Outcome use(const Draft& d) {
    ++models_;
    const Outcome o = lab_.use(d);
    accepted_ += o.status() == EVN_OK;
    return o;
  }
  void TearDown() override {
    EXPECT_GT(models_, 200);
    EXPECT_LE(lab_.peak_bytes(), 128u << 20);
    RecordProperty("models", models_);
    RecordProperty("accepted", accepted_);
  }

  // Refused when the model is loaded, with the node's name.
  void expect_invalid(const Draft& d, const char* what) {
    const Outcome o = use(d);
    EXPECT_EQ(o.status(), EVN_ERROR_INVALID_MODEL) << what << ": " << d.describe() << ": " << o.error.message;
    EXPECT_EQ(o.stage, Outcome::kLoad) << what << ": " << d.describe();
    EXPECT_STREQ(o.error.node, "n") << what << ": " << d.describe() << ": " << o.error.message;
  }

  // Any result but a crash or an internal error; what is refused names the node.
  void expect_answer(const Draft& d, const std::string& what) {
    const Outcome o = use(d);
    if (o.status() == EVN_OK) return;
    EXPECT_FALSE(o.stage == Outcome::kRun && o.status() == EVN_ERROR_INVALID_MODEL)
        << what << ": " << d.describe() << ": " << o.error.message;
    EXPECT_TRUE(o.status() == EVN_ERROR_INVALID_MODEL || o.status() == EVN_ERROR_INVALID_ARGUMENT ||
                o.status() == EVN_ERROR_UNSUPPORTED || o.status() == EVN_ERROR_LIMIT || o.status() == EVN_ERROR_OUT_OF_MEMORY)
        << what << ": " << d.describe() << ": status " << o.status() << ": " << o.error.message;
    // What is too large is named by the value; what the caller's tensors do not fit, by the input. A node that a rewrite takes
    // apart (Einsum) names its parts n/1, n/2 and so on.
    const std::string message = o.error.message, node = o.error.node;
    const bool names_a_value = message.find("tensor \"y") != std::string::npos || message.find("input ") == 0;
    EXPECT_TRUE(node == "n" || node.starts_with("n/") || names_a_value)
        << what << ": " << d.describe() << ": status " << o.status() << ": " << message << " [" << node << "]";
  }

  Lab lab_;

 private:
  int models_ = 0;
  int accepted_ = 0;
};

TEST_F(HostileOperator, TheSamplesThemselvesRun) {
  for_each_sample([&](Draft d) {
    for (const bool symbolic : {false, true}) {
      d.symbolic = symbolic;
      const Outcome o = use(d);
      EXPECT_EQ(o.status(), EVN_OK) << d.describe() << ": " << o.error.message;
    }
  });
}

// ----------------------------------------------------------------------------------------------------------- arity --

TEST_F(HostileOperator, H37_TooFewTooManyAndMissingInputs) {
  for_each_sample([&](const Draft& sample) {
    const OpDef& op = *sample.op;
    const auto with_count = [&](int count, const char* what) {
      Draft d = sample;
      const Draft::Input spare = d.inputs.empty() ? Draft::Input{{DType::kFloat32, {1}}, Bytes(4), false} : d.inputs[0];
      d.inputs.resize(static_cast<std::size_t>(count), spare);
      expect_invalid(d, what);
    };
    if (op.min_inputs > 0) with_count(0, "no input");
    if (op.min_inputs > 1) with_count(op.min_inputs - 1, "an input too few");
    if (op.max_inputs < kVariadic) with_count(op.max_inputs + 1, "an input too many");
    for (std::size_t i = 0; i < static_cast<std::size_t>(op.min_inputs) && i < sample.inputs.size(); ++i) {
      Draft d = sample;
      d.inputs[i].desc = {};
      expect_invalid(d, "a required input is missing");
    }
  });
}

TEST_F(HostileOperator, H38_TooFewAndTooManyOutputs) {
  for_each_sample([&](Draft d) {
    if (d.op->max_outputs < kVariadic) {
      d.output_count = d.op->max_outputs + 1;
      expect_invalid(d, "an output too many");
    }
    if (d.inputs.empty() || d.inputs[0].desc.dtype == DType::kUndefined) return;
    if (d.op->min_outputs == 0) return;  // a node that gives none of its optional outputs computes nothing, and is no error
    d.output_count = 0;
    expect_invalid(d, "no output");
  });
}

// ------------------------------------------------------------------------------------------------------ attributes --

// One value of each type of attribute.
std::vector<AttributeValue> one_of_each() {
  void* bytes = nullptr;
  return {1.0f,
          std::int64_t{1},
          std::string("1"),
          WeightPtr(make_weight({DType::kFloat32, {1}}, nullptr, &bytes)),
          Floats{1},
          Ints{1},
          std::vector<std::string>{"1"}};
}

TEST_F(HostileOperator, H39_AttributesOfAnotherType) {
  for_each_sample([&](const Draft& sample) {
    for (const AttributeSpec& spec : sample.op->attributes) {
      if (spec.type == AttributeType::kGraph) continue;
      for (const AttributeValue& value : one_of_each()) {
        if (attribute_type(value) == spec.type) continue;
        Draft d = sample;
        d.set(spec.name, value);
        expect_invalid(d, spec.name);
      }
      Draft d = sample;
      d.set(spec.name, std::int64_t{1});
      d.find(spec.name)->proto = Proto().bytes(1, spec.name).message(6, test::OnnxWriter().graph()).varint(20, 5);
      expect_invalid(d, spec.name);
    }
  });
}

TEST_F(HostileOperator, H39_AttributesThatAreMissingUnknownOrThereTwice) {
  for_each_sample([&](const Draft& sample) {
    Draft unknown = sample;
    unknown.set("nobody_knows_this", std::int64_t{1});
    expect_invalid(unknown, "an unknown attribute");
    for (const Draft::Given& given : sample.attributes) {
      Draft d = sample;
      d.attributes.push_back(given);
      expect_invalid(d, "an attribute twice");
    }
    for (const AttributeSpec& spec : sample.op->attributes) {
      if (!spec.required) continue;
      Draft d = sample;
      std::erase_if(d.attributes, [&](const Draft::Given& g) { return g.name == spec.name; });
      expect_invalid(d, "a required attribute is missing");
    }
  });
}

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST_F(HostileOperator, H39_AxesOutOfRange) {
  for_each_sample([&](const Draft& sample) {
    for (const AttributeSpec& spec : sample.op->attributes) {
      const std::string name = spec.name;
      if (spec.type != AttributeType::kInt || name.find("axis") == std::string::npos || sample.inputs.empty()) continue;
      const std::int64_t rank = sample.inputs[0].desc.shape.rank();
      for (const std::int64_t axis : {rank, -rank - 1, kMin, kMax}) {
        Draft d = sample;
        d.set(name, axis);
        expect_answer(d, name);
      }
      // One scale for all has no axis.
      const bool ignored = name == "axis" && std::string(sample.op->name).find("uantizeLinear") != std::string::npos &&
                           sample.inputs[1].desc.shape.rank() == 0;
      if (ignored) continue;
      for (const std::int64_t axis : {kMin, kMax, std::int64_t{9}, std::int64_t{-10}}) {
        Draft d = sample;
        d.set(name, axis);
        const Outcome o = use(d);
        EXPECT_NE(o.status(), EVN_OK) << name << ": " << d.describe();
      }
    }
  });
}

TEST_F(HostileOperator, H39_H40_NumbersInAttributes) {
  for_each_sample([&](const Draft& sample) {
    for (const AttributeSpec& spec : sample.op->attributes) {
      if (spec.type == AttributeType::kInt) {
        for (const std::int64_t v : {kMin, std::int64_t{-1'000'000'000}, std::int64_t{-1}, std::int64_t{0}, std::int64_t{2},
                                     std::int64_t{1} << 31, kMax}) {
          Draft d = sample;
          d.set(spec.name, v);
          expect_answer(d, spec.name);
        }
      }
      if (spec.type == AttributeType::kFloat) {
        for (const float v :
             {0.0f, -1.0f, 1e38f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
          Draft d = sample;
          d.set(spec.name, v);
          expect_answer(d, spec.name);
        }
      }
      if (spec.type == AttributeType::kString) {
        for (const char* v : {"", "nonsense", "SAME_UPPER", "ij,jk->ik", "...", "->", "\x01\xff"}) {
          Draft d = sample;
          d.set(spec.name, std::string(v));
          expect_answer(d, spec.name);
        }
      }
    }
  });
}

TEST_F(HostileOperator, H40_ListsOfOtherLengthsAndWithOtherNumbers) {
  for_each_sample([&](const Draft& sample) {
    for (const AttributeSpec& spec : sample.op->attributes) {
      if (spec.type != AttributeType::kInts) continue;
      Draft d = sample;
      const Draft::Given* given = d.find(spec.name);
      const Ints list = given != nullptr ? std::get<Ints>(given->value) : Ints{1, 1};
      std::vector<Ints> lists = {{}, Ints(list.size() + 1, 1), Ints(2 * list.size() + 1, 1), Ints(9, 1), Ints(100, 0)};
      if (!list.empty()) lists.push_back(Ints(list.begin(), list.end() - 1));
      for (std::size_t i = 0; i < list.size(); ++i) {
        for (const std::int64_t v :
             {kMin, std::int64_t{-1'000'000'000}, std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 31, kMax}) {
          lists.push_back(list);
          lists.back()[i] = v;
        }
      }
      if (list.size() > 1) lists.push_back(Ints(list.size(), list[0]));
      for (const Ints& l : lists) {
        d.set(spec.name, l);
        expect_answer(d, spec.name);
      }
    }
    for (const AttributeSpec& spec : sample.op->attributes) {
      if (spec.type != AttributeType::kFloats && spec.type != AttributeType::kStrings) continue;
      for (const std::size_t size : {0, 1, 3, 100}) {
        Draft d = sample;
        d.set(spec.name, spec.type == AttributeType::kFloats ? AttributeValue(Floats(size, -1))
                                                             : AttributeValue(std::vector<std::string>(size, "x")));
        expect_answer(d, spec.name);
      }
    }
  });
}

// ---------------------------------------------------------------------------------------------------------- shapes --

void reshape(Draft::Input* x, const Shape& shape) {
  x->desc.shape = shape;
  x->bytes.resize(x->desc.size_bytes());
}

TEST_F(HostileOperator, H22_EmptyDimsScalarsAndOtherRanksForEachInput) {
  for_each_sample([&](const Draft& sample) {
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      const TensorDesc& desc = sample.inputs[i].desc;
      if (desc.dtype == DType::kUndefined) continue;
      std::vector<Shape> shapes = {{}, {1}, {0}, {0, 0}, {2, 3}, {1, 1, 1}, {1, 0, 1, 1}, {1, 2, 1, 3, 1}};
      for (int d = 0; d < desc.shape.rank(); ++d) {
        for (const std::int64_t dim : {std::int64_t{0}, std::int64_t{1}, desc.shape[d] + 1}) {
          shapes.push_back(desc.shape);
          shapes.back()[d] = dim;
        }
      }
      for (const Shape& shape : shapes) {
        for (const bool symbolic : {false, true}) {
          if (symbolic && sample.inputs[i].constant) continue;
          Draft d = sample;
          d.symbolic = symbolic;
          reshape(&d.inputs[i], shape);
          expect_answer(d, "input " + std::to_string(i));
        }
      }
    }
  });
}

TEST_F(HostileOperator, H22_AllInputsEmptyOrScalars) {
  for_each_sample([&](const Draft& sample) {
    for (const bool scalars : {false, true}) {
      for (const bool symbolic : {false, true}) {
        Draft d = sample;
        d.symbolic = symbolic;
        for (Draft::Input& x : d.inputs) {
          if (x.desc.dtype == DType::kUndefined) continue;
          Shape shape = x.desc.shape;
          for (int k = 0; k < shape.rank(); ++k) shape[k] = 0;
          reshape(&x, scalars ? Shape{} : shape);
        }
        expect_answer(d, scalars ? "scalars" : "empty");
      }
    }
  });
}

// ---------------------------------------------------------------------------------------------------------- values --

// Writes v as element `i`, cut to the type.
void put(Draft::Input* x, std::size_t i, std::int64_t v) {
  const std::size_t size = dtype_size(x->desc.dtype);
  std::memcpy(x->bytes.data() + i * size, &v, size);
}

bool is_integer(DType dtype) { return ((kSignedInts | kUnsignedInts) & dtype_bit(dtype)) != 0; }

// Indices, shapes, lengths, repeats, axes, k: whatever an integer input means, as an initializer and when a run brings it.
TEST_F(HostileOperator, H41_H43_H44_NumbersInIntegerInputs) {
  for_each_sample([&](const Draft& sample) {
    const std::int64_t n = sample.inputs.empty() || sample.inputs[0].desc.shape.rank() == 0 ? 1 : sample.inputs[0].desc.shape[0];
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      const TensorDesc& desc = sample.inputs[i].desc;
      if (desc.dtype == DType::kUndefined || !is_integer(desc.dtype)) continue;
      const auto count = static_cast<std::size_t>(desc.shape.elements());
      for (std::size_t at = 0; at < count; at += std::max<std::size_t>(1, count / 3)) {
        for (const std::int64_t v : {kMin, -n - 1, std::int64_t{-2}, std::int64_t{-1}, std::int64_t{0}, n, std::int64_t{1} << 31,
                                     std::int64_t{1} << 40, kMax}) {
          for (const bool constant : {false, true}) {
            Draft d = sample;
            d.inputs[i].constant = constant;
            put(&d.inputs[i], at, v);
            expect_answer(d, "input " + std::to_string(i) + "[" + std::to_string(at) + "] = " + std::to_string(v));
          }
        }
      }
      for (const std::int64_t v : {kMin, std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 20, kMax}) {
        Draft d = sample;
        for (std::size_t at = 0; at < count; ++at) put(&d.inputs[i], at, v);
        expect_answer(d, "all of input " + std::to_string(i) + " = " + std::to_string(v));
      }
    }
  });
}

TEST_F(HostileOperator, H45_H50_NumbersInScalarAndListedFloats) {
  for_each_sample([&](const Draft& sample) {
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      const Draft::Input& x = sample.inputs[i];
      if (x.desc.dtype != DType::kFloat32 || x.desc.shape.rank() > 1 || x.bytes.size() < 4) continue;
      for (const float v :
           {0.0f, -1.0f, 1e20f, 1e-45f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        for (const bool constant : {false, true}) {
          Draft d = sample;
          d.inputs[i].constant = constant;
          std::memcpy(d.inputs[i].bytes.data(), &v, sizeof v);
          expect_answer(d, "input " + std::to_string(i));
        }
      }
    }
  });
}

TEST_F(HostileOperator, InputsOfAnotherType) {
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kUint8,
                              DType::kBool,    DType::kFloat16, DType::kInt4};
  for_each_sample([&](const Draft& sample) {
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      if (sample.inputs[i].desc.dtype == DType::kUndefined) continue;
      for (const DType dtype : kTypes) {
        Draft d = sample;
        d.inputs[i].desc.dtype = dtype;
        d.inputs[i].bytes.assign(d.inputs[i].desc.size_bytes(), 0);
        expect_answer(d, "input " + std::to_string(i));
      }
    }
  });
}

}  // namespace
}  // namespace evn::conformance
