#include "train/buffers.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>

#include "base/cancel.h"
#include "base/number_text.h"

namespace evn_train {
namespace {

constexpr float kLargestEpsilon = 1e-3f;
constexpr float kMasked = -1e3f;  // scores from here down are those of what a mask hides
constexpr int kMostSteps = 5;     // nodes between frequencies and their Sin or Cos
constexpr std::size_t kFewest = 4;

bool is(const Node& node, std::initializer_list<std::string_view> ops) {
  evn::cancellation_point(static_cast<std::int64_t>(ops.size()));
  return node.domain.empty() && std::find(ops.begin(), ops.end(), node.op_type) != ops.end();
}

// A word of the name that exporters and authors give to buffers; "": there is none.
std::string telling_word(const std::string& name) {
  static const std::set<std::string, std::less<>> kWords = {"mask",   "masks",   "freq",  "freqs",   "eps",      "epsilon",
                                                            "buffer", "cached",  "cache", "h0",      "c0",       "mean",
                                                            "std",    "anchors", "const", "running", "attn_mask"};
  std::string word;
  for (std::size_t i = 0; i <= name.size(); ++i) {
    const char c = i < name.size() ? name[i] : '.';
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
      continue;
    }
    if (kWords.contains(word)) return word;
    word.clear();
  }
  return {};
}

// Facts about the elements of a float32 initializer.
struct Elements {
  std::size_t count = 0;
  float first = 0;
  bool are_finite = true, are_zero_or_one = true, are_zero_or_masked = true, count_up = true;
  bool has_masked = false, has_zero = false, has_one = false;
};

// Elements of a constant of at most 8 bytes, or of floats.
std::string_view bytes_of(const Value& v) {
  const evn::Weight& weight = *v.constant;
  return {weight.size_bytes == 0 ? "" : weight.as<char>(), weight.size_bytes};
}

template <typename T>
T element(std::string_view data, std::int64_t i) {
  T v{};
  std::memcpy(&v, data.data() + static_cast<std::size_t>(i) * sizeof v, sizeof v);
  return v;
}

// Returns true if elements [begin, end) are finite: none has all bits of the exponent set.
bool are_finite(std::string_view data, std::int64_t begin, std::int64_t end) {
  constexpr std::uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
  std::uint32_t most = 0;
  for (std::int64_t i = begin; i < end; ++i) most = std::max(most, element<std::uint32_t>(data, i) & kMagnitude);
  return most < kInfinity;
}

// One pass over the bytes, which need not be aligned. Where the elements so far have no pattern, those that follow have none.
Elements look_through(std::string_view data) {
  Elements e;
  e.count = data.size() / sizeof(float);
  if (e.count == 0) return e;
  e.first = element<float>(data, 0);
  constexpr std::int64_t kLooks = 256;
  std::int64_t at = 0;
  while (at < static_cast<std::int64_t>(e.count) && (e.are_zero_or_one || e.are_zero_or_masked || e.count_up)) {
    const std::int64_t end = std::min<std::int64_t>(at + kLooks, static_cast<std::int64_t>(e.count));
    evn::cancellation_point(kLooks);
    for (; at < end; ++at) {
      const float v = element<float>(data, at);
      const bool is_zero = v == 0, is_one = v == 1, is_masked = v <= kMasked;
      e.are_finite &= std::isfinite(v);
      e.are_zero_or_one &= is_zero || is_one;
      e.are_zero_or_masked &= is_zero || is_masked;
      e.count_up &= v == e.first + static_cast<float>(at);
      e.has_masked |= is_masked;
      e.has_zero |= is_zero;
      e.has_one |= is_one;
    }
  }
  evn::in_pieces(static_cast<std::int64_t>(e.count) - at, 1,
                 [&](std::int64_t begin, std::int64_t end) { e.are_finite &= are_finite(data, at + begin, at + end); });
  return e;
}

template <typename T>
bool is_number_below_one(std::string_view data) {
  T value{};
  if (data.size() != sizeof value) return false;
  std::memcpy(&value, data.data(), sizeof value);
  return value < T{1};
}

bool is_below_one(const Value& v) {
  if (v.constant == nullptr || v.constant->size_bytes > sizeof(double)) return false;
  const std::string_view data = bytes_of(v);
  switch (v.constant->desc.dtype) {
    case DType::kFloat32: return is_number_below_one<float>(data);
    case DType::kInt32: return is_number_below_one<std::int32_t>(data);
    case DType::kInt64: return is_number_below_one<std::int64_t>(data);
    case DType::kFloat64: return is_number_below_one<double>(data);
    default: return false;
  }
}

std::string value_that_tells(const Elements& e) {
  if (e.count < kFewest) return {};
  if (e.are_zero_or_one && e.has_zero && e.has_one) return "its elements are 0 and 1";
  return e.count_up ? "its elements count up" : std::string();
}

}  // namespace

BufferFinder::BufferFinder(const Graph& graph) {
  for_each_node(graph, [&](const NodeAt& place) { add(place); });
  find_roots(graph);
  find_waves();
}

void BufferFinder::add(const NodeAt& place) {
  for (std::size_t i = 0; i < place.node->inputs.size(); ++i) {
    evn::cancellation_point(kValueWork);
    if (!place.input(i).empty()) uses_[place.input(i)].push_back({place, i});
  }
  for (std::size_t i = 0; i < place.node->outputs.size(); ++i) {
    if (!place.output(i).empty()) producers_.emplace(place.output(i), place);
  }
}

const std::vector<BufferFinder::Use>& BufferFinder::uses_of(std::string_view value) const {
  static const std::vector<Use> kNone;
  const auto found = uses_.find(value);
  return found == uses_.end() ? kNone : found->second;
}

// Pow is a root, or divides, by an exponent below 1 alone.
void BufferFinder::find_roots(const Graph& graph) {
  std::set<std::string_view> below_one;  // single numbers
  for (const Value& v : graph.values) {
    evn::cancellation_point(evn::kNodeWork);
    if (is_below_one(v)) below_one.insert(v.name);
  }
  const auto is_root = [&](const Use& u) {
    return is(*u.node, {"Sqrt", "Reciprocal", "Log"}) || (is(*u.node, {"Div"}) && u.number == 1) ||
           (is(*u.node, {"Pow"}) && u.number == 0 && u.node->inputs.size() > 1 && below_one.contains(u.input(1)));
  };
  for (const auto& [value, uses] : uses_) {
    if (std::any_of(uses.begin(), uses.end(), is_root)) roots_.insert(value);
  }
}

// Goes back from Sin and Cos, each value once.
void BufferFinder::find_waves() {
  const auto is_wave = [](const Use& use) { return is(*use.node, {"Sin", "Cos"}); };
  std::vector<std::string_view> now, next;
  for (const auto& [value, uses] : uses_) {
    if (std::any_of(uses.begin(), uses.end(), is_wave) && waves_.insert(value).second) now.push_back(value);
  }
  for (int steps = 1; steps < kMostSteps; ++steps, std::swap(now, next)) {
    next.clear();
    for (const std::string_view value : now) {
      evn::cancellation_point(kValueWork);
      const auto found = producers_.find(value);
      if (found == producers_.end() || found->second.output(0) != value) continue;
      const Node& node = *found->second.node;
      const bool passes = is(node, {"Mul", "MatMul", "Einsum", "Concat", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Expand",
                                    "Cast", "Identity"});
      if (!passes) continue;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        evn::cancellation_point(kValueWork);
        if (waves_.insert(found->second.input(i)).second) next.push_back(found->second.input(i));
      }
    }
  }
}

// Added to what a root, a logarithm or a quotient is of.
bool BufferFinder::is_epsilon(const std::string& name) const {
  const auto keeps_from_zero = [&](const Use& use) {
    return is(*use.node, {"Max"}) || (is(*use.node, {"Add", "Sum"}) && roots_.contains(use.output(0)));
  };
  const std::vector<Use>& uses = uses_of(name);
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), keeps_from_zero);
}

// Added to the output of a layer, as a bias is.
bool BufferFinder::is_added_to_product(const std::string& name) const {
  const auto reads_product = [&](const Use& use) {
    for (std::size_t i = 0; i < use.node->inputs.size(); ++i) {
      evn::cancellation_point(kValueWork);
      const auto found = producers_.find(use.input(i));
      if (found != producers_.end() && is(*found->second.node, {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"})) return true;
    }
    return false;
  };
  const std::vector<Use>& uses = uses_of(name);
  return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return is(*use.node, {"Add", "Sum"}) && reads_product(use); });
}

bool BufferFinder::is_exponent(const std::string& name) const {
  const std::vector<Use>& uses = uses_of(name);
  return std::any_of(uses.begin(), uses.end(), [](const Use& use) { return is(*use.node, {"Pow"}) && use.number == 1; });
}

// Returns true if an elementwise operator reads the value, which is not added to a product as a bias is.
bool BufferFinder::is_operand(const std::string& name) const {
  const std::vector<Use>& uses = uses_of(name);
  return !is_added_to_product(name) && std::any_of(uses.begin(), uses.end(), [](const Use& use) {
    return is(*use.node, {"Add", "Sub", "Mul", "Div", "Sum", "Mean", "Max", "Min", "Mod", "Where"});
  });
}

// The Softmax is that of attention: a product reads it, and what is added to is a product too.
bool BufferFinder::is_added_to_scores(const std::string& name) const {
  const auto is_product = [&](std::string_view at, int steps) {
    for (; steps > 0; --steps) {
      const auto found = producers_.find(at);
      if (found == producers_.end()) return false;
      const Node& node = *found->second.node;
      if (is(node, {"MatMul", "Einsum", "Gemm"})) return true;
      if (!is(node, {"Mul", "Div", "Add", "Reshape", "Cast"}) || node.inputs.empty()) return false;
      at = found->second.input(0);
    }
    return false;
  };
  for (const Use& use : uses_of(name)) {
    if (is(*use.node, {"Attention"}) && use.number == 3) return true;
    if (!is(*use.node, {"Add", "Sub"}) || use.node->inputs.size() != 2) continue;
    if (!is_product(use.input(1 - use.number), 4)) continue;
    for (const Use& softmax : uses_of(use.output(0))) {
      if (!is(*softmax.node, {"Softmax"})) continue;
      for (const Use& after : uses_of(softmax.output(0))) {
        if (is(*after.node, {"MatMul", "Einsum", "Dropout", "Cast"})) return true;
      }
    }
  }
  return false;
}

std::string BufferFinder::use_that_tells(const Value& tensor, std::size_t elements) const {
  if (is_added_to_scores(tensor.name)) return "it is added to the scores of an attention";
  const bool is_vector = std::ranges::count_if(tensor.constant->desc.shape.dims(), [](std::int64_t d) { return d > 1; }) <= 1;
  if (is_vector && elements > 1 && waves_.contains(tensor.name)) return "it goes into Sin or Cos, as frequencies do";
  for (const Use& use : uses_of(tensor.name)) {
    evn::cancellation_point(kValueWork);
    const std::string node = use.node->op_type + " node '" + use.node->name + "'";
    const bool is_state = is(*use.node, {"LSTM", "GRU", "RNN"}) && (use.number == 5 || use.number == 6);
    const bool is_first = (is(*use.node, {"Loop"}) && use.number >= 2) || is(*use.node, {"Scan"});
    if (is_state || is_first) return "it is a first state of " + node;
    if (is(*use.node, {"Pow"}) && use.number == 1) return "it is the exponent of " + node;
  }
  return {};
}

// Reason for doubt if the value is the scale (all elements are 1) or the bias (0) of a normalization; "": it is none.
std::string BufferFinder::norm_that_tells(const std::string& name, bool are_ones) const {
  for (const Use& use : uses_of(name)) {
    evn::cancellation_point(kValueWork);
    const bool is_norm = is(
        *use.node, {"InstanceNormalization", "GroupNormalization", "LayerNormalization", "BatchNormalization", "RMSNormalization"});
    if (is_norm && use.number == (are_ones ? 1u : 2u))
      return std::string("all elements are ") + (are_ones ? "1" : "0") + ", as those of a normalization that has no parameters";
  }
  return {};
}

Suspicion BufferFinder::look_at(const Value& tensor) const {
  const Elements e = look_through(bytes_of(tensor));
  if (e.are_zero_or_masked && e.has_masked && e.count > 1)
    return {"its elements are 0 or below -1000, as those of a mask are", true, e.are_finite};
  if (e.count == 1 && e.first > 0 && e.first <= kLargestEpsilon && is_epsilon(tensor.name)) {
    const std::string why = "it keeps a root, a logarithm or a quotient from 0, as an epsilon does";
    return {why, !is_added_to_product(tensor.name), e.are_finite};
  }
  std::string why = use_that_tells(tensor, e.count);
  if (why.empty()) why = value_that_tells(e);
  if (why.empty() && e.are_zero_or_one && e.has_zero != e.has_one) why = norm_that_tells(tensor.name, e.has_one);
  if (why.empty() && e.count == 1 && (tensor.constant->desc.shape.rank() == 0 || is_operand(tensor.name)))
    why = "it is the one number " + evn::shortest_text(static_cast<double>(e.first));
  if (why.empty()) {
    const std::string word = telling_word(tensor.name);
    if (!word.empty()) why = "its name has \"" + word + "\"";
  }
  return {why, e.count == 1 && is_exponent(tensor.name), e.are_finite};
}

}  // namespace evn_train
