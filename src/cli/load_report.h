// What `evener bench` prints of load, and draws of it.
#pragma once

#include <string>

#include "cli/load.h"

namespace evn::cli {

// `statistics`: what the library says of the runtime, as text or JSON.
std::string load_text(const LoadPlan& plan, const LoadOutcome& outcome, const std::string& statistics);
std::string load_json(const LoadPlan& plan, const LoadOutcome& outcome, const std::string& statistics);

// "mobilenet.onnx, priority 2, 8 clients": what tells a stream from the others.
std::string stream_title(const LoadPlan& plan, const LoadTarget& target);

// The latency over percentiles, a curve for each stream, as an SVG picture; `page`: within an HTML page that has the table as well.
std::string load_picture(const LoadPlan& plan, const LoadOutcome& outcome, bool page);

// Text for JSON, in quotation marks, and for XML.
std::string json_text(const std::string& text);
std::string xml_text(const std::string& text);

}  // namespace evn::cli
