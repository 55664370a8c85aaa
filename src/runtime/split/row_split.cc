#include "runtime/split/row_split.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/guarded.h"
#include "base/os/os.h"
#include "runtime/run/overlap.h"
#include "runtime/session/session.h"

namespace evn {
namespace {

constexpr std::size_t kMostProofs = 128;  // a run has one for its batch and one for each share
constexpr std::size_t kMostRowsKnown = 64;
constexpr double kNewShare = 0.25;         // of the latest run in what a row takes
constexpr std::uint64_t kRunsToLook = 64;  // after which a device without rows is given one, to see whether it still is so slow

// Contiguous bytes of rows on an axis, for each element of the axes before it.
struct RowBytes {
  std::size_t before, row;
};
RowBytes row_bytes(const TensorDesc& whole, int axis) {
  const auto before = static_cast<std::size_t>(whole.shape.elements(0, axis));
  const auto rows = static_cast<std::size_t>(whole.shape[axis]);
  return {before, before * rows == 0 ? 0 : whole.size_bytes() / before / rows};
}

void copy_rows(const Tensor& whole, Tensor& part, int axis, std::int64_t first, bool to_part) {
  const RowBytes b = row_bytes(whole.desc(), axis);
  auto* const all = static_cast<unsigned char*>(whole.buffer().address());
  auto* at = static_cast<unsigned char*>(part.buffer().address());
  const auto rows = static_cast<std::size_t>(whole.desc().shape[axis]);
  const std::size_t bytes = part.size_bytes() / std::max<std::size_t>(b.before, 1);
  for (std::size_t p = 0; p < b.before; ++p, at += bytes) {
    unsigned char* const there = all + (p * rows + static_cast<std::size_t>(first)) * b.row;
    to_part ? move_in_pieces(at, there, bytes) : move_in_pieces(there, at, bytes);
  }
}

bool lies_in_rows(const TensorDesc& desc, int axis) { return desc.shape.elements(0, axis) == 1; }

}  // namespace

std::vector<std::int64_t> share_rows(std::int64_t rows, std::span<const double> row_ns) {
  std::vector<std::int64_t> shares(row_ns.size(), 0);
  double speeds = 0;
  for (const double ns : row_ns) speeds += 1 / ns;
  std::int64_t left = rows;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    shares[i] = static_cast<std::int64_t>(std::floor(static_cast<double>(rows) / row_ns[i] / speeds));
    left -= shares[i];
  }
  for (; left > 0; --left) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < shares.size(); ++i) {
      if (static_cast<double>(shares[i] + 1) * row_ns[i] < static_cast<double>(shares[best] + 1) * row_ns[best]) best = i;
    }
    ++shares[best];
  }
  return shares;
}

// What one device does of a run.
struct RowSplit::Part {
  Session* session = nullptr;
  std::size_t device = 0;
  std::int64_t first = 0, rows = 0;
  std::vector<RunValue> inputs, outputs;
  RunRequest request;
  std::uint64_t ns = 0;
  std::optional<Error> error;

  void run() noexcept {
    error = any_error_of([&] {
      const std::uint64_t begin = os::now_ns();
      session->run(inputs, outputs, request);
      ns = os::now_ns() - begin;
    });
  }
};

namespace {

void log_refusal(const CompiledGraph& graph, const Error& why) {
  LogEvent(graph.model->runtime->log(), EVN_LOG_INFO, "split.refused")
      .field("file", graph.model->file_name.c_str())
      .field("node", why.node)
      .write("runs of these shapes are not split over devices: %s", why.message);
}

// The axes of the inputs' rows. Throws where rows of a batch are not known to be independent, with the place in the configuration.
std::vector<int> axes_to_split(const CompiledGraph& graph) {
  const Config& config = graph.settings->config;
  try {
    check_row_outputs(graph.graph());
    std::vector<int> axes = row_axes(graph.graph());
    prove_rows_beforehand(graph, axes, true);
    return axes;
  } catch (const Error& e) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "%s:%d: placement.split: the rows of a batch cannot be split: %s",
                     config.source.c_str(), config.split_line, e.message)
        .with_node(e.node);
  }
}

}  // namespace

RowSplit::RowSplit(const CompiledGraph& graph, const SessionRequest& request)
    : graph_(graph), axes_(axes_to_split(graph)), proofs_(graph, axes_, kMostProofs, log_refusal) {
  const Runtime& runtime = *graph.model->runtime;
  for (const std::string& name : graph.settings->config.split_devices) {
    std::string why;
    const Device* const device = name == "cpu" ? &runtime.cpu() : runtime.known_device(name, *graph.settings, &why);
    const std::string out = device != nullptr ? device->why_out() : "";
    if (!out.empty()) why = out;
    if (device == nullptr || !out.empty()) {
      LogEvent(runtime.log(), EVN_LOG_WARNING, "device.absent")
          .device(name.c_str())
          .field("reason", why.c_str())
          .write("runs are split without device %s, which is not there: %s", name.c_str(), why.c_str());
      continue;
    }
    SessionRequest part = request;
    part.device = name == "cpu" ? name : name + ",cpu";
    part.role.assigned = nullptr;
    devices_.push_back({name, make_plain_session(graph.model, std::move(part)), 0, 0, {}});
  }
}

// 0: it is not split.
std::int64_t RowSplit::rows_of(std::span<const RunValue> inputs, std::span<const RunValue> outputs,
                               const RunRequest& request) const {
  const Graph& g = graph_.graph();
  if (request.state != nullptr || request.outputs_on_device || request.overwrite_inputs || inputs.size() != axes_.size()) return 0;
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].tensor == nullptr || !inputs[i].tensor->on_host()) return 0;
    const TensorDesc& d = inputs[i].tensor->desc();
    const Value& want = g.values[g.inputs[i]];
    if (d.dtype != want.dtype || d.shape.rank() != want.shape.rank() || is_sub_byte(d.dtype) || d.dtype == DType::kString) return 0;
    if (axes_[i] == kNoRows) continue;
    const std::int64_t here = d.shape[axes_[i]];
    if (rows != 0 && here != rows) return 0;
    rows = here;
  }
  for (const RunValue& given : outputs) {
    if (given.runtime_value != nullptr) return 0;
    if (given.tensor != nullptr && (!given.tensor->on_host() || given.tensor->read_only())) return 0;
  }
  return rows < 2 || any_overlap(inputs, outputs) ? 0 : rows;  // a run refuses what overlaps
}

// Devices that have not been measured are taken for as fast as the others.
std::vector<std::int64_t> RowSplit::next_shares(std::int64_t rows) {
  const std::lock_guard<Mutex> lock(mutex_);
  double sum = 0, measured = 0;
  for (const DeviceSession& d : devices_) {
    sum += d.row_ns;
    measured += d.row_ns > 0 ? 1 : 0;
  }
  std::vector<double> row_ns;
  for (const DeviceSession& d : devices_) row_ns.push_back(d.row_ns > 0 ? d.row_ns : measured > 0 ? sum / measured : 1);
  std::vector<std::int64_t> shares = share_rows(rows, row_ns);
  if (++runs_ % kRunsToLook == 0) {
    for (std::int64_t& share : shares) {
      const auto most = std::max_element(shares.begin(), shares.end());
      if (share != 0 || *most < 2) continue;
      ++share;
      --*most;
    }
  }
  return shares;
}

// Shape arithmetic may compute something else for a share's number of rows than for the whole batch's.
bool RowSplit::are_proven(std::span<const std::int64_t> shares, const RowInputs& row, const RowOutputs& whole) {
  for (const std::int64_t rows : shares) {
    if (rows < 2) continue;
    const std::shared_ptr<const RowOutputs> part = proofs_.of(row, rows);
    if (part == nullptr || part->axes != whole.axes) return false;
  }
  return true;
}

// The first run of so many rows plans, and does not count.
void RowSplit::note_times(const std::vector<std::unique_ptr<Part>>& parts) {
  const std::lock_guard<Mutex> lock(mutex_);
  for (DeviceSession& d : devices_) d.rows = 0;
  for (const auto& part : parts) {
    DeviceSession& d = devices_[part->device];
    d.rows = part->rows;
    if (std::find(d.rows_known.begin(), d.rows_known.end(), part->rows) == d.rows_known.end()) {
      if (d.rows_known.size() == kMostRowsKnown) d.rows_known.erase(d.rows_known.begin());
      d.rows_known.push_back(part->rows);
      continue;
    }
    const double now = static_cast<double>(part->ns) / static_cast<double>(part->rows);
    d.row_ns = d.row_ns == 0 ? now : d.row_ns + kNewShare * (now - d.row_ns);
  }
}

// Whole outputs, of which the parts write theirs where these lie in a row. Empty: a given one is not of its shape, which a run
// refuses.
std::vector<TensorPtr> RowSplit::whole_outputs(std::span<const RunValue> outputs, const RunRequest& request,
                                               const RowOutputs& proof, std::int64_t rows) const {
  const std::shared_ptr<Runtime>& runtime = graph_.model->runtime;
  std::vector<TensorPtr> whole(outputs.size());
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    if (is_skipped(request.skipped, j)) continue;
    TensorDesc desc = proof.one[j];
    if (proof.axes[j] != kNoRows) desc.shape[proof.axes[j]] *= rows;
    whole[j] = outputs[j].tensor;
    if (whole[j] == nullptr) whole[j] = std::make_shared<Tensor>(runtime, &runtime->cpu(), desc, false, Tensor::Fill::kNone);
    if (!(whole[j]->desc() == desc)) return {};
  }
  return whole;
}

// The rows from `first` on. Tensors whose rows do not lie in a row are copied: inputs here, outputs by gather().
std::unique_ptr<RowSplit::Part> RowSplit::make_part(std::size_t device, std::int64_t first, std::int64_t rows,
                                                    std::span<const RunValue> inputs, const std::vector<TensorPtr>& whole,
                                                    const RowOutputs& proof, const RunRequest& request) {
  const std::shared_ptr<Runtime>& runtime = graph_.model->runtime;
  auto part = std::make_unique<Part>();
  part->session = devices_[device].session.get();
  part->device = device;
  part->first = first;
  part->rows = rows;
  part->request = request;
  part->request.times = nullptr;
  if (const Cancel* outer = CancelScope::current()) part->request.stop.join(*outer);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (axes_[i] == kNoRows) {
      part->inputs.push_back(inputs[i]);
      continue;
    }
    const Tensor& all = *inputs[i].tensor;
    TensorDesc desc = all.desc();
    desc.shape[axes_[i]] = rows;
    TensorPtr own;
    if (lies_in_rows(desc, axes_[i])) {
      own = Tensor::part(inputs[i].tensor, row_bytes(all.desc(), axes_[i]).row * static_cast<std::size_t>(first), desc);
    } else {
      own = std::make_shared<Tensor>(runtime, &runtime->cpu(), desc, false, Tensor::Fill::kNone);
      copy_rows(all, *own, axes_[i], first, true);
    }
    part->inputs.push_back({std::move(own), nullptr});
  }
  part->outputs.resize(whole.size());
  for (std::size_t j = 0; j < whole.size(); ++j) {
    const int axis = proof.axes[j];
    if (whole[j] == nullptr || axis == kNoRows || !lies_in_rows(whole[j]->desc(), axis)) continue;
    TensorDesc desc = whole[j]->desc();
    desc.shape[axis] = proof.one[j].shape[axis] * rows;
    const std::size_t row = row_bytes(whole[j]->desc(), axis).row * static_cast<std::size_t>(proof.one[j].shape[axis]);
    part->outputs[j].tensor = Tensor::part(whole[j], row * static_cast<std::size_t>(first), desc);
  }
  return part;
}

// All parts at a time: the first on this thread, as are those for which the system refuses one. With an executor of the host's all
// are on this thread, one after the other. Throws what the first that failed has thrown.
void RowSplit::run_parts(const std::vector<std::unique_ptr<Part>>& parts) const {
  const bool starts_threads = !graph_.model->runtime->has_executor();
  {
    std::vector<os::Thread> threads;
    threads.reserve(parts.size());
    std::vector<Part*> here{parts[0].get()};
    here.reserve(parts.size());
    for (std::size_t i = 1; i < parts.size(); ++i) {
      if (!starts_threads) {
        here.push_back(parts[i].get());
        continue;
      }
      try {
        threads.emplace_back([](void* part) { static_cast<Part*>(part)->run(); }, parts[i].get());
      } catch (const Error&) {
        here.push_back(parts[i].get());
      }
    }
    for (Part* part : here) part->run();
  }
  for (const auto& part : parts) {
    if (part->error) throw *part->error;
  }
}

// Copies what the parts could not write into the whole outputs. What has no rows is alike in all.
void RowSplit::gather(const std::vector<std::unique_ptr<Part>>& parts, const RowOutputs& proof,
                      const std::vector<TensorPtr>& whole) {
  for (std::size_t j = 0; j < whole.size(); ++j) {
    const int axis = proof.axes[j];
    if (whole[j] == nullptr) continue;
    if (axis == kNoRows) copy_tensor(*parts[0]->outputs[j].tensor, *whole[j]);
    if (axis == kNoRows || lies_in_rows(whole[j]->desc(), axis)) continue;
    for (const auto& part : parts)
      copy_rows(*whole[j], *part->outputs[j].tensor, axis, part->first * proof.one[j].shape[axis], false);
  }
}

void RowSplit::run(Session& /*session*/, StagedRun& run, const RunRest& rest) {
  if (!run_split(run)) rest(run);
}

bool RowSplit::run_split(StagedRun& run) {
  const std::span<const RunValue> inputs = run.inputs;
  const std::span<RunValue> outputs = run.outputs;
  const std::int64_t rows = rows_of(inputs, outputs, run.request);
  if (rows == 0 || devices_.size() < 2 || outputs.size() != graph_.graph().outputs.size()) return false;
  // The time limit of the run covers all parts, and the copies before and after them.
  RunRequest request = run.request;
  request.stop.join_timeout(request.timeout_ns != 0 ? request.timeout_ns : graph_.limits().run_time_ns);
  request.timeout_ns = 0;
  Cancel cancel;
  cancel.join(request.stop);
  const CancelScope scope(cancel);
  RowInputs row = one_row_of(graph_, axes_, inputs);
  row.on_any_device = true;
  const std::shared_ptr<const RowOutputs> proof = proofs_.of(row, rows);
  if (proof == nullptr) return false;
  const std::vector<std::int64_t> shares = next_shares(rows);
  if (!are_proven(shares, row, *proof)) return false;
  const std::vector<TensorPtr> whole = whole_outputs(outputs, request, *proof, rows);
  if (whole.size() != outputs.size()) return false;
  if (run.note != nullptr) run.note->begin_split();
  std::vector<std::unique_ptr<Part>> parts;
  std::int64_t first = 0;
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    if (shares[d] != 0) parts.push_back(make_part(d, first, shares[d], inputs, whole, *proof, request));
    first += shares[d];
  }
  run_parts(parts);
  note_times(parts);
  gather(parts, *proof, whole);
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    if (outputs[j].tensor == nullptr) outputs[j].tensor = whole[j];
  }
  if (run.note != nullptr) run.note->end_split();
  return true;
}

void RowSplit::add_sessions(std::vector<const Session*>* sessions) const {
  for (const DeviceSession& d : devices_) sessions->push_back(d.session.get());
}

void RowSplit::explain(DividedWork* work) const {
  const std::lock_guard<Mutex> lock(mutex_);
  std::vector<DividedWork::Rows>& rows = work->rows.emplace();
  for (const DeviceSession& d : devices_) rows.push_back({d.device, d.rows, d.row_ns});
}

}  // namespace evn
