#include "tests/conformance/redraw.h"

#include <algorithm>
#include <map>

namespace evn::conformance {
namespace {

using DimMap = std::map<std::int64_t, std::int64_t>;

// From low to high, both included.
std::int64_t pick(test::Random& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>((random.next() >> 20) % static_cast<std::uint64_t>(high - low + 1));
}

bool chance(test::Random& random, int percent) { return pick(random, 1, 100) <= percent; }

// Around the widths of vectors and the sizes of blocks, and now and then beyond.
std::int64_t draw_dim(test::Random& random) {
  const std::int64_t kind = pick(random, 0, 9);
  if (kind == 0) return 1;
  if (kind < 6) return pick(random, 2, 9);
  return kind < 9 ? pick(random, 10, 34) : pick(random, 35, 130);
}

// That of recurrent operators, whose weights have several of them side by side; 0: none.
std::int64_t hidden_size(const Case& c) {
  for (const Attribute& a : c.attributes) {
    if (a.name == "hidden_size") return std::get<std::int64_t>(a.value);
  }
  return 0;
}

DimMap draw_dims(const Case& base, test::Random& random) {
  DimMap dims;
  const std::int64_t hidden = hidden_size(base);
  for (const Operand& o : base.operands) {
    for (int i = 0; o.random && i < o.desc.shape.rank(); ++i) {
      const std::int64_t dim = o.desc.shape[i];
      if (dim > 1 && dims.count(dim) == 0) dims[dim] = chance(random, 80) ? draw_dim(random) : dim;
    }
  }
  if (hidden > 1) {
    const std::int64_t other = pick(random, 2, 20);
    for (auto& [dim, to] : dims) to = dim % hidden == 0 ? dim / hidden * other : to;
  }
  return dims;
}

std::int64_t mapped(const DimMap& dims, std::int64_t dim) {
  const auto found = dims.find(dim);
  return found == dims.end() ? dim : found->second;
}

void redraw_operand(Operand* o, const DimMap& dims, bool follow) {
  if (o->random) {
    for (int i = 0; i < o->desc.shape.rank(); ++i) o->desc.shape[i] = mapped(dims, o->desc.shape[i]);
    return;
  }
  const bool whole = o->desc.dtype == kI64 || o->desc.dtype == kI32;
  for (double& value : o->literal) {
    if (whole && follow && value > 1) value = static_cast<double>(mapped(dims, static_cast<std::int64_t>(value)));
  }
}

void redraw_list(const std::string& name, Ints* list, const DimMap& dims, test::Random& random) {
  if (name == "perm") {
    for (std::size_t i = list->size(); i > 1; --i) std::swap((*list)[i - 1], (*list)[random.next() % i]);
    return;
  }
  const bool small = name == "strides" || name == "dilations" || name == "pads" || name == "output_padding";
  for (std::int64_t& v : *list) {
    if (name == "kernel_shape") v = mapped(dims, v);
    if (small) v = chance(random, 50) ? v : name == "strides" || name == "dilations" ? pick(random, 1, 3) : pick(random, 0, 2);
  }
}

void redraw_attribute(Attribute* a, int rank, const DimMap& dims, test::Random& random) {
  if (auto* list = std::get_if<Ints>(&a->value)) return redraw_list(a->name, list, dims, random);
  auto* v = std::get_if<std::int64_t>(&a->value);
  if (v == nullptr) return;
  if (a->name == "hidden_size") *v = mapped(dims, *v);
  else if (a->name == "axis" && rank > 0) *v = pick(random, -rank, rank - 1);
  else if (*v == 0 || *v == 1) *v = pick(random, 0, 1);
}

// MatMulNBits: dims of the packed weights follow from others.
void redraw_blocks(Case* c, test::Random& random) {
  const auto number = [&](const char* name) -> std::int64_t& {
    const auto a = std::find_if(c->attributes.begin(), c->attributes.end(), [&](const Attribute& at) { return at.name == name; });
    return std::get<std::int64_t>(a->value);
  };
  const std::int64_t k = number("K") = draw_dim(random), n = number("N") = draw_dim(random);
  const std::int64_t bits = number("bits"), block = number("block_size") = std::int64_t{16} << pick(random, 0, 2);
  const std::int64_t blocks = (k + block - 1) / block;
  c->operands[0].desc.shape = {pick(random, 1, 3), draw_dim(random), k};
  c->operands[1].desc.shape = {n, blocks, block * bits / 8};
  c->operands[2].desc.shape = {n, blocks};
  if (c->operands.size() > 3 && c->operands[3].desc.dtype == DType::kUint8)
    c->operands[3].desc.shape = {n, (blocks * bits + 7) / 8};
  if (c->operands.size() > 3 && c->operands[3].desc.dtype == kF32) c->operands[3].desc.shape = {n, blocks};
  if (c->operands.size() > 5) c->operands[5].desc.shape = {n};
}

// Backward passes of recurrent layers: rows and gates follow from steps, batch and hidden. The lengths of sequences, where the case
// has them, stay, and so do batch and steps.
void redraw_recurrent(Case* c, test::Random& random) {
  const bool batch_first =
      std::any_of(c->attributes.begin(), c->attributes.end(), [](const Attribute& a) { return a.name == "layout"; });
  const Shape old = c->operands[0].desc.shape;  // y
  const int step_axis = batch_first ? 1 : 0, batch_axis = batch_first ? 0 : 2;
  const bool keeps = c->operands[3].desc.dtype == kI32;
  const std::int64_t old_hidden = old[3], hidden = draw_dim(random);
  const std::int64_t steps = keeps ? old[step_axis] : pick(random, 1, 6), batch = keeps ? old[batch_axis] : pick(random, 1, 5);
  const std::int64_t old_rows = old[step_axis] * old[batch_axis];
  for (std::size_t i = 0; i < c->operands.size(); ++i) {
    Shape& s = c->operands[i].desc.shape;
    if (i == 3 || s.rank() == 0) continue;
    const bool has_rows = s.rank() == 2 && s[0] == old_rows;
    s[s.rank() - 1] = s[s.rank() - 1] / old_hidden * hidden;
    if (has_rows) s[0] = steps * batch;
    if (i == 2) s[1] = s[1] / old_hidden * hidden;
    if (s.rank() == 4) {
      s[step_axis] = steps;
      s[batch_axis] = batch;
    } else if (s.rank() == 3 && i != 2) {
      s[batch_first ? 0 : 1] = batch;
    }
  }
}

bool is_recurrent_gradient(const Case& c) {
  return c.op == "evener::LSTMGradient" || c.op == "evener::GRUGradient" || c.op == "evener::RNNGradient";
}

}  // namespace

Case redraw(const Case& base, test::Random& random) {
  Case c = base;
  if (c.op == "com.microsoft::MatMulNBits") {
    redraw_blocks(&c, random);
    return c;
  }
  if (is_recurrent_gradient(c)) {
    redraw_recurrent(&c, random);
    return c;
  }
  const DimMap dims = draw_dims(base, random);
  const bool follow = chance(random, 60);
  for (Operand& o : c.operands) redraw_operand(&o, dims, follow);
  const int rank = c.operands.empty() ? 0 : c.operands[0].desc.shape.rank();
  for (Attribute& a : c.attributes) {
    if (chance(random, 30) || a.name == "kernel_shape" || a.name == "hidden_size") redraw_attribute(&a, rank, dims, random);
  }
  return c;
}

}  // namespace evn::conformance
