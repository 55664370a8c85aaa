// Discrete Fourier transforms of one length, in double: X[k] = sum over n of x[n] * exp(-2 pi i k n / length). Lengths whose
// factors are at most 5 are made in passes, one for each factor; others as a convolution with a chirp (Bluestein, 1970).
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

namespace evn {

using Complex = std::complex<double>;

// Without the operator's care for infinite products.
inline Complex times(Complex a, Complex b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}
inline Complex times_i(Complex a) { return {-a.imag(), a.real()}; }

// The count-th roots of 1, exp(-2 pi i k / count) for k in [0, count): products of two of about sqrt(count) roots that are kept.
class Roots {
 public:
  explicit Roots(std::int64_t count);
  Complex at(std::int64_t k) const;

 private:
  std::int64_t step_;
  std::vector<Complex> coarse_, fine_;
};

// A length whose factors are at most 5.
class SmoothFft {
 public:
  static bool takes(std::int64_t length);
  explicit SmoothFft(std::int64_t length);
  // Transforms `x` with the help of `other`, as long; both are written. Returns the one that has the result.
  Complex* run(Complex* x, Complex* other) const;

 private:
  std::int64_t length_;
  int factor_count_ = 0;
  std::int8_t factors_[64];
  std::vector<Complex> roots_;
};

// Any length.
class Fft {
 public:
  explicit Fft(std::int64_t length);
  // Transforms `x`, which has `room()` elements, of which the first `length` count; so has `other`.
  Complex* run(Complex* x, Complex* other) const;
  std::int64_t room() const { return room_; }

 private:
  std::int64_t length_, room_;
  SmoothFft passes_;
  std::vector<Complex> chirp_, response_;  // of a length that is not smooth
};

// Lines that are transformed one after the other.
class LineTransform {
 public:
  // kPlain: of complex numbers. kReal: of real numbers, of which the first length / 2 + 1 results are made. kToReal: of as many
  // complex numbers, whose rest are the conjugates, to real numbers.
  enum class Kind { kPlain, kReal, kToReal };
  LineTransform(std::int64_t length, Kind kind);

  // The line, to be filled before each run: `length` real numbers for kReal, length / 2 + 1 complex ones for kToReal.
  double* line() { return reinterpret_cast<double*>(line_.data()); }
  // The result, which stays there until the next run; `length` real numbers of kToReal.
  const double* run() { return reinterpret_cast<const double*>(transform()); }

 private:
  const Complex* transform();
  const Complex* run_odd_real();
  const Complex* run_odd_to_real();
  void turn_halves(Complex* z, double unit) const;

  std::int64_t length_;
  Kind kind_;
  bool halves_;  // an even count of real numbers is half as many complex ones
  Fft fft_;
  std::vector<Complex> turns_;  // exp(-2 pi i k / length), k up to a quarter
  std::vector<Complex> line_, other_;
};

}  // namespace evn
