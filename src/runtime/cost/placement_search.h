// `default: auto`: a placement of the nodes on the devices of the runtime that makes the time of a run, the time of the busiest
// device, or the memory small, by costs that are measured (cost_table.h).
#pragma once

#include <memory>
#include <vector>

#include "runtime/placement/placement.h"

namespace evn {

class Session;

// Whether the nodes that no rule places are searched a device for.
bool is_searched(const Config& config, const SessionRequest& request);

// Measures, where the tables lack it, what the steps of the model take on each device, with zeros for inputs; looks for the best
// placement among those of contiguous segments of the nodes' order by dynamic programming, and improves it; lowers the best ones,
// and compares these with each device alone, by runs where that is allowed (Config::measure_costs). `keep`: gets what must stay
// until the session has been made, so that weights are not packed twice. Where the model cannot be searched for, the assignment
// says why, and assigns nothing. Throws EVN_ERROR_CANCELLED and EVN_ERROR_TIMEOUT.
std::shared_ptr<const Assignment> search_placement(const ModelPtr& model, const SessionRequest& request,
                                                   std::vector<std::shared_ptr<Session>>* keep);

}  // namespace evn
