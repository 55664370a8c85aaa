// What pictures of curves have in common: colours, axes, the style of light and dark screens.
#pragma once

#include <string>

namespace evn::cli {

// Colours that people who see few colours tell apart, on white and on black.
inline constexpr const char* kPlotColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                               "#b8860b", "#56b4e9", "#8a63d2", "#7f7f7f"};
inline constexpr const char* kPlotDashes[] = {"none", "7 3", "2 3", "9 3 2 3"};

// A <style> element with the classes title, grid, axis, paper and curve.
extern const char* const kPlotStyle;

// Appends by a format of printf, at most 511 characters.
[[gnu::format(printf, 2, 3)]] void put(std::string* to, const char* format, ...);

// Values in [least, most] to places in the plot.
struct Axis {
  double least = 0;
  double most = 1;
  bool logarithmic = false;

  double at(double value) const;
};

// 1, 2 or 5 times a power of ten, so that there are some 5 steps up to `most`.
double step_for(double most);

}  // namespace evn::cli
