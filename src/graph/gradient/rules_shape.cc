// Operators that move elements, and their inverses among ops/gradient.h.
#include "graph/gradient/rules.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {
namespace {

void reshape(Backward& b) { b.give(0, b.tape.reshape_to(b.x(), b.dy())); }

void unsqueeze(Backward& b) { b.give(0, b.tape.op("Squeeze", {b.dy(), b.list_or_input("axes", 1)})); }

void squeeze(Backward& b) {
  const ValueId axes = b.list_or_input("axes", 1);
  if (axes == kNoValue) return reshape(b);
  b.give(0, b.tape.op("Unsqueeze", {b.dy(), axes}));
}

void transpose(Backward& b) {
  const std::vector<std::int64_t>* perm = b.list("perm");
  if (perm == nullptr) return b.give(0, b.tape.op("Transpose", {b.dy()}));
  Tape::Ints inverse(perm->size());
  for (std::size_t i = 0; i < perm->size(); ++i) {
    const std::int64_t to = (*perm)[i];
    if (to < 0 || static_cast<std::size_t>(to) >= perm->size()) b.refuse("its perm is no permutation");
    inverse[static_cast<std::size_t>(to)] = static_cast<std::int64_t>(i);
  }
  b.give(0, b.tape.op("Transpose", {b.dy()}, {{"perm", inverse, {}}}));
}

// The size of x along the axis, as a list of one.
ValueId size_along(Tape& t, ValueId x, std::int64_t axis) {
  Tape::Attributes range = {{"start", axis, {}}};
  if (axis != -1) range.push_back({"end", axis + 1, {}});
  return t.op("Shape", {x}, range);
}

void concat(Backward& b) {
  Tape& t = b.tape;
  const std::int64_t axis = b.integer("axis", 1);
  if (b.inputs.size() == 1) return b.give(0, b.dy());
  bool all_known = true;
  for (const ValueId x : b.inputs) all_known = all_known && t.rank(x) > 0 && t.shape(x)[b.axis_of(axis, t.rank(x))] >= 0;
  Tape::Ints known;
  std::vector<ValueId> sizes;
  for (const ValueId x : b.inputs) {
    if (all_known) known.push_back(t.shape(x)[b.axis_of(axis, t.rank(x))]);
    else sizes.push_back(size_along(t, x, axis));
  }
  const ValueId list = all_known ? t.ints(known) : t.concat(sizes);
  const std::vector<ValueId> parts = t.ops("Split", {b.dy(), list}, {{"axis", axis, {}}}, b.inputs.size());
  for (std::size_t i = 0; i < parts.size(); ++i) b.give(i, parts[i]);
}

void split(Backward& b) {
  Tape& t = b.tape;
  std::vector<ValueId> parts;
  for (std::size_t i = 0; i < b.outputs.size(); ++i) {
    parts.push_back(b.dys[i] != kNoValue ? b.dys[i] : t.filled(0, b.y(i) != kNoValue ? b.y(i) : b.demand_output(i)));
  }
  b.give(0, t.op("Concat", parts, {{"axis", b.integer("axis"), {}}}));
}

void slice(Backward& b) {
  if (b.list("starts") == nullptr) return b.give(0, b.tape.own(kSliceGradient, {b.x(), b.x(1), b.x(2), b.x(3), b.x(4), b.dy()}));
  const ValueId starts = b.list_or_input("starts", 1), ends = b.list_or_input("ends", 2), axes = b.list_or_input("axes", 3);
  b.give(0, b.tape.own(kSliceGradient, {b.x(), starts, ends, axes, kNoValue, b.dy()}));
}

Tape::Attributes whole() { return {{"keepdims", std::int64_t{0}, {}}}; }

void pad(Backward& b) {
  Tape& t = b.tape;
  const std::string* mode = b.text("mode");
  if (mode != nullptr && *mode != "constant") b.refuse("its mode is not constant");
  const ValueId pads = b.list_or_input("pads", 1);
  const ValueId zero = t.scalar(0, b.dy());
  const ValueId dx = t.op("Pad", b.x(3) == kNoValue ? std::vector<ValueId>{b.dy(), t.neg(pads), zero}
                                                    : std::vector<ValueId>{b.dy(), t.neg(pads), zero, b.x(3)});
  if (b.wants(0)) b.give(0, dx);
  // All of dy that does not go to x.
  if (b.wants(2)) b.give(2, t.reshape_to(b.x(2), t.sub(t.op("ReduceSum", {b.dy()}, whole()), t.op("ReduceSum", {dx}, whole()))));
}

void gather(Backward& b) { b.give(0, b.tape.own(kGatherGradient, {b.x(), b.x(1), b.dy()}, b.copied({"axis"}))); }

Attribute adding() { return {"reduction", std::string("add"), {}}; }

void gather_elements(Backward& b) {
  Tape& t = b.tape;
  b.give(0, t.op("ScatterElements", {t.filled(0, b.x()), b.x(1), b.dy()}, {{"axis", b.integer("axis"), {}}, adding()}));
}

void gather_nd(Backward& b) {
  if (b.integer("batch_dims") != 0) b.refuse("it has batch_dims");
  b.give(0, b.tape.op("ScatterND", {b.tape.filled(0, b.x()), b.x(1), b.dy()}, {adding()}));
}

// The rule of scatters, whose inputs are x, indices, updates. Where indices meet, which of the updates counts is open in ONNX, and
// so is the derivative.
template <bool kElements>
void scatter(Backward& b) {
  Tape& t = b.tape;
  const std::string* reduction = b.text("reduction");
  const bool adds = reduction != nullptr && *reduction == "add";
  if (reduction != nullptr && *reduction != "none" && !adds) b.refuse("its reduction is neither none nor add");
  const Tape::Attributes axis = kElements ? b.copied({"axis"}) : Tape::Attributes{};
  if (b.wants(0)) {
    b.give(0, adds ? b.dy() : t.op(kElements ? "ScatterElements" : "ScatterND", {b.dy(), b.x(1), t.filled(0, b.x(2))}, axis));
  }
  if (b.wants(2)) b.give(2, t.op(kElements ? "GatherElements" : "GatherND", {b.dy(), b.x(1)}, axis));
}

void top_k(Backward& b) {
  Tape& t = b.tape;
  const ValueId places = b.y(1) != kNoValue ? b.y(1) : b.demand_output(1);
  b.give(0, t.op("ScatterElements", {t.filled(0, b.x()), places, b.dy()}, {{"axis", b.integer("axis", -1), {}}}));
}

void expand(Backward& b) { b.give_sum(0, b.dy()); }
void trilu(Backward& b) {
  b.give(0, b.tape.op("Trilu", b.x(1) == kNoValue ? std::vector<ValueId>{b.dy()} : std::vector<ValueId>{b.dy(), b.x(1)},
                      b.copied({"upper"})));
}
void reverse_sequence(Backward& b) {
  b.give(0, b.tape.op("ReverseSequence", {b.dy(), b.x(1)}, b.copied({"batch_axis", "time_axis"})));
}
void space_to_depth(Backward& b) { b.give(0, b.tape.op("DepthToSpace", {b.dy()}, b.copied({"blocksize", "mode"}))); }

// [N, C, H, W] to [N C, 1, H, W].
ValueId channels_apart(Tape& t, ValueId v) {
  if (t.rank(v) == 4 && t.has_known_shape(v)) {
    const Shape& s = t.shape(v);
    return t.reshape(v, t.ints({s.elements(0, 2), 1, s[2], s[3]}));
  }
  return t.reshape(v, t.concat({t.mul(t.dims(v, 0, 1), t.dims(v, 1, 2)), t.ints({1}), t.dims(v, 2, 4)}));
}

// With mode CRD, the blocks of a channel lie together: each channel is moved for itself.
void depth_to_space(Backward& b) {
  Tape& t = b.tape;
  const std::string* mode = b.text("mode");
  const bool by_channel = mode != nullptr && *mode == "CRD";
  const ValueId dx = t.op("SpaceToDepth", {by_channel ? channels_apart(t, b.dy()) : b.dy()}, b.copied({"blocksize"}));
  b.give(0, by_channel ? t.reshape_to(b.x(), dx) : dx);
}

// ------------------------------------------------------------------------------------- what is itself a derivative --

void sum_to(Backward& b) {
  if (b.wants(1)) b.give(1, b.tape.repeat_to(b.x(1), b.dy()));
}
void repeat_to(Backward& b) {
  if (b.wants(1)) b.give_sum(1, b.dy());
}
void gather_gradient(Backward& b) {
  if (b.wants(2)) b.give(2, b.tape.op("Gather", {b.dy(), b.x(1)}, b.copied({"axis"})));
}
void slice_gradient(Backward& b) {
  if (!b.wants(5)) return;
  std::vector<ValueId> inputs = {b.dy(), b.x(1), b.x(2), b.x(3), b.x(4)};
  while (inputs.back() == kNoValue) inputs.pop_back();
  b.give(5, b.tape.op("Slice", inputs));
}

constexpr int kAll = 1 << 20;
constexpr GradientRule kRows[] = {
    {"Reshape", reshape},
    {"Flatten", reshape},
    {"Squeeze", squeeze},
    {"Unsqueeze", unsqueeze},
    {"Transpose", transpose},
    {"Concat", concat},
    {"Split", split, kAll},
    {"Slice", slice},
    {"Pad", pad},
    {"Gather", gather},
    {"GatherElements", gather_elements},
    {"GatherND", gather_nd},
    {"ScatterElements", scatter<true>},
    {"ScatterND", scatter<false>},
    {"TopK", top_k},
    {"Expand", expand},
    {"Tile", expand},
    {"Trilu", trilu},
    {"ReverseSequence", reverse_sequence},
    {"SpaceToDepth", space_to_depth},
    {"DepthToSpace", depth_to_space},
    {kSumTo, sum_to, 1, kInternalDomain},
    {kRepeatTo, repeat_to, 1, kInternalDomain},
    {kGatherGradient, gather_gradient, 1, kInternalDomain},
    {kSliceGradient, slice_gradient, 1, kInternalDomain},
};

}  // namespace

extern const GradientRules kShapeGradients = kRows;

}  // namespace evn
