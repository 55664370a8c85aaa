// See fft.h. What is run for each line beside the passes, and the tables.
#include "ops/infra/fft.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/cancel.h"

namespace evn {
namespace {

std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }

// Calls f(i) for i from 0 to count - 1.
template <typename F>
void each(std::int64_t count, F&& f) {
  in_pieces(count, 2, [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) f(i);
  });
}

// The smallest length from `least` on that is 1, 3 or 5 times a power of two.
std::int64_t smooth_from(std::int64_t least) {
  std::int64_t power = 1;
  while (power < least) power *= 2;
  for (const std::int64_t smaller : {power / 8 * 5, power / 4 * 3}) {
    if (smaller >= least) return smaller;
  }
  return power;
}

}  // namespace

Roots::Roots(std::int64_t count) : step_(1) {
  while (step_ * step_ < count) step_ *= 2;
  fine_.resize(size_of(step_));
  coarse_.resize(size_of(step_));
  const auto root = [&](std::int64_t k) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(count);
    return Complex{std::cos(angle), -std::sin(angle)};
  };
  in_pieces(step_, 2 * kFunctionWork, [&](std::int64_t k, std::int64_t end) {
    for (; k < end; ++k) {
      fine_[size_of(k)] = root(k);
      coarse_[size_of(k)] = root(k * step_);
    }
  });
}

Complex Roots::at(std::int64_t k) const { return times(coarse_[size_of(k / step_)], fine_[size_of(k & (step_ - 1))]); }

bool SmoothFft::takes(std::int64_t length) {
  for (const int factor : {2, 3, 5}) {
    while (length % factor == 0) length /= factor;
  }
  return length == 1;
}

SmoothFft::SmoothFft(std::int64_t length) : length_(length) {
  std::int64_t rest = length;
  for (const int factor : {4, 2, 3, 5}) {
    for (; rest % factor == 0; rest /= factor) factors_[factor_count_++] = static_cast<std::int8_t>(factor);
  }
  const Roots roots(length);
  roots_.resize(size_of(length));
  each(length, [&](std::int64_t k) { roots_[size_of(k)] = roots.at(k); });
}

Fft::Fft(std::int64_t length)
    : length_(length), room_(SmoothFft::takes(length) ? length : smooth_from(2 * length - 1)), passes_(room_) {
  if (room_ == length_) return;
  // chirp[n] = exp(-pi i n * n / length).
  const Roots roots(2 * length);
  chirp_.resize(size_of(length));
  response_.resize(size_of(room_));
  std::int64_t square = 0;
  in_pieces(length, 2, [&](std::int64_t n, std::int64_t end) {
    for (; n < end; ++n) {
      chirp_[size_of(n)] = roots.at(square);
      response_[size_of(n)] = std::conj(chirp_[size_of(n)]) / static_cast<double>(room_);
      if (n > 0) response_[size_of(room_ - n)] = response_[size_of(n)];
      square = (square + 2 * n + 1) % (2 * length);
    }
  });
  std::vector<Complex> other(response_.size());
  if (passes_.run(response_.data(), other.data()) == other.data()) response_.swap(other);
}

Complex* Fft::run(Complex* x, Complex* other) const {
  if (room_ == length_) return passes_.run(x, other);
  // k n = (k k + n n - (k - n) (k - n)) / 2, so that the sums are a convolution with the chirp, made as products of spectra.
  each(length_, [&](std::int64_t n) { x[n] = times(x[n], chirp_[size_of(n)]); });
  fill_in_pieces(x + length_, room_ - length_, Complex{});
  Complex* spectrum = passes_.run(x, other);
  each(room_, [&](std::int64_t k) { spectrum[k] = std::conj(times(spectrum[k], response_[size_of(k)])); });
  Complex* y = passes_.run(spectrum, spectrum == x ? other : x);
  each(length_, [&](std::int64_t k) { y[k] = times(std::conj(y[k]), chirp_[size_of(k)]); });
  return y;
}

LineTransform::LineTransform(std::int64_t length, Kind kind)
    : length_(length), kind_(kind), halves_(kind != Kind::kPlain && length % 2 == 0), fft_(halves_ ? length / 2 : length) {
  line_.resize(size_of(fft_.room() + 1));
  other_.resize(line_.size());
  if (!halves_) return;
  const Roots roots(length);
  turns_.resize(size_of(length / 4 + 1));
  each(length / 4 + 1, [&](std::int64_t k) { turns_[size_of(k)] = roots.at(k); });
}

const Complex* LineTransform::transform() {
  Complex* const x = line_.data();
  const std::int64_t half = length_ / 2;
  if (kind_ == Kind::kPlain) return fft_.run(x, other_.data());
  if (kind_ == Kind::kReal) {
    if (!halves_) return run_odd_real();
    Complex* const z = fft_.run(x, other_.data());
    z[half] = z[0];
    turn_halves(z, 0.5);
    return z;
  }
  // The imaginary parts of these add up to that of the result, which is none.
  x[0] = x[0].real();
  if (!halves_) return run_odd_to_real();
  x[half] = x[half].real();
  turn_halves(x, 1);
  Complex* const z = fft_.run(x, other_.data());
  each(half, [&](std::int64_t i) { z[i] = std::conj(z[i]); });
  return z;
}

const Complex* LineTransform::run_odd_real() {
  const double* real = line();
  each(length_, [&](std::int64_t i) { other_[size_of(i)] = real[i]; });
  return fft_.run(other_.data(), line_.data());
}

const Complex* LineTransform::run_odd_to_real() {
  Complex* const x = line_.data();
  each(length_ / 2, [&](std::int64_t i) { x[length_ - 1 - i] = std::conj(x[i + 1]); });
  Complex* const y = fft_.run(x, other_.data());
  auto* real = reinterpret_cast<double*>(y);
  each(length_, [&](std::int64_t i) { real[i] = real[2 * i]; });
  return y;
}

// Let the even elements of a real x be the real and the odd ones the imaginary parts of z, and E and O the spectra of the even and
// of the odd ones. Z = E + i O, where E[-k] and O[-k] are the conjugates of E[k] and O[k]; X[k] = E[k] + exp(-2 pi i k / length)
// O[k] and X[half - k] = conj(E[k] - ...). With unit 1/2 this turns Z into X, with 1 the conjugates of X into twice those of Z.
void LineTransform::turn_halves(Complex* z, double unit) const {
  const std::int64_t half = length_ / 2;
  each(half / 2 + 1, [&](std::int64_t k) {
    const Complex a = z[k], b = std::conj(z[half - k]);
    const Complex even = unit * (a + b), odd = times(turns_[size_of(k)], -unit * times_i(a - b));
    z[k] = even + odd;
    z[half - k] = std::conj(even - odd);
  });
}

}  // namespace evn
