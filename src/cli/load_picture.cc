// The latency over percentiles as HdrHistogram plots it: the axis of percentiles is logarithmic in 1 / (1 - p), so that each
// further nine takes as much room as the one before.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/load_report.h"
#include "cli/plot.h"

namespace evn::cli {
namespace {

constexpr double kWidth = 860, kPlotHeight = 360, kLeft = 76, kRight = 24, kTop = 44, kBelow = 58, kLegendRow = 20;
struct Curve {
  std::string title;
  std::vector<Latencies::Point> points;
};

class Plot {
 public:
  explicit Plot(std::vector<Curve> curves) : curves_(std::move(curves)) {
    double least = INFINITY, most = 0, nines = 1000;
    for (const Curve& c : curves_) {
      for (const Latencies::Point& p : c.points) {
        least = std::min(least, std::max(p.ms, 1e-4));
        most = std::max(most, p.ms);
        if (p.share < 1) nines = std::max(nines, 1 / (1 - p.share));
      }
    }
    x_ = {1, nines, true};
    most = std::max(most, 1e-3);
    // Linear, as it shows what users feel; but where models are far apart one would be a line at the bottom.
    y_ = {0, most, false};
    if (spread() > 20) y_ = {std::pow(10, std::floor(std::log10(least))), std::pow(10, std::ceil(std::log10(most))), true};
    if (!y_.logarithmic) y_.most = std::ceil(most / step_for(most)) * step_for(most);
    if (y_.logarithmic && y_.most <= y_.least) y_.most = y_.least * 10;
  }

  std::string svg(const char* more) const {
    const double height = kTop + kPlotHeight + kBelow + kLegendRow * static_cast<double>(curves_.size());
    std::string s;
    put(&s,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" %srole=\"img\" aria-label=\"Latency by percentile\">\n",
        kWidth, height, more);
    s += kPlotStyle;
    put(&s, "<rect class=\"paper\" x=\"0\" y=\"0\" width=\"%g\" height=\"%g\"/>\n", kWidth, height);
    put(&s, "<text class=\"title\" x=\"%g\" y=\"24\">Latency by percentile</text>\n", kLeft);
    add_axes(&s);
    for (std::size_t i = 0; i < curves_.size(); ++i) add_curve(&s, i);
    return s + "</svg>\n";
  }

 private:
  // How far the medians of the curves are apart.
  double spread() const {
    double least = INFINITY, most = 0;
    for (const Curve& c : curves_) {
      const auto it = std::find_if(c.points.begin(), c.points.end(), [](const Latencies::Point& p) { return p.share >= 0.5; });
      if (it == c.points.end()) continue;
      least = std::min(least, std::max(it->ms, 1e-4));
      most = std::max(most, it->ms);
    }
    return most > 0 ? most / least : 1;
  }
  double x(double share) const { return kLeft + x_.at(share < 1 ? 1 / (1 - share) : x_.most) * (kWidth - kLeft - kRight); }
  double y(double ms) const { return kTop + (1 - y_.at(ms)) * kPlotHeight; }

  void add_axes(std::string* s) const {
    const double right = kWidth - kRight, bottom = kTop + kPlotHeight;
    char label[32] = "0%";
    double share = 0;
    for (int nines = 0; std::pow(10, nines) <= x_.most * 1.0001; ++nines) {
      if (nines > 0) {
        share = 1 - std::pow(10, -nines);
        std::snprintf(label, sizeof label, "%.*f%%", std::max(nines - 2, 0), 100 * share);
      }
      put(s, "<line class=\"grid\" x1=\"%.1f\" y1=\"%g\" x2=\"%.1f\" y2=\"%g\"/>\n", x(share), kTop, x(share), bottom);
      put(s, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%s</text>\n", x(share), bottom + 18, label);
    }
    const double step = y_.logarithmic ? 10 : step_for(y_.most);
    for (double at = y_.least; at <= y_.most * 1.0001; at = y_.logarithmic ? at * step : at + step) {
      put(s, "<line class=\"grid\" x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\"/>\n", kLeft, y(at), right, y(at));
      put(s, "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", kLeft - 8, y(at) + 4, at);
    }
    put(s, "<line class=\"axis\" x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\"/>\n", kLeft, bottom, right, bottom);
    put(s, "<line class=\"axis\" x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\"/>\n", kLeft, kTop, kLeft, bottom);
    put(s, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">percentile of requests, by 1 / (1 - p)</text>\n", (kLeft + right) / 2,
        bottom + 40);
    put(s, "<text transform=\"translate(18 %g) rotate(-90)\" text-anchor=\"middle\">latency in ms%s</text>\n",
        kTop + kPlotHeight / 2, y_.logarithmic ? ", logarithmic" : "");
  }

  void add_curve(std::string* s, std::size_t i) const {
    const char* const colour = kPlotColours[i % std::size(kPlotColours)];
    const char* const dash = kPlotDashes[i / std::size(kPlotColours) % std::size(kPlotDashes)];
    const double row = kTop + kPlotHeight + kBelow + kLegendRow * static_cast<double>(i) + 6;
    put(s, "<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\" stroke=\"%s\" stroke-width=\"3\" stroke-dasharray=\"%s\"/>\n", kLeft, row,
        kLeft + 28, row, colour, dash);
    put(s, "<text x=\"%g\" y=\"%g\">", kLeft + 36, row + 4);
    *s += xml_text(curves_[i].title) + "</text>\n";
    if (curves_[i].points.empty()) return;
    put(s, "<polyline class=\"curve\" stroke=\"%s\" stroke-dasharray=\"%s\" points=\"", colour, dash);
    double before = 0;  // the share from which on a latency is that of the next point
    for (const Latencies::Point& p : curves_[i].points) {
      put(s, "%.1f,%.1f %.1f,%.1f ", x(before), y(p.ms), x(p.share), y(p.ms));
      before = p.share;
    }
    *s += "\"/>\n";
  }

  const std::vector<Curve> curves_;
  Axis x_, y_;
};

std::string table_row(const std::string& title, const LoadResult& r, double seconds) {
  std::string row = "<tr><td>" + xml_text(title) + "</td>";
  put(&row, "<td>%llu</td><td>%.1f</td><td>%.3f</td>", static_cast<unsigned long long>(r.completed),
      seconds > 0 ? static_cast<double>(r.completed) / seconds : 0.0, r.latencies.mean_ms());
  for (const double share : {0.5, 0.9, 0.99, 0.999}) put(&row, "<td>%.3f</td>", r.latencies.quantile_ms(share));
  put(&row, "<td>%.3f</td><td>%llu</td></tr>\n", r.latencies.max_ms(),
      static_cast<unsigned long long>(r.busy + r.late + r.cancelled + r.failed + r.unfinished));
  return row;
}

}  // namespace

std::string load_picture(const LoadPlan& plan, const LoadOutcome& outcome, bool page) {
  std::vector<Curve> curves;
  for (std::size_t i = 0; i < plan.targets.size(); ++i)
    curves.push_back({stream_title(plan, plan.targets[i]), outcome.results[i].latencies.curve()});
  const Plot plot(std::move(curves));
  if (!page) return plot.svg("");
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>evener bench</title>\n<style>\n"
      "  body { font: 14px sans-serif; max-width: 1000px; margin: 2em auto; color: #1b1b1b; background: #ffffff; }\n"
      "  @media (prefers-color-scheme: dark) { body { color: #e8e8e8; background: #16181c; } }\n"
      "  td, th { padding: 2px 10px; text-align: right; } td:first-child, th:first-child { text-align: left; }\n"
      "</style>\n</head>\n<body>\n";
  html += plot.svg("width=\"100%\" ");
  html +=
      "<table>\n<tr><th>latency in ms</th><th>completed</th><th>per s</th><th>mean</th><th>p50</th><th>p90</th><th>p99</th>"
      "<th>p99.9</th><th>max</th><th>others</th></tr>\n";
  for (std::size_t i = 0; i < plan.targets.size(); ++i)
    html += table_row(stream_title(plan, plan.targets[i]), outcome.results[i], outcome.seconds);
  return html + "</table>\n</body>\n</html>\n";
}

}  // namespace evn::cli
