#include "cli/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace evn::cli {

const char* const kPlotStyle =
    "<style>\n"  // without variables, which programs other than browsers do not know
    "  svg { background: #ffffff; }\n"
    "  text { fill: #1b1b1b; font: 12px sans-serif; }\n"
    "  .title { font-size: 15px; font-weight: bold; }\n"
    "  .grid { stroke: #c9c9c9; stroke-width: 1; }\n"
    "  .axis { stroke: #1b1b1b; stroke-width: 1; }\n"
    "  .paper { fill: #ffffff; }\n"
    "  .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }\n"
    "  @media (prefers-color-scheme: dark) {\n"
    "    svg { background: #16181c; }\n"
    "    text { fill: #e8e8e8; }\n"
    "    .grid { stroke: #4a4d52; }\n"
    "    .axis { stroke: #e8e8e8; }\n"
    "    .paper { fill: #16181c; }\n"
    "  }\n"
    "</style>\n";

void put(std::string* to, const char* format, ...) {
  char buffer[512];
  std::va_list list;
  va_start(list, format);
  const int length = std::vsnprintf(buffer, sizeof buffer, format, list);
  va_end(list);
  to->append(buffer, static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof buffer) - 1)));
}

double Axis::at(double value) const {
  const auto place = [this](double x) { return logarithmic ? std::log10(x) : x; };
  return (place(std::clamp(value, least, most)) - place(least)) / (place(most) - place(least));
}

double step_for(double most) {
  const double rough = most / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double times = rough / power;
  return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

}  // namespace evn::cli
