// DFT: y[k] = sum over n of x[n] * exp(-2 pi i k n / N) along an axis of complex numbers (the last axis has the real and the
// imaginary part; real input has one part), cut or padded with zeros to N = dft_length. `inverse`: exp(+...), divided by N.
// `onesided`: the first N / 2 + 1 of a real input's; inverse: real numbers out of such a half, of which the rest are the
// conjugates. STFT: DFTs of frames of `frame_length` elements, `frame_step` apart, each multiplied with the window. HannWindow,
// HammingWindow, BlackmanWindow: cosine sums over `size` points; `periodic` leaves the last one out. MelWeightMatrix: [dft_length /
// 2 + 1, num_mel_bins] triangles between points that are equally far apart on the mel scale, mel(f) = 2595 log10(1 + f / 700).
// dtypes: DFT and STFT floating point; windows and MelWeightMatrix int32 or int64 to any number (`output_datatype`). Failures:
// axes, lengths and steps that do not fit; at run: a mel band outside of the spectrum. Tolerance: rtol 1e-4, atol 1e-5.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/fft.h"
#include "ops/infra/index.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// A scalar int32 or int64 input where it is known now; `fallback` where it is not given; false when it is not known.
bool scalar_value(const InferContext& c, int i, std::int64_t fallback, std::int64_t* value) {
  *value = fallback;
  if (!c.has_input(i)) return fallback >= 0;
  require_dtype(c, i, kIndexDtypes);
  require_scalar(c, i);
  const ConstTensor known = known_input(c, i);
  if (known.data == nullptr) return false;
  *value = int_at(known, 0);
  return true;
}

// ------------------------------------------------------------------------------------------------------- DFT --

enum : int { kInverse, kOneSided, kAxis17 };

bool to_real(const Node& node) { return attr_int(node, kInverse) != 0 && attr_int(node, kOneSided) != 0; }

void infer_dft(InferContext& c) {
  require_rank(c, 0, 2);
  const Shape& x = c.shape(0);
  const bool inverse = attr_int(c.node, kInverse) != 0;
  const bool one_sided = attr_int(c.node, kOneSided) != 0;
  const int parts = x.rank() - 1;
  if (x[parts] >= 0 && x[parts] != 1 && x[parts] != 2) fail(EVN_ERROR_INVALID_MODEL, "the last axis has neither one part nor two");
  if (one_sided && !inverse && x[parts] == 2) fail(EVN_ERROR_INVALID_MODEL, "one side of a complex signal's spectrum");
  std::int64_t axis = -2;
  bool known = true;
  if (c.node.op->since < 20) {
    axis = attr_int(c.node, kAxis17);
  } else if (c.has_input(2)) {
    known = scalar_value(c, 2, -1, &axis);
  }
  Shape y = x;
  y[parts] = to_real(c.node) ? 1 : 2;
  if (!known) {
    for (int i = 0; i < parts; ++i) y[i] = -1;
    c.outputs[0].shape = y;
    return;
  }
  const int a = normalize_axis(axis, x.rank());
  if (a == parts) fail(EVN_ERROR_INVALID_MODEL, "axis is that of the parts");
  const std::int64_t own = to_real(c.node) && x[a] >= 0 ? std::max<std::int64_t>(2 * (x[a] - 1), 0) : x[a];
  std::int64_t length = 0;
  if (!scalar_value(c, 1, own, &length)) {
    y[a] = -1;
  } else {
    if (length < 1) fail(EVN_ERROR_INVALID_MODEL, "a transform of %lld elements", static_cast<long long>(length));
    y[a] = one_sided && !inverse ? length / 2 + 1 : length;
  }
  c.outputs[0].shape = y;
}

// Elements that are `step` apart from `at` on.
struct Line {
  std::int64_t at, step;
};

// `count` elements of a tensor, times `unit`, as every `step`-th double.
void read_line(const ConstTensor& x, Line line, std::int64_t count, double unit, double* to, std::int64_t step) {
  dispatch_floats(x.desc.dtype, [&](auto zero) {
    const auto* from = x.as<decltype(zero)>() + line.at;
    each_element(count, [&](std::int64_t i) { to[i * step] = static_cast<double>(from[i * line.step]) * unit; });
  });
}

void write_line(const double* from, std::int64_t step, double unit, std::int64_t count, const MutableTensor& y, Line line) {
  dispatch_floats(y.desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* to = y.as<T>() + line.at;
    each_element(count, [&](std::int64_t i) { to[i * line.step] = static_cast<T>(from[i * step] * unit); });
  });
}

// Writes `count` complex numbers of a transform, times `unit` and their imaginary parts times `imaginary_unit`. Of a real line's
// there is only the first half; the rest are conjugates.
void write_spectrum(const double* from, std::int64_t length, bool is_real, double unit, double imaginary_unit, std::int64_t count,
                    const MutableTensor& y, Line line) {
  const std::int64_t made = is_real ? std::min(count, length / 2 + 1) : count;
  const Line rest = {line.at + made * line.step, line.step};
  for (std::int64_t part = 0; part < 2; ++part) {
    const double factor = part == 0 ? unit : imaginary_unit;
    write_line(from + part, 2, factor, made, y, {line.at + part, line.step});
    write_line(from + 2 * (length - made) + part, -2, part == 0 ? factor : -factor, count - made, y, {rest.at + part, rest.step});
  }
}

// The lines that are transformed, `inner` apart.
struct DftLines {
  int axis;
  std::int64_t length, count, inner;
};

DftLines dft_lines(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  // While a run is planned there is no data: then the count is a guess where the axis is an input.
  const bool given = c.node.op->since >= 20 && c.has_input(2) && c.input(2).data != nullptr;
  const int axis = normalize_axis(c.node.op->since < 20 ? attr_int(c.node, kAxis17) : given ? int_at(c.input(2), 0) : -2, x.rank());
  const bool has_length = c.has_input(1) && c.input(1).data != nullptr;
  const std::int64_t length = has_length ? int_at(c.input(1), 0) : to_real(c.node) ? 2 * (x[axis] - 1) : x[axis];
  const std::int64_t inner = x.elements(axis + 1, x.rank() - 1);
  return {axis, length, x.elements(0, axis) * inner, inner};
}

void reference_dft(const ReferenceContext& c) {
  if (c.output().desc.shape.elements() == 0) return;
  using Kind = LineTransform::Kind;
  const Shape& x = c.input(0).desc.shape;
  const DftLines lines = dft_lines(c);
  const std::int64_t x_parts = x[x.rank() - 1], x_length = x[lines.axis], y_length = c.output().desc.shape[lines.axis];
  const Kind kind = to_real(c.node) ? Kind::kToReal : x_parts == 1 ? Kind::kReal : Kind::kPlain;
  const std::int64_t y_parts = kind == Kind::kToReal ? 1 : 2;
  const bool inverse = attr_int(c.node, kInverse) != 0;
  const double unit = inverse ? 1 / static_cast<double>(lines.length) : 1;
  // Conjugates on both sides turn a transform into its inverse.
  const double sign = inverse ? -1 : 1;
  LineTransform transform(lines.length, kind);
  const std::int64_t room = kind == Kind::kToReal ? lines.length / 2 + 1 : lines.length, parts = kind == Kind::kReal ? 1 : 2;
  const std::int64_t taken = std::min(room, x_length);
  for (std::int64_t i = c.begin; i < std::min(c.end, lines.count); ++i) {
    const std::int64_t outer = i / lines.inner, inner = i % lines.inner;
    const Line from = {(outer * x_length * lines.inner + inner) * x_parts, lines.inner * x_parts};
    const Line to = {(outer * y_length * lines.inner + inner) * y_parts, lines.inner * y_parts};
    double* const line = transform.line();
    if (parts > x_parts) fill_in_pieces(line, parts * taken, 0.0);
    read_line(c.input(0), from, taken, 1, line, parts);
    if (x_parts == 2) read_line(c.input(0), {from.at + 1, from.step}, taken, sign, line + 1, parts);
    fill_in_pieces(line + parts * taken, parts * (room - taken), 0.0);
    const double* const y = transform.run();
    if (kind == Kind::kToReal) {
      write_line(y, 1, unit, y_length, c.output(), to);
    } else {
      write_spectrum(y, lines.length, kind == Kind::kReal, unit, sign * unit, y_length, c.output(), to);
    }
  }
}

std::int64_t parts_of_dft(const ReferenceContext& c) { return dft_lines(c).count; }

// ------------------------------------------------------------------------------------------------------ STFT --

void infer_stft(InferContext& c) {
  require_rank(c, 0, 2, 3);
  require_same_dtype(c, 0, 0);
  require_rank(c, 2, 1, 1);
  const Shape& x = c.shape(0);
  const bool complex = x.rank() == 3 && x[2] == 2;
  if (x.rank() == 3 && x[2] >= 0 && x[2] != 1 && x[2] != 2)
    fail(EVN_ERROR_INVALID_MODEL, "the last axis has neither one part nor two");
  if (c.has_input(2) && c.inputs[2].dtype != c.inputs[0].dtype)
    fail(EVN_ERROR_INVALID_MODEL, "the window has another element type");
  std::int64_t step = 0, length = 0;
  const bool step_known = scalar_value(c, 1, -1, &step);
  const bool length_known = scalar_value(c, 3, c.has_input(2) ? c.shape(2)[0] : x[1], &length);
  if (step_known && step < 1) fail(EVN_ERROR_INVALID_MODEL, "frames that are %lld apart", static_cast<long long>(step));
  if (length_known && length < 1) fail(EVN_ERROR_INVALID_MODEL, "frames of %lld elements", static_cast<long long>(length));
  if (length_known) require_vector(c, 2, length);
  if (length_known && x[1] >= 0 && length > x[1]) fail(EVN_ERROR_INVALID_MODEL, "frames that are longer than the signal");
  const bool one_sided = attr_int(c.node, 0) != 0;
  if (one_sided && complex) fail(EVN_ERROR_INVALID_MODEL, "one side of a complex signal's spectrum");
  const std::int64_t frames = step_known && length_known && x[1] >= 0 ? (x[1] - length) / step + 1 : -1;
  c.outputs[0].shape = {x[0], frames, !length_known ? -1 : one_sided ? length / 2 + 1 : length, 2};
}

void reference_stft(const ReferenceContext& c) {
  if (c.output().desc.shape.elements() == 0) return;
  using Kind = LineTransform::Kind;
  const Shape& x = c.input(0).desc.shape;
  const Shape& y = c.output().desc.shape;
  const std::int64_t length = c.has_input(3) ? int_at(c.input(3), 0) : c.has_input(2) ? c.input(2).desc.shape[0] : x[1];
  const std::int64_t parts = x.rank() == 3 ? x[2] : 1;
  const std::int64_t step = int_at(c.input(1), 0);
  std::vector<double> window(static_cast<std::size_t>(c.has_input(2) ? length : 0));
  if (c.has_input(2)) read_line(c.input(2), {0, 1}, length, 1, window.data(), 1);
  LineTransform transform(length, parts == 1 ? Kind::kReal : Kind::kPlain);
  for (std::int64_t i = c.begin; i < std::min(c.end, y[0] * y[1]); ++i) {
    double* const line = transform.line();
    read_line(c.input(0), {(i / y[1] * x[1] + i % y[1] * step) * parts, 1}, length * parts, 1, line, 1);
    for (std::int64_t part = 0; part < parts && c.has_input(2); ++part) {
      each_element(length, [&](std::int64_t n) { line[n * parts + part] *= window[static_cast<std::size_t>(n)]; });
    }
    write_spectrum(transform.run(), length, parts == 1, 1, 1, y[2], c.output(), {i * y[2] * 2, 2});
  }
}

std::int64_t parts_of_stft(const ReferenceContext& c) { return c.output().desc.shape.elements(0, 2); }

// --------------------------------------------------------------------------------------------------- windows --

DType number_dtype(const Node& node, int attribute) {
  const std::int64_t number = attr_int(node, attribute);
  if (number < 1 || number >= 32 || (kNumbers >> number & 1u) == 0) {
    fail(EVN_ERROR_UNSUPPORTED, "output_datatype %lld is not supported", static_cast<long long>(number));
  }
  return static_cast<DType>(number);
}

DType window_dtype(const Node& node, std::span<const DType>, int) { return number_dtype(node, 1); }

void infer_window(InferContext& c) {
  std::int64_t size = -1;
  const bool known = scalar_value(c, 0, -1, &size);
  if (known && size < 0) fail(EVN_ERROR_INVALID_MODEL, "a window of %lld points", static_cast<long long>(size));
  c.outputs[0].shape = {known ? size : -1};
}

template <typename F>
void write_numbers(const MutableTensor& y, F&& value_of) {
  dispatch_numbers(y.desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < y.desc.shape.elements(); ++i) {
      cancellation_point();
      const double value = value_of(i);
      if constexpr (std::is_floating_point_v<T>) {
        y.as<T>()[i] = static_cast<T>(value);
      } else {
        y.as<T>()[i] = saturate_to<T>(value);
      }
    }
  });
}

// a0 - a1 cos(t) + a2 cos(2t) over a turn.
void window(const ReferenceContext& c, double a0, double a1, double a2) {
  const std::int64_t size = c.output().desc.shape[0];
  const std::int64_t steps = std::max<std::int64_t>(attr_int(c.node, 0) != 0 ? size : size - 1, 1);
  write_numbers(c.output(), [&](std::int64_t i) {
    const double t = kTurn * static_cast<double>(i) / static_cast<double>(steps);
    return a0 - a1 * std::cos(t) + a2 * std::cos(2 * t);
  });
}

void reference_hann(const ReferenceContext& c) { window(c, 0.5, 0.5, 0); }
void reference_hamming(const ReferenceContext& c) { window(c, 25.0 / 46, 21.0 / 46, 0); }
void reference_blackman(const ReferenceContext& c) { window(c, 0.42, 0.5, 0.08); }

// ------------------------------------------------------------------------------------------------------- mel --

DType mel_dtype(const Node& node, std::span<const DType>, int) { return number_dtype(node, 0); }

void infer_mel(InferContext& c) {
  for (const int i : {3, 4}) {
    require_dtype(c, i, kFloats);
    require_scalar(c, i);
  }
  std::int64_t bins = -1, length = -1, rate = -1;
  const bool bins_known = scalar_value(c, 0, -1, &bins);
  const bool length_known = scalar_value(c, 1, -1, &length);
  scalar_value(c, 2, -1, &rate);
  if (bins_known && bins < 0) fail(EVN_ERROR_INVALID_MODEL, "%lld mel bins", static_cast<long long>(bins));
  if (length_known && length < 0) fail(EVN_ERROR_INVALID_MODEL, "a transform of %lld elements", static_cast<long long>(length));
  c.outputs[0].shape = {length_known ? length / 2 + 1 : -1, bins_known ? bins : -1};
}

double mel_of(double hertz) { return 2595 * std::log10(1 + hertz / 700); }

void reference_mel(const ReferenceContext& c) {
  const Shape& y = c.output().desc.shape;
  const auto hertz = [&](int i) {
    double value = 0;
    dispatch_floats(c.input(i).desc.dtype, [&](auto zero) { value = static_cast<double>(*c.input(i).as<decltype(zero)>()); });
    return value;
  };
  const double length = static_cast<double>(int_at(c.input(1), 0)) + 1;
  const double rate = static_cast<double>(int_at(c.input(2), 0));
  const double low = mel_of(hertz(3));
  const double step = (mel_of(hertz(4)) - low) / static_cast<double>(y[1] + 2);
  // The spectrum's index of point i.
  const auto point = [&](std::int64_t i) {
    const double index = std::floor(length * (700 * (std::pow(10, (low + static_cast<double>(i) * step) / 2595) - 1)) / rate);
    if (!(index >= 0 && index < static_cast<double>(y[0])))
      fail(EVN_ERROR_INVALID_ARGUMENT, "mel bin %lld lies outside of the spectrum", static_cast<long long>(i));
    return static_cast<std::int64_t>(index);
  };
  write_numbers(c.output(), [&](std::int64_t i) {
    const std::int64_t row = i / y[1], bin = i % y[1];
    const std::int64_t lower = point(bin), centre = point(bin + 1), higher = point(bin + 2);
    if (row == centre && (centre == lower || higher == centre)) return 1.0;
    if (row >= centre && row < higher) return static_cast<double>(higher - row) / static_cast<double>(higher - centre);
    if (row >= lower && row <= centre) return static_cast<double>(row - lower) / static_cast<double>(centre - lower);
    return 0.0;
  });
}

// -------------------------------------------------------------------------------------------------- the table --

constexpr AttributeSpec kDft17[] = {int_attribute("inverse", 0), int_attribute("onesided", 0), int_attribute("axis", 1)};
constexpr std::span<const AttributeSpec> kDft20 = std::span<const AttributeSpec>(kDft17).first(2);
constexpr AttributeSpec kStft[] = {int_attribute("onesided", 1)};
constexpr AttributeSpec kWindow[] = {int_attribute("periodic", 1), int_attribute("output_datatype", 1)};
constexpr AttributeSpec kMel[] = {int_attribute("output_datatype", 1)};
constexpr Tolerance kSum = {1e-4, 1e-5};
constexpr OpDef kOps[] = {
    {.name = "DFT",
     .since = 17,
     .max_inputs = 2,
     .attributes = kDft17,
     .dtypes = kFloats,
     .value_inputs = 2,
     .infer = infer_dft,
     .reference = reference_dft,
     .tolerance = kSum,
     .parts = parts_of_dft},
    {.name = "DFT",
     .since = 20,
     .max_inputs = 3,
     .attributes = kDft20,
     .dtypes = kFloats,
     .value_inputs = 6,
     .infer = infer_dft,
     .reference = reference_dft,
     .tolerance = kSum,
     .parts = parts_of_dft},
    {.name = "STFT",
     .since = 17,
     .min_inputs = 2,
     .max_inputs = 4,
     .attributes = kStft,
     .dtypes = kFloats,
     .value_inputs = 10,
     .infer = infer_stft,
     .reference = reference_stft,
     .tolerance = kSum,
     .parts = parts_of_stft},
    {.name = "HannWindow",
     .since = 17,
     .attributes = kWindow,
     .dtypes = kIndexDtypes,
     .value_inputs = 1,
     .output_dtype = window_dtype,
     .infer = infer_window,
     .reference = reference_hann,
     .tolerance = kSum},
    {.name = "HammingWindow",
     .since = 17,
     .attributes = kWindow,
     .dtypes = kIndexDtypes,
     .value_inputs = 1,
     .output_dtype = window_dtype,
     .infer = infer_window,
     .reference = reference_hamming,
     .tolerance = kSum},
    {.name = "BlackmanWindow",
     .since = 17,
     .attributes = kWindow,
     .dtypes = kIndexDtypes,
     .value_inputs = 1,
     .output_dtype = window_dtype,
     .infer = infer_window,
     .reference = reference_blackman,
     .tolerance = kSum},
    {.name = "MelWeightMatrix",
     .since = 17,
     .min_inputs = 5,
     .max_inputs = 5,
     .attributes = kMel,
     .dtypes = kIndexDtypes,
     .value_inputs = 3,
     .output_dtype = mel_dtype,
     .infer = infer_mel,
     .reference = reference_mel,
     .tolerance = kSum},
};

}  // namespace

extern const OpFamily spectrum_family;
const OpFamily spectrum_family = {kOps};

}  // namespace evn
