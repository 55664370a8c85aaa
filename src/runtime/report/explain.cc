#include "runtime/report/explain.h"

#include <algorithm>
#include <cstdio>

#include "base/json_writer.h"
#include "runtime/cost/measure.h"
#include "runtime/cost/plan_cost.h"
#include "runtime/lower/pass_list.h"
#include "runtime/lower/product_trials.h"
#include "runtime/report/drawing.h"
#include "runtime/report/input_defaults.h"
#include "runtime/report/plan_memory.h"

namespace evn {
namespace {

struct CopyRow {
  std::string value;
  std::string from;
  std::string to;
  std::uint64_t bytes = 0;
  double predicted_ns = 0;  // 0: not known
};

// What the step of a node is predicted to take, and took in the latest trace; 0: not known, or the node has no step of its own.
struct NodeTimes {
  double predicted_ns = 0, measured_ns = 0;
  std::uint64_t live_bytes = RunMemory::kNotKnown;  // on its device while it runs
};

void write_time(JsonWriter& json, const char* name, double ns) {
  json.key(name);
  if (ns > 0) {
    json.value(static_cast<std::int64_t>(ns));
  } else {
    json.null();
  }
}

std::string microseconds(double ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f us", ns / 1e3);
  return text;
}

// `planned`: the kernel that the latest run used, or null.
const char* kernel_name(const NodePlacement& p, const Kernel* planned) {
  if (p.mode == NodeMode::kView) return "view";
  if (p.mode == NodeMode::kMerge) return "merge";
  if (p.mode == NodeMode::kPlanned) return "planned";
  if (p.mode == NodeMode::kHost) return "host";
  return planned != nullptr ? planned->name : p.kernel->name;
}

// Records that the latest run ran a node on another device than the one it was placed on, because its ranks were known late or an
// input had no elements.
void note_move(const PlanStep& step, Device* device, NodePlacement* p) {
  if (device == p->device) return;
  p->reason += (step.why_moved != nullptr ? "; " + p->device->name() + step.why_moved
                                          : std::string(" not possible for what the latest run brought: ")) +
               device->name();
  p->device = device;
}

// Before the first plan: each value that a node reads on another device than the one that makes it.
std::vector<CopyRow> expected_copies(const CompiledGraph& c) {
  const Graph& graph = c.graph();
  std::vector<int> home(graph.values.size(), -1);
  for (const ValueId v : graph.inputs) home[v] = 0;
  std::vector<CopyRow> rows;
  std::vector<std::uint32_t> copied(graph.values.size(), 0);
  const auto use = [&](ValueId v, int slot) {
    if (v == kNoValue || home[v] < 0 || home[v] == slot || (copied[v] >> slot & 1) != 0) return;
    copied[v] |= 1u << slot;
    rows.push_back({graph.values[v].name, c.devices[home[v]]->name(), c.devices[slot]->name(), 0, 0});
  };
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const bool by_value =
          c.nodes[i].mode == NodeMode::kPlanned || node.op->reads_value(k) || (k == 0 && (node.op->flags & kOpShapeOnly) != 0);
      if (!by_value) use(node.inputs[k], c.nodes[i].slot);
    }
    for (const ValueId v : node.outputs) {
      if (v != kNoValue) home[v] = c.nodes[i].slot;
    }
  }
  for (const ValueId v : graph.outputs) use(v, 0);
  return rows;
}

void add_planned_copies(const CompiledGraph& c, const Plan& plan, const PlanCost& cost, std::vector<CopyRow>& rows) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    if (step.kind != PlanStep::Kind::kCopy || step.from_slot == step.to_slot) continue;
    rows.push_back({c.graph().values[step.value].name, c.devices[step.from_slot]->name(), c.devices[step.to_slot]->name(),
                    plan.buffers[step.buffers].buffer.size, cost.is_known ? cost.steps[i].ns : 0});
  }
}

// What a trial of two kernels found.
std::string times_of(const ProductTrial& t) {
  char text[100];
  const auto ns = [](std::uint64_t x) { return static_cast<unsigned long long>(x); };
  std::snprintf(text, sizeof text, "; measured: own %llu.%llu us, openblas %llu.%llu us", ns(t.own_ns / 1000),
                ns(t.own_ns / 100 % 10), ns(t.rival_ns / 1000), ns(t.rival_ns / 100 % 10));
  return text;
}

void write_names(JsonWriter& json, const char* key, const Graph& graph, std::span<const ValueId> values) {
  json.key(key);
  json.begin_array();
  for (const ValueId v : values) {
    if (v != kNoValue && graph.values[v].constant == nullptr) json.value(graph.values[v].name);
  }
  json.end_array();
}

// What a node reads, but constants, and what it makes, with their types as far as the model tells them.
void write_values(JsonWriter& json, const Graph& graph, const Node& node) {
  write_names(json, "inputs", graph, node.inputs);
  write_names(json, "outputs", graph, node.outputs);
  json.key("types");
  json.begin_array();
  for (const ValueId v : node.outputs) {
    if (v == kNoValue || graph.values[v].constant != nullptr) continue;
    const Value& value = graph.values[v];
    json.value(dtype_name(value.dtype) + (value.has_shape ? value.shape.to_string() : std::string()));
  }
  json.end_array();
}

// `operands`, `library`: of the kernel that runs the node, where one does.
// `lowering`: the passes that its step went through (PlanStep::passes).
void write_node(JsonWriter& json, std::string& text, const Node& node, const NodePlacement& p, const char* kernel,
                Precision operands, Products library, std::uint32_t lowering, const NodeTimes& times) {
  const std::vector<const char*> passes = pass_names(node.rewrites, lowering);
  json.field("name", node.name);
  json.field("op", node.op_type);
  json.field("device", p.device->name());
  json.field("kernel", kernel);
  json.field("reason", p.reason);
  json.key("rule_line");
  if (p.rule_line > 0) {
    json.value(std::int64_t{p.rule_line});
  } else {
    json.null();
  }
  json.field("refused", p.refused);
  write_time(json, "predicted_ns", times.predicted_ns);
  write_time(json, "measured_ns", times.measured_ns);
  json.key("live_bytes");
  if (times.live_bytes == RunMemory::kNotKnown) {
    json.null();
  } else {
    json.value(times.live_bytes);
  }
  const struct {
    const char *name, *reason_name, *value;
    const std::string& reason;
  } settings[] = {{"precision", "precision_reason", precision_name(operands), p.precision_reason},
                  {"numerics", "numerics_reason", numerics_name(p.numerics), p.numerics_reason},
                  {"products", "products_reason", products_name(library), p.products_reason}};
  for (const auto& s : settings) {
    json.field(s.name, s.value);
    json.field(s.reason_name, s.reason);
  }
  json.key("fused");
  json.begin_array();
  for (const std::string& name : node.fused) json.value(name);
  json.end_array();
  json.key("passes");
  json.begin_array();
  for (const char* name : passes) json.value(name);
  json.end_array();
  text += "  " + node.name + "  " + node.op_type;
  if (!node.fused.empty()) text += " (+" + std::to_string(node.fused.size()) + " fused)";
  text += "  " + p.device->name() + "  " + kernel + "  " + p.reason + "\n";
  if (!passes.empty()) {
    text += "      by";
    for (const char* name : passes) text += std::string(" ") + name;
    text += "\n";
  }
  std::string figures;
  const auto add = [&](const std::string& figure) { figures += (figures.empty() ? "      " : ", ") + figure; };
  if (times.predicted_ns > 0) add("predicted " + microseconds(times.predicted_ns));
  if (times.measured_ns > 0) add("measured " + microseconds(times.measured_ns));
  if (times.live_bytes != RunMemory::kNotKnown) add("live " + std::to_string(times.live_bytes) + " bytes");
  if (!figures.empty()) text += figures + "\n";
  if (!p.refused.empty()) text += "      refused by " + p.refused + "\n";
  for (const auto& s : settings) {
    if (s.reason.empty() || s.reason == kDefaultPrecision) continue;
    text.append("      ").append(&s == &settings[2] ? "products " : "").append(s.value).append(": ").append(s.reason).append("\n");
  }
}

// "42.0 %"
std::string share(std::uint64_t part, std::uint64_t whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

// `run`: of the plans that are shown, also where nothing has run.
void write_memory(JsonWriter& json, std::string& text, const CompiledGraph& c,
                  const std::vector<std::shared_ptr<const Plan>>& chain, const RunMemory& run) {
  json.key("memory");
  json.begin_object();
  text += "memory:\n";
  for (std::size_t slot = 0; slot < c.devices.size(); ++slot) {
    const PoolStats s = c.devices[slot]->pool().stats();
    std::uint64_t arena = 0;
    for (const auto& plan : chain) arena += plan->arena_bytes[slot];
    json.key(c.devices[slot]->name());
    json.begin_object();
    json.field("arena_bytes", arena);
    json.field("current_bytes", s.current);
    json.field("peak_bytes", s.peak);
    json.field("reserved_bytes", s.reserved);
    json.field("weights_bytes", s.by_class[EVN_MEMORY_WEIGHTS]);
    json.field("packed_bytes", s.by_class[EVN_MEMORY_PACKED]);
    json.key("limit_bytes");
    if (s.limit == UINT64_MAX) {
      json.null();
    } else {
      json.value(s.limit);
    }
    const RunMemory::Place& planned = run.devices[slot];
    const std::uint64_t peak = s.by_class[EVN_MEMORY_WEIGHTS] + s.by_class[EVN_MEMORY_PACKED] + planned.arena;
    json.field("planned_peak_bytes", peak);
    json.field("live_peak_bytes", planned.most);
    json.field("live_peak_at", planned.at);
    json.end_object();
    text += "  " + c.devices[slot]->name() + ": arena " + std::to_string(arena) + " bytes, in use " + std::to_string(s.current) +
            ", peak " + std::to_string(s.peak) + ", weights " + std::to_string(s.by_class[EVN_MEMORY_WEIGHTS]) + ", packed " +
            std::to_string(s.by_class[EVN_MEMORY_PACKED]) + "\n    planned peak of one run " + std::to_string(peak) + " bytes" +
            (s.limit == UINT64_MAX ? ", no limit" : ", " + share(peak, s.limit) + " of the limit of " + std::to_string(s.limit)) +
            (planned.most > 0 ? "; at most " + std::to_string(planned.most) + " live, at " + planned.at : "") + "\n";
  }
  json.end_object();
}

// What the memory ladder did for the session, and for the plans of the latest run.
void write_memory_plan(JsonWriter& json, std::string& text, const CompiledGraph& c,
                       const std::vector<std::shared_ptr<const Plan>>& chain) {
  std::string spared = c.spared;
  for (const auto& plan : chain) {
    if (plan->is_small && plan->spared_bytes != 0)
      spared += (spared.empty() ? "" : "; ") + std::string("another order of steps: ") + std::to_string(plan->spared_bytes) +
                " bytes less live at a time";
  }
  json.key("memory_plan");
  json.begin_object();
  json.field("plan", c.is_small ? "small" : "fast");
  json.field("spared", spared);
  json.field("drops_weights", c.is_paged);
  json.end_object();
  if (c.is_small || c.is_paged || !spared.empty()) {
    text += std::string("memory plan: ") + (c.is_small ? "small" : "fast") + (spared.empty() ? "" : "; " + spared) +
            (c.is_paged ? "; packed weights may be dropped for want of memory" : "") + "\n";
  }
}

// Those of bodies are not counted.
std::string nodes_by_device(const CompiledGraph& c, const std::vector<NodePlacement>& placed) {
  std::string text = "placement:";
  for (const Device* device : c.devices) {
    const auto count = std::count_if(placed.begin(), placed.end(), [&](const NodePlacement& p) { return p.device == device; });
    if (count > 0) text += (text.back() == ':' ? " " : ", ") + std::to_string(count) + " nodes on " + device->name();
  }
  return text + "\n";
}

// What the latest run tells.
struct Latest {
  std::vector<std::shared_ptr<const Plan>> chain;
  std::vector<const Kernel*> kernels;  // per node: the one that ran it, or null
  std::vector<std::uint32_t> passes;   // per node: those that its step went through
  std::vector<NodePlacement> placed;   // per node
  std::vector<NodeTimes> times;        // per node
  std::vector<PlanCost> costs;         // as the chain
  RunMemory memory;                    // of the chain, or of the plan for dims that a search would assume
};

// The plan for the dims that a search would assume; null where there is none.
std::shared_ptr<const Plan> plan_for_assumed_inputs(const CompiledGraph& c) {
  try {
    std::shared_ptr<Plan> plan;
    fitting_inputs(*c.model->runtime, c.graph(), {},
                   [&](const std::vector<TensorDesc>& inputs) { plan = make_plan(c, signature_of_zeros(c, inputs)); });
    return plan;
  } catch (const Error&) {
    return nullptr;  // other dims may do
  }
}

Latest latest_of(const Session& session) {
  const CompiledGraph& c = session.compiled();
  Latest l{session.plans().latest(),
           std::vector<const Kernel*>(c.nodes.size(), nullptr),
           std::vector<std::uint32_t>(c.nodes.size()),
           c.placement.nodes,
           std::vector<NodeTimes>(c.nodes.size()),
           {},
           {}};
  const std::shared_ptr<const Trace> trace = session.tracing().latest();
  std::vector<std::shared_ptr<const Plan>> shown = l.chain;
  if (shown.empty()) {
    if (std::shared_ptr<const Plan> plan = plan_for_assumed_inputs(c)) shown.push_back(std::move(plan));
  }
  for (const auto& plan : shown) {
    const PlanCost cost = cost_of(c, *plan, session.runtime()->costs());
    for (std::size_t i = 0; i < plan->steps.size(); ++i) {
      if (plan->steps[i].kind == PlanStep::Kind::kKernel && cost.is_known)
        l.times[static_cast<std::size_t>(plan->steps[i].node)].predicted_ns = cost.steps[i].ns;
    }
    l.costs.push_back(cost);
  }
  l.memory = memory_of(c, shown);
  for (std::size_t i = 0; i < l.times.size(); ++i) l.times[i].live_bytes = l.memory.live[i];
  if (trace != nullptr) {
    std::vector<int> runs(c.nodes.size());
    for (const TraceEvent* e : trace->events()) {
      if (e->graph != &c || (e->kind != TraceKind::kKernel && e->kind != TraceKind::kHost) || e->node < 0) continue;
      l.times[static_cast<std::size_t>(e->node)].measured_ns += static_cast<double>(e->busy_ns());
      ++runs[static_cast<std::size_t>(e->node)];
    }
    for (std::size_t i = 0; i < runs.size(); ++i) l.times[i].measured_ns /= std::max(runs[i], 1);
  }
  for (const auto& plan : l.chain) {
    for (const ElidedNode& e : plan->elided) {
      l.placed[static_cast<std::size_t>(e.node)].mode = NodeMode::kView;
      l.passes[static_cast<std::size_t>(e.node)] = e.passes;
    }
    for (const PlanStep& step : plan->steps) {
      if (step.kind != PlanStep::Kind::kKernel) continue;
      l.kernels[step.node] = step.kernel;
      if (step.trial != nullptr) l.placed[static_cast<std::size_t>(step.node)].products_reason += times_of(*step.trial);
      l.passes[step.node] = step.passes;
      for (const std::int32_t with : step.absorbed) {
        l.kernels[with] = step.kernel;
        l.passes[with] = step.passes;
      }
      note_move(step, c.devices[step.slot], &l.placed[step.node]);
    }
  }
  return l;
}

// Devices that share the rows of batches, or nodes.
void write_split(JsonWriter& json, std::string& text, const DividedWork& work) {
  json.key("split");
  json.begin_array();
  if (work.rows) text += "split of batches by rows:\n";
  for (const DividedWork::Rows& s : work.rows.value_or(std::vector<DividedWork::Rows>())) {
    json.begin_object();
    json.field("device", s.device);
    json.field("rows", s.rows);
    write_time(json, "row_ns", s.row_ns);
    json.end_object();
    text += "  " + s.device + ": " + std::to_string(s.rows) + " rows of the latest run" +
            (s.row_ns > 0 ? ", " + microseconds(s.row_ns) + " a row" : "") + "\n";
  }
  json.end_array();
  json.key("split_nodes");
  json.begin_array();
  if (!work.units.empty()) text += "nodes that devices share:\n";
  for (const DividedWork::Units& s : work.units) {
    json.begin_object();
    json.field("node", s.node);
    json.field("device", s.device);
    json.field("units", s.units);
    json.field("of", s.all);
    write_time(json, "measured_ns", s.part_ns);
    json.end_object();
    text += "  " + s.node + ": " + s.device + " " + std::to_string(s.units) + " of " + std::to_string(s.all) +
            (s.part_ns > 0 ? ", measured " + microseconds(s.part_ns) : "") + "\n";
  }
  json.end_array();
}

// Rules and patterns that the configuration and the session's options select nodes by. The text has those that match nothing.
void write_selections(JsonWriter& json, std::string& text, const std::vector<NodeSelection>& selections) {
  json.key("selections");
  json.begin_array();
  for (const NodeSelection& s : selections) {
    json.begin_object();
    json.field("line", std::int64_t{s.line});
    json.field("text", s.text);
    json.field("matched", s.matched);
    json.field("own", s.own);
    json.end_object();
    if (!s.matched) text += "unmatched: " + s.text + " matches no node\n";
  }
  json.end_array();
}

// Those of a body stand behind the node that runs it, one level deeper.
void write_nodes(JsonWriter& json, std::string& text, const Session& session, std::int64_t level) {
  const CompiledGraph& c = session.compiled();
  const Latest l = latest_of(session);
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    const NodePlacement& p = l.placed[i];
    const Kernel* const kernel = l.kernels[i] != nullptr ? l.kernels[i] : p.kernel;
    const bool runs = (p.mode == NodeMode::kKernel || p.mode == NodeMode::kSegment) && kernel != nullptr;
    json.begin_object();
    write_node(json, text, c.graph().nodes[i], p, kernel_name(p, l.kernels[i]), runs ? kernel->operands : Precision::kFloat32,
               runs ? kernel->library : Products::kOwn, l.passes[i], l.times[i]);
    json.field("level", level);
    write_values(json, c.graph(), c.graph().nodes[i]);
    json.end_object();
    if (const Session* const body = session.body(i)) write_nodes(json, text, *body, level + 1);
  }
}

}  // namespace

std::string explain(const Session& session, evn_format format) {
  const CompiledGraph& c = session.compiled();
  const auto [chain, planned, passes, placed, times, costs, memory] = latest_of(session);
  if (format == EVN_FORMAT_DOT || format == EVN_FORMAT_SVG) {
    std::vector<const char*> kernels;
    for (std::size_t i = 0; i < c.nodes.size(); ++i) kernels.push_back(kernel_name(placed[i], planned[i]));
    const Drawing drawing = make_drawing(c, kernels);
    return format == EVN_FORMAT_DOT ? drawing_to_dot(drawing) : drawing_to_svg(drawing);
  }
  std::vector<CopyRow> copies = chain.empty() ? expected_copies(c) : std::vector<CopyRow>();
  for (std::size_t i = 0; i < chain.size(); ++i) add_planned_copies(c, *chain[i], costs[i], copies);
  JsonWriter json;
  std::string text = std::string("model ") + c.model->shown_name() + "\n" + nodes_by_device(c, placed);
  json.begin_object();
  json.field("model", c.model->file_name);
  json.key("auto");
  if (c.assigned != nullptr) {
    json.value(c.assigned->summary);
    text += "auto: " + c.assigned->summary + "\n";
  } else {
    json.null();
  }
  double predicted_ns = 0;
  for (const PlanCost& cost : costs) predicted_ns += cost.is_known ? cost.end_ns : 0;
  write_time(json, "predicted_ns", predicted_ns);
  if (predicted_ns > 0) text += "predicted: " + microseconds(predicted_ns) + "\n";
  write_selections(json, text, session.selections());
  json.key("metadata");
  json.begin_object();
  for (const MetadataEntry& entry : c.model->model.metadata) json.field(entry.key, entry.value);
  json.end_object();
  write_names(json, "inputs", c.graph(), c.graph().inputs);
  write_names(json, "outputs", c.graph(), c.graph().outputs);
  write_defaults(json, text, c.model->model, session.open_inputs().opened());
  text += "nodes:\n";
  json.key("nodes");
  json.begin_array();
  write_nodes(json, text, session, 0);
  json.end_array();

  json.key("copies");
  json.begin_array();
  text += "copies:\n";
  for (const CopyRow& row : copies) {
    json.begin_object();
    json.field("value", row.value);
    json.field("from", row.from);
    json.field("to", row.to);
    json.field("bytes", row.bytes);
    write_time(json, "predicted_ns", row.predicted_ns);
    json.end_object();
    text += "  " + row.value + "  " + row.from + " -> " + row.to + "  " +
            (row.bytes > 0 ? std::to_string(row.bytes) + " bytes" : "size known when it runs") +
            (row.predicted_ns > 0 ? ", predicted " + microseconds(row.predicted_ns) : "") + "\n";
  }
  json.end_array();
  write_split(json, text, session.divided_work());
  write_memory(json, text, c, chain, memory);
  write_memory_plan(json, text, c, chain);
  json.end_object();
  return format == EVN_FORMAT_JSON ? json.take() : text;
}

}  // namespace evn
