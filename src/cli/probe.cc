#include "cli/probe.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "cli/failure.h"
#include "cli/library.h"

namespace evn::cli {
namespace {

constexpr int kAnswerDescriptor = 3;
constexpr char kAnswer[] = "evener: drivers listed\n";  // what the library waits for

}  // namespace

// Without a configuration, a log or a cache, so that what drivers do is all that can go wrong.
int probe_drivers() {
  struct stat answer {};  // another file with this number would be a driver's, later
  if (fstat(kAnswerDescriptor, &answer) != 0 || !S_ISFIFO(answer.st_mode))
    fail_usage("%s is for the library, which waits for an answer on descriptor 3", kProbeArgument);
  constexpr long kCloseRange = 436;                      // SYS_close_range, which headers before Linux 5.9 lack
  syscall(kCloseRange, kAnswerDescriptor + 1, ~0u, 0u);  // what the host would have had closed, where the system has the call
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.thread_count = 1;
  options.cache_dir = "";
  Runtime runtime;
  Call create;
  create.check(evn_runtime_create(&options, runtime.out(), create));
  std::size_t size = 0;
  Call describe;
  describe.check(evn_runtime_describe_devices(runtime.get(), EVN_FORMAT_JSON, nullptr, 0, &size, describe));
  for (std::size_t done = 0; done < sizeof kAnswer - 1;) {
    const ssize_t written = write(kAnswerDescriptor, kAnswer + done, sizeof kAnswer - 1 - done);
    if (written <= 0) fail(kExitFailure, "the answer cannot be written");
    done += static_cast<std::size_t>(written);
  }
  return kExitOk;
}

std::string own_program() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0 || static_cast<std::size_t>(size) >= sizeof path) fail(kExitFailure, "the path of this program cannot be read");
  return std::string(path, static_cast<std::size_t>(size));
}

void ProbeWatch::follow(evn_runtime_options* options) {
  options->log_sink_user = &failed_;
  options->log_sink = [](void* user, const evn_log_record* record) {
    if (std::strcmp(record->event, "probe.failed") == 0) *static_cast<bool*>(user) = true;
  };
}

}  // namespace evn::cli
