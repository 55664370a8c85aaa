#include "backends/cpu/training/recurrent_gradient_loops.h"

#include "backends/cpu/simd/vec.h"
#include "ops/lstm_slope.h"

namespace evn::EVN_ISA {
namespace {

using simd_recurrent_gradient::Cell;
using simd_recurrent_gradient::GruStep;
using simd_recurrent_gradient::LstmStep;
using At = ActivationAt<Numbers>;

At at(const Activation& f, float clip, Vec x) { return activation_at<Numbers>(f, clip, x); }
Vec activate(const Activation& f, float clip, Vec x) { return clipped_activation_form<Numbers>(f, clip, x); }

// Calls f(first, count) for each vector of `size` floats.
template <typename F>
inline void each_vector(std::int64_t size, F&& f) {
  for (std::int64_t j = 0; j < size; j += kLanes) f(j, size - j);
}

// The inputs of i, f and o; `c` are the cells that the gate sees.
inline Vec gate_input(const Cell& k, const float* sums, int gate, Vec c, std::int64_t j, std::int64_t n) {
  const Vec sum = load_some(sums + gate * k.size + j, n);
  return k.peepholes == nullptr ? sum : fma(load_some(k.peepholes + gate * k.size + j, n), c, sum);
}

enum : int { kI, kO, kF, kC };

void lstm_cell(const Cell& cell, const float* sums, const float* before, float* to) {
  const Cell k = cell;
  each_vector(k.size, [&](std::int64_t j, std::int64_t n) {
    const Vec c = load_some(before + j, n);
    const Vec i = activate(k.f, k.clip, gate_input(k, sums, kI, c, j, n));
    const Vec f = k.input_forget ? splat(1.0f) - i : activate(k.f, k.clip, gate_input(k, sums, kF, c, j, n));
    store_some(to + j, fma(f, c, i * activate(k.g, k.clip, load_some(sums + kC * k.size + j, n))), n);
  });
}

void lstm(const Cell& cell, const LstmStep& step) {
  const Cell k = cell;
  const LstmStep s = step;
  each_vector(k.size, [&](std::int64_t j, std::int64_t n) {
    const Vec before = load_some(s.before + j, n), now = load_some(s.cell + j, n);
    const At i = at(k.f, k.clip, gate_input(k, s.sums, kI, before, j, n));
    const At o = at(k.f, k.clip, gate_input(k, s.sums, kO, now, j, n));
    const At g = at(k.g, k.clip, load_some(s.sums + kC * k.size + j, n));
    At f{splat(1.0f) - i.y, zero()};
    if (!k.input_forget) f = at(k.f, k.clip, gate_input(k, s.sums, kF, before, j, n));
    const Vec h = activation_form<Numbers>(k.h, now);
    Vec dh = load_some(s.dh + j, n);
    if (s.dy != nullptr) dh = dh + load_some(s.dy + j, n);
    const Vec by_o = dh * h * o.slope;
    Vec by_cell = fma(dh * o.y, slope_form<Numbers>(k.h, now, h), load_some(s.dc + j, n));
    if (k.peepholes != nullptr) by_cell = fma(by_o, load_some(k.peepholes + kO * k.size + j, n), by_cell);
    const Vec by_i = by_cell * (k.input_forget ? g.y - before : g.y) * i.slope;
    const Vec by_f = by_cell * before * f.slope;
    Vec dc = by_cell * f.y;
    if (k.peepholes != nullptr) {
      dc = fma(by_i, load_some(k.peepholes + kI * k.size + j, n), dc);
      dc = fma(by_f, load_some(k.peepholes + kF * k.size + j, n), dc);
    }
    store_some(s.dc + j, dc, n);
    store_some(s.dsums + kI * k.size + j, by_i, n);
    store_some(s.dsums + kO * k.size + j, by_o, n);
    store_some(s.dsums + kF * k.size + j, by_f, n);
    store_some(s.dsums + kC * k.size + j, by_cell * i.y * g.slope, n);
    if (s.dpeepholes == nullptr) return;
    const auto add = [&](int gate, Vec by, Vec c) {
      float* const to = s.dpeepholes + gate * k.size + j;
      store_some(to, fma(by, c, load_some(to, n)), n);
    };
    add(kI, by_i, before);
    add(kO, by_o, now);
    add(kF, by_f, before);
  });
}

enum : int { kZ, kReset, kNew };

void gru(const Cell& cell, const GruStep& step) {
  const Cell k = cell;
  const GruStep s = step;
  each_vector(k.size, [&](std::int64_t j, std::int64_t n) {
    const auto sum = [&](int gate) { return load_some(s.sums + gate * k.size + j, n); };
    const auto recurrent = [&](int gate) { return load_some(s.recurrent + gate * k.size + j, n); };
    const At z = at(k.f, k.clip, sum(kZ) + recurrent(kZ)), r = at(k.f, k.clip, sum(kReset) + recurrent(kReset));
    const Vec last = recurrent(kNew);
    const At g = at(k.g, k.clip, fma(r.y, last, sum(kNew)));
    Vec dh = load_some(s.dh + j, n);
    if (s.dy != nullptr) dh = dh + load_some(s.dy + j, n);
    const Vec by_z = dh * (load_some(s.before + j, n) - g.y) * z.slope;
    const Vec by_candidate = dh * (splat(1.0f) - z.y) * g.slope;
    const Vec by_r = by_candidate * last * r.slope;
    store_some(s.dh + j, dh * z.y, n);
    store_some(s.dsums + kZ * k.size + j, by_z, n);
    store_some(s.dsums + kReset * k.size + j, by_r, n);
    store_some(s.dsums + kNew * k.size + j, by_candidate, n);
    store_some(s.drecurrent + kZ * k.size + j, by_z, n);
    store_some(s.drecurrent + kReset * k.size + j, by_r, n);
    store_some(s.drecurrent + kNew * k.size + j, by_candidate * r.y, n);
  });
}

void gru_kept(const Cell& cell, const float* sums, const float* recurrent, const float* before, float* to) {
  const Cell k = cell;
  each_vector(k.size, [&](std::int64_t j, std::int64_t n) {
    const Vec r = activate(k.f, k.clip, load_some(sums + k.size + j, n) + load_some(recurrent + k.size + j, n));
    store_some(to + j, r * load_some(before + j, n), n);
  });
}

void gru_candidate(const Cell& cell, const GruStep& step) {
  const Cell k = cell;
  const GruStep s = step;
  each_vector(k.size, [&](std::int64_t j, std::int64_t n) {
    const At z = at(k.f, k.clip, load_some(s.sums + j, n) + load_some(s.recurrent + j, n));
    const At g = at(k.g, k.clip, load_some(s.sums + kNew * k.size + j, n) + load_some(s.of_candidate + j, n));
    Vec dh = load_some(s.dh + j, n);
    if (s.dy != nullptr) dh = dh + load_some(s.dy + j, n);
    store_some(s.dsums + j, dh * (load_some(s.before + j, n) - g.y) * z.slope, n);
    store_some(s.dsums + kNew * k.size + j, dh * (splat(1.0f) - z.y) * g.slope, n);
    store_some(s.dh + j, dh * z.y, n);
  });
}

void gru_reset(const Cell& cell, const GruStep& step, const float* dkept) {
  const Cell k = cell;
  const GruStep s = step;
  each_vector(k.size, [&](std::int64_t j, std::int64_t n) {
    const At r = at(k.f, k.clip, load_some(s.sums + k.size + j, n) + load_some(s.recurrent + k.size + j, n));
    const Vec by = load_some(dkept + j, n);
    store_some(s.dsums + k.size + j, by * load_some(s.before + j, n) * r.slope, n);
    store_some(s.dh + j, fma(by, r.y, load_some(s.dh + j, n)), n);
  });
}

void rnn(const Cell& cell, const float* sums, const float* dh, const float* dy, float* dsums) {
  const Cell k = cell;
  each_vector(k.size, [&](std::int64_t j, std::int64_t n) {
    Vec by = load_some(dh + j, n);
    if (dy != nullptr) by = by + load_some(dy + j, n);
    store_some(dsums + j, by * at(k.f, k.clip, load_some(sums + j, n)).slope, n);
  });
}

void add(const float* from, float* to, std::int64_t n) {
  each_vector(
      n, [&](std::int64_t j, std::int64_t left) { store_some(to + j, load_some(to + j, left) + load_some(from + j, left), left); });
}

}  // namespace

extern const simd_recurrent_gradient::Loops loops_recurrent_gradient;
const simd_recurrent_gradient::Loops loops_recurrent_gradient = {lstm_cell,     lstm,      gru, gru_kept,
                                                                 gru_candidate, gru_reset, rnn, add};

}  // namespace evn::EVN_ISA
