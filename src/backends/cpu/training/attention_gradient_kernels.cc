// AttentionGradient of float32: for a block of query rows of one head, the scores are made once more and stay in the thread's
// scratch memory, as far as causal rows see keys. A tile is one head of keys and values with all the query heads that it serves,
// for dK and dV are sums over them; where the mask's derivative is wanted, which all heads may share, all is one tile.
#include <algorithm>

#include "backends/cpu/gemm/gemm_loops.h"
#include "backends/cpu/support.h"
#include "backends/cpu/training/attention_gradient_loops.h"
#include "ops/attention_rows.h"
#include "ops/merge.h"
#include "ops/training/attention_gradient.h"

namespace evn {
namespace {

using In = AttentionInput;
using Attr = AttentionAttr;
using Out = AttentionGradientOutput;
using simd_attention_gradient::Query;

constexpr int kDy = AttentionGradientInput::kDy;
constexpr std::int64_t kBlockScores = 1 << 16;  // floats, of which there are two or three
constexpr std::int64_t kLeastRows = 16, kMostRows = 128;
constexpr std::int64_t kKeysAtOnce = 512;                    // whose sums over a block's rows are one product
constexpr std::int64_t kEverything = std::int64_t{1} << 40;  // keys to either side, where nothing bounds them

// Where rows of Q, K, V, y and their derivatives lie.
struct Layout4 {
  std::int64_t batch, head, row;
  std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t s = 0) const { return b * batch + h * head + s * row; }
};

struct State {
  Isa isa;
  AttentionGeometry g;
  Layout4 q, k, v, y;
  float scale, softcap;
  std::int64_t group, rows;  // query heads of a head of keys; rows of a block
  std::int64_t mask_step[4], mask_columns, left, right;
  bool has_mask, is_bool;
};

Refusal supports(const OpDesc& d) {
  if (epilogue_of(d) != nullptr) return kNoEpilogue;
  for (const int i : {int{In::kQ}, int{In::kK}, int{In::kV}, int{In::kMask}, kDy}) {
    if (!d.has_input(i)) continue;
    const DType dtype = d.inputs[static_cast<std::size_t>(i)].dtype;
    if (dtype != DType::kFloat32 && !(i == In::kMask && dtype == DType::kBool)) return kNeedsFloat32;
  }
  return nullptr;
}

Layout4 layout_of(bool flat, std::int64_t heads, std::int64_t steps, std::int64_t depth) {
  const std::int64_t all = checked_mul(checked_mul(heads, steps), depth);
  return flat ? Layout4{all, depth, heads * depth} : Layout4{all, steps * depth, depth};
}

bool is_wanted(const OpDesc& d, std::size_t output) {
  return output < d.outputs.size() && d.outputs[output].dtype != DType::kUndefined;
}

// A thread's memory.
struct Parts {
  float *scores, *dscores, *slopes, *buffer;
  std::int64_t floats = 0;

  Parts(const State& s, void* memory) {
    auto* const base = static_cast<float*>(memory);
    const auto take = [&](std::int64_t count) {
      float* const part = base == nullptr ? nullptr : base + floats;
      floats = checked_add(floats, checked_mul<std::int64_t>(ceil_div(count, 16), 16));
      return part;
    };
    const std::int64_t block = checked_mul(s.rows, s.g.keys);
    scores = take(block);
    dscores = take(block);
    slopes = take(s.softcap != 0 ? block : 0);
    buffer = take(simd_gemm::buffer_floats(simd_gemm::loops(s.isa), kKeysAtOnce));
  }
};

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<State>();
  s = State{};
  const Node& node = *d.node;
  s.isa = cpu_isa();
  s.g = attention_geometry(node, d.inputs[In::kQ].shape, d.inputs[In::kK].shape, d.inputs[In::kV].shape, nullptr);
  const AttentionGeometry& g = s.g;
  s.group = g.kv_heads > 0 ? g.heads / g.kv_heads : 1;
  s.q = layout_of(g.flat, g.heads, g.queries, g.depth);
  s.k = layout_of(g.flat, g.kv_heads, g.keys, g.depth);
  s.v = layout_of(g.flat, g.kv_heads, g.keys, g.value_depth);
  s.y = layout_of(g.flat, g.heads, g.queries, g.value_depth);
  s.scale = static_cast<float>(attention_scale(static_cast<double>(attr_float(node, Attr::kScale)), g.depth));
  s.softcap = attr_float(node, Attr::kSoftcap);
  s.mask_columns = g.keys;
  s.has_mask = d.has_input(In::kMask);
  if (s.has_mask) {
    const Shape& mask = d.inputs[In::kMask].shape;
    std::copy_n(broadcast_strides(mask, {g.batch, g.heads, g.queries, g.keys}).step, 4, s.mask_step);
    s.mask_columns = std::min(g.keys, mask[mask.rank() - 1]);
    s.is_bool = d.inputs[In::kMask].dtype == DType::kBool;
  }
  const auto window = [&](int attribute) {
    const std::int64_t given = attr_int(node, attribute);
    return given < 0 ? kEverything : std::min(given, kEverything);
  };
  s.left = window(Attr::kLeft);
  s.right = attr_int(node, Attr::kIsCausal) != 0 ? 0 : window(Attr::kRight);
  s.rows = std::min(g.queries, std::clamp<std::int64_t>(kBlockScores / std::max<std::int64_t>(g.keys, 1), kLeastRows, kMostRows));
  p->tiles = is_wanted(d, Out::kDMask) ? 1 : checked_mul(g.batch, g.kv_heads);
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(Parts(s, nullptr).floats, sizeof(float)));
  p->flops = 2.0 * static_cast<double>(g.batch * g.heads) * static_cast<double>(g.queries) * static_cast<double>(g.keys) *
             static_cast<double>(3 * g.depth + 2 * g.value_depth);
  p->bytes = bytes_of(d);
}

// c = (init ? c : 0) + a b.
struct Product {
  std::int64_t m, n, k;
  const float* a;
  std::int64_t lda;
  bool a_across;  // the transpose of a is row-major
  const float* b;
  std::int64_t ldb;
  bool b_across;
  float* c;
  std::int64_t ldc;
  bool adds;
};

class Heads {
 public:
  Heads(const KernelArgs& args, CancelPoints* points)
      : args_(args),
        s_(args.plan->state<State>()),
        g_(s_.g),
        loops_(simd_attention_gradient::loops(s_.isa)),
        parts_(s_, args.thread_scratch),
        points_(points) {}

  void clear_mask() const {
    if (!is_wanted(*args_.desc, Out::kDMask)) return;
    fill_by_parts(points_, args_.out<float>(Out::kDMask), args_.desc->outputs[Out::kDMask].shape.elements(), 0.0f);
  }

  void run(std::int64_t index) {
    b_ = index / g_.kv_heads;
    kv_head_ = index % g_.kv_heads;
    is_first_ = true;
    valid_ = g_.keys;
    offset_ = 0;
    if (args_.desc->has_input(In::kNonpad)) {
      const std::int64_t given = std::clamp<std::int64_t>(args_.in<std::int64_t>(In::kNonpad)[b_], 0, kEverything);
      valid_ = std::min(g_.keys, given);
      offset_ = given - g_.queries;
    }
    for (std::int64_t h = kv_head_ * s_.group; h < (kv_head_ + 1) * s_.group; ++h) {
      for (std::int64_t first = 0; first < g_.queries && !points_->stopped; first += s_.rows) {
        run_block(h, first, std::min(s_.rows, g_.queries - first));
      }
    }
  }

 private:
  const KernelArgs& args_;
  const State& s_;
  const AttentionGeometry& g_;
  const simd_attention_gradient::Loops& loops_;
  const Parts parts_;
  CancelPoints* const points_;
  std::int64_t b_ = 0, kv_head_ = 0, valid_ = 0, offset_ = 0;
  bool is_first_ = true;  // block, which is not added to others

  void multiply(const Product& p) const {
    simd_gemm::Tile t{};
    t.m = p.m;
    t.n = p.n;
    t.k = p.k;
    t.a_kind = p.a_across ? simd_gemm::AKind::kColumns : simd_gemm::AKind::kRows;
    t.a = p.a;
    t.lda = p.lda;
    t.b_kind = p.b_across ? simd_gemm::BKind::kColumns : simd_gemm::BKind::kRows;
    t.b = p.b;
    t.ldb = p.ldb;
    t.c = p.c;
    t.ldc = p.ldc;
    t.init = p.adds ? p.c : nullptr;
    t.init_row = p.ldc;
    t.init_column = 1;
    t.init_scale = 1;
    t.buffer = parts_.buffer;
    t.points = points_;
    simd_gemm::loops(s_.isa).run(t);
  }

  // Derivative by the first `keys` keys or values, in parts. The first block writes zeros for all others; later blocks add to them.
  void add_over_rows(const float* scores, std::int64_t rows, std::int64_t keys, const float* of, std::int64_t step,
                     const Layout4& to, int output, std::int64_t depth) const {
    float* const d = args_.out<float>(output) + to.at(b_, kv_head_);
    for (std::int64_t t = 0; t < keys && !points_->stopped; t += kKeysAtOnce) {
      multiply({std::min(kKeysAtOnce, keys - t), depth, rows, scores + t, g_.keys, true, of, step, false, d + t * to.row, to.row,
                !is_first_});
    }
    for (std::int64_t t = keys; is_first_ && t < g_.keys && !stops(points_, depth); ++t) std::fill_n(d + t * to.row, depth, 0.0f);
  }

  Query query_of(std::int64_t h, std::int64_t s, std::int64_t keys) const {
    const std::int64_t place = s + offset_;
    Query q{keys,
            std::max<std::int64_t>(0, place - s_.left),
            std::min({place + s_.right + 1, valid_, s_.mask_columns}),
            s_.scale,
            s_.softcap,
            nullptr,
            nullptr};
    if (!s_.has_mask) return q;
    const std::int64_t at = mask_at(h, s);
    if (s_.is_bool) q.bool_mask = args_.in<std::uint8_t>(In::kMask) + at;
    else q.mask = args_.in<float>(In::kMask) + at;
    return q;
  }
  std::int64_t mask_at(std::int64_t h, std::int64_t s) const {
    return b_ * s_.mask_step[0] + h * s_.mask_step[1] + s * s_.mask_step[2];
  }

  void run_block(std::int64_t h, std::int64_t first, std::int64_t rows) {
    // Keys behind the last that a row of the block sees are not read: padding may be NaN.
    const std::int64_t last = first + rows - 1 + offset_;
    const std::int64_t keys = std::clamp<std::int64_t>(std::min({last + s_.right + 1, valid_, s_.mask_columns}), 0, g_.keys);
    const float* const q = args_.in<float>(In::kQ) + s_.q.at(b_, h, first);
    const float* const dy = args_.in<float>(kDy) + s_.y.at(b_, h, first);
    const float* const k = args_.in<float>(In::kK) + s_.k.at(b_, kv_head_);
    const float* const v = args_.in<float>(In::kV) + s_.v.at(b_, kv_head_);
    multiply({rows, keys, g_.depth, q, s_.q.row, false, k, s_.k.row, true, parts_.scores, g_.keys, false});
    multiply({rows, keys, g_.value_depth, dy, s_.y.row, false, v, s_.v.row, true, parts_.dscores, g_.keys, false});
    for (std::int64_t i = 0; i < rows && !stops(points_, (s_.softcap != 0 ? 4 : 2) * kFunction * keys); ++i)
      go_through(h, first + i, i, keys);
    if (points_->stopped) return;
    if (is_wanted(*args_.desc, Out::kDQ)) {
      float* const dq = args_.out<float>(Out::kDQ) + s_.q.at(b_, h, first);
      multiply({rows, g_.depth, keys, parts_.dscores, g_.keys, false, k, s_.k.row, false, dq, s_.q.row, false});
    }
    if (is_wanted(*args_.desc, Out::kDK)) add_over_rows(parts_.dscores, rows, keys, q, s_.q.row, s_.k, Out::kDK, g_.depth);
    if (is_wanted(*args_.desc, Out::kDV)) add_over_rows(parts_.scores, rows, keys, dy, s_.y.row, s_.v, Out::kDV, g_.value_depth);
    is_first_ = false;
  }

  void go_through(std::int64_t h, std::int64_t s, std::int64_t row, std::int64_t keys) const {
    float *const weights = parts_.scores + row * g_.keys, *const dweights = parts_.dscores + row * g_.keys;
    float* const slopes = s_.softcap != 0 ? parts_.slopes + row * g_.keys : nullptr;
    const Query q = query_of(h, s, keys);
    loops_.weigh(q, weights, slopes);
    const bool wants = is_wanted(*args_.desc, Out::kDMask);
    loops_.back(q, weights, slopes, dweights, wants ? args_.out<float>(Out::kDMask) + mask_at(h, s) : nullptr);
  }
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<State>();
  CancelPoints points = points_of(cancel);
  Heads heads(args, &points);
  if (is_wanted(*args.desc, Out::kDMask)) {  // one tile
    heads.clear_mask();
    end = s.g.batch * s.g.kv_heads;
  }
  for (std::int64_t i = begin; i < end && !cancel.stop() && !points.stopped; ++i) heads.run(i);
}

constexpr Kernel kKernels[] = {
    {.name = "attention_gradient",
     .op = kAttentionGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run},
};

}  // namespace

extern const KernelFamily attention_gradient_kernels;
const KernelFamily attention_gradient_kernels = {kKernels};

}  // namespace evn
