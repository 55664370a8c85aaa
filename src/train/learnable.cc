// The initializers that learn, and the reasons why others stay.
#include <algorithm>
#include <map>
#include <set>

#include "base/cancel.h"
#include "base/text.h"
#include "core/dtype.h"
#include "train/buffers.h"
#include "train/graphs.h"
#include "train/library.h"
#include "train/ways.h"

namespace evn_train {
namespace {

constexpr char kNameIt[] = "; name it in trainable if it is to learn";

// Each pattern fits some of the names.
void require_fits(const std::vector<std::string>& patterns, const std::vector<std::string>& names, const char* what) {
  for (const std::string& pattern : patterns) {
    const bool fits = std::any_of(names.begin(), names.end(), [&](const std::string& n) {
      evn::cancellation_point(evn::kNodeWork);
      return evn::glob_match(pattern, n);
    });
    if (!fits) fail(EVN_ERROR_INVALID_ARGUMENT, "%s: \"%.128s\" fits no name", what, pattern.c_str());
  }
}

bool names_exactly(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    evn::cancellation_point();
    return pattern == name;
  });
}

// Returns true for a type of weights that do not learn, false for float32 and for types of indices, flags and texts.
bool is_type_that_stays(DType dtype) {
  switch (dtype) {
    case DType::kUndefined:
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint32:
    case DType::kUint64:
    case DType::kBool:
    case DType::kString: return false;
    default: return true;
  }
}

std::string node_text(const Cut& cut) { return cut.op + " node '" + cut.node + "'"; }

// Remarks on the nodes before the loss that draw random numbers. Dropout drops in steps alone, other nodes draw whenever they run.
void note_random_nodes(const Graph& graph, const Ways& ways, std::vector<std::string>* notes) {
  static const std::set<std::string_view> kRandom = {"Bernoulli",        "Multinomial",   "RandomNormal",
                                                     "RandomNormalLike", "RandomUniform", "RandomUniformLike"};
  for_each_node(graph, [&](const NodeAt& place) {
    const Node& node = *place.node;
    if (!node.domain.empty() || !kRandom.contains(node.op_type) || node.outputs.empty() || !ways.of(place.output(0)).reaches())
      return;
    notes->push_back(node.op_type + " node '" + node.name + "' draws random numbers in evaluations and in the finished model too");
  });
}

// Names of initializers and of outputs of Constant nodes.
struct Names {
  std::vector<std::string> learnable, others, constants;
};

Names names_of(const Graph& graph, const std::set<std::uint64_t>& literals) {
  Names names;
  for (const Value& v : graph.values) {
    evn::cancellation_point(evn::kNodeWork);
    if (v.constant == nullptr) continue;
    const bool is_literal = is_float_constant(v) && literals.contains(v.constant->id);
    (is_literal ? names.constants : has_floats(v) ? names.learnable : names.others).push_back(v.name);
  }
  return names;
}

void check_names(const Graph& graph, const Settings& settings, const Names& names) {
  for (const std::string& name : names.constants) {
    if (!names_exactly(settings.trainable, name)) continue;
    fail(EVN_ERROR_INVALID_ARGUMENT, "trainable names \"%.128s\", the output of a Constant node: only initializers learn",
         name.c_str());
  }
  std::vector<std::string> freezable = names.learnable;
  freezable.insert(freezable.end(), names.others.begin(), names.others.end());
  freezable.insert(freezable.end(), names.constants.begin(), names.constants.end());
  for_each_node(graph, [&](const NodeAt& place) {
    const Node& node = *place.node;
    const bool is_inner = place.graph != &graph;
    if (node.op_type == "BatchNormalization" || (is_inner && node.op_type == "Dropout")) freezable.push_back(node.name);
  });
  require_fits(settings.trainable, names.learnable, "trainable");
  require_fits(settings.frozen, freezable, "frozen");
  for (std::size_t g = 0; g + 1 < settings.groups.size(); ++g) require_fits(settings.groups[g].names, names.learnable, "a group");
}

}  // namespace

// Reason why a float32 initializer stays; "": it learns.
std::string TrainingGraphs::reason_to_stay(const Value& tensor, const Ways& ways, const Suspicion& suspicion) const {
  const std::string& name = tensor.name;
  const Way way = ways.of(name);
  if (fits_any(settings_.frozen, name)) return "frozen";
  const std::string& op = ways.option_of(name);
  if (!way.reaches()) return op.empty() ? "the loss does not depend on it" : "it is an option of " + op;
  if (!settings_.trainable.empty() && !fits_any(settings_.trainable, name)) return "trainable does not name it";
  const bool is_named = names_exactly(settings_.trainable, name);
  if (tensor.origin == evn::Origin::kOther && !is_named) return std::string("the model says that it was no parameter") + kNameIt;
  const bool is_sure = is_named || tensor.origin == evn::Origin::kParameter;
  if (!op.empty() && !is_sure) return "it is an option of " + op + kNameIt;
  if (!suspicion.is_finite) {
    if (is_named)
      fail(EVN_ERROR_INVALID_ARGUMENT, "trainable names \"%.128s\", which has elements that are not finite", name.c_str());
    return "it has elements that are not finite";
  }
  if (suspicion.is_certain && !is_sure) return suspicion.why + kNameIt;
  if (way.is_smooth) return {};
  if (tensor.constant->size_bytes == sizeof(float) && !is_named) return "its derivative ends at " + node_text(*way.cut);
  throw evn::make_error(EVN_ERROR_UNSUPPORTED,
                        "parameter \"%.128s\" would not learn: the loss depends on it through %.64s node '%.128s' alone, whose "
                        "derivative is 0 everywhere; name it in frozen",
                        name.c_str(), way.cut->op.c_str(), way.cut->node.c_str())
      .with_node(way.cut->node.c_str());
}

void TrainingGraphs::find_parameters(const std::set<std::uint64_t>& literals) {
  const Ways ways(graph(), logits());
  const BufferFinder buffers(graph());
  note_random_nodes(graph(), ways, &notes_);
  check_names(graph(), settings_, names_of(graph(), literals));
  std::map<std::string, ValueId> constants;
  for (std::size_t v = 0; v < graph().values.size(); ++v) {
    evn::cancellation_point(evn::kNodeWork);
    if (graph().values[v].constant != nullptr) constants.emplace(graph().values[v].name, static_cast<ValueId>(v));
  }
  std::set<ValueId> statistics;
  for (const Node& node : graph().nodes) {
    evn::cancellation_point();
    if (is_batch_norm(node)) statistics.insert({node.inputs[3], node.inputs[4]});
  }
  for (const auto& [name, v] : constants) {
    evn::cancellation_point(evn::kNodeWork);
    const Value& tensor = value(v);
    if (const DType dtype = tensor.constant->desc.dtype; is_type_that_stays(dtype)) {
      if (ways.of(name).reaches())
        frozen_.push_back({name, std::string("it is ") + evn::dtype_name(dtype) + ": only float32 learns"});
      continue;
    }
    if (!has_floats(tensor)) continue;
    if (literals.contains(tensor.constant->id)) {
      if (ways.of(name).reaches()) frozen_.push_back({name, "it is the output of a Constant node"});
      continue;
    }
    const bool is_read = ways.of(name).reaches();
    if (is_read ? statistics.contains(v) : ways.option_of(name) == "BatchNormalization") continue;  // a statistic
    const Suspicion suspicion = buffers.look_at(tensor);
    if (const std::string reason = reason_to_stay(tensor, ways, suspicion); !reason.empty()) {
      frozen_.push_back({name, reason});
      continue;
    }
    std::size_t group = 0;
    while (!fits_any(settings_.groups[group].names, name)) ++group;
    std::string note;
    const auto remark = [&](const std::string& text) { note += (note.empty() ? "" : "; ") + text; };
    if (!suspicion.why.empty() && tensor.origin != evn::Origin::kParameter)
      remark("it may be no parameter, but a buffer: " + suspicion.why);
    if (const std::string& op = ways.option_of(name); !op.empty()) remark("it moves an option of " + op);
    if (const Cut* const cut = ways.of(name).cut) remark("what goes through " + node_text(*cut) + " adds nothing to its gradient");
    const std::span<const std::int64_t> dims = tensor.constant->desc.shape.dims();
    parameters_.push_back({name, {dims.begin(), dims.end()}, v, group, note});
  }
  if (!parameters_.empty()) return;
  std::string reasons;
  for (std::size_t i = 0; i < frozen_.size() && i < 3; ++i) reasons += "; " + frozen_[i].name + ": " + frozen_[i].reason;
  fail(EVN_ERROR_INVALID_ARGUMENT, "nothing can learn: no float32 initializer that may is between the inputs and \"%.128s\"%.300s",
       logits().c_str(), reasons.c_str());
}

}  // namespace evn_train
