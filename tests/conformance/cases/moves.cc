// Operators that move, repeat, cut or describe elements.
#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

constexpr std::int64_t kMin = INT64_MIN, kMax = INT64_MAX;

void add_shapes(Cases* all) {
  for_dtypes(kStoredDtype, [&](DType d) {
    all->push_back(Case("Reshape", 5).in(d, {3, 4, 5}, 1, 90).list({0, -1}));
    all->push_back(Case("Flatten", 13).in(d, {3, 4, 5}, 1, 90).integer("axis", 2));
    all->push_back(Case("Squeeze", 13).in(d, {1, 4, 1}, 1, 90).list({0}).flat());
    all->push_back(Case("Unsqueeze", 13).in(d, {4, 5}, 1, 90).list({0, -1}));
    all->push_back(Case("Shape", 13).in(d, {3, 4, 5}));
    all->push_back(Case("Size", 13).in(d, {3, 4, 5}));
  });
  all->push_back(Case("Reshape", 14).x({3, 0}).list({0, 7}).integer("allowzero", 1));
  all->push_back(Case("Reshape", 14).x({3, 4}).list({2, 6}));
  all->push_back(Case("Flatten", 1).x({3, 4, 5}).integer("axis", 0));
  all->push_back(Case("Squeeze", 1).x({1, 4, 1}).ints("axes", {2}));
  all->push_back(Case("Squeeze", 13).x({1, 4, 1}));
  all->push_back(Case("Unsqueeze", 1).x({4, 5}).ints("axes", {1}));
  all->push_back(Case("Shape", 15).x({3, 4, 5}).integer("start", 1));
  all->push_back(Case("Shape", 15).x({3, 4, 5}).integer("start", -3).integer("end", -1));
  all->push_back(Case("Size", 1).x({}));
}

void add_transpose(Cases* all) {
  for_dtypes(kMoved, [&](DType d) {
    all->push_back(Case("Transpose", 13).in(d, {5, 7}, 0, 90));
    all->push_back(Case("Transpose", 13).in(d, {2, 3, 5, 17}, 0, 90).ints("perm", {0, 2, 3, 1}).batch());
  });
  for (const Ints& perm :
       {Ints{0, 1, 2, 3}, Ints{3, 2, 1, 0}, Ints{0, 2, 1, 3}, Ints{1, 0, 2, 3}, Ints{0, 3, 1, 2}, Ints{2, 0, 3, 1}}) {
    all->push_back(Case("Transpose", 13).x({2, 3, 1, 9}).ints("perm", perm));
  }
  all->push_back(Case("Transpose", 1).x({}));
  all->push_back(Case("Transpose", 1).x({7}));
  all->push_back(Case("Transpose", 1).x({33, 65}));
  all->push_back(Case("Transpose", 1).x({2, 100, 11, 40}).ints("perm", {0, 2, 1, 3}).batch());
  all->push_back(Case("Transpose", 1).x({2, 40, 1200}).ints("perm", {0, 2, 1}).batch());
  all->push_back(Case("Transpose", 1).x({1, 2, 3, 2, 3, 2, 3, 2}).ints("perm", {7, 3, 5, 0, 1, 2, 6, 4}));
  all->push_back(Case("Transpose", 1).x({3, 0, 2}));
}

void add_concat(Cases* all) {
  for_dtypes(kMoved, [&](DType d) {
    all->push_back(Case("Concat", 13).in(d, {3, 4}, 0, 90).in(d, {3, 5}, 0, 90).integer("axis", 1));
  });
  all->push_back(Case("Concat", 4).x({2, 3, 4}).integer("axis", 1).batch());
  all->push_back(Case("Concat", 4).x({2, 3, 4}).x({5, 3, 4}).x({1, 3, 4}).integer("axis", 0));
  all->push_back(Case("Concat", 4).x({2, 3, 4}).x({2, 1, 4}).x({2, 7, 4}).x({2, 2, 4}).integer("axis", -2).batch(15));
  all->push_back(Case("Concat", 4).x({2, 3, 4}).x({2, 3, 1}).w({2, 3, 9}).integer("axis", 2));
  all->push_back(Case("Concat", 4).x({2, 100, 401}).x({2, 7, 401}).integer("axis", 1).batch(3));
  all->push_back(Case("Concat", 4).x({3, 40001}).x({3, 5}).integer("axis", 1).batch(3));
  all->push_back(Case("Concat", 4).x({2, 0, 4}).x({2, 3, 4}).integer("axis", 1));
}

void add_split(Cases* all) {
  for_dtypes(kMoved, [&](DType d) {
    all->push_back(Case("Split", 13).in(d, {9, 8}, 0, 90).list({5, 3}).integer("axis", 1).outputs(2));
  });
  all->push_back(Case("Split", 2).x({2, 9}).integer("axis", -1).outputs(3).batch());
  all->push_back(Case("Split", 2).x({2, 9}).integer("axis", 1).ints("split", {2, 3, 4}).outputs(3).batch());
  all->push_back(Case("Split", 13).x({6, 2}).outputs(2));
  all->push_back(Case("Split", 18).x({7, 2}).integer("num_outputs", 3).outputs(3));
  all->push_back(Case("Split", 13).x({3, 4}).list({0, 3}).outputs(2));
}

void add_slice(Cases* all) {
  for_dtypes(kMoved, [&](DType d) {
    all->push_back(Case("Slice", 13).in(d, {9, 11}, 0, 90).list({1, -2}).list({8, kMin}).list({0, 1}).list({2, -3}));
  });
  all->push_back(Case("Slice", 1).x({5, 9}).ints("starts", {1}).ints("ends", {kMax}).ints("axes", {1}).batch());
  all->push_back(Case("Slice", 1).x({5, 9}).ints("starts", {1, 2}).ints("ends", {-1, 7}));
  all->push_back(Case("Slice", 10).x({5, 9, 3}).list({2}, kI32).list({4}, kI32));
  all->push_back(Case("Slice", 13).x({3, 9, 30}).list({8, 29}).list({kMin, kMin}).list({1, 2}).list({-1, -2}).batch());
  all->push_back(Case("Slice", 13).x({3, 9, 30}).list({0, 3}).list({9, 27}).list({-2, -1}).absent().batch());
  all->push_back(Case("Slice", 13).x({3, 40, 401}).list({1}).list({399}).list({2}).list({3}).batch());
  all->push_back(Case("Slice", 13).x({2, 300, 301}).list({1}).list({kMax}).list({2}).batch());
  all->push_back(Case("Slice", 13).x({9}).list({2}).list({7}).list({0}).list({kMax}));
  all->push_back(Case("Slice", 13).x({9, 2}).list({7}).list({2}).list({0}));
}

void add_gather(Cases* all) {
  for_dtypes(kMoved, [&](DType d) {
    all->push_back(Case("Gather", 13).in(d, {9, 5}, 0, 90).list({0, -1, 4, 4, -9}));
    all->push_back(Case("Gather", 1).in(d, {2, 9, 3}, 0, 90).literal({kI32, {2, 2}}, {1, 0, 3, 8}).integer("axis", 1).batch());
  });
  all->push_back(Case("Gather", 13).x({4, 9}).scalar(kI64, 3).integer("axis", -1).batch());
  all->push_back(Case("Gather", 13).x({4, 9}).list({}).integer("axis", 0));
}

void add_repeats(Cases* all) {
  for_dtypes(kMoved, [&](DType d) {
    all->push_back(Case("Expand", 13).in(d, {5, 1}, 0, 90).list({2, 1, 7}));
    all->push_back(Case("Tile", 13).in(d, {3, 4}, 0, 90).list({2, 3}));
  });
  all->push_back(Case("Expand", 8).x({}).list({2, 3}).flat());
  all->push_back(Case("Expand", 8).x({3, 17}).list({1}));
  all->push_back(Case("Expand", 8).x({3, 1, 17}).list({3, 2, 17}));
  all->push_back(Case("Expand", 8).x({3, 1, 1}).list({2, 1, 50, 401}));
  all->push_back(Case("Expand", 8).x({3, 1}).list({3, 0}));
  all->push_back(Case("Tile", 6).x({3, 4}).list({1, 0}));
  all->push_back(Case("Tile", 6).x({3, 1, 4}).list({1, 5, 2}));
}

void add_pads(Cases* all) {
  for (const char* mode : {"constant", "reflect", "edge"}) {
    for_dtypes(kMoved, [&](DType d) {
      all->push_back(Case("Pad", 13).in(d, {4, 5}, 1, 90).list({1, 2, 0, 3}).word("mode", mode));
    });
    for (const DType d : {kF32, kF64}) all->push_back(Case("Pad", 2).in(d, {4, 5}).ints("pads", {0, 2, 1, -1}).word("mode", mode));
    all->push_back(Case("Pad", 11).x({4, 5}).list({0, -2, 0, 3}).word("mode", mode));
  }
  for (const char* mode : {"constant", "reflect", "edge"}) {
    all->push_back(Case("Pad", 13).x({2, 3, 7, 9}).list({0, 1, 2, 3, 1, 0, 4, 2}).word("mode", mode));
    all->push_back(Case("Pad", 13).x({2, 3, 7, 9}).list({0, 0, 2, 0, 0, 0, -3, 0}).word("mode", mode));
  }
  all->push_back(Case("Pad", 13).x({2, 4}).list({0, 10, 0, -12}).flat());
  all->push_back(Case("Pad", 13).x({4, 3}).list({10, 0, -12, 0}).flat());
  all->push_back(Case("Pad", 2).x({3, 5}).ints("pads", {0, 1, 0, 2}).real("value", 3.5f).batch());
  all->push_back(Case("Pad", 18).x({4, 5}).list({2, 1}).scalar(kF32, -1).list({-1}));
  all->push_back(Case("Pad", 19).x({4, 5}).list({2, 1}).absent().list({1}, kI32).word("mode", "wrap"));
  all->push_back(Case("Pad", 13).x({4, 0}).list({0, 1, 0, 1}).flat());
}

Case with_value(const char* op, int opset, DType dtype, const Shape& shape, const char* attribute = "value") {
  void* bytes = nullptr;
  const std::shared_ptr<Weight> value = make_weight({dtype, shape}, nullptr, &bytes);
  auto* to = static_cast<unsigned char*>(bytes);
  for (std::size_t i = 0; i < value->size_bytes && dtype != DType::kString; ++i)
    to[i] = static_cast<unsigned char>(dtype == DType::kBool ? i % 2 : 3 * i + 1);
  return Case(op, opset).attr(attribute, WeightPtr(value));
}

void add_constants(Cases* all) {
  for_dtypes(kStoredDtype, [&](DType d) {
    for (Case c : {with_value("Constant", 1, d, {3, 2}), with_value("Constant", 11, d, {3, 2}, "sparse_value")}) {
      all->push_back(d == DType::kString ? c.flat() : c);
    }
  });
  for_dtypes(kStoredDtype & ~kString, [&](DType d) {
    all->push_back(with_value("ConstantOfShape", 9, d, {1}).list({2, 3}).flat());
  });
  for (const char* attribute : {"value", "sparse_value"})
    all->push_back(with_value("Constant", 13, DType::kUint8, {3, 2}, attribute));
  all->push_back(Case("Constant", 13).real("value_float", 1.5f));
  all->push_back(Case("Constant", 13).attr("value_floats", Floats{1.5f, -2, 3}));
  all->push_back(Case("Constant", 13).integer("value_int", 7));
  all->push_back(Case("Constant", 13).ints("value_ints", {7, 8, -9}));
  all->push_back(Case("ConstantOfShape", 9).list({3}).flat());
  all->push_back(Case("ConstantOfShape", 9).list({3, 0}));
  all->push_back(Case("ConstantOfShape", 9).list({}));
}

}  // namespace

void add_move_cases(Cases* all) {
  add_shapes(all);
  add_transpose(all);
  add_concat(all);
  add_split(all);
  add_slice(all);
  add_gather(all);
  add_repeats(all);
  add_pads(all);
  add_constants(all);
}

}  // namespace evn::conformance
