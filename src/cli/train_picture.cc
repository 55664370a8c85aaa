// The loss, the learning rate and the accuracy over the batches, one below the other.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/load_report.h"
#include "cli/plot.h"
#include "cli/train_history.h"

namespace evn::cli {
namespace {

constexpr double kWidth = 860, kHeight = 200, kLeft = 76, kRight = 24, kTop = 64, kGap = 44, kBelow = 58;

struct Place {
  double batch = 0, value = 0;
};

struct Series {
  const char* title = "";
  const char* colour = "";
  bool has_dots = false;
  std::vector<Place> places;
};

struct Panel {
  const char* title = "";
  std::vector<Series> series;
  Axis y;
};

// A panel whose axis begins at 0, or at the least value below it, or is logarithmic where what it shows is far apart.
Panel panel_of(const char* title, std::vector<Series> series, bool may_be_logarithmic) {
  double least = INFINITY, most = 0, below = 0;
  for (Series& s : series) {
    std::erase_if(s.places, [](const Place& p) { return !std::isfinite(p.value); });
    for (const Place& p : s.places) {
      if (p.value > 0) least = std::min(least, p.value);
      most = std::max(most, p.value);
      below = std::min(below, p.value);
    }
  }
  std::erase_if(series, [](const Series& s) { return s.places.empty(); });
  Panel panel{title, std::move(series), {0, most > 0 ? most : 1, false}};
  if (may_be_logarithmic && below == 0 && most > 50 * least) {
    panel.y = {std::pow(10, std::floor(std::log10(least))), std::pow(10, std::ceil(std::log10(most))), true};
  } else {
    if (below < 0 && most == 0) panel.y.most = 0;
    const double step = step_for(panel.y.most - below);
    panel.y.most = std::ceil(panel.y.most / step * (1 - 1e-12)) * step;
    panel.y.least = std::floor(below / step * (1 - 1e-12)) * step;
  }
  return panel;
}

class Picture {
 public:
  Picture(const TrainPlan& plan, const TrainHistory& history) : name_(std::filesystem::path(plan.model).filename().string()) {
    Series loss{"batches", kPlotColours[0], false, {}}, rate{"", kPlotColours[3], false, {}};
    for (const TrainCurve::Point& p : history.curve.points()) {
      loss.places.push_back({p.batch, p.loss});
      rate.places.push_back({p.batch, p.rate});
    }
    Series validation{"validation", kPlotColours[1], true, {}}, accuracy{"", kPlotColours[2], true, {}};
    for (const TrainEpoch& e : history.epochs) {
      const auto batch = static_cast<double>(e.last_batch);
      x_.most = std::max(x_.most, batch);
      if (e.is_validated) validation.places.push_back({batch, e.validation_loss});
      if (e.accuracy >= 0) accuracy.places.push_back({batch, 100 * e.accuracy});
    }
    panels_.push_back(panel_of("loss", {loss, validation}, true));
    panels_.push_back(panel_of("learning rate", {rate}, false));
    if (!accuracy.places.empty()) {
      panels_.push_back(panel_of("accuracy in %", {accuracy}, false));
      const auto low = std::min_element(accuracy.places.begin(), accuracy.places.end(),
                                        [](const Place& a, const Place& b) { return a.value < b.value; });
      panels_.back().y = {low->value >= 90 ? 90.0 : low->value >= 50 ? 50.0 : 0.0, 100, false};
    }
  }

  std::string svg() const {
    const auto count = static_cast<double>(panels_.size());
    const double height = kTop + count * kHeight + (count - 1) * kGap + kBelow;
    std::string s;
    put(&s, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"Training\">\n", kWidth,
        height);
    s += kPlotStyle;
    put(&s, "<rect class=\"paper\" x=\"0\" y=\"0\" width=\"%g\" height=\"%g\"/>\n", kWidth, height);
    put(&s, "<text class=\"title\" x=\"%g\" y=\"26\">", kLeft);
    s += "Training of " + xml_text(name_) + "</text>\n";
    for (std::size_t i = 0; i < panels_.size(); ++i) add_panel(&s, panels_[i], kTop + static_cast<double>(i) * (kHeight + kGap));
    put(&s, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">batches</text>\n", (kLeft + kWidth - kRight) / 2, height - 18);
    return s + "</svg>\n";
  }

 private:
  double x(double batch) const { return kLeft + x_.at(batch) * (kWidth - kLeft - kRight); }

  void add_panel(std::string* s, const Panel& panel, double top) const {
    const double right = kWidth - kRight, bottom = top + kHeight;
    const auto y = [&](double value) { return top + (1 - panel.y.at(value)) * kHeight; };
    put(s, "<text x=\"%g\" y=\"%g\">%s%s</text>\n", kLeft, top - 8, panel.title, panel.y.logarithmic ? ", logarithmic" : "");
    const double step = panel.y.logarithmic ? 10 : step_for(panel.y.most - panel.y.least);
    for (double at = panel.y.least; at <= panel.y.most * 1.0001; at = panel.y.logarithmic ? at * step : at + step) {
      put(s, "<line class=\"grid\" x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\"/>\n", kLeft, y(at), right, y(at));
      put(s, "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n", kLeft - 8, y(at) + 4, at);
    }
    const double x_step = std::max(1.0, step_for(x_.most));
    for (double at = 0; at <= x_.most * 1.0001; at += x_step)
      put(s, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%.6g</text>\n", x(at), bottom + 16, at);
    put(s, "<path class=\"axis\" fill=\"none\" d=\"M%g %gV%gH%g\"/>\n", kLeft, top, bottom, right);
    double legend = right;
    for (const Series& series : panel.series) {
      put(s, "<polyline class=\"curve\" stroke=\"%s\" points=\"", series.colour);
      for (const Place& p : series.places) put(s, "%.1f,%.1f ", x(p.batch), y(p.value));
      *s += "\"/>\n";
      for (const Place& p : series.places) {
        if (series.has_dots)
          put(s, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x(p.batch), y(p.value), series.colour);
      }
      if (panel.series.size() < 2) continue;
      put(s, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\">%s</text>\n", legend, top - 8, series.title);
      put(s, "<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\" stroke=\"%s\" stroke-width=\"3\"/>\n", legend - 94, top - 12,
          legend - 70, top - 12, series.colour);
      legend -= 110;
    }
  }

  const std::string name_;
  std::vector<Panel> panels_;
  Axis x_;
};

}  // namespace

std::string train_picture(const TrainPlan& plan, const TrainHistory& history) { return Picture(plan, history).svg(); }

}  // namespace evn::cli
