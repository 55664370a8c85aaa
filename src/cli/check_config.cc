#include "cli/check_config.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/json.h"
#include "cli/library.h"
#include "cli/values.h"

namespace evn::cli {
namespace {

// The names of the models that the configuration has, each with what it says of it.
std::vector<std::pair<std::string, std::string>> configured_models(const Runtime& runtime) {
  const std::string text = read_text([&](char* buffer, std::size_t capacity, std::size_t* size, evn_error* error) {
    return evn_runtime_describe_devices(runtime.get(), EVN_FORMAT_JSON, buffer, capacity, size, error);
  });
  const Json described = parse_json(text);
  std::vector<std::pair<std::string, std::string>> models;
  for (const Json& model : described["models"].elements) {
    std::string about = model["path"].text;
    if (const std::string& devices = model["device"].text; !devices.empty()) about += ", on " + devices;
    if (const std::string& most = model["max_batch"].text; most != "0") about += ", batches of at most " + most;
    models.emplace_back(model["name"].text, about);
  }
  return models;
}

// Rules and patterns of the configuration over all models that they fit.
class Selections {
 public:
  void add(const std::string& model, const Json& explanation) {
    for (const Json& selection : explanation["selections"].elements) {
      const bool is_own = selection["own"].text == "true";
      matched_[{is_own ? model : std::string(), selection["text"].text}] |= selection["matched"].text == "true";
    }
  }

  // Throws where one matches no node of any model.
  void check(const char* path) const {
    std::string lines;
    for (const auto& [selection, matched] : matched_) {
      const auto& [model, text] = selection;
      if (matched) continue;
      lines += model.empty() ? "\n  " + printable(text) + " matches no node of the models that it is for"
                             : "\n  model \"" + printable(model) + "\": " + printable(text) + " matches no node of the model";
    }
    if (!lines.empty()) throw Failure{kExitConfig, path + (":" + lines)};
  }

 private:
  std::map<std::pair<std::string, std::string>, bool> matched_;  // by model ("": what is not one model's own) and text
};

Json explanation_of(const Session& session) {
  return parse_json(read_text([&](char* buffer, std::size_t capacity, std::size_t* size, evn_error* error) {
    return evn_session_explain(session.get(), EVN_FORMAT_JSON, buffer, capacity, size, error);
  }));
}

// Number of the model's own nodes on each device. Nodes of bodies are not counted.
std::string placement_line(const Json& explanation) {
  std::string line = "  placement:";
  bool is_first = true;
  for (const auto& [device, memory] : explanation["memory"].keys) {
    const std::vector<Json>& nodes = explanation["nodes"].elements;
    const auto count = std::count_if(nodes.begin(), nodes.end(), [&, &name = device](const Json& node) {
      return node["level"].text == "0" && node["device"].text == name;
    });
    if (count == 0) continue;
    line += (is_first ? " " : ", ") + std::to_string(count) + " nodes on " + device;
    is_first = false;
  }
  return line + "\n";
}

// "42.0 %"
std::string percentage(const std::string& part, const std::string& whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * std::strtod(part.c_str(), nullptr) / std::strtod(whole.c_str(), nullptr));
  return text;
}

// Memory of each device, and the memory plan if it is not the usual one.
std::string memory_lines(const Json& explanation) {
  std::string lines;
  for (const auto& [device, memory] : explanation["memory"].keys) {
    const std::string &peak = memory["planned_peak_bytes"].text, &limit = memory["limit_bytes"].text;
    lines += "  " + device + ": arena " + memory["arena_bytes"].text + " bytes, in use " + memory["current_bytes"].text +
             ", peak " + memory["peak_bytes"].text + ", weights " + memory["weights_bytes"].text + ", packed " +
             memory["packed_bytes"].text + "\n    planned peak of one run " + peak + " bytes";
    if (memory["limit_bytes"].kind == Json::Kind::kNull) {
      lines += ", no limit";
    } else {
      lines += ", " + percentage(peak, limit) + " of the limit of " + limit;
    }
    if (const std::string& live = memory["live_peak_bytes"].text; live != "0")
      lines += "; at most " + live + " live, at " + printable(memory["live_peak_at"].text);
    lines += "\n";
  }
  const Json& plan = explanation["memory_plan"];
  const std::string& spared = plan["spared"].text;
  const bool drops_weights = plan["drops_weights"].text == "true";
  if (plan["plan"].text != "fast" || drops_weights || !spared.empty()) {
    lines += "memory plan: " + plan["plan"].text + (spared.empty() ? "" : "; ") + spared +
             (drops_weights ? "; packed weights may be dropped for want of memory" : "") + "\n";
  }
  return lines;
}

// Loads, makes and warms the models, and prints for each how long that took, and what it needs.
void load_models(const Runtime& runtime, const char* path) {
  const auto models = configured_models(runtime);
  if (models.empty()) std::printf("the configuration names no models\n");
  Selections selections;
  std::vector<Session> sessions;  // all of them are there at a time in the end
  for (const auto& [name, about] : models) {
    sessions.emplace_back();
    const auto start = std::chrono::steady_clock::now();
    Call call(kExitModel);
    call.check(evn_runtime_session(runtime.get(), name.c_str(), sessions.back().out(), call));
    const auto took = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    const Json explanation = explanation_of(sessions.back());
    std::printf("%s: %s\n  ready after %s\n", name.c_str(), about.c_str(), milliseconds(static_cast<double>(took)).c_str());
    print_text(placement_line(explanation) + memory_lines(explanation));
    std::fflush(stdout);
    selections.add(name, explanation);
  }
  selections.check(path);
}

// Appends the message of a name in a rule that only a host can know.
void note_unknown_operator(void* user, const evn_log_record* record) {
  std::string& messages = *static_cast<std::string*>(user);
  if (std::string_view(record->event) == "config.unknown_operator")
    messages += (messages.empty() ? "" : "\n") + std::string(record->message);
  if (record->level <= EVN_LOG_WARNING && std::string_view(record->event) != "placement.unmatched")
    std::fprintf(stderr, "evener: %s: %s\n", record->level == EVN_LOG_ERROR ? "error" : "warning", record->message);
}

}  // namespace

int run_check_config(const Arguments& arguments) {
  const char* const path = arguments.operand(0).c_str();
  evn_runtime_options options = default_options();
  options.config_path = path;
  std::string unknown;
  options.log_callback = nullptr;
  options.log_sink = note_unknown_operator;
  options.log_sink_user = &unknown;
  options.log_level = EVN_LOG_INFO;
  Runtime runtime;
  evn_error error = EVN_ERROR_INIT;
  const evn_status status = evn_runtime_create(&options, runtime.out(), &error);
  const bool is_read = status == EVN_OK || status == EVN_ERROR_DEVICE_UNAVAILABLE;
  if (is_read && !unknown.empty()) throw Failure{kExitConfig, unknown};
  if (status == EVN_OK) {
    std::printf("%s: right, and every device that it needs is there\n", path);
    if (arguments.has("--load")) load_models(runtime, path);
    return kExitOk;
  }
  if (status == EVN_ERROR_DEVICE_UNAVAILABLE) {
    std::fprintf(stderr, "evener: the file is right, but a device that it needs is absent: %s\n", describe(error).c_str());
    return kExitDevice;
  }
  fail(status == EVN_ERROR_OUT_OF_MEMORY || status == EVN_ERROR_INTERNAL ? kExitFailure : kExitConfig, "%s",
       describe(error).c_str());
}

}  // namespace evn::cli
