#include "backends/cpu/recurrent/recurrent_products.h"

#include <algorithm>

#include "backends/cpu/bfloat/bfloat_plan.h"
#include "backends/cpu/gemm/pack.h"
#include "backends/cpu/gemm/packed_gemm_plan.h"
#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/recurrent/recurrent_loops.h"
#include "backends/cpu/support.h"
#include "ops/recurrent.h"

namespace evn {
namespace {

constexpr std::int64_t kMostLanes = 16;  // of any cluster

const simd_bfloat_gemm::Loops& bfloat_loops(const RecurrentMatrix& b) { return simd_bfloat_gemm::loops(b.isa); }

// Floats of one direction. W is packed as gemm/packed_gemm_loops.h has it, R as gemm/gemm_loops.h does.
std::int64_t packed_floats(const RecurrentMatrix& b) {
  if (b.is_w) return packed_gemm_floats(simd_packed_gemm::loops(b.isa), checked_mul<std::int64_t>(b.padded, b.gates), b.depth);
  const simd_gemm::Loops& loops = simd_gemm::loops(b.isa);
  const int joined = joined_gates(b.gates, false);
  const std::int64_t rest = joined < b.gates ? packed_b_floats(loops, b.padded, b.depth) : 0;
  return checked_add(packed_b_floats(loops, checked_mul<std::int64_t>(b.padded, joined), b.depth), rest);
}

// Panels of `nr` columns, the last one no wider than it must be with `narrow`.
struct Panels {
  std::int64_t nr;
  bool narrow;
  std::int64_t columns, depth;
  float* to;

  // Calls body(to, width, index, count) for what of columns [begin, end) lies in each panel: `count` columns from begin + index on,
  // at `to`, where rows are `width` floats long.
  template <typename F>
  void each(std::int64_t begin, std::int64_t end, F&& body) const {
    for (std::int64_t column = begin; column < end;) {
      const std::int64_t first = column / nr * nr;
      const std::int64_t width = narrow ? std::min(nr, columns - first) : nr;
      const std::int64_t count = std::min(first + width, end) - column;
      body(to + first * depth + (column - first), width, column - begin, count);
      column += count;
    }
  }
};

// `count` rows of a gate of one direction, from `first` on.
void pack_floats(const RecurrentMatrix& b, const float* from, std::int64_t gate, std::int64_t first, std::int64_t count,
                 float* packed) {
  const simd_transpose::Loops& move = simd_transpose::loops(b.isa);
  const std::int64_t nr = b.is_w ? simd_packed_gemm::loops(b.isa).nr : simd_gemm::loops(b.isa).nr;
  const int joined = joined_gates(b.gates, b.is_w);
  const bool second = gate >= joined;
  Panels p{nr, b.is_w, (second ? b.gates - joined : joined) * b.padded, b.depth, packed};
  if (second) p.to += packed_b_floats(simd_gemm::loops(b.isa), joined * b.padded, b.depth);
  const std::int64_t column = (second ? gate - joined : gate) * b.padded + first;
  p.each(column, column + count, [&](float* at, std::int64_t width, std::int64_t index, std::int64_t n) {
    move.transpose(from + index * b.depth, b.depth, n, b.depth, at, width);
  });
  if (first + count != b.hidden) return;
  const std::int64_t next = column - first + b.padded;
  p.each(column + count, b.is_w || next < p.columns ? next : ceil_div(next, nr) * nr,
         [&](float* at, std::int64_t width, std::int64_t, std::int64_t n) {
           for (std::int64_t k = 0; k < b.depth; ++k) std::fill_n(at + k * width, n, 0.0f);
         });
}

void pack_bfloats(const RecurrentMatrix& b, const float* from, std::int64_t gate, std::int64_t first, std::int64_t count,
                  std::uint16_t* packed) {
  const simd_bfloat_gemm::Loops& loops = bfloat_loops(b);
  const BfloatSource source{.b = from, .column_step = b.depth, .channels = b.depth, .channel_step = 1};
  pack_bfloat_columns(loops, source, first / loops.lanes, ceil_div(first + count, std::int64_t{loops.lanes}), b.hidden,
                      packed + gate * b.padded * bfloat_padded(loops, b.depth));
}

void multiply_floats(const RecurrentMatrix& b, const float* packed, const RecurrentProduct& p, float* scratch,
                     CancelPoints* points) {
  if (b.is_w) {
    simd_packed_gemm::Tile t{};
    t.large_l2 = has_large_l2();
    t.m = p.m;
    t.n = p.n;
    t.ldc = p.ldc;
    t.k = b.depth;
    t.lda = p.lda;
    t.a = p.a;
    t.b = packed;
    t.c = p.to;
    t.init = p.init;
    t.init_row = p.init_row;
    t.init_column = 1;
    t.init_scale = 1;
    t.points = points;
    return simd_packed_gemm::loops(b.isa).run(t);
  }
  const simd_gemm::Loops& loops = simd_gemm::loops(b.isa);
  if (p.column > 0) packed += packed_b_floats(loops, p.column, b.depth);
  if (p.m == 1) {
    return simd_recurrent::loops(b.isa).row(p.a, b.depth, packed, loops.nr, loops.kc, p.n, p.backwards, p.init, p.to, points);
  }
  simd_gemm::Tile t{};
  t.m = p.m;
  t.n = p.n;
  t.k = b.depth;
  t.a_kind = simd_gemm::AKind::kRows;
  t.a = p.a;
  t.lda = p.lda;
  t.b_kind = simd_gemm::BKind::kPacked;
  t.b = packed;
  t.c = p.to;
  t.ldc = p.ldc;
  t.init = p.init;
  t.init_row = p.init_row;
  t.init_column = 1;
  t.init_scale = 1;
  t.buffer = scratch;
  t.points = points;
  loops.run(t);
}

void multiply_bfloats(const RecurrentMatrix& b, const std::uint16_t* packed, const RecurrentProduct& p, std::uint16_t* rows,
                      CancelPoints* points) {
  const simd_bfloat_gemm::Loops& loops = bfloat_loops(b);
  const std::int64_t padded = bfloat_padded(loops, b.depth), start = 0;
  if (!copy_bfloat_rows(loops, {p.a, false, p.lda, p.m, b.depth}, padded, rows, points)) return;
  simd_bfloat_gemm::Tile t{};
  t.a = rows;
  t.lines = 1;
  t.width = p.m;
  t.lda = padded;
  t.offsets = &start;
  t.segments = 1;
  t.padded = padded;
  t.b = packed + p.column * padded;
  t.n = p.n;
  t.init = p.init;
  t.init_row = p.init_row;
  t.init_column = 1;
  t.init_scale = 1;
  t.c = p.to;
  t.ldc = p.ldc;
  t.points = points;
  loops.run(t);
}

}  // namespace

int joined_gates(int gates, bool is_w) { return gates == 3 && !is_w ? 2 : gates; }

RecurrentMatrix recurrent_matrix(const OpDesc& d, int input, bool is_bfloat) {
  const Shape& r = d.inputs[RecurrentInput::kR].shape;
  RecurrentMatrix b{};
  b.isa = is_bfloat ? bfloat16_isa() : cpu_isa();
  b.is_w = input == RecurrentInput::kW;
  b.is_bfloat = is_bfloat;
  b.hidden = r[2];
  b.gates = r[2] == 0 ? 1 : static_cast<std::int32_t>(r[1] / r[2]);
  b.padded = checked_mul<std::int64_t>(ceil_div(r[2], kMostLanes), kMostLanes);
  b.depth = d.inputs[static_cast<std::size_t>(input)].shape[2];
  return b;
}

std::int64_t RecurrentMatrix::bytes() const {
  if (!is_bfloat) return checked_mul<std::int64_t>(packed_floats(*this), sizeof(float));
  const std::int64_t columns = checked_mul<std::int64_t>(padded, gates);
  return checked_mul<std::int64_t>(checked_mul(columns, bfloat_padded(bfloat_loops(*this), depth)), sizeof(std::uint16_t));
}

void RecurrentMatrix::pack(const float* rows, std::int64_t begin, std::int64_t end, void* packed) const {
  for (std::int64_t row = begin; row < end;) {
    const std::int64_t gate = row / hidden % gates, first = row % hidden, count = std::min(hidden - first, end - row);
    char* const to = static_cast<char*>(packed) + row / hidden / gates * bytes();
    if (is_bfloat) {
      pack_bfloats(*this, rows, gate, first, count, reinterpret_cast<std::uint16_t*>(to));
    } else {
      pack_floats(*this, rows, gate, first, count, reinterpret_cast<float*>(to));
    }
    rows += count * depth;
    row += count;
  }
}

std::int64_t product_bytes(const RecurrentMatrix& b, std::int64_t rows) {
  if (!b.is_bfloat) {
    return checked_mul<std::int64_t>(b.is_w ? 0 : simd_gemm::buffer_floats(simd_gemm::loops(b.isa), 0), sizeof(float));
  }
  return checked_mul<std::int64_t>(checked_mul(rows, bfloat_padded(bfloat_loops(b), b.depth)), sizeof(std::uint16_t));
}

void multiply(const RecurrentMatrix& b, const void* packed, const RecurrentProduct& p, void* scratch, CancelPoints* points) {
  if (b.is_bfloat) {
    multiply_bfloats(b, static_cast<const std::uint16_t*>(packed), p, static_cast<std::uint16_t*>(scratch), points);
  } else {
    multiply_floats(b, static_cast<const float*>(packed), p, static_cast<float*>(scratch), points);
  }
}

}  // namespace evn
