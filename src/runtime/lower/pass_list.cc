#include "runtime/lower/pass_list.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "base/json_writer.h"
#include "graph/passes/passes.h"
#include "runtime/lower/pass.h"

namespace evn {
namespace {

struct Row {
  const char* name;
  const char* summary;
  bool at_load;
};

// Bit i of a step's or a node's passes is the i-th of its kind.
std::vector<Row> rows() {
  std::vector<Row> all;
  for (const Pass& p : passes()) all.push_back({p.name, p.summary, true});
  for (const LoweringPassInfo* p : lowering_passes()) all.push_back({p->name, p->summary, false});
  return all;
}

}  // namespace

void check_pass_names(const std::vector<std::string>& names, bool lowering_only, evn_status status, const std::string& where) {
  if (names.empty()) return;
  const std::vector<Row> all = rows();
  for (const std::string& name : names) {
    const auto row = std::find_if(all.begin(), all.end(), [&](const Row& r) { return name == r.name; });
    if (row != all.end() && !(row->at_load && lowering_only)) continue;
    if (row != all.end()) {
      fail(status, "%s: %s is done when the model is loaded: passes.disable of the configuration leaves it out", where.c_str(),
           row->name);
    }
    // A message has no room for all: those that begin as the name does come first.
    const auto common = [&](const Row& r) {
      const std::string_view other = r.name;
      return std::mismatch(name.begin(), name.end(), other.begin(), other.end()).first - name.begin();
    };
    std::vector<Row> sorted = all;
    std::ranges::stable_sort(sorted, [&](const Row& a, const Row& b) { return common(a) > common(b); });
    std::string there;
    for (const Row& r : sorted) {
      if (!(r.at_load && lowering_only)) there.append(there.empty() ? "" : ", ").append(r.name);
    }
    fail(status, "%s: there is no pass \"%.64s\" (evener passes lists them); there are %s", where.c_str(), name.c_str(),
         there.c_str());
  }
}

std::string describe_passes(evn_format format) {
  JsonWriter json;
  std::string text;
  json.begin_array();
  for (const Row& r : rows()) {
    const char* const when = r.at_load ? "load" : "session";
    json.begin_object();
    json.field("name", r.name);
    json.field("when", when);
    json.field("summary", r.summary);
    json.end_object();
    char line[160];
    std::snprintf(line, sizeof line, "%-22s %-8s %s\n", r.name, when, r.summary);
    text += line;
  }
  json.end_array();
  return format == EVN_FORMAT_JSON ? json.take() : text;
}

std::vector<const char*> pass_names(std::uint32_t rewrites, std::uint32_t lowering) {
  std::vector<const char*> names;
  for (const Row& r : rows()) {
    std::uint32_t& bits = r.at_load ? rewrites : lowering;
    if ((bits & 1) != 0) names.push_back(r.name);
    bits >>= 1;
  }
  return names;
}

}  // namespace evn
