// Operators that pick or place elements by indices, conditions, or where they are.
#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

void add_gathers(Cases* all) {
  for_dtypes(kMoved, [&](DType d) {
    all->push_back(Case("GatherElements", 13).in(d, {4, 5}, 1, 90).literal({kI32, {2, 5}}, {0, 1, -1, 3, 2, 1, 0, 0, -4, 3}));
    all->push_back(Case("GatherND", 13).in(d, {4, 5, 3}, 1, 90).literal({kI64, {2, 2}}, {0, 1, -1, 3}));
  });
  all->push_back(Case("GatherElements", 11).x({2, 3}).literal({kI64, {2, 2}}, {2, 0, -1, 1}).integer("axis", 1));
  all->push_back(Case("GatherND", 11).x({4, 5}).literal({kI64, {3, 2}}, {0, 1, 3, 4, -1, -5}));
  all->push_back(Case("GatherND", 13).x({2, 4, 3}).literal({kI64, {2, 2, 1}}, {0, 1, 3, -1}).integer("batch_dims", 1));
}

void add_scatters(Cases* all) {
  for_dtypes(kMoved, [&](DType d) {
    for (const char* op : {"Scatter", "ScatterElements"}) {
      const int opset = op[7] == 'E' ? 13 : 9;
      all->push_back(Case(op, opset).in(d, {3, 4}, 1, 90).literal({kI64, {1, 4}}, {0, 2, -1, 1}).in(d, {1, 4}, 1, 90));
    }
    all->push_back(Case("ScatterND", 13).in(d, {6, 7}, 1, 90).literal({kI64, {2, 1}}, {3, -3}).in(d, {2, 7}, 1, 90));
  });
  for (const char* reduction : {"add", "mul", "min", "max"}) {
    const bool is_ordered = reduction[0] == 'm' && reduction[1] != 'u';
    for_dtypes(is_ordered ? kNumbers : kNumbers | kComplex, [&](DType d) {
      all->push_back(Case("ScatterElements", 18)
                         .in(d, {3, 4}, 1, 9)
                         .literal({kI32, {3, 2}}, {0, 0, 1, -1, 3, 3})
                         .in(d, {3, 2}, 1, 9)
                         .integer("axis", 1)
                         .word("reduction", reduction));
      all->push_back(Case("ScatterND", 18)
                         .in(d, {4, 3}, 1, 9)
                         .literal({kI64, {2, 2}}, {3, 1, 3, 1})
                         .in(d, {2}, 1, 9)
                         .word("reduction", reduction));
    });
  }
  all->push_back(Case("ScatterElements", 16).x({5}).list({1, 1}).x({2}).word("reduction", "add"));
  all->push_back(Case("GatherElements", 13).x({3, 700}).in(kI64, {2, 600}, -700, 699).integer("axis", 1));
  all->push_back(Case("GatherElements", 13).x({3, 40, 5}).in(kI32, {2, 90, 4}, -40, 39).integer("axis", 1));
  all->push_back(Case("ScatterElements", 18).x({3, 700}).in(kI64, {2, 600}, -700, 699).x({2, 600}).integer("axis", 1));
  all->push_back(Case("ScatterElements", 18)
                     .x({3, 40, 5})
                     .in(kI32, {2, 90, 4}, -40, 39)
                     .x({2, 90, 4})
                     .integer("axis", 1)
                     .word("reduction", "add"));
  all->push_back(Case("ScatterND", 16).x({5}).literal({kI64, {2, 1}}, {1, 1}).x({2}).word("reduction", "mul"));
}

void add_selections(Cases* all) {
  for_dtypes(kNumbers, [&](DType d) {
    all->push_back(Case("OneHot", 11).in(d, {3, 2}, 0, 4).scalar(kI64, 4).floats({-1, 5}));
    all->push_back(Case("TopK", 11).in(d, {3, 7}, 0, 5).list({3}).outputs(2));
  });
  all->push_back(Case("OneHot", 9).in(kI64, {3}, -4, 3).list({4}).list({0, 1}).integer("axis", 0));
  all->push_back(Case("TopK", 1).x({3, 7}).integer("k", 2).integer("axis", 0).outputs(2));
  all->push_back(Case("TopK", 10).x({3, 7, 2}).list({4}).integer("axis", 1).outputs(2));
  all->push_back(Case("TopK", 11).x({50}).specials().list({20}).integer("largest", 0).outputs(2));
  for_dtypes(kAnyDtype | kComplex, [&](DType d) { all->push_back(Case("NonZero", 13).in(d, {5, 9}, 0, 3)); });
  for_dtypes(kMoved, [&](DType d) {
    all->push_back(Case("Compress", 11).in(d, {3, 4}, 1, 90).literal({DType::kBool, {3}}, {1, 0, 1}).integer("axis", 0));
  });
  all->push_back(Case("Compress", 9).x({3, 4}).literal({DType::kBool, {9}}, {1, 0, 1, 1, 0, 0, 0, 0, 1}));
}

void add_orders(Cases* all) {
  for (const DType d : {kF32, kF64, kI32, kI64, DType::kUint32, DType::kUint64}) {
    for (const char* op : {"CumSum", "CumProd"}) {
      all->push_back(Case(op, 26).in(d, {3, 5}, 1, 4).scalar(kI64, -1));
      all->push_back(Case(op, 26).in(d, {3, 5}, 1, 4).scalar(kI32, 0).integer("reverse", 1).integer("exclusive", 1));
    }
  }
  for_dtypes(kMoved, [&](DType d) {
    all->push_back(Case("DepthToSpace", 11).in(d, {2, 8, 3, 2}, 1, 90).integer("blocksize", 2).word("mode", "CRD"));
    all->push_back(Case("DepthToSpace", 1).in(d, {2, 8, 3, 2}, 1, 90).integer("blocksize", 2));
    all->push_back(Case("SpaceToDepth", 13).in(d, {2, 3, 4, 2}, 1, 90).integer("blocksize", 2));
    all->push_back(Case("ReverseSequence", 10).in(d, {4, 3, 2}, 1, 90).list({1, 3, 4}));
    if (d != DType::kString) all->push_back(Case("Trilu", 14).in(d, {3, 4}, 1, 90).scalar(kI64, 1).integer("upper", 0));
  });
  all->push_back(Case("SpaceToDepth", 28).x({2, 3, 4, 2}).integer("blocksize", 2).word("mode", "CRD"));
  all->push_back(Case("ReverseSequence", 10).x({3, 4}).list({0, 2, 4}).integer("batch_axis", 0).integer("time_axis", 1));
  all->push_back(Case("Trilu", 14).x({2, 5, 3}));
  for_dtypes(kNumbers | dtype_bit(DType::kBool), [&](DType d) {
    all->push_back(Case("EyeLike", 9).in(d, {3, 4}).integer("k", 1));
  });
  all->push_back(Case("EyeLike", 9).x({3, 3}).integer("k", -1).integer("dtype", EVN_DTYPE_INT32));
}

void add_caches(Cases* all) {
  for_dtypes(kMoved, [&](DType d) {
    all->push_back(Case("TensorScatter", 24).in(d, {2, 3, 5, 2}, 1, 90).in(d, {2, 3, 2, 2}, 1, 90).list({3, 0}));
    all->push_back(Case("CenterCropPad", 18).in(d, {4, 5}, 1, 90).list({7, 2}));
  });
  all->push_back(Case("TensorScatter", 24).x({2, 4, 3}).x({2, 3, 3}).list({3, 9}).word("mode", "circular"));
  all->push_back(Case("TensorScatter", 24).x({2, 4}).x({2, 3}).integer("axis", 1));
  all->push_back(Case("CenterCropPad", 18).x({3, 6, 5}).list({4, 3}).ints("axes", {-1, 1}));
  for_dtypes(kNumbers | dtype_bit(DType::kBool) | kString | kComplex, [&](DType d) {
    all->push_back(Case("Unique", 11).in(d, {3, 4}, 0, 5).outputs(4).flat().variable());
    all->push_back(Case("Unique", 11).in(d, {4, 2}, 0, 2).integer("axis", 0).integer("sorted", 0).outputs(4).flat());
  });
}

void add_grams(Cases* all) {
  for (const DType d : {kI32, kI64, DType::kString}) {
    for (const char* mode : {"TF", "IDF", "TFIDF"}) {
      Case c = Case("TfIdfVectorizer", 9)
                   .in(d, {2, 12}, 0, 4)
                   .ints("ngram_counts", {0, 2})
                   .ints("ngram_indexes", {0, 2, 1, 3})
                   .word("mode", mode);
      c.integer("min_gram_length", 1)
          .integer("max_gram_length", 2)
          .integer("max_skip_count", 1)
          .attr("weights", Floats{1.5f, 2, 3, 4});
      if (d == DType::kString) {
        c.attr("pool_strings", std::vector<std::string>{"0", "2", "1", "2", "3", "0"});
      } else {
        c.ints("pool_int64s", {0, 2, 1, 2, 3, 0});
      }
      all->push_back(c);
    }
  }
}

void add_ranges(Cases* all) {
  for (const DType d : {kF32, kF64, DType::kInt16, kI32, kI64})
    all->push_back(Case("Range", 11).scalar(d, 3).scalar(d, -9).scalar(d, -2));
  all->push_back(Case("Range", 11).scalar(kF32, 0).scalar(kF32, 1).scalar(kF32, 0.3));
  all->push_back(Case("Range", 27).scalar(kF32, 0).scalar(kF32, 2).scalar(kF32, 0.3).integer("stash_type", EVN_DTYPE_FLOAT32));
  all->push_back(Case("Range", 11).scalar(kI64, 3).scalar(kI64, 3).scalar(kI64, 1));
}

}  // namespace

void add_index_cases(Cases* all) {
  add_gathers(all);
  add_scatters(all);
  add_selections(all);
  add_orders(all);
  add_ranges(all);
  add_grams(all);
  add_caches(all);
}

}  // namespace evn::conformance
