#include "runtime/report/input_defaults.h"

#include <algorithm>

namespace evn {

void write_defaults(JsonWriter& json, std::string& text, const Model& model, std::span<const std::shared_ptr<Session>> opened) {
  std::string line;
  json.key("defaults");
  json.begin_array();
  for (const InputDefault& d : model.defaults) {
    const std::string& name = d.declared.name;
    const bool is_given = std::any_of(opened.begin(), opened.end(), [&](const std::shared_ptr<Session>& s) {
      const std::vector<std::string>& open = s->compiled().model->open_inputs;
      return std::find(open.begin(), open.end(), name) != open.end();
    });
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
