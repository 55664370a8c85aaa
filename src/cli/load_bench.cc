// `evener bench` with --clients, --rate or --mix: load by many clients or at a rate.
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "cli/bench.h"
#include "cli/file.h"
#include "cli/load.h"
#include "cli/load_report.h"
#include "cli/values.h"
#include "evener/request.h"

namespace evn::cli {
namespace {

constexpr int kWarmUpRuns = 2;

std::vector<LoadStream> streams_of(const Arguments& arguments) {
  const char* const mix = arguments.get("--mix");
  const bool has_model = arguments.operand_count() > 0;
  if (mix != nullptr) {
    if (has_model) fail_usage("bench: --mix names the models: \"%s\" is too much", arguments.operand(0).c_str());
    for (const char* option : {"--shape", "--input", "--priority", "--deadline"}) {
      if (arguments.has(option)) fail_usage("bench: %s is said in the lines of --mix", option);
    }
    return read_mix(mix);
  }
  if (!has_model) fail_usage("bench needs MODEL or --mix; see evener bench --help");
  LoadStream stream;
  stream.path = arguments.operand(0);
  if (const char* text = arguments.get("--priority"))
    stream.priority = parse_count("--priority", text, EVN_PRIORITY_LOWEST, EVN_PRIORITY_HIGHEST);
  if (const char* text = arguments.get("--deadline"))
    stream.deadline_ns = static_cast<std::uint64_t>(parse_positive("--deadline", text, 86'400e3) * 1e6);
  return {stream};
}

LoadPlan plan_of(const Arguments& arguments, const std::vector<LoadStream>& streams) {
  LoadPlan plan;
  plan.sync = arguments.has("--sync");
  if (const char* text = arguments.get("--clients")) plan.clients = parse_count("--clients", text, 1, 100'000);
  if (const char* text = arguments.get("--rate")) plan.rate = parse_positive("--rate", text, 1e6);
  if (const char* text = arguments.get("--duration")) plan.seconds = parse_positive("--duration", text, 604'800);
  for (const LoadStream& s : streams) {
    if (s.has_own_load()) continue;
    if (plan.clients == 0 && plan.rate == 0)
      fail_usage("bench: %s has neither clients nor a rate, and --clients and --rate are not given", s.path.c_str());
  }
  for (const LoadStream& s : streams) {
    const bool threadless = s.has_own_load() ? s.clients == 0 : plan.clients == 0;
    if (plan.sync && threadless) fail_usage("bench: --sync needs a number of clients, also with a rate");
  }
  return plan;
}

// What lives as long as the load.
struct Loaded {
  Model model;
  Session session;
  std::set<int> priorities;
};

std::vector<Tensor> inputs_of(const Arguments& arguments, const LoadStream& stream, const Runtime& runtime,
                              const Session& session) {
  if (arguments.operand_count() > 0) return make_inputs(arguments, runtime, session, false);
  static constexpr Option kShape[] = {kShapeOption};
  static constexpr Command kLine = {"bench", nullptr, nullptr, nullptr, kShape, nullptr};
  std::vector<const char*> words;
  for (const std::string& shape : stream.shapes) {
    words.push_back("--shape");
    words.push_back(shape.c_str());
  }
  return make_inputs(Arguments(kLine, words), runtime, session, false);
}

// Plans and arenas are there before anything is measured. The library counts these runs at a priority that no stream has.
void warm_up(const LoadTarget& target, const std::set<int>& used) {
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  int priority = EVN_PRIORITY_LOWEST;
  while (used.count(priority) != 0 && priority < EVN_PRIORITY_HIGHEST) ++priority;
  options.priority = priority;
  for (int i = 0; i < kWarmUpRuns; ++i) {
    Call call;
    call.check(target.arguments->run(options, nullptr, call));
  }
}

std::string statistics_of(const Runtime& runtime, evn_format format) {
  return read_text([&](char* buffer, std::size_t capacity, std::size_t* size, evn_error* error) {
    return evn_runtime_get_statistics(runtime.get(), format, buffer, capacity, size, error);
  });
}

}  // namespace

bool wants_load(const Arguments& arguments) {
  const auto given = [&](const char* option) { return arguments.has(option); };
  if (given("--clients") || given("--rate") || given("--mix")) {
    for (const char* option : {"--runs", "--layers"}) {
      if (given(option)) fail_usage("bench: %s is not for many clients, rates and mixes", option);
    }
    return true;
  }
  for (const char* option : {"--duration", "--sync", "--priority", "--deadline", "--svg", "--html"}) {
    if (given(option)) fail_usage("bench: %s needs --clients, --rate or --mix", option);
  }
  if (arguments.operand_count() == 0) fail_usage("bench needs MODEL or --mix; see evener bench --help");
  return false;
}

int run_load_bench(const Arguments& arguments) {
  const std::vector<LoadStream> streams = streams_of(arguments);
  LoadPlan plan = plan_of(arguments, streams);
  const evn_format format = text_format(arguments);
  const Runtime runtime = open_runtime(arguments);
  std::map<std::string, Loaded> loaded;  // streams of one file share its session
  std::vector<std::vector<Tensor>> inputs;
  for (const LoadStream& s : streams) {
    Loaded& l = loaded[s.path];
    if (l.session.get() == nullptr) {
      l.model = load_model(runtime, s.path);
      l.session = open_session(arguments, runtime, l.model);
    }
    l.priorities.insert(s.priority);
    inputs.push_back(inputs_of(arguments, s, runtime, l.session));
    LoadTarget target;
    target.stream = s;
    target.name = s.path.substr(s.path.rfind('/') + 1);
    target.arguments = std::make_shared<RunArguments>(l.session.get(), inputs.back());
    plan.targets.push_back(std::move(target));
  }
  for (const LoadTarget& t : plan.targets) warm_up(t, loaded.at(t.stream.path).priorities);
  const LoadOutcome outcome = run_load(plan);
  const std::string statistics = statistics_of(runtime, format);
  print_text(format == EVN_FORMAT_JSON ? load_json(plan, outcome, statistics) : load_text(plan, outcome, statistics));
  if (const char* file = arguments.get("--svg")) write_file(file, load_picture(plan, outcome, false), nullptr, 0);
  if (const char* file = arguments.get("--html")) write_file(file, load_picture(plan, outcome, true), nullptr, 0);
  const bool some =
      std::any_of(outcome.results.begin(), outcome.results.end(), [](const LoadResult& r) { return r.completed != 0; });
  return some || outcome.interrupted ? kExitOk : kExitFailure;
}

}  // namespace evn::cli
