// Drivers that are tried by a process of their own before this one asks them for devices: one that crashes or hangs there ends or
// holds up nobody else. docs/decisions/0075-probe.md
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "config/config.h"
#include "device/backend.h"

namespace evn {

class DriverProbe {
 public:
  // The log's callbacks outlive this.
  DriverProbe(ProbeConfig config, const LogSink& log) : config_(std::move(config)), log_(log) {}

  // Why the backend's drivers must not be loaded here; "": they may. The first call for a backend runs the program, for as long as
  // the time limit allows at most; others wait for it.
  std::string why_hidden(const Backend& backend);

 private:
  // What came of listing with the variables set; "": all went well.
  std::string why_failed(const std::vector<std::pair<std::string, std::string>>& variables) const;

  const ProbeConfig config_;
  const LogSink log_;
  Mutex mutex_;  // guards what follows; held while the program runs
  std::vector<std::pair<const Backend*, std::string>> outcomes_;
};

}  // namespace evn
