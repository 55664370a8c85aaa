#include "cli/commands.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench.h"
#include "cli/calibrate.h"
#include "cli/check_config.h"
#include "cli/compare.h"
#include "cli/explain.h"
#include "cli/library.h"
#include "cli/npz.h"
#include "cli/outputs.h"
#include "cli/probe.h"
#include "cli/programs.h"
#include "cli/quantize.h"
#include "cli/train.h"
#include "cli/tune.h"
#include "cli/values.h"

namespace evn::cli {
namespace {

int run_devices(const Arguments& arguments) {
  evn_runtime_options options = default_options();
  ProbeWatch watch;
  std::string program;
  if (arguments.has("--probe")) {
    program = own_program();
    options.probe_program = program.c_str();
    watch.follow(&options);
  }
  if (const char* limit = arguments.get("--probe-timeout")) {
    if (!arguments.has("--probe")) fail_usage("--probe-timeout needs --probe");
    options.probe_timeout_ns = static_cast<std::uint64_t>(parse_count("--probe-timeout", limit, 1, 3600)) * 1'000'000'000;
  }
  const Runtime runtime = open_runtime(arguments, options);
  print_text(read_text([&](char* buffer, std::size_t capacity, std::size_t* size, evn_error* error) {
    return evn_runtime_describe_devices(runtime.get(), text_format(arguments), buffer, capacity, size, error);
  }));
  return watch.has_failed() ? kExitDevice : kExitOk;
}

int run_inspect(const Arguments& arguments) {
  const Runtime runtime = open_runtime(arguments);
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> given;  // stay for the call
  for (const std::string& text : arguments.all("--shape")) {
    auto [name, dims] = parse_assignment("--shape", text);
    given.emplace_back(name, parse_dims(name, dims));
  }
  std::vector<evn_input_shape> shapes;
  for (const auto& [name, dims] : given) shapes.push_back({name.c_str(), dims.data(), static_cast<std::uint32_t>(dims.size()), 0});
  evn_inspect_options options = EVN_INSPECT_OPTIONS_INIT;
  options.shapes = shapes.data();
  options.shape_count = static_cast<std::uint32_t>(shapes.size());
  std::string text(std::size_t{1} << 16, '\0');  // asking for the size would inspect it twice
  for (;;) {
    std::size_t size = 0;
    Call call(kExitModel);
    evn_error* error = call;
    const evn_status status = evn_model_inspect(runtime.get(), arguments.operand(0).c_str(), &options, text_format(arguments),
                                                text.data(), text.size(), &size, error);
    if (status != EVN_ERROR_BUFFER_TOO_SMALL) {
      call.check(status);
      text.resize(size - 1);
      break;
    }
    text.resize(error->bytes_requested);
  }
  print_text(text);
  return kExitOk;
}

void print_times(std::vector<double> ns) {
  std::printf("time: first run %s", milliseconds(ns[0]).c_str());
  if (ns.size() > 1) {
    std::sort(ns.begin() + 1, ns.end());
    std::printf(", %zu more: median %s, least %s", ns.size() - 1, milliseconds(ns[1 + (ns.size() - 1) / 2]).c_str(),
                milliseconds(ns[1]).c_str());
  }
  std::printf("\n");
}

// Runs as often as --repeat says, and adds the time of each in nanoseconds. Returns what the last has made.
using RunTimer = std::function<Outputs(const RunArguments&, std::vector<double>* times)>;

// Runs that a session has recorded (`recording:` of a configuration): files, or all of a folder, in the order of their names.
std::vector<std::filesystem::path> recorded_runs(const Arguments& arguments) {
  const std::filesystem::path given = arguments.get("--replay");
  for (const char* const other : {"--input", "--shape", "--output"}) {
    if (arguments.has(other)) fail_usage("--replay gives all inputs, and %s is given too", other);
  }
  std::vector<std::filesystem::path> runs;
  std::error_code error;
  if (!std::filesystem::is_directory(given, error)) return {given};
  for (const auto& entry : std::filesystem::directory_iterator(given, error)) {
    const std::string name = entry.path().filename().string();
    if (is_npz(name) && name[0] != '.') runs.push_back(entry.path());  // "...npz" would name the folder above that of the outputs
  }
  if (error) fail(kExitFailure, "%s: the folder cannot be read: %s", given.c_str(), error.message().c_str());
  if (runs.empty()) fail(kExitFailure, "%s: there are no .npz files in the folder", given.c_str());
  std::ranges::sort(runs);
  return runs;
}

// Runs all of them, also behind one that fails.
int replay(const Arguments& arguments, const Runtime& runtime, const Session& session, const RunTimer& run) {
  int failed = 0;
  for (const std::filesystem::path& path : recorded_runs(arguments)) {
    std::printf("run %s\n", path.c_str());
    try {
      const std::vector<Tensor> inputs = read_inputs(path.string(), runtime, session);
      std::vector<double> times;
      const Outputs outputs = run(RunArguments(session.get(), inputs), &times);
      report_outputs(arguments, session, outputs, path.stem().string());
      print_times(times);
    } catch (const Failure& e) {
      if (e.code == kExitUsage) throw;
      std::fflush(stdout);
      std::fprintf(stderr, "evener: %s\n", e.message.c_str());
      ++failed;
    }
  }
  if (failed != 0) fail(kExitFailure, "%d of the recorded runs failed", failed);
  return kExitOk;
}

int run_run(const Arguments& arguments) {
  const char* const repeat_text = arguments.get("--repeat");
  const int repeat = repeat_text == nullptr ? 1 : parse_count("--repeat", repeat_text, 1, 1'000'000);
  const char* const timeout_text = arguments.get("--timeout-ms");
  const int timeout_ms = timeout_text == nullptr ? 0 : parse_count("--timeout-ms", timeout_text, 1, 86'400'000);
  if (const char* to = arguments.get("--output"); to != nullptr && !is_npz(to)) {
    fail_usage("--output takes a file that ends in .npz, not \"%s\"", to);
  }
  const Runtime runtime = open_runtime(arguments);
  const Model model = load_model(runtime, arguments.operand(0));
  const Session session = open_session(arguments, runtime, model);
  const RunTimer run = [&](const RunArguments& of_run, std::vector<double>* times) {
    Outputs outputs;
    for (int i = 0; i < repeat; ++i) {
      outputs = {};
      const auto start = std::chrono::steady_clock::now();
      outputs = run_once(of_run, static_cast<std::uint64_t>(timeout_ms) * 1'000'000);
      times->push_back(static_cast<double>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count()));
    }
    return outputs;
  };
  if (arguments.has("--replay")) return replay(arguments, runtime, session, run);
  const std::vector<Tensor> inputs = make_inputs(arguments, runtime, session, true);
  std::vector<double> times;
  const Outputs outputs = run(RunArguments(session.get(), inputs), &times);
  report_outputs(arguments, session, outputs);
  print_times(times);
  return kExitOk;
}

int run_passes(const Arguments& arguments) {
  print_text(read_text([&](char* buffer, std::size_t capacity, std::size_t* size, evn_error* error) {
    return evn_describe_passes(text_format(arguments), buffer, capacity, size, error);
  }));
  return kExitOk;
}

int run_version(const Arguments&) {
  std::printf("evener %s\n", evn_version());
  return kExitOk;
}

constexpr Option kDevicesOptions[] = {
    kConfigOption,
    kJsonOption,
    {"--probe", nullptr, "ask drivers in a process of its own first; one that crashes or hangs there\nis named, and not used"},
    {"--probe-timeout", "SECONDS", "how long that may take, 1 to 3600; without: 5"},
};
constexpr Option kInspectOptions[] = {
    {"--shape", "NAME=DIMS", "dimensions of an input for the estimate, as in --shape x=1x3x224x224;\nmay be repeated", true},
    kConfigOption,
    kThreadsOption,
    kJsonOption,
};
constexpr Option kRunOptions[] = {
    kInputOption,
    kShapeOption,
    {"--replay", "FOLDER",
     "run with the inputs of each .npz file of a folder, or of one file, as\n`recording:` of a configuration writes them"},
    {"--output-dir", "FOLDER", "write each output to FOLDER/NAME.npy; with --replay to\nFOLDER/RUN/NAME.npy"},
    {"--output", "FILE.npz", "write all outputs to one .npz archive, by their names"},
    {"--repeat", "N", "run N times and print the times"},
    {"--timeout-ms", "N", "end a run that takes longer"},
    kConfigOption,
    kDeviceOption,
    kPrecisionOption,
    kKeepFp32Option,
    kDisablePassOption,
    kNumericsOption,
    kProductsOption,
    kMemoryOption,
    kCacheOption,
    kMapCacheOption,
    kThreadsOption,
};
constexpr Option kCheckConfigOptions[] = {
    {"--load", nullptr,
     "load the models that it names, make their sessions and warm them, and print for\neach its time, where its nodes are, and the "
     "memory of each device"},
};
constexpr Option kPassesOptions[] = {kJsonOption};
constexpr Command kCommands[] = {
    {"devices", nullptr, "list the devices of this machine",
     "Lists every platform and device that this machine offers, and says why when there is no OpenCL. With --probe the drivers\n"
     "are first asked by another process, with a limit of time. Where they crash or hang there, they are not asked here: what\n"
     "happened is printed, the other devices are listed, and the exit code is 5.",
     kDevicesOptions, run_devices},
    {"inspect", "MODEL", "say what a model is and needs",
     "Prints inputs, outputs, operators, parameters and bytes of weights of an ONNX file, which operators are not supported and\n"
     "at which nodes, whether it loads, and an estimate of multiply-adds and of the peak memory of a run on the CPU for the\n"
     "dimensions that are known. A model that does not load is no failure.",
     kInspectOptions, run_inspect},
    {"run", "MODEL", "run a model",
     "Runs an ONNX file and prints each output's name, element type, dimensions, least, mean and greatest value, and the time.\n"
     "An input without --input is filled with a fixed pseudo-random pattern: floating point in [0, 1), integers 0 and 1. Its\n"
     "dimensions must be known from the model or --shape. In the names of output files, what is no letter, digit, '.', '_' or '-'\n"
     "becomes '_'. Types that NumPy lacks are read and written as wider ones: bfloat16, float8 and float4 as float32, int4, int2,\n"
     "uint4 and uint2 as int8 and uint8; --input takes arrays of ml_dtypes too. Archives are read as numpy.savez and\n"
     "numpy.savez_compressed write them, and written without compression. Of sequences and maps the tensors in them are written.",
     kRunOptions, run_run},
    {"bench", "[MODEL]", "measure a model, or load by many clients",
     "Loads a model and runs it, and prints the times of loading, of the first run, and of the runs after it (median, 90th\n"
     "percentile, least), and the memory of each device. Inputs that are not given are filled as evener run does. While it\n"
     "runs, progress is on stderr when that is a terminal. With --layers a table by node follows, which with --json is a trace\n"
     "as of evener trace.\n"
     "With --clients, --rate or --mix it measures load: throughput, percentiles of the latency from each request's arrival on, "
     "what\n"
     "was refused, late or failed, and the library's statistics (docs/serving.md). Ctrl-C ends it early; the table comes all the\n"
     "same. Lines of a --mix FILE, in which paths are relative to its folder:\n"
     "  MODEL [clients=4] [rate=20] [weight=2] [priority=1] [deadline=50ms] [shape x=1x3x224x224]...   # a comment\n"
     "A line with clients or a rate has load of its own; the others share --clients and --rate by their weights. Lines of one "
     "MODEL\n"
     "share a session. A path with blanks stands in quotation marks.",
     kBenchOptions, run_bench},
    {"calibrate", "[MODEL]", "measure what steps cost on each device",
     "Measures what the steps of MODEL, or without it some 100 operators in sizes that networks have, take on each device of the\n"
     "configuration, and copies from and to it. The costs are kept in the folder for caches ($EVN_CACHE_DIR), for placements of\n"
     "`default: auto` and for what evener explain predicts.",
     kCalibrateOptions, run_calibrate},
    {"tune", "MODEL", "find the fastest kernels of an OpenCL device",
     "Runs MODEL once on an OpenCL device and measures, for each product and convolution that has several kernels with the same\n"
     "bits, which is fastest. That is kept in the folder for caches ($EVN_CACHE_DIR) by device and driver, and whoever opens the\n"
     "device later has it. Measure on an idle device.",
     kTuneOptions, run_tune},
    {"programs", nullptr, "store the programs of an OpenCL device",
     "Builds all programs that the library has for an OpenCL device, and writes their binaries into a folder: for devices without "
     "a\n"
     "compiler, with `devices.NAME.programs: FOLDER` in their configuration, and for the first start of others. They are for this\n"
     "device, its driver and this build of the library; a folder may hold those of many. With --sources the device itself needs "
     "no\n"
     "compiler, if it takes SPIR-V, which scripts/make_il.py makes of the texts on another machine.",
     kProgramsOptions, run_programs},
    {"trace", "MODEL", "record when each node runs",
     "Runs a model and writes what each thread and device did when, and the memory of each device, as a trace that\n"
     "Chrome (chrome://tracing) and Perfetto open. With -o a table by node is printed as well: count, median and total time,\n"
     "share, GFLOPS, GB/s, device, kernel.",
     kTraceOptions, run_trace},
    {"explain", "MODEL", "say what runs where, and why",
     "Prints for each node its device, kernel, reason and the line of the configuration that decided, the copies between devices,\n"
     "and the memory of each device. With --shape the model is run once on a pattern, so that bytes of copies are known.\n"
     "--dot and --svg draw the graph: boxes are coloured by device, copies between devices are red, values that are read\n"
     "only when a run is planned are dashed. --html writes a page that can be searched, with the details of each node, the\n"
     "copies, the memory, and with --run what each thread and device did when. --assert is for checks of a placement: the\n"
     "nodes that contradict it are printed to stderr.",
     kExplainOptions, run_explain},
    {"compare", "MODEL", "say what a lower precision or another model loses and gains",
     "Runs MODEL in float32 on the CPU and, in turns, --with another model, in --precision, --numerics or --products, over the "
     "same inputs, "
     "and\n"
     "prints for each output how far its float32 tensors are apart (cosine, signal to error, rows with the same largest element,\n"
     "largest error), how many other tensors it has, which are not compared, and both median times. Sequences, optionals and maps\n"
     "are compared by the tensors in them.",
     kCompareOptions, run_compare},
    {"quantize", "MODEL", "make a model of 8-bit numbers",
     "Makes a float32 ONNX model into one that computes with 8-bit numbers, and writes it as ONNX (QuantizeLinear and\n"
     "DequantizeLinear, for any engine). --calibration gives inputs as the model sees them in use: .npz files whose keys are the\n"
     "names of the inputs, one batch each, or folders of them. --verify runs both models over others and reports how far apart\n"
     "their outputs are, and both times.",
     kQuantizeOptions, run_quantize},
    {"train", "MODEL", "train a model",
     "Trains a float32 ONNX model and writes it as ONNX. --data is an archive as numpy.savez writes it: its keys are the names of "
     "the\n"
     "model's inputs, and that of the labels, whose first dims are the samples. Rows are read when a batch needs them, so that it "
     "may be\n"
     "larger than memory. After each epoch a line says how it goes; Ctrl-C ends it with the --checkpoint, a second one at once.\n"
     "With --collective each process is a rank, has its part of each batch and measures all of --validate; rank 0 alone writes.",
     kTrainOptions, run_train},
    {"check-config", "FILE", "check a configuration",
     "Reads a YAML configuration and opens the devices that it names. Ends with 0 when all is right, with 3 when the file is "
     "wrong,\n"
     "and with 5 when the file is right but a device that is not optional is absent on this machine. With --load it ends with the "
     "code\n"
     "of what is wrong with a model, too, and with 3 when a rule matches no node of any model that it is for. Operators of a host\n"
     "are named with their domain, as my.domain::Name: this command knows none, and refuses other names that it does not know.",
     kCheckConfigOptions, run_check_config},
    {"passes", nullptr, "list the passes over models",
     "Prints what is done to a model so that it runs faster: when it is loaded, and when a session is made of it. Each may be left "
     "out\n"
     "by its name: `passes: {disable: [NAME]}` in a configuration, and --disable-pass for those of sessions.",
     kPassesOptions, run_passes},
    {"version", nullptr, "print the version", "Prints the library's version.", {}, run_version},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

void print_help(bool to_stderr) {
  std::FILE* const out = to_stderr ? stderr : stdout;
  std::fputs("Runs ONNX models over CPU and OpenCL devices.\n\nusage: evener COMMAND [OPTION]...\n\ncommands:\n", out);
  for (const Command& command : kCommands) {
    const std::string left = std::string(command.name) + (command.operand != nullptr ? std::string(" ") + command.operand : "");
    std::fprintf(out, "  %-20s %s\n", left.c_str(), command.summary);
  }
  std::fputs(
      "\nevener COMMAND --help says more.\n\nexit codes:\n"
      "  0  all went well\n"
      "  1  a run failed, a file cannot be read or written, or memory ran out\n"
      "  2  the command line is wrong\n"
      "  3  the configuration is wrong or cannot be read\n"
      "  4  the model is wrong, not supported, over a limit, or cannot be read\n"
      "  5  a device is absent or stopped working\n",
      out);
}

void print_help(const Command& command) {
  const std::string operand = command.operand != nullptr ? std::string(" ") + command.operand : "";
  std::printf("usage: evener %s%s%s\n\n%s\n", command.name, operand.c_str(), command.options.empty() ? "" : " [OPTION]...",
              command.details);
  if (!command.options.empty()) std::printf("\noptions:\n");
  for (const Option& option : command.options) {
    const std::string left = std::string(option.name) + (option.value != nullptr ? std::string(" ") + option.value : "");
    std::string help = option.help;
    for (std::size_t at = help.find('\n'); at != std::string::npos; at = help.find('\n', at + 1)) help.insert(at + 1, 25, ' ');
    std::printf("  %-22s %s\n", left.c_str(), help.c_str());
  }
  std::printf("\nExit codes: 0 all went well, 1 failure, 2 command line, 3 configuration, 4 model, 5 device.\n");
}

}  // namespace evn::cli
