// The statistics of a session and of a runtime as text, JSON and what Prometheus reads.
#pragma once

#include <string>

#include "runtime/objects/run_statistics.h"

namespace evn {

class Runtime;

std::string describe_statistics(const SessionCounts& session, evn_format format);
// Describes all sessions of the runtime, and the memory of its devices.
std::string describe_statistics(const Runtime& runtime, evn_format format);

// EVN_FORMAT_PROMETHEUS: the text format, version 0.0.4.
std::string prometheus_text(const Runtime& runtime);

}  // namespace evn
