// See fft.h. The passes are Stockham's: each takes one factor out of the length and leaves the elements in order.
#include <algorithm>
#include <utility>

#include "base/cancel.h"
#include "ops/infra/fft.h"

namespace evn {
namespace {

// Calls f(0), ..., f(N - 1), where the compiler sees the numbers.
template <int N, typename F>
void unrolled(F&& f) {
  [&]<int... K>(std::integer_sequence<int, K...>) { (f(K), ...); }
  (std::make_integer_sequence<int, N>{});
}

// The transform of R elements; `units`: the R-th roots.
template <int R>
void butterfly(Complex (&a)[R], const Complex (&units)[R]) {
  if constexpr (R == 2) {
    const Complex sum = a[0] + a[1];
    a[1] = a[0] - a[1];
    a[0] = sum;
  } else if constexpr (R == 4) {
    const Complex even = a[0] + a[2], odd = a[1] + a[3];
    const Complex even_rest = a[0] - a[2], odd_rest = times_i(a[1] - a[3]);
    a[0] = even + odd;
    a[1] = even_rest - odd_rest;
    a[2] = even - odd;
    a[3] = even_rest + odd_rest;
  } else {
    // Where R is odd, elements j and R - j have the same cosines and opposite sines.
    constexpr int kPairs = R / 2;
    Complex sums[kPairs], rests[kPairs];
    const Complex first = a[0];
    unrolled<kPairs>([&](int j) {
      sums[j] = a[j + 1] + a[R - 1 - j];
      rests[j] = times_i(a[j + 1] - a[R - 1 - j]);
      a[0] += sums[j];
    });
    unrolled<kPairs>([&](int k) {
      Complex even = first, odd = 0;
      unrolled<kPairs>([&](int j) {
        const int turn = (k + 1) * (j + 1) % R;
        even += sums[j] * units[turn].real();
        odd -= rests[j] * units[turn].imag();
      });
      a[k + 1] = even - odd;
      a[R - 1 - k] = even + odd;
    });
  }
}

// Blocks [begin, end) of a pass, and of each the columns [first, last).
struct Blocks {
  std::int64_t begin, end, first, last;
};

// R rows of `stride` columns of each block, which are length / R apart, become R rows that follow each other.
template <int R>
void pass(const Complex* x, Complex* y, const Complex* roots, std::int64_t length, std::int64_t stride, Blocks part) {
  const std::int64_t row = length / R;  // from an element to the next of its block
  Complex units[R];
  unrolled<R>([&](int k) { units[k] = roots[k * row]; });
  for (std::int64_t block = part.begin; block < part.end; ++block) {
    Complex turns[R];
    unrolled<R>([&](int k) { turns[k] = roots[block * k * stride]; });
    const Complex* from = x + block * stride;
    Complex* to = y + block * stride * R;
    for (std::int64_t i = part.first; i < part.last; ++i) {
      Complex a[R];
      unrolled<R>([&](int k) { a[k] = from[i + k * row]; });
      butterfly(a, units);
      to[i] = a[0];
      unrolled<R - 1>([&](int k) { to[i + (k + 1) * stride] = times(a[k + 1], turns[k + 1]); });
    }
  }
}

using Pass = void (*)(const Complex*, Complex*, const Complex*, std::int64_t, std::int64_t, Blocks);

}  // namespace

Complex* SmoothFft::run(Complex* x, Complex* other) const {
  std::int64_t stride = 1;
  for (int i = 0; i < factor_count_; ++i) {
    const int factor = factors_[i];
    const Pass passes[] = {pass<2>, pass<3>, pass<4>, pass<5>};
    const Pass one = passes[factor - 2];
    const std::int64_t blocks = length_ / stride / factor;
    const auto of = [&](const Blocks& part) { one(x, other, roots_.data(), length_, stride, part); };
    if (stride * factor <= kWorkPerLook / 8) {
      in_pieces(blocks, 2 * stride * factor, [&](std::int64_t begin, std::int64_t end) { of({begin, end, 0, stride}); });
    } else {
      for (std::int64_t block = 0; block < blocks; ++block) {
        in_pieces(stride, 2 * factor, [&](std::int64_t begin, std::int64_t end) { of({block, block + 1, begin, end}); });
      }
    }
    stride *= factor;
    std::swap(x, other);
  }
  return x;
}

}  // namespace evn
