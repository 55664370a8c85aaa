// A drawing as SVG, laid out here: boxes in layers from top to bottom by their longest path from an input, ordered within a layer
// by the mean place of what they read, so that edges cross less. Widths are guessed from the number of characters, as there is no
// font to ask; the text is cut to fit.
#include <algorithm>

#include "base/text.h"
#include "runtime/report/drawing.h"

namespace evn {
namespace {

constexpr int kCharacter = 7;  // width of one, in pixels at 12 px
constexpr int kBoxHeight = 40;
constexpr int kGapX = 24;
constexpr int kGapY = 44;
constexpr int kMargin = 24;
constexpr int kLegend = 28;  // height of the line that names the devices
constexpr std::size_t kTextBytes = 44;

// Text for XML: markup escaped, what XML may not hold replaced.
std::string escaped(std::string_view text) {
  std::string result;
  const bool utf8 = find_invalid_utf8(text) == std::string_view::npos;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += (u < 0x20 && c != '\n') || u == 0x7f || (u >= 0x80 && !utf8) ? '?' : c;
    }
  }
  // U+FFFE and U+FFFF are characters that XML does not allow.
  for (const char* forbidden : {"\xef\xbf\xbe", "\xef\xbf\xbf"}) {
    for (std::size_t at = 0; (at = result.find(forbidden, at)) != std::string::npos;) result.replace(at, 3, "?");
  }
  return result;
}

struct Place {
  int x = 0;  // left
  int y = 0;  // top
  int width = 0;
  int centre() const { return x + width / 2; }
};

class Arrangement {
 public:
  explicit Arrangement(const Drawing& drawing) : places(drawing.boxes.size()), d_(drawing), before_(drawing.boxes.size()) {
    for (const Drawing::Edge& edge : d_.edges) before_[edge.to].push_back(edge.from);
    for (std::size_t i = 0; i < d_.boxes.size(); ++i) {
      const Drawing::Box& box = d_.boxes[i];
      const std::size_t longest = std::max(std::min(box.title.size(), kTextBytes), std::min(box.detail.size(), kTextBytes));
      places[i].width = static_cast<int>(longest + 3) * kCharacter;
      if (static_cast<std::size_t>(box.layer) >= layers_.size()) layers_.resize(static_cast<std::size_t>(box.layer) + 1);
      layers_[box.layer].push_back(static_cast<int>(i));
    }
    place();
  }

  std::vector<Place> places;
  int width = 0;
  int height = 0;

 private:
  void place() {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      std::vector<int>& layer = layers_[l];
      std::vector<std::pair<int, int>> order;  // mean place of what it reads, box
      for (const int b : layer) order.emplace_back(mean_of(b), b);
      std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.first < b.first; });
      int x = 0;
      int wanted = 0;
      for (std::size_t i = 0; i < order.size(); ++i) {
        Place& p = places[order[i].second];
        p.x = x;
        p.y = kMargin + kLegend + static_cast<int>(l) * (kBoxHeight + kGapY);
        x += p.width + kGapX;
        wanted += order[i].first - p.centre();
      }
      // The layer as a whole stands under what it reads.
      const int shift = order.empty() ? 0 : wanted / static_cast<int>(order.size());
      for (const auto& entry : order) places[entry.second].x += shift;
    }
    normalize();
  }

  int mean_of(int box) const {
    if (before_[box].empty()) return 0;
    long long sum = 0;
    for (const int from : before_[box]) sum += places[from].centre();
    return static_cast<int>(sum / static_cast<long long>(before_[box].size()));
  }

  void normalize() {
    int left = 0;
    for (const Place& p : places) left = std::min(left, p.x);
    for (Place& p : places) {
      p.x += kMargin - left;
      width = std::max(width, p.x + p.width + kMargin);
      height = std::max(height, p.y + kBoxHeight + kMargin);
    }
    width = std::max(width, 320);
    height = std::max(height, kLegend + 2 * kMargin);
  }

  const Drawing& d_;
  std::vector<std::vector<int>> before_;  // per box: what it reads
  std::vector<std::vector<int>> layers_;
};

std::string attribute(const char* name, int number) { return std::string(" ") + name + "=\"" + std::to_string(number) + "\""; }

std::string text_line(int x, int y, std::string_view text, const char* more = "") {
  return "<text" + attribute("x", x) + attribute("y", y) + more + ">" + escaped(shorten(text, kTextBytes)) + "</text>";
}

std::string box_svg(const Drawing::Box& box, const Place& p) {
  const std::string rest = attribute("x", p.x) + attribute("y", p.y) + attribute("width", p.width) +
                           attribute("height", kBoxHeight) + attribute("rx", box.slot < 0 ? 18 : 4) + " fill=\"" +
                           drawing_fill(box.slot) + "\" stroke=\"#555\"";
  return "<g><title>" + escaped(box.title + (box.reason.empty() ? "" : "\n" + box.reason)) + "</title><rect" + rest + "/>" +
         text_line(p.centre(), p.y + 17, box.title) + text_line(p.centre(), p.y + 33, box.detail, " fill=\"#444\"") + "</g>\n";
}

std::string edge_svg(const Drawing::Edge& edge, const Place& from, const Place& to) {
  const int x1 = from.centre();
  const int y1 = from.y + kBoxHeight;
  const int x2 = to.centre();
  const int y2 = to.y;
  const int bend = std::max((y2 - y1) / 2, 12);
  const auto point = [](int x, int y) { return std::to_string(x) + "," + std::to_string(y); };
  std::string text = "<g><title>" + escaped(edge.value) + "</title><path d=\"M" + point(x1, y1) + " C" + point(x1, y1 + bend) +
                     " " + point(x2, y2 - bend) + " " + point(x2, y2) + "\" fill=\"none\" marker-end=\"url(#tip)\"";
  text += edge.copy ? " stroke=\"#c0392b\" stroke-width=\"2\"" : " stroke=\"#888\"";
  if (edge.shape_only) text += " stroke-dasharray=\"4 3\"";
  text += "/>";
  if (edge.copy) text += text_line((x1 + x2) / 2, (y1 + y2) / 2, "copy", " fill=\"#c0392b\"");
  return text + "</g>\n";
}

}  // namespace

std::string drawing_to_svg(const Drawing& drawing) {
  const Arrangement layout(drawing);
  std::string text = "<svg xmlns=\"http://www.w3.org/2000/svg\"" + attribute("width", layout.width) +
                     attribute("height", layout.height) + " viewBox=\"0 0 " + std::to_string(layout.width) + " " +
                     std::to_string(layout.height) +
                     "\" font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">\n"
                     "<defs><marker id=\"tip\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"4\" orient=\"auto\">"
                     "<path d=\"M0,0 L8,4 L0,8 z\" fill=\"#888\"/></marker></defs>\n"
                     "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  int x = kMargin;
  for (std::size_t slot = 0; slot < drawing.devices.size(); ++slot) {
    const std::string name = shorten(drawing.devices[slot], kTextBytes);
    const int wide = static_cast<int>(name.size() + 3) * kCharacter;
    text += "<rect" + attribute("x", x) + attribute("y", 10) + attribute("width", wide) + attribute("height", 20) + " fill=\"" +
            drawing_fill(static_cast<int>(slot)) + "\" stroke=\"#555\"/>" + text_line(x + wide / 2, 24, name) + "\n";
    x += wide + 8;
  }
  for (const Drawing::Edge& e : drawing.edges) text += edge_svg(e, layout.places[e.from], layout.places[e.to]);
  for (std::size_t i = 0; i < drawing.boxes.size(); ++i) text += box_svg(drawing.boxes[i], layout.places[i]);
  return text + "</svg>\n";
}

}  // namespace evn
