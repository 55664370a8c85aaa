// The `evener` command: a thin user of the public C API.
#include <cstdio>
#include <exception>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/probe.h"

namespace evn::cli {
namespace {

int run_command(std::string_view name, std::span<const char* const> words) {
  for (const Command& command : commands()) {
    if (command.name != name) continue;
    const Arguments arguments(command, words);
    if (!arguments.wants_help()) return command.run(arguments);
    print_help(command);
    return kExitOk;
  }
  fail_usage("there is no command \"%.*s\"; see evener --help", static_cast<int>(name.size()), name.data());
}

int dispatch(std::span<const char* const> words) {
  if (words.empty()) {
    print_help(true);
    return kExitUsage;
  }
  std::string_view name = words[0];
  if (name == kProbeArgument) return probe_drivers();
  if (name == "--version") name = "version";
  if (name == "--help" || name == "-h" || name == "help") {
    if (words.size() == 1) {
      print_help(false);
      return kExitOk;
    }
    static constexpr const char* kHelp[] = {"--help"};
    return run_command(words[1], kHelp);
  }
  return run_command(name, words.subspan(1));
}

}  // namespace
}  // namespace evn::cli

int main(int argc, char** argv) {
  int code = evn::cli::kExitFailure;
  try {
    const std::vector<const char*> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    code = evn::cli::dispatch(words);
  } catch (const evn::cli::Failure& failure) {
    std::fflush(stdout);
    std::fprintf(stderr, "evener: %s\n", failure.message.c_str());
    return failure.code;
  } catch (const std::exception& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "evener: %s\n", e.what());
    return evn::cli::kExitFailure;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "evener: standard output cannot be written\n");
    return code == evn::cli::kExitOk ? static_cast<int>(evn::cli::kExitFailure) : code;
  }
  return code;
}
