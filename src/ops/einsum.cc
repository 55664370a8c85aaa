// Einsum: the sum, over the letters that the result does not have, of the products of the inputs' elements whose axes the letters
// name: "ij,jk->ik". Without "->" the result has the letters that occur once, in alphabetical order, after those of "...", which
// stands for any axes and broadcasts. Spaces do not count. A letter twice in one input is its diagonal.
// dtypes: floating point, 32- and 64-bit integers (which wrap), all alike. Failures: an equation that cannot be read or does not
// fit the inputs; more than EVN_MAX_RANK letters summed over or kept (LIMIT). Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/einsum.h"

#include <algorithm>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

constexpr int kMaxInputs = Contraction::kMaxInputs;
int letter_of(char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 26 : c - 'A'; }

[[noreturn]] void bad_equation(const Node& node) {
  fail(EVN_ERROR_INVALID_MODEL, "the equation '%s' cannot be read", attr_string(node, 0).c_str());
}

void read_symbol(const Node& node, const std::string& text, std::size_t* at, EinsumTerm* term) {
  if (text[*at] == '.') {
    if (text.compare(*at, 3, "...") != 0 || term->dots >= 0) bad_equation(node);
    term->dots = term->count;
    *at += 2;
    return;
  }
  const char c = text[*at];
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (!letter || term->count == kMaxRank) bad_equation(node);
  term->label[term->count++] = letter_of(c);
}

EinsumEquation parse(const Node& node) {
  const std::string& text = attr_string(node, 0);
  EinsumEquation e;
  EinsumTerm* term = &e.term[0];
  for (std::size_t i = 0; i < text.size(); ++i) {
    cancellation_point();
    if (text[i] == ' ') continue;
    if (text[i] == ',') {
      if (e.has_result || e.inputs + 1 >= kMaxInputs) bad_equation(node);
      term = &e.term[++e.inputs];
    } else if (text[i] == '-') {
      if (e.has_result || text.compare(i, 2, "->") != 0) bad_equation(node);
      e.has_result = true;
      term = &e.result;
      ++i;
    } else {
      read_symbol(node, text, &i, term);
    }
  }
  ++e.inputs;
  return e;
}

// Replaces "..." by the labels of `axes` axes, aligned to the right.
void expand_dots(const Node& node, EinsumTerm* term, int axes) {
  if (term->dots < 0) return;
  if (axes < 0 || term->count + axes > kMaxRank) bad_equation(node);
  for (int i = term->count - 1; i >= term->dots; --i) term->label[i + axes] = term->label[i];
  for (int i = 0; i < axes; ++i) term->label[term->dots + i] = kEinsumLetters + axes - 1 - i;
  term->count += axes;
}

void add_size(EinsumEquation* e, int label, std::int64_t dim, int input) {
  std::int64_t& size = e->size[label];
  if (size == -2 || size == 1 || (size < 0 && dim != 1)) {
    size = dim;
  } else if (dim != 1) {
    require_dim(dim, size, input);
  }
}

void default_result(EinsumEquation* e, int dots) {
  int uses[kEinsumLabels] = {};
  for (int n = 0; n < e->inputs; ++n) {
    for (int i = 0; i < e->term[n].count; ++i) ++uses[e->term[n].label[i]];
  }
  EinsumTerm& result = e->result;
  const auto add = [&](int label) {
    if (result.count == kMaxRank) fail(EVN_ERROR_LIMIT, "the result has more than %d axes", kMaxRank);
    result.label[result.count++] = label;
  };
  for (int i = dots - 1; i >= 0; --i) add(kEinsumLetters + i);
  for (int label = 0; label < kEinsumLetters; ++label) {
    if (uses[label] == 1) add(label);
  }
}

void infer_einsum(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  const EinsumEquation e = einsum_equation(c.node, c.inputs);
  Shape out;
  for (int i = 0; i < e.result.count; ++i) out.push_back(e.size[e.result.label[i]]);
  c.outputs[0].shape = out;
}

// How far each axis of `labels` moves in an input; a repeated letter moves along both its axes, an axis of 1 not at all.
Strides strides_of(const EinsumTerm& term, const Shape& shape, const int* labels, int count) {
  const Strides dense = dense_strides(shape);
  Strides s;
  for (int axis = 0; axis < term.count; ++axis) {
    for (int i = 0; i < count; ++i) {
      if (labels[i] == term.label[axis] && shape[axis] != 1) s.step[i] += dense.step[axis];
    }
  }
  return s;
}

template <typename T>
void einsum(const ReferenceContext& c, const Contraction& r) {
  const auto offset = [](const Strides& s, const Shape& shape, std::int64_t position) {
    std::int64_t at = 0;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      at += position % shape[i] * s.step[i];
      position /= shape[i];
    }
    return at;
  };
  const std::int64_t terms = r.summed.elements();
  for (std::int64_t i = 0; i < r.kept.elements(); ++i) {
    cancellation_point();
    Accumulator<T> sum = 0;
    for (std::int64_t k = 0; k < terms; ++k) {
      cancellation_point();
      Accumulator<T> product = 1;
      for (int n = 0; n < r.operands; ++n) {
        const std::int64_t at = offset(r.kept_steps[n], r.kept, i) + offset(r.summed_steps[n], r.summed, k);
        product *= static_cast<Accumulator<T>>(c.input(n).as<T>()[at]);
      }
      sum += product;
    }
    c.output().as<T>()[i] = static_cast<T>(sum);
  }
}

void reference_einsum(const ReferenceContext& c) {
  TensorDesc descs[kMaxInputs];
  for (std::size_t i = 0; i < c.inputs.size() && i < kMaxInputs; ++i) descs[i] = c.inputs[i].desc;
  const Contraction r = einsum_contraction(c.node, {descs, std::min<std::size_t>(c.inputs.size(), kMaxInputs)});
  dispatch<float, double, std::int32_t, std::int64_t, std::uint32_t, std::uint64_t>(
      c.input(0).desc.dtype, [&](auto zero) { einsum<decltype(zero)>(c, r); });
}

constexpr AttributeSpec kAttributes[] = {required_attribute("equation", AttributeType::kString)};
constexpr std::uint32_t kDtypes =
    kFloats | dtype_bit(DType::kInt32) | dtype_bit(DType::kInt64) | dtype_bit(DType::kUint32) | dtype_bit(DType::kUint64);
constexpr OpDef kOps[] = {
    {.name = "Einsum",
     .since = 12,
     .max_inputs = kMaxInputs,
     .attributes = kAttributes,
     .dtypes = kDtypes,
     .infer = infer_einsum,
     .reference = reference_einsum,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

EinsumEquation einsum_equation(const Node& node, std::span<const TensorDesc> inputs) {
  EinsumEquation e = parse(node);
  if (static_cast<std::size_t>(e.inputs) != inputs.size()) bad_equation(node);
  std::fill_n(e.size, kEinsumLabels, std::int64_t{-2});
  int dots = 0;
  for (int n = 0; n < e.inputs; ++n) {
    const Shape& shape = inputs[static_cast<std::size_t>(n)].shape;
    EinsumTerm& term = e.term[n];
    if (term.dots >= 0) dots = std::max(dots, shape.rank() - term.count);
    expand_dots(node, &term, shape.rank() - term.count);
    if (term.count != shape.rank()) fail(EVN_ERROR_INVALID_MODEL, "the equation does not fit the rank of input %d", n);
    for (int i = 0; i < term.count; ++i) add_size(&e, term.label[i], shape[i], n);
  }
  if (!e.has_result) default_result(&e, dots);
  if (e.has_result) expand_dots(node, &e.result, dots);
  std::uint64_t seen = 0;
  for (int i = 0; i < e.result.count; ++i) {
    const int label = e.result.label[i];
    if (e.size[label] == -2 || (seen >> label & 1u) != 0) bad_equation(node);
    seen |= std::uint64_t{1} << label;
  }
  return e;
}

Contraction einsum_contraction(const Node& node, std::span<const TensorDesc> inputs) {
  const EinsumEquation e = einsum_equation(node, inputs);
  Contraction c;
  c.operands = e.inputs;
  int summed_labels[kMaxRank] = {};
  std::uint64_t in_result = 0;
  for (int i = 0; i < e.result.count; ++i) {
    c.kept.push_back(e.size[e.result.label[i]]);
    in_result |= std::uint64_t{1} << e.result.label[i];
  }
  for (int label = 0; label < kEinsumLabels; ++label) {
    if (e.size[label] == -2 || (in_result >> label & 1u) != 0) continue;
    if (c.summed.rank() == kMaxRank) fail(EVN_ERROR_LIMIT, "more than %d letters are summed over", kMaxRank);
    summed_labels[c.summed.rank()] = label;
    c.summed.push_back(e.size[label]);
  }
  for (int n = 0; n < c.operands; ++n) {
    const Shape& shape = inputs[static_cast<std::size_t>(n)].shape;
    c.kept_steps[n] = strides_of(e.term[n], shape, e.result.label, e.result.count);
    c.summed_steps[n] = strides_of(e.term[n], shape, summed_labels, c.summed.rank());
  }
  return c;
}

extern const OpFamily einsum_family;
const OpFamily einsum_family = {kOps};

}  // namespace evn
