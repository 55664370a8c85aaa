// See terms.h.
#include "ops/infra/terms.h"

#include <algorithm>

#include "ops/infra/numeric.h"

namespace evn {
namespace {

constexpr std::int64_t kFewPairs = kWorkPerLook / 4;

// Calls f(row) for all rows; a row's work is `columns` units.
template <typename F>
void each_row(std::span<const Term> rows, std::int64_t columns, F&& f) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const bool few = count <= kFewPairs && columns <= kFewPairs && count * columns <= kFewPairs;
  if (few) cancellation_point(1 + count * columns);
  for (const Term& row : rows) {
    if (!few) cancellation_point(std::min(columns, kWorkPerLook));
    f(row);
  }
}

template <typename T>
void terms_of_four(const T* x, std::int64_t x_step, const Terms& terms, T* y, std::int64_t y_step) {
  const Term* t = terms.data();
  for (std::int64_t i = 0; i < terms.sums(); ++i) {
    T a = 0, b = 0, c = 0, d = 0;
    for (const Term* const end = t + terms.of(i).size(); t != end; ++t) {
      const T weight = static_cast<T>(t->weight);
      const T* const from = x + t->at;
      a += weight * from[0];
      b += weight * from[x_step];
      c += weight * from[2 * x_step];
      d += weight * from[3 * x_step];
    }
    y[i] = a;
    y[i + y_step] = b;
    y[i + 2 * y_step] = c;
    y[i + 3 * y_step] = d;
  }
}

template <typename T>
void terms_of_one(const T* x, const Terms& terms, T* y) {
  const Term* t = terms.data();
  for (std::int64_t i = 0; i < terms.sums(); ++i) {
    T sum = 0;
    for (const Term* const end = t + terms.of(i).size(); t != end; ++t) sum += static_cast<T>(t->weight) * x[t->at];
    y[i] = sum;
  }
}

template <typename T>
void pairs_of(const T* x, std::span<const Term> rows, const Terms& columns, double unit, T* y) {
  for (std::int64_t j = 0; j < columns.sums(); ++j) {
    const std::span<const Term> all = columns.of(j);
    double sum = 0;
    each_row(rows, static_cast<std::int64_t>(all.size()), [&](const Term& row) {
      const T* const from = x + row.at;
      double line = 0;
      for (const Term& column : all) line += column.weight * static_cast<double>(from[column.at]);
      sum += row.weight * line;
    });
    y[j] = static_cast<T>(sum * unit);
  }
}

template <typename T>
void largest_pairs_of(const T* x, std::span<const Term> rows, const Terms& columns, std::span<const double> least, T* y) {
  for (std::int64_t j = 0; j < columns.sums(); ++j) {
    const std::span<const Term> all = columns.of(j);
    double top = least[static_cast<std::size_t>(j)];
    each_row(rows, static_cast<std::int64_t>(all.size()), [&](const Term& row) {
      const T* const from = x + row.at;
      for (const Term& column : all) top = std::max(top, row.weight * column.weight * static_cast<double>(from[column.at]));
    });
    y[j] = static_cast<T>(top);
  }
}

template <typename T>
void bins_of(const T* plane, std::int64_t width, Bin rows, std::span<const Bin> columns, T* y) {
  for (const Bin& bin : columns) {
    cancellation_point();
    T top = 0;
    if (rows.begin < rows.end && bin.begin < bin.end) top = plane[rows.begin * width + bin.begin];
    const bool few = bin.end - bin.begin <= kFewPairs / 64;
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      const T* const line = plane + i * width;
      const auto piece = [&](std::int64_t j, std::int64_t end) {
        for (; j < end; ++j) top = std::max(top, line[j]);
      };
      if (few) {
        cancellation_point(bin.end - bin.begin);
        piece(bin.begin, bin.end);
      } else {
        in_pieces(bin.end - bin.begin, 1, [&](std::int64_t j, std::int64_t end) { piece(bin.begin + j, bin.begin + end); });
      }
    }
    *y++ = top;
  }
}

// Calls f(x, y) with the addresses.
template <typename F>
void at(Place x, Target y, F&& f) {
  dispatch_floats(x.tensor.desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    f(x.tensor.as<T>() + x.at, y.tensor.as<T>() + y.at);
  });
}

}  // namespace

void Terms::merge(std::int64_t at, double weight) {
  for (std::size_t i = used_; i > begin_.back() && i + 2 > used_; --i) {
    if (terms_[i - 1].at != at) continue;
    terms_[i - 1].weight += weight;
    return;
  }
  add(at, weight);
}

double number_at(Place x) {
  double number = 0;
  dispatch_floats(x.tensor.desc.dtype, [&](auto zero) { number = static_cast<double>(x.tensor.as<decltype(zero)>()[x.at]); });
  return number;
}

void add_terms(Place x, std::int64_t x_step, const Terms& terms, Target y, std::int64_t y_step, std::int64_t planes) {
  at(x, y, [&](auto* from, auto* to) {
    for (; planes >= 4; planes -= 4, from += 4 * x_step, to += 4 * y_step) {
      cancellation_point(4 * terms.size());
      terms_of_four(from, x_step, terms, to, y_step);
    }
    for (; planes > 0; --planes, from += x_step, to += y_step) {
      cancellation_point(terms.size());
      terms_of_one(from, terms, to);
    }
  });
}

void add_pairs(Place x, std::span<const Term> rows, const Terms& columns, double unit, Target y) {
  at(x, y, [&](auto* from, auto* to) { pairs_of(from, rows, columns, unit, to); });
}

void largest_pairs(Place x, std::span<const Term> rows, const Terms& columns, std::span<const double> least, Target y) {
  at(x, y, [&](auto* from, auto* to) { largest_pairs_of(from, rows, columns, least, to); });
}

void largest_of_bins(Place plane, std::int64_t width, Bin rows, std::span<const Bin> columns, Target y) {
  at(plane, y, [&](auto* from, auto* to) { bins_of(from, width, rows, columns, to); });
}

}  // namespace evn
