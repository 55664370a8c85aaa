// Trees of ai.onnx.ml's ensembles as one list of branches, and what a row of features scores.
#pragma once

#include <span>
#include <vector>

#include "ops/op.h"

namespace evn::ml_forest {

enum class Test : std::uint8_t { kLeq, kLt, kGte, kGt, kEq, kNeq, kMember };
constexpr const char* kTests[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"};

struct Branch {
  Test test = Test::kLeq;
  bool is_leaf = false;
  bool nan_is_true = false;
  std::int64_t feature = 0;
  double value = 0;
  std::size_t yes = 0, no = 0;     // branches
  std::size_t first = 0, end = 0;  // votes of a leaf; members of a set
};

struct Vote {
  std::int64_t target = 0;
  double weight = 0;
};

struct Forest {
  std::vector<Branch> branches;
  std::vector<Vote> votes;
  std::vector<double> members;
  std::vector<std::size_t> roots;
};

enum class Aggregate { kAverage, kSum, kMin, kMax };

// Reading tensors of a model's attributes: an element as double, and how many there are (0: no tensor).
double tensor_at(const Weight& tensor, std::size_t i);
std::size_t count_of(const Weight* tensor);

// Throw EVN_ERROR_INVALID_MODEL with `what`.
void require_count(std::size_t count, std::size_t expected, const char* what);
std::size_t require_index(std::int64_t index, std::size_t count, const char* what);

// Every walk ends: no branch is reached twice. `whole`: none is left out, as those of a circle are.
void require_trees(const Forest& f, bool whole);

// Throws where a branch looks at a feature that rows do not have.
void require_features(const Forest& f, std::int64_t features);

// A row's scores of all targets; `voted` tells which targets a leaf spoke for.
void score_row(const Forest& f, Aggregate how, const ConstTensor& x, std::int64_t row, std::span<double> scores,
               std::vector<bool>* voted);

}  // namespace evn::ml_forest
