#include "graph/free_batch.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "base/error.h"
#include "graph/batch_rows.h"
#include "graph/batch_walk.h"
#include "graph/unique_names.h"

namespace evn {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr int kMostWalks = 256;
constexpr int kOpsetOfNewNodes = 13;  // whatever the model and its nodes import; raise_opset takes each node's own version
constexpr std::int64_t kMostReshaped = std::int64_t{1} << 40;  // of what is reshaped: products with sizes of batches stay numbers
constexpr std::size_t kMostVisits = std::size_t{1} << 21;      // of nodes, by all walks but the first

// A shape that an exporter may have written as numbers.
struct ShapeInput {
  const char* op;
  std::size_t input;
};
constexpr ShapeInput kShapeInputs[] = {{"Reshape", 1}, {"Expand", 1},        {"ConstantOfShape", 0}, {"Tile", 1},
                                       {"Resize", 3},  {"CenterCropPad", 1}, {"AffineGrid", 1}};

const ShapeInput* shape_input(const Node& node) {
  if (!node.domain.empty()) return nullptr;
  const auto* const found =
      std::find_if(std::begin(kShapeInputs), std::end(kShapeInputs), [&](const ShapeInput& s) { return node.op_type == s.op; });
  return found == std::end(kShapeInputs) || node.inputs.size() <= found->input ? nullptr : found;
}

std::int64_t product(const Shape& shape, int end) { return shape.elements(0, end); }

// The places of a Reshape's output where the batch may be, the likely ones first. The batch is, or is a factor of, dim `at` of the
// input. In the order of elements it has as many before it in the output as in the input.
std::vector<int> batch_places(const Shape& in, int at, const Shape& out, std::int64_t batch) {
  const std::int64_t least = product(in, at), most = least * (in[at] / batch);
  enum Likeliness { kFirst, kWithin, kFirstFactor, kBefore, kWithinFactor };
  std::vector<std::pair<Likeliness, int>> found;
  for (int p = 0; p < out.rank(); ++p) {
    const std::int64_t before = product(out, p);
    if (out[p] % batch != 0 || before > most) continue;
    const bool is_whole = out[p] == batch;
    if (before == least) found.push_back({is_whole ? kFirst : kFirstFactor, p});
    else if (before > least) found.push_back({is_whole ? kWithin : kWithinFactor, p});
    else if (before * out[p] % (least * batch) == 0) found.push_back({kBefore, p});
  }
  std::sort(found.begin(), found.end());
  std::vector<int> places;
  for (const auto& [likeliness, place] : found) places.push_back(place);
  return places;
}

class Freer {
 public:
  Freer(Graph& graph, const LedgerPtr& ledger) : graph_(graph), ledger_(ledger) {}

  void run() {
    if (!find_batch()) return;
    choices_.assign(graph_.nodes.size(), 0);
    counts_.assign(graph_.nodes.size(), 1);
    BatchWalk own(graph_, batch_), other(graph_, other_);
    BatchRows rows(graph_, batch_, other_, own, other);
    std::optional<std::vector<Edit>> fallback;  // after which one of several outputs has the batch elsewhere
    std::optional<std::size_t> from = 0;
    std::size_t visits = 0;
    for (int walks = 0; from && walks < kMostWalks && visits <= kMostVisits; ++walks) {
      if (walk(*from, &own, &other, &rows)) {
        if (outputs_follow(own, other)) return apply_edits();
        if (!fallback && graph_.outputs.size() > 1) fallback = edits_;
      }
      from = advance();
      if (from) visits += graph_.nodes.size() - *from;
    }
    if (fallback) {
      edits_ = std::move(*fallback);
      return apply_edits();
    }
    throw make_error(EVN_ERROR_UNSUPPORTED, "the node takes a batch of %lld alone, for which the model was exported: %.200s",
                     static_cast<long long>(batch_), failure_->message)
        .with_node(graph_.nodes[failed_].name.c_str());
  }

 private:
  // Another value for the input of a node.
  struct Edit {
    enum Kind { kWhole, kFirstNumber, kPlaceOfBatch, kRepeat };
    std::size_t node = 0, input = 0;
    Kind kind = kWhole;
    Ints numbers;  // of kWhole all, of kFirstNumber the first, of kPlaceOfBatch the place and their count, of kRepeat the dim
  };

  Graph& graph_;
  const LedgerPtr& ledger_;
  ValueId input_ = kNoValue;            // whose dim 0 is the batch
  std::int64_t batch_ = 0, other_ = 0;  // of the two walks
  bool has_free_dims_ = false;          // inputs have other dims that are not known
  std::vector<std::size_t> choices_;    // by node: which of its alternatives is taken
  std::vector<std::size_t> counts_;     // by node: how many alternatives it has
  std::vector<Edit> edits_;
  UniqueNames taken_;         // names of values
  std::vector<Node> before_;  // new nodes before the one that is edited
  std::size_t failed_ = 0;
  std::optional<Error> failure_;

  bool find_batch() {
    for (const ValueId v : graph_.inputs) {
      const Value& value = graph_.values[static_cast<std::size_t>(v)];
      if (!value.has_shape || value.wraps || value.shape.rank() == 0) continue;
      for (int i = 1; i < value.shape.rank(); ++i) has_free_dims_ |= value.shape[i] < 0;
      if (value.shape[0] <= 0 || batch_ != 0) continue;
      batch_ = value.shape[0];
      input_ = v;
    }
    // Coprime to the batch, so that no dim holds the one as a multiple of the other.
    const auto is_prime = [](std::int64_t n) {
      for (std::int64_t d = 2; d * d <= n; ++d) {
        if (n % d == 0) return false;
      }
      return true;
    };
    if (batch_ == 0 || batch_ > (1 << 20)) return false;
    other_ = std::max<std::int64_t>(2 * batch_ + 1, 31);
    while (!is_prime(other_)) ++other_;
    return true;
  }

  // Walks the nodes from `from` on with both sizes, and edits shapes as choices_ says. What the walks know of nodes before `from`
  // stands. Returns false if a node fails with the other size alone, or mixes rows.
  bool walk(std::size_t from, BatchWalk* own, BatchWalk* other, BatchRows* rows) {
    std::erase_if(edits_, [&](const Edit& edit) { return edit.node >= from; });
    for (std::size_t n = from; n < graph_.nodes.size(); ++n) {
      cancellation_point(kNodeWork);
      counts_[n] = 1;
      own->forget(graph_.nodes[n]);
      other->forget(graph_.nodes[n]);
    }
    for (std::size_t n = from; n < graph_.nodes.size(); ++n) {
      cancellation_point(kNodeWork);
      const Node& node = graph_.nodes[n];
      if (own->infer(node)) continue;  // it fails anyway, when it runs
      std::optional<Error> failure = other->infer(node);
      if (shape_input(node) != nullptr) {
        if (node.op_type == "Reshape") free_reshape(n, *own, other, &failure);
        else free_shape(n, *own, other, &failure);
      } else if (failure && node.region < 0) {
        repeat_constants(n, other, &failure);
      }
      if (failure && node.region >= 0) continue;
      if (!failure) failure = rows->visit(node);
      if (!failure) continue;
      failed_ = n;
      failure_ = failure;
      return false;
    }
    return true;
  }

  // Returns false if an output begins with the batch for the one size alone. The node that makes it is then the one that failed.
  bool outputs_follow(const BatchWalk& own, const BatchWalk& other) {
    const std::set<ValueId> outputs(graph_.outputs.begin(), graph_.outputs.end());
    for (std::size_t n = graph_.nodes.size(); n-- > 0;) {
      cancellation_point(kNodeWork);
      for (const ValueId v : graph_.nodes[n].outputs) {
        const Shape *const out = own.shape(v), *const out_other = other.shape(v);
        if (!outputs.contains(v) || out == nullptr || out_other == nullptr || out->rank() == 0) continue;
        if (*out == *out_other || (*out)[0] != batch_ || out_other->rank() != out->rank() || (*out_other)[0] == other_) continue;
        failed_ = n;
        failure_ = make_error(EVN_ERROR_UNSUPPORTED, "the batch is not the first dim of the output that it makes");
        return false;
      }
    }
    return true;
  }

  // Takes another alternative of the nearest node before the failure that has one, and returns that node.
  std::optional<std::size_t> advance() {
    std::vector<std::int64_t> producers(graph_.values.size(), -1);
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (const ValueId v : graph_.nodes[n].outputs) {
        if (v != kNoValue) producers[static_cast<std::size_t>(v)] = static_cast<std::int64_t>(n);
      }
    }
    std::vector<bool> reached(graph_.nodes.size(), false);
    reached[failed_] = true;
    for (std::size_t n = failed_ + 1; n-- > 0;) {
      if (!reached[n]) continue;
      if (choices_[n] + 1 < counts_[n]) {
        ++choices_[n];
        std::fill(choices_.begin() + static_cast<std::ptrdiff_t>(n) + 1, choices_.end(), std::size_t{0});
        return n;
      }
      for (const ValueId v : graph_.nodes[n].inputs) {
        if (v != kNoValue && producers[static_cast<std::size_t>(v)] >= 0)
          reached[static_cast<std::size_t>(producers[static_cast<std::size_t>(v)])] = true;
      }
    }
    return std::nullopt;
  }

  // ------------------------------------------------------------------------------------------------------- Reshape --

  void free_reshape(std::size_t n, const BatchWalk& own, BatchWalk* other, std::optional<Error>* failure) {
    const Node& node = graph_.nodes[n];
    const Shape *in = own.shape(node.inputs[0]), *in_other = other->shape(node.inputs[0]), *out = own.shape(node.outputs[0]);
    const Ints *given = own.numbers(node.inputs[1]), *given_other = other->numbers(node.inputs[1]);
    if (in == nullptr || in_other == nullptr || out == nullptr || given == nullptr || given_other == nullptr) return;
    if (*given != *given_other || in->rank() != in_other->rank() || in->elements() == 0) return;
    if (std::max({in->elements(), in_other->elements(), out->elements()}) > kMostReshaped) return;
    int at = 0;
    while (at < in->rank() && (*in)[at] == (*in_other)[at]) ++at;
    if (at == in->rank() || (*in)[at] * other_ != (*in_other)[at] * batch_) return;
    const std::vector<int> places = batch_places(*in, at, *out, batch_);
    if (places.empty()) return;
    counts_[n] = places.size();
    const int place = places[choices_[n]];
    Shape wanted = *out;
    wanted[place] = wanted[place] / batch_ * other_;
    const Shape* const made = other->shape(node.outputs[0]);
    if (!*failure && made != nullptr && *made == wanted) return;
    Edit edit{n, 1, Edit::kWhole, *given};
    const auto p = static_cast<std::size_t>(place);
    // 0 copies the dim of the input.
    const bool copies =
        place < in->rank() && (*in)[place] == (*out)[place] && (*in_other)[place] == wanted[place] && keeps_zero(node);
    edit.numbers[p] = copies ? 0 : -1;
    for (std::size_t i = 0; i < given->size() && !copies; ++i) {
      if (i == p || (*given)[i] != -1) continue;
      if (has_free_dims_) return;
      edit.numbers[i] = (*out)[static_cast<int>(i)];
    }
    if (graph_.values[static_cast<std::size_t>(node.inputs[1])].constant == nullptr && has_free_dims_) {
      if (place != 0) return;
      edit.kind = Edit::kFirstNumber;
    }
    *failure = infer_with(other, node, 1, edit.numbers);
    const Shape* const now = other->shape(node.outputs[0]);
    if (!*failure && now != nullptr && !(*now == wanted))
      *failure = make_error(EVN_ERROR_UNSUPPORTED, "a Reshape to %s", out->to_string().c_str());
    edits_.push_back(std::move(edit));
  }

  static bool keeps_zero(const Node& node) {
    return std::none_of(node.attributes.begin(), node.attributes.end(), [](const Attribute& a) {
      const auto* const value = std::get_if<std::int64_t>(&a.value);
      return a.name == "allowzero" && value != nullptr && *value != 0;
    });
  }

  // ------------------------------------------- Expand, ConstantOfShape, Tile, Resize, CenterCropPad, AffineGrid --

  // Places of a shape that may be the batch. With a batch of 1, the first two: many other dims are 1.
  std::vector<std::size_t> places_of_batch(const Ints& numbers) const {
    const std::size_t end = batch_ > 1 ? numbers.size() : std::min<std::size_t>(numbers.size(), 2);
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < end; ++i) {
      if (numbers[i] == batch_) places.push_back(i);
    }
    return places;
  }

  // The alternatives: as it is, and with the batch in one of the places that have its number.
  void free_shape(std::size_t n, const BatchWalk& own, BatchWalk* other, std::optional<Error>* failure) {
    const Node& node = graph_.nodes[n];
    const std::size_t input = shape_input(node)->input;
    const Ints *given = own.numbers(node.inputs[input]), *given_other = other->numbers(node.inputs[input]);
    if (given == nullptr || given_other == nullptr || *given != *given_other) return;
    const std::vector<std::size_t> places = places_of_batch(*given);
    counts_[n] = 1 + places.size();
    if (choices_[n] == 0) return;
    const std::size_t place = places[choices_[n] - 1];
    Ints numbers = *given;
    numbers[place] = other_;
    *failure = infer_with(other, node, input, numbers);
    const Ints where = {static_cast<std::int64_t>(place), static_cast<std::int64_t>(numbers.size())};
    edits_.push_back({n, input, Edit::kPlaceOfBatch, where});
  }

  static std::optional<Error> infer_with(BatchWalk* walk, const Node& node, std::size_t input, const Ints& numbers) {
    const TensorDesc desc = {DType::kInt64, Shape{static_cast<std::int64_t>(numbers.size())}};
    const BatchWalk::Given given{input, {desc, numbers.data()}};
    return walk->infer(node, {&given, 1});
  }

  // ----------------------------------------------------------------------------------------------------- constants --

  // The alternatives of a node that fails: its constants as they are; those that have the size of the batch in one of their dims
  // repeated along that, as the first states of recurrent layers and class tokens are; and each of these alone.
  void repeat_constants(std::size_t n, BatchWalk* other, std::optional<Error>* failure) {
    const Node& node = graph_.nodes[n];
    std::vector<std::vector<Edit>> alternatives;
    std::vector<Edit> alone;
    for (int dim = 0; dim < kMaxRank; ++dim) {
      std::vector<Edit> together;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (!is_repeated(node.inputs[i], dim)) continue;
        together.push_back({n, i, Edit::kRepeat, {dim}});
        alone.push_back(together.back());
      }
      if (!together.empty()) alternatives.push_back(std::move(together));
    }
    for (const Edit& edit : alone) alternatives.push_back({edit});
    counts_[n] = 1 + alternatives.size();
    if (choices_[n] == 0) return;
    const std::vector<Edit>& chosen = alternatives[choices_[n] - 1];
    std::vector<BatchWalk::Given> given;
    for (const Edit& edit : chosen) {
      TensorDesc desc = graph_.values[static_cast<std::size_t>(node.inputs[edit.input])].constant->desc;
      desc.shape[static_cast<int>(edit.numbers[0])] = other_;
      given.push_back({edit.input, {desc, nullptr}});
    }
    std::optional<Error> failed = other->infer(node, given);
    const auto is_known = [&](ValueId v) { return other->shape(v) != nullptr; };
    if (failed || std::none_of(node.outputs.begin(), node.outputs.end(), is_known)) return;
    failure->reset();
    edits_.insert(edits_.end(), chosen.begin(), chosen.end());
  }

  // Returns true for a constant whose dim is as large as the batch, and whose parts along that dim are all the same.
  bool is_repeated(ValueId v, int dim) const {
    if (v == kNoValue) return false;
    const WeightPtr& constant = graph_.values[static_cast<std::size_t>(v)].constant;
    if (constant == nullptr || !is_stored(constant->desc.dtype) || is_sub_byte(constant->desc.dtype)) return false;
    const Shape& shape = constant->desc.shape;
    if (dim >= shape.rank() || shape[dim] != batch_ || shape.elements() == 0) return false;
    const auto* const bytes = static_cast<const char*>(constant->bytes());
    const auto part = static_cast<std::size_t>(shape.elements(dim + 1, shape.rank())) * dtype_size(constant->desc.dtype);
    const auto parts = static_cast<std::size_t>(batch_), wholes = static_cast<std::size_t>(shape.elements(0, dim));
    for (std::size_t w = 0; w < wholes; ++w) {
      for (std::size_t i = 1; i < parts; ++i) {
        cancellation_point();
        if (std::memcmp(bytes + w * parts * part, bytes + (w * parts + i) * part, part) != 0) return false;
      }
    }
    return true;
  }

  // ------------------------------------------------------------------------------------------------------- editing --

  void apply_edits() {
    for (const Value& v : graph_.values) taken_.take(v.name);
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    auto edit = edits_.begin();
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      cancellation_point(kNodeWork);
      while (edit != edits_.end() && edit->node == n) apply(nodes[n], *edit++);
      graph_.nodes.insert(graph_.nodes.end(), std::make_move_iterator(before_.begin()), std::make_move_iterator(before_.end()));
      before_.clear();
      graph_.nodes.push_back(std::move(nodes[n]));
    }
  }

  void apply(Node& node, const Edit& edit) {
    ValueId& shape = node.inputs[edit.input];
    if (edit.kind == Edit::kWhole) {
      shape = constant(node.name + "/shape", edit.numbers);
      return;
    }
    if (edit.kind == Edit::kRepeat) {
      shape = repeat(node, shape, static_cast<int>(edit.numbers[0]));
      return;
    }
    const bool is_first = edit.kind == Edit::kFirstNumber;
    const std::int64_t place = is_first ? 0 : edit.numbers[0], end = is_first ? INT64_MAX : edit.numbers[1];
    const auto part = [&](std::int64_t from, std::int64_t to) {
      return add(node, "Slice", {shape, constant(node.name + "/from", {from}), constant(node.name + "/to", {to})});
    };
    std::vector<ValueId> parts;
    if (place > 0) parts.push_back(part(0, place));
    parts.push_back(is_first ? constant(node.name + "/first", {edit.numbers[0]}) : size_of_batch(node));
    if (place + 1 < end) parts.push_back(part(place + 1, end));
    const ValueId joined = add(node, "Concat", parts);
    before_.back().attributes.push_back({"axis", std::int64_t{0}, {}});
    shape = joined;
  }

  // A vector of one number.
  ValueId size_of_batch(const Node& node) {
    const ValueId all = add(node, "Shape", {input_});
    return add(node, "Gather", {all, constant(node.name + "/place", {0})});
  }

  ValueId repeat(const Node& node, ValueId v, int dim) {
    const TensorDesc desc = graph_.values[static_cast<std::size_t>(v)].constant->desc;
    if (batch_ > 1) {
      const auto number = [&](std::int64_t n) { return constant(node.name + "/part", {n}); };
      v = add(node, "Slice", {v, number(0), number(1), number(dim)}, desc.dtype);
    }
    std::vector<ValueId> dims;
    const auto append = [&](int begin, int end) {
      const Ints some(desc.shape.dims().begin() + begin, desc.shape.dims().begin() + end);
      if (!some.empty()) dims.push_back(constant(node.name + "/dims", some));
    };
    append(0, dim);
    dims.push_back(size_of_batch(node));
    append(dim + 1, desc.shape.rank());
    const ValueId shape = add(node, "Concat", dims);
    before_.back().attributes.push_back({"axis", std::int64_t{0}, {}});
    return add(node, "Expand", {v, shape}, desc.dtype);
  }

  // Adds a node that serves `like`, whose version may be that of another domain or older than inputs of Slice.
  ValueId add(const Node& like, const char* op, std::vector<ValueId> inputs, DType dtype = DType::kInt64) {
    Node made;
    made.op_type = op;
    made.since_version = kOpsetOfNewNodes;
    made.region = like.region;
    made.inputs = std::move(inputs);
    made.outputs = {value(like.name + "/" + op, dtype)};
    made.name = graph_.values.back().name;
    before_.push_back(std::move(made));
    return before_.back().outputs[0];
  }

  ValueId value(const std::string& name, DType dtype) {
    Value v;
    v.name = taken_.make(name);
    v.dtype = dtype;
    graph_.values.push_back(std::move(v));
    return static_cast<ValueId>(graph_.values.size() - 1);
  }

  ValueId constant(const std::string& name, const Ints& numbers) {
    const Shape shape{static_cast<std::int64_t>(numbers.size())};
    void* to = nullptr;
    WeightPtr weight = make_unfilled_weight({DType::kInt64, shape}, ledger_, &to);
    std::memcpy(to, numbers.data(), numbers.size() * sizeof(std::int64_t));
    const ValueId id = value(name, DType::kInt64);
    Value& v = graph_.values[static_cast<std::size_t>(id)];
    v.has_shape = true;
    v.shape = shape;
    v.constant = std::move(weight);
    return id;
  }
};

}  // namespace

void free_batch(Graph& graph, const LedgerPtr& ledger) { Freer(graph, ledger).run(); }

}  // namespace evn
