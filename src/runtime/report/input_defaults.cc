#include "runtime/report/input_defaults.h"

#include <algorithm>

#include "core/name_map.h"

namespace evn {

void write_defaults(JsonWriter& json, std::string& text, const Model& model, std::span<const std::shared_ptr<Session>> opened) {
  std::vector<NameViewSet> open;
  for (const std::shared_ptr<Session>& s : opened) open.push_back(set_of(s->compiled().model->open_inputs));
  std::string line;
  json.key("defaults");
  json.begin_array();
  for (const InputDefault& d : model.defaults) {
    const std::string& name = d.declared.name;
    const bool is_given = std::any_of(open.begin(), open.end(), [&](const NameViewSet& names) { return names.contains(name); });
    const char* const how = d.input >= 0 ? "open" : is_given ? "constant, and open in another graph" : "constant";
    json.begin_object();
    json.field("name", name);
    json.field("as", how);
    json.end_object();
    line += (line.empty() ? "inputs with a default: " : ", ") + name + " (" + how + ")";
  }
  json.end_array();
  if (!line.empty()) text += line + "\n";
}

}  // namespace evn
