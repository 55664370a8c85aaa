// Trees of ai.onnx.ml: TreeEnsemble, TreeEnsembleRegressor, TreeEnsembleClassifier.
//   A row walks each tree from its root: at a branch the row's feature is compared with the branch's value (or looked up in its
//   set), a NaN goes where nodes_missing_value_tracks_true says. The votes of the leaves are summed (or averaged over the trees, or
//   the least or largest is taken) per target, base_values added, and the row's scores transformed. The label is that of the
//   largest score. If there are two classes and all leaves vote for the same one, their sum is the score of the second class, which
//   is chosen above 0.5 if no vote is negative, else above 0: votes for the first are turned into two scores, votes for the second
//   leave the first class its 0.
// dtypes: floats, the two older ones int64 and int32 too. Failures: tables of unlike lengths; ids, features, classes outside; a
// node that two branches lead to; no trees. Sums in double; the tolerance is of the transforms.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "ops/infra/ml_forest.h"
#include "ops/infra/ml_scores.h"

namespace evn {
namespace {

using namespace ml_forest;

// -------------------------------------------------------------------------------------------------------- TreeEnsemble --

enum : int {
  kAggregate5,
  kTransform5,
  kTargets5,
  kRoots,
  kMissing5,
  kModes5,
  kWeights5,
  kTargetIds5,
  kFalse5,
  kFalseLeafs,
  kTrue5,
  kTrueLeafs,
  kFeatures5,
  kSplits5,
  kMembers5,
  kHitrates5
};

// The sets of the branches that look for members, one behind the other and each ended by NaN.
void read_sets(const Weight* members, Forest* f) {
  std::size_t at = 0;
  f->members.resize(count_of(members));
  for (std::size_t i = 0; i < f->members.size(); ++i) {
    cancellation_point();
    f->members[i] = tensor_at(*members, i);
  }
  for (Branch& b : f->branches) {
    cancellation_point();
    if (b.is_leaf || b.test != Test::kMember) continue;
    if (at >= f->members.size()) fail(EVN_ERROR_INVALID_MODEL, "membership_values has too few sets");
    b.first = at;
    while (at < f->members.size() && !std::isnan(f->members[at])) {
      cancellation_point();
      ++at;
    }
    b.end = at++;
  }
  if (at < f->members.size()) fail(EVN_ERROR_INVALID_MODEL, "membership_values has more sets than branches look into");
}

// Branches first; each edge to a leaf has a leaf of its own, as two edges may name one.
Forest forest_of_ensemble(const Node& n) {
  Forest f;
  const std::size_t count = attr_ints(n, kFeatures5).size(), leaves = attr_ints(n, kTargetIds5).size();
  const std::int64_t targets = attr_given(n, kTargets5) ? attr_int(n, kTargets5) : 0;
  if (targets < 1) fail(EVN_ERROR_INVALID_MODEL, "n_targets is %lld", static_cast<long long>(targets));
  const Weight &modes = *attr_tensor(n, kModes5), &splits = *attr_tensor(n, kSplits5), &weights = *attr_tensor(n, kWeights5);
  require_count(count_of(&modes), count, "nodes_modes");
  require_count(count_of(&splits), count, "nodes_splits");
  require_count(count_of(&weights), leaves, "leaf_weights");
  for (const int list : {kFalse5, kFalseLeafs, kTrue5, kTrueLeafs})
    require_count(attr_ints(n, list).size(), count, "a list of nodes_");
  const auto missing = attr_ints(n, kMissing5);
  if (!missing.empty()) require_count(missing.size(), count, "nodes_missing_value_tracks_true");
  for (std::size_t i = 0; i < leaves; ++i) {
    cancellation_point();
    const std::size_t target = require_index(attr_ints(n, kTargetIds5)[i], static_cast<std::size_t>(targets), "target");
    f.votes.push_back({static_cast<std::int64_t>(target), tensor_at(weights, i)});
  }
  f.branches.resize(count);
  const auto edge = [&](int ids, int leafs, std::size_t i) {
    const bool to_leaf = attr_ints(n, leafs)[i] != 0;
    const std::size_t to = require_index(attr_ints(n, ids)[i], to_leaf ? leaves : count, to_leaf ? "leaf" : "node");
    if (!to_leaf) return to;
    Branch leaf;
    leaf.is_leaf = true;
    leaf.first = to;
    leaf.end = to + 1;
    f.branches.push_back(leaf);
    return f.branches.size() - 1;
  };
  for (std::size_t i = 0; i < count; ++i) {
    cancellation_point();
    const double mode = tensor_at(modes, i);
    if (!(mode >= 0 && mode <= 6)) fail(EVN_ERROR_INVALID_MODEL, "element %zu of nodes_modes is not known", i);
    const std::size_t yes = edge(kTrue5, kTrueLeafs, i), no = edge(kFalse5, kFalseLeafs, i);
    f.branches[i] = {.test = static_cast<Test>(static_cast<int>(mode)),
                     .nan_is_true = !missing.empty() && missing[i] != 0,
                     .feature = attr_ints(n, kFeatures5)[i],
                     .value = tensor_at(splits, i),
                     .yes = yes,
                     .no = no};
  }
  for (const std::int64_t root : attr_ints(n, kRoots)) {
    cancellation_point();
    f.roots.push_back(require_index(root, count, "root"));
  }
  read_sets(attr_tensor(n, kMembers5), &f);
  require_trees(f, false);
  return f;
}

void infer_ensemble(InferContext& c) {
  require_rows(c);
  require_index(attr_int(c.node, kAggregate5), 4, "aggregate_function");
  require_index(attr_int(c.node, kTransform5), 5, "post_transform");
  require_features(forest_of_ensemble(c.node), feature_count(c.shape(0)));
  c.outputs[0].shape = {row_count(c.shape(0)), attr_int(c.node, kTargets5)};
}

void reference_ensemble(const ReferenceContext& c) {
  constexpr ScoreTransform kTransforms[] = {ScoreTransform::kNone, ScoreTransform::kSoftmax, ScoreTransform::kLogistic,
                                            ScoreTransform::kSoftmaxZero, ScoreTransform::kProbit};
  const Shape& y = c.output().desc.shape;
  if (y.elements() == 0) return;
  const Forest f = forest_of_ensemble(c.node);
  std::vector<double> scores(static_cast<std::size_t>(y[1]));
  std::vector<bool> voted;
  for (std::int64_t row = 0; row < y[0]; ++row) {
    cancellation_point();
    score_row(f, static_cast<Aggregate>(attr_int(c.node, kAggregate5)), c.input(0), row, scores, &voted);
    transform_scores(kTransforms[attr_int(c.node, kTransform5)], scores);
    dispatch_floats(c.output().desc.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (std::int64_t k = 0; k < y[1]; ++k) {
        cancellation_point();
        c.output().as<T>()[row * y[1] + k] = static_cast<T>(scores[static_cast<std::size_t>(k)]);
      }
    });
  }
}

// -------------------------------------------------------------------------------------------- the two older operators --

// Shared by both; then the regressor's two and the classifier's two; then, from version 3 on, the tensors.
enum : int {
  kTransform,
  kTreeIds,
  kNodeIds,
  kFeatures,
  kModes,
  kValues,
  kTrue,
  kFalse,
  kMissing,
  kHitrates,
  kBase,
  kVoteTrees,
  kVoteNodes,
  kVoteIds,
  kVoteWeights,
  kOwn0,
  kOwn1,
  kBaseTensor,
  kValuesTensor,
  kWeightsTensor,
  kHitratesTensor
};

// Numbers from a list of floats, or from the tensor that may stand for it.
std::vector<double> numbers(const Node& n, int list, int tensor) {
  const auto floats = attr_floats(n, list);
  std::vector<double> all(floats.begin(), floats.end());
  const Weight* given = n.op->since >= 3 ? attr_tensor(n, tensor) : nullptr;
  if (given == nullptr) return all;
  if (!all.empty()) fail(EVN_ERROR_INVALID_MODEL, "a list of numbers is there twice, as floats and as tensor");
  all.resize(count_of(given));
  for (std::size_t i = 0; i < all.size(); ++i) {
    cancellation_point();
    all[i] = tensor_at(*given, i);
  }
  return all;
}

// Finds nodes by (tree, id).
class NodeTable {
 public:
  NodeTable(std::span<const std::int64_t> trees, std::span<const std::int64_t> ids) : trees_(trees), ids_(ids), order_(ids.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    const auto less = [&](std::size_t i, std::size_t j) {
      cancellation_point();
      return key(i) != key(j) ? key(i) < key(j) : i < j;
    };
    if (!std::is_sorted(order_.begin(), order_.end(), less)) std::ranges::sort(order_, less);
    for (std::size_t i = 1; i < order_.size(); ++i) {
      cancellation_point();
      if (key(order_[i - 1]) == key(order_[i])) fail(EVN_ERROR_INVALID_MODEL, "node %zu has the ids of another", order_[i]);
    }
  }

  std::size_t find(std::int64_t tree, std::int64_t id) const {
    const std::pair wanted(tree, id);
    const auto at =
        std::lower_bound(order_.begin(), order_.end(), wanted, [&](std::size_t i, const auto& k) { return key(i) < k; });
    if (at != order_.end() && key(*at) == wanted) return *at;
    fail(EVN_ERROR_INVALID_MODEL, "tree %lld has no node %lld", static_cast<long long>(tree), static_cast<long long>(id));
  }

 private:
  std::pair<std::int64_t, std::int64_t> key(std::size_t i) const { return {trees_[i], ids_[i]}; }
  std::span<const std::int64_t> trees_, ids_;
  std::vector<std::size_t> order_;
};

Branch read_branch(const Node& n, const NodeTable& table, std::size_t i, double value) {
  Branch b;
  const std::string& mode = attr_strings(n, kModes)[i];
  b.is_leaf = mode == "LEAF";
  if (b.is_leaf) return b;
  const auto* test = std::find(std::begin(kTests), std::end(kTests), mode);
  if (test == std::end(kTests)) fail(EVN_ERROR_INVALID_MODEL, "mode '%.40s' is not known", mode.c_str());
  b.test = static_cast<Test>(test - kTests);
  b.nan_is_true = attr_given(n, kMissing) && attr_ints(n, kMissing)[i] != 0;
  b.feature = attr_ints(n, kFeatures)[i];
  b.value = value;
  b.yes = table.find(attr_ints(n, kTreeIds)[i], attr_ints(n, kTrue)[i]);
  b.no = table.find(attr_ints(n, kTreeIds)[i], attr_ints(n, kFalse)[i]);
  return b;
}

// The votes, those of a leaf side by side.
void read_votes(const Node& n, const NodeTable& table, std::size_t targets, Forest* f) {
  const auto trees = attr_ints(n, kVoteTrees), nodes = attr_ints(n, kVoteNodes), ids = attr_ints(n, kVoteIds);
  const std::vector<double> weights = numbers(n, kVoteWeights, kWeightsTensor);
  for (const std::size_t size : {trees.size(), nodes.size(), weights.size()}) require_count(size, ids.size(), "a list of votes");
  std::vector<std::size_t> leaf(ids.size()), order(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    cancellation_point();
    require_index(ids[i], targets, "target");
    leaf[i] = table.find(trees[i], nodes[i]);
    if (!f->branches[leaf[i]].is_leaf) fail(EVN_ERROR_INVALID_MODEL, "vote %zu is of a node that is no leaf", i);
  }
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t i, std::size_t j) {
    cancellation_point();
    return leaf[i] != leaf[j] ? leaf[i] < leaf[j] : i < j;
  });
  for (const std::size_t i : order) {
    cancellation_point();
    Branch& b = f->branches[leaf[i]];
    if (b.end == 0) b.first = f->votes.size();
    f->votes.push_back({ids[i], weights[i]});
    b.end = f->votes.size();
  }
}

Forest forest_of_tables(const Node& n, std::size_t targets) {
  Forest f;
  const auto trees = attr_ints(n, kTreeIds), ids = attr_ints(n, kNodeIds);
  const std::size_t count = ids.size();
  const std::vector<double> values = numbers(n, kValues, kValuesTensor);
  for (const int list : {kTreeIds, kFeatures, kTrue, kFalse}) require_count(attr_ints(n, list).size(), count, "a list of nodes_");
  require_count(attr_strings(n, kModes).size(), count, "nodes_modes");
  require_count(values.size(), count, "nodes_values");
  if (attr_given(n, kMissing)) require_count(attr_ints(n, kMissing).size(), count, "nodes_missing_value_tracks_true");
  const NodeTable table(trees, ids);
  std::vector<bool> has_parent(count);
  for (std::size_t i = 0; i < count; ++i) {
    cancellation_point();
    f.branches.push_back(read_branch(n, table, i, values[i]));
    const Branch& b = f.branches.back();
    if (!b.is_leaf) has_parent[b.yes] = has_parent[b.no] = true;
  }
  // A tree's root is the node that no branch leads to; where all have one, the tree is a circle.
  std::vector<std::int64_t> rooted, all(trees.begin(), trees.end());
  for (std::size_t i = 0; i < count; ++i) {
    cancellation_point();
    if (has_parent[i]) continue;
    f.roots.push_back(i);
    rooted.push_back(trees[i]);
  }
  std::ranges::sort(rooted);
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (rooted != all) fail(EVN_ERROR_INVALID_MODEL, "a tree does not have just one root");
  read_votes(n, table, targets, &f);
  require_trees(f, true);
  return f;
}

// Values added to the scores; none: zeros. Of two classes the first may have one alone.
std::vector<double> base_values(const Node& n, std::size_t targets, bool is_pair) {
  std::vector<double> base = numbers(n, kBase, kBaseTensor);
  if (base.empty()) base.assign(targets, 0);
  if (is_pair && base.size() == 1) base.push_back(0);
  require_count(base.size(), targets, "base_values");
  return base;
}

Aggregate aggregate_of(const std::string& name) {
  constexpr const char* kNames[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  for (int i = 0; i < 4; ++i) {
    if (name == kNames[i]) return static_cast<Aggregate>(i);
  }
  fail(EVN_ERROR_INVALID_MODEL, "aggregate_function '%.40s' is not known", name.c_str());
}

void infer_regressor(InferContext& c) {
  require_rows(c);
  const std::int64_t targets = attr_given(c.node, kOwn1) ? attr_int(c.node, kOwn1) : 0;
  if (targets < 1) fail(EVN_ERROR_INVALID_MODEL, "n_targets is %lld", static_cast<long long>(targets));
  aggregate_of(attr_string(c.node, kOwn0));
  score_transform(attr_string(c.node, kTransform));
  const std::size_t base = numbers(c.node, kBase, kBaseTensor).size();
  if (base != 0) require_count(base, static_cast<std::size_t>(targets), "base_values");
  require_features(forest_of_tables(c.node, static_cast<std::size_t>(targets)), feature_count(c.shape(0)));
  c.outputs[0].shape = {row_count(c.shape(0)), targets};
}

void reference_regressor(const ReferenceContext& c) {
  if (c.output().desc.shape.elements() == 0) return;
  const auto targets = static_cast<std::size_t>(attr_int(c.node, kOwn1));
  const Forest f = forest_of_tables(c.node, targets);
  const std::vector<double> base = base_values(c.node, targets, false);
  std::vector<double> scores(targets);
  std::vector<bool> voted;
  for (std::int64_t row = 0; row < c.output().desc.shape[0]; ++row) {
    cancellation_point();
    score_row(f, aggregate_of(attr_string(c.node, kOwn0)), c.input(0), row, scores, &voted);
    for (std::size_t k = 0; k < targets; ++k) {
      cancellation_point();
      scores[k] += base[k];
    }
    transform_scores(score_transform(attr_string(c.node, kTransform)), scores);
    std::copy(scores.begin(), scores.end(), c.output().as<float>() + row * static_cast<std::int64_t>(targets));
  }
}

DType classifier_dtype(const Node& node, std::span<const DType>, int output) {
  if (output == 1) return DType::kFloat32;
  return class_labels(node, kOwn0, kOwn1).are_strings() ? DType::kString : DType::kInt64;
}

// If there are two classes, the only one that leaves vote for; -1: there are more classes, or leaves vote for both.
int only_voted_class(const Forest& f, std::size_t classes) {
  if (classes != 2) return -1;
  const std::int64_t first = f.votes.empty() ? 0 : f.votes[0].target;
  const bool alone = std::all_of(f.votes.begin(), f.votes.end(), [&](const Vote& v) { return v.target == first; });
  return alone ? static_cast<int>(first) : -1;
}

void infer_classifier(InferContext& c) {
  require_rows(c);
  const ClassLabels labels = class_labels(c.node, kOwn0, kOwn1);
  score_transform(attr_string(c.node, kTransform));
  base_values(c.node, labels.count(), labels.count() == 2);
  require_features(forest_of_tables(c.node, labels.count()), feature_count(c.shape(0)));
  c.outputs[0].shape = {row_count(c.shape(0))};
  if (c.outputs.size() > 1) c.outputs[1].shape = {row_count(c.shape(0)), static_cast<std::int64_t>(labels.count())};
}

void reference_classifier(const ReferenceContext& c) {
  const ClassLabels labels = class_labels(c.node, kOwn0, kOwn1);
  const std::size_t classes = labels.count();
  const Forest f = forest_of_tables(c.node, classes);
  const int only = only_voted_class(f, classes);
  const bool positive = std::all_of(f.votes.begin(), f.votes.end(), [](const Vote& v) { return v.weight >= 0; });
  const std::size_t base_count = numbers(c.node, kBase, kBaseTensor).size();
  const std::vector<double> base = base_values(c.node, classes, classes == 2);
  const ScoreTransform transform = score_transform(attr_string(c.node, kTransform));
  std::vector<double> scores(classes);
  std::vector<bool> voted;
  for (std::int64_t row = 0; row < row_count(c.input(0).desc.shape); ++row) {
    cancellation_point();
    score_row(f, Aggregate::kSum, c.input(0), row, scores, &voted);
    if (only >= 0) {
      const double s = scores[static_cast<std::size_t>(only)] + base[static_cast<std::size_t>(only)];
      labels.write(c, row, s > (positive ? 0.5 : 0) ? 1 : 0);
      if (only == 0) {
        transform_pair(transform, positive, s, scores);
      } else {
        scores[0] = base_count == 2 ? base[0] : 0;
        scores[1] = s;
        transform_scores(transform, scores);
      }
    } else {
      for (std::size_t k = 0; k < classes; ++k) {
        cancellation_point();
        scores[k] += base[k];
      }
      labels.write(c, row, base_count != 0 ? best_class(scores) : voted_class(scores, voted));
      transform_scores(transform, scores);
    }
    if (c.outputs.size() < 2 || !c.output(1).present()) continue;
    std::copy(scores.begin(), scores.end(), c.output(1).as<float>() + row * static_cast<std::int64_t>(classes));
  }
}

// --------------------------------------------------------------------------------------------------------------- table --

constexpr const char* kDomain = "ai.onnx.ml";
constexpr AttributeSpec kEnsemble[] = {int_attribute("aggregate_function", 1),
                                       int_attribute("post_transform", 0),
                                       optional_attribute("n_targets", AttributeType::kInt),
                                       required_attribute("tree_roots", AttributeType::kInts),
                                       optional_attribute("nodes_missing_value_tracks_true", AttributeType::kInts),
                                       required_attribute("nodes_modes", AttributeType::kTensor),
                                       required_attribute("leaf_weights", AttributeType::kTensor),
                                       required_attribute("leaf_targetids", AttributeType::kInts),
                                       required_attribute("nodes_falsenodeids", AttributeType::kInts),
                                       required_attribute("nodes_falseleafs", AttributeType::kInts),
                                       required_attribute("nodes_truenodeids", AttributeType::kInts),
                                       required_attribute("nodes_trueleafs", AttributeType::kInts),
                                       required_attribute("nodes_featureids", AttributeType::kInts),
                                       required_attribute("nodes_splits", AttributeType::kTensor),
                                       optional_attribute("membership_values", AttributeType::kTensor),
                                       optional_attribute("nodes_hitrates", AttributeType::kTensor)};

#define EVN_TREE_ATTRIBUTES(votes, own0, own1)                                                                                   \
  {                                                                                                                              \
    string_attribute("post_transform", "NONE"), optional_attribute("nodes_treeids", AttributeType::kInts),                       \
        optional_attribute("nodes_nodeids", AttributeType::kInts), optional_attribute("nodes_featureids", AttributeType::kInts), \
        optional_attribute("nodes_modes", AttributeType::kStrings), optional_attribute("nodes_values", AttributeType::kFloats),  \
        optional_attribute("nodes_truenodeids", AttributeType::kInts),                                                           \
        optional_attribute("nodes_falsenodeids", AttributeType::kInts),                                                          \
        optional_attribute("nodes_missing_value_tracks_true", AttributeType::kInts),                                             \
        optional_attribute("nodes_hitrates", AttributeType::kFloats), optional_attribute("base_values", AttributeType::kFloats), \
        optional_attribute(votes "_treeids", AttributeType::kInts), optional_attribute(votes "_nodeids", AttributeType::kInts),  \
        optional_attribute(votes "_ids", AttributeType::kInts), optional_attribute(votes "_weights", AttributeType::kFloats),    \
        own0, own1, optional_attribute("base_values_as_tensor", AttributeType::kTensor),                                         \
        optional_attribute("nodes_values_as_tensor", AttributeType::kTensor),                                                    \
        optional_attribute(votes "_weights_as_tensor", AttributeType::kTensor),                                                  \
        optional_attribute("nodes_hitrates_as_tensor", AttributeType::kTensor)                                                   \
  }
constexpr AttributeSpec kRegress[] = EVN_TREE_ATTRIBUTES("target", string_attribute("aggregate_function", "SUM"),
                                                         optional_attribute("n_targets", AttributeType::kInt));
constexpr AttributeSpec kClassify[] = EVN_TREE_ATTRIBUTES("class", optional_attribute("classlabels_int64s", AttributeType::kInts),
                                                          optional_attribute("classlabels_strings", AttributeType::kStrings));
#undef EVN_TREE_ATTRIBUTES

DType float_dtype(const Node&, std::span<const DType>, int) { return DType::kFloat32; }

constexpr std::span<const AttributeSpec> kRegressAll(kRegress), kClassifyAll(kClassify);
constexpr Tolerance kTolerance{1e-6, 1e-6};

constexpr OpDef regressor(int since) {
  return {.name = "TreeEnsembleRegressor",
          .domain = kDomain,
          .since = since,
          .attributes = since < 3 ? kRegressAll.first(kBaseTensor) : kRegressAll,
          .dtypes = kFeatureDtypes,
          .output_dtype = float_dtype,
          .infer = infer_regressor,
          .reference = reference_regressor,
          .tolerance = kTolerance};
}
constexpr OpDef classifier(int since) {
  return {.name = "TreeEnsembleClassifier",
          .domain = kDomain,
          .since = since,
          .min_outputs = 2,
          .max_outputs = 2,
          .attributes = since < 3 ? kClassifyAll.first(kBaseTensor) : kClassifyAll,
          .dtypes = kFeatureDtypes,
          .output_dtype = classifier_dtype,
          .infer = infer_classifier,
          .reference = reference_classifier,
          .tolerance = kTolerance};
}
constexpr OpDef kOps[] = {
    {.name = "TreeEnsemble",
     .domain = kDomain,
     .since = 5,
     .attributes = kEnsemble,
     .dtypes = kFloats,
     .infer = infer_ensemble,
     .reference = reference_ensemble,
     .tolerance = kTolerance},
    regressor(1),
    regressor(3),
    regressor(5),
    classifier(1),
    classifier(3),
    classifier(5),
};

}  // namespace

extern const OpFamily ml_trees_family;
const OpFamily ml_trees_family = {kOps};

}  // namespace evn
