// Where the rows of a batch are in the values of a graph, and what each operator makes of them.
//
// Two runs of the graph are looked at, of one row and of several, whose shapes are all known. For each value it is proven, node by
// node, that it is alike in both, or that one axis has the rows: then its part for row i has the elements of the run that row i has
// alone. What a node does beside that is of no interest.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ops/op.h"

namespace evn {

struct RowPlace {
  enum class Kind : std::uint8_t {
    kAlike,       // the same in both runs
    kRows,        // one after the other along `axis`, each as many elements of it as the run of one row has
    kRowNumbers,  // as kRows, one element of the axis each: all are the number of their row, counted from 0
    kIndices,     // as kRows, lists of indices along the last axis, which begin with the number of their row
    kUnlike,      // another one: shapes, say, which may be known and decide about other shapes
  };
  Kind kind = Kind::kAlike;
  int axis = 0;
};

// One node in both runs. What is absent has no dtype.
struct NodeRows {
  const Node& node;
  std::int64_t rows = 2;              // of the second run
  std::span<const ConstTensor> one;   // inputs in the run of one row; with data where it is known
  std::span<const ConstTensor> many;  // and in that of several
  std::span<const TensorDesc> one_out;
  std::span<const TensorDesc> many_out;
  std::span<const RowPlace> in;
  std::span<RowPlace> out;  // to be set

  // Throws EVN_ERROR_UNSUPPORTED with the node, which `why` says something of: "adds up the rows".
  [[noreturn]] void refuse(const char* why) const;

  bool has(std::size_t k) const { return k < one.size() && one[k].present(); }
  bool is_rows(std::size_t k) const { return has(k) && in[k].kind == RowPlace::Kind::kRows; }
  bool is_numbers(std::size_t k) const { return has(k) && in[k].kind == RowPlace::Kind::kRowNumbers; }
  bool is_alike(std::size_t k) const { return !has(k) || in[k].kind == RowPlace::Kind::kAlike; }
  int axis(std::size_t k) const { return in[k].axis; }
  const Shape& shape(std::size_t k) const { return one[k].desc.shape; }
  int rank(std::size_t k) const { return shape(k).rank(); }

  // Refuses where an input outside of `but` (bits) is not alike.
  void require_alike(std::uint32_t but) const;
  // Refuses where the input has no rows, or not at that axis.
  void require_rows(std::size_t k, int at) const;
  // Whether the output's dims say that it may have rows at that axis.
  bool fits_rows(std::size_t k, int at) const;
  // The output has its rows at that axis, or is not wanted. Refuses where its dims say otherwise.
  void set_rows(std::size_t k, int at, RowPlace::Kind kind = RowPlace::Kind::kRows) const;
  void set_all_rows(int at) const;

  // A resolved attribute of the node's by its name.
  std::int64_t int_attribute(std::string_view name, std::int64_t fallback) const;
  std::span<const std::int64_t> ints_attribute(std::string_view name) const;
  std::string_view text_attribute(std::string_view name) const;
  bool gives(std::string_view name) const;
};

// What an operator makes of rows.
using RowRule = void (*)(NodeRows& c);
struct RowRuleOf {
  const char* op;
  const char* domain;  // nullptr: any
  RowRule rule;
};

// Operators that compute element by element, along other axes, or move elements (row_moves.cc); and products, and all that works
// with samples (row_products.cc).
std::span<const RowRuleOf> row_rules_of_moves();
std::span<const RowRuleOf> row_rules_of_products();

// Element by element, with inputs that are broadcast: those of `operands` (bits). Others are parameters.
void broadcast_rows(NodeRows& c, std::uint32_t operands);

// Where no input has rows, but some come from the size of the batch (row_moves.cc). Who uses such things beside rows is refused.
void follow_sizes(NodeRows& c);

// Sets c.out. Throws EVN_ERROR_UNSUPPORTED with the node where rows are mixed, or nothing is known of the operator.
void follow_rows(NodeRows& c);

}  // namespace evn
