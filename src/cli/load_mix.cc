#include "cli/load_mix.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include "cli/arguments.h"
#include "cli/decimal.h"
#include "cli/failure.h"

namespace evn::cli {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;
constexpr std::size_t kMostStreams = 256;

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) {
    const auto u = static_cast<unsigned char>(c);
    out += u < 0x20 || u == 0x7f ? '?' : c;
  }
  return text.size() > 80 ? out + "..." : out;
}

std::string read_all(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (!in && !in.eof())) fail(kExitFailure, "%s cannot be read: %s", file.c_str(), std::strerror(errno));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMostBytes) fail_usage("%s is longer than %zu bytes", file.c_str(), kMostBytes);
  return text;
}

// The words of one line: split at blanks; quotation marks keep blanks.
class Line {
 public:
  Line(std::string file, int number, std::string_view text) : place_(std::move(file) + ":" + std::to_string(number)), text_(text) {}

  const std::string& place() const { return place_; }
  std::optional<std::string> next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    if (at_ == text_.size() || text_[at_] == '#') return std::nullopt;
    std::string word;
    bool quoted = false;
    for (; at_ < text_.size() && (quoted || (text_[at_] != ' ' && text_[at_] != '\t')); ++at_) {
      const auto u = static_cast<unsigned char>(text_[at_]);
      if (u < 0x20 || u == 0x7f) fail_usage("%s: a control character, number %d", place_.c_str(), u);
      if (text_[at_] == '"') {
        quoted = !quoted;
      } else {
        word += text_[at_];
      }
    }
    if (quoted) fail_usage("%s: a quotation mark is not closed", place_.c_str());
    return word;
  }

 private:
  const std::string place_;
  const std::string_view text_;
  std::size_t at_ = 0;
};

std::uint64_t parse_deadline(const std::string& what, const std::string& text) {
  const std::size_t unit = text.find_first_not_of("0123456789.");
  const std::string name = unit == std::string::npos ? "" : text.substr(unit);
  const double scale = name == "us" ? 1e3 : name == "ms" ? 1e6 : name == "s" ? 1e9 : 0;
  if (scale == 0) fail_usage("%s is a time such as 50ms, 500us or 2s, not \"%s\"", what.c_str(), printable(text).c_str());
  return static_cast<std::uint64_t>(parse_positive(what, text.substr(0, unit), 86'400e9 / scale) * scale);
}

void set_key(LoadStream* stream, const std::string& place, const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string key = word.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
  const std::string what = place + ": " + key;
  if (equals == std::string::npos) {
    fail_usage("%s: \"%s\" is not KEY=VALUE, nor shape NAME=DIMS", place.c_str(), printable(word).c_str());
  } else if (key == "weight") {
    stream->weight = parse_positive(what, value, 1e6);
  } else if (key == "clients") {
    stream->clients = parse_count(what.c_str(), value, 1, 100'000);
  } else if (key == "rate") {
    stream->rate = parse_positive(what, value, 1e6);
  } else if (key == "priority") {
    stream->priority = parse_count(what.c_str(), value, EVN_PRIORITY_LOWEST, EVN_PRIORITY_HIGHEST);
  } else if (key == "deadline") {
    stream->deadline_ns = parse_deadline(what, value);
  } else {
    fail_usage("%s: there is no key \"%s\"; there are weight, clients, rate, priority, deadline and shape", place.c_str(),
               printable(key).c_str());
  }
}

std::optional<LoadStream> parse_line(Line line, const std::string& folder) {
  const std::optional<std::string> path = line.next();
  if (!path) return std::nullopt;
  if (path->empty()) fail_usage("%s: the model's path is empty", line.place().c_str());
  LoadStream stream;
  stream.path = (*path)[0] == '/' ? *path : folder + *path;
  std::vector<std::string> seen;
  while (const std::optional<std::string> word = line.next()) {
    if (*word == "shape") {
      const std::optional<std::string> shape = line.next();
      if (!shape || shape->find('=') == std::string::npos) fail_usage("%s: shape needs NAME=DIMS", line.place().c_str());
      stream.shapes.push_back(*shape);
      continue;
    }
    const std::string key = word->substr(0, word->find('='));
    for (const std::string& s : seen) {
      if (s == key) fail_usage("%s: %s is given twice", line.place().c_str(), printable(key).c_str());
    }
    seen.push_back(key);
    set_key(&stream, line.place(), *word);
  }
  return stream;
}

}  // namespace

double parse_positive(const std::string& what, const std::string& text, double most) {
  const std::optional<double> number = decimal_of(text, false);
  if (!number || *number <= 0 || *number > most) {
    fail_usage("%s must be a number greater than 0, at most %.10g, not \"%s\"", what.c_str(), most, printable(text).c_str());
  }
  return *number;
}

std::vector<LoadStream> read_mix(const std::string& file) {
  const std::string text = read_all(file);
  const std::size_t slash = file.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : file.substr(0, slash + 1);
  std::vector<LoadStream> streams;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    begin = end + 1;
    if (std::optional<LoadStream> stream = parse_line(Line(file, ++number, line), folder)) streams.push_back(std::move(*stream));
    if (streams.size() > kMostStreams) fail_usage("%s:%d: more than %zu models", file.c_str(), number, kMostStreams);
  }
  if (streams.empty()) fail_usage("%s names no model", file.c_str());
  return streams;
}

}  // namespace evn::cli
