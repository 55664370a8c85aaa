#include "runtime/batch/batcher.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/scheduling_constants.h"
#include "runtime/objects/tensor.h"
#include "runtime/request/request.h"
#include "runtime/run/overlap.h"

namespace evn {
namespace {

constexpr std::size_t kLeastProofs = 64, kMostProofs = 1024;
constexpr std::size_t kMostRowSizes = 16;    // for which it is known how many rows a batch should have
constexpr std::size_t kMostCompared = 4096;  // bytes of an input without rows

bool same_bytes(const Tensor& a, const Tensor& b) {
  if (!(a.desc() == b.desc())) return false;
  if (a.size_bytes() == 0 || a.buffer().address() == b.buffer().address()) return true;
  return a.size_bytes() <= kMostCompared && std::memcmp(a.buffer().address(), b.buffer().address(), a.size_bytes()) == 0;
}

void log_refusal(const CompiledGraph& graph, const Error& why) {
  LogEvent(graph.model->runtime->log(), EVN_LOG_INFO, "batching.refused")
      .field("file", graph.model->file_name.c_str())
      .field("node", why.node)
      .write("requests of these shapes run alone: %s", why.message);
}

}  // namespace

Batcher::Batcher(const CompiledGraph& graph, const BatchingConfig& config)
    : graph_(graph),
      config_(config),
      axes_(row_axes(graph.graph())),
      filled_up_(axes_.size(), false),
      proofs_(graph, axes_, std::clamp(2 * static_cast<std::size_t>(config.max_batch), kLeastProofs, kMostProofs), log_refusal) {
  find_mask();
  check_row_outputs(graph.graph());
  if (!prove_rows_beforehand(graph, axes_)) {
    LogEvent(graph.model->runtime->log(), EVN_LOG_INFO, "batching.open")
        .field("file", graph.model->file_name.c_str())
        .write("whether rows can be joined is looked at when requests come: none of the lengths tried fits the graph");
  }
  sizes_.reserve(kMostRowSizes);
}

void Batcher::find_mask() {
  if (config_.mask.empty()) return;
  const Graph& g = graph_.graph();
  for (std::size_t i = 0; i < g.inputs.size(); ++i) {
    if (g.values[g.inputs[i]].name == config_.mask) mask_ = static_cast<int>(i);
  }
  if (mask_ == kNoRows) fail(EVN_ERROR_INVALID_ARGUMENT, "batching.mask is \"%s\", which is no input", config_.mask.c_str());
  const Value& mask = g.values[g.inputs[static_cast<std::size_t>(mask_)]];
  if (axes_[static_cast<std::size_t>(mask_)] != 0 || mask.shape.rank() < 2 || mask.shape[1] >= 0) {
    fail(EVN_ERROR_UNSUPPORTED, "batching.mask: dims 0 and 1 of input \"%s\" must be open, they are %s", mask.name.c_str(),
         mask.shape.to_string().c_str());
  }
  for (std::size_t i = 0; i < g.inputs.size(); ++i) {
    const Value& v = g.values[g.inputs[i]];
    if (axes_[i] != 0 || v.shape.rank() < 2 || v.shape[1] >= 0) continue;
    const auto name = [](const Value& of) { return of.symbols.size() > 1 ? of.symbols[1] : std::string(); };
    filled_up_[i] = name(v).empty() || name(mask).empty() || name(v) == name(mask);
  }
}

std::int64_t Batcher::rows_of(const Request& request) const {
  const RunRequest& run = request.run();
  if (run.state != nullptr || run.outputs_on_device || run.overwrite_inputs) return 0;
  const std::span<const RunValue> in = request.inputs();
  const Graph& g = graph_.graph();
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i].tensor == nullptr || !in[i].tensor->on_host()) return 0;
    const TensorDesc& d = in[i].tensor->desc();
    const Value& want = g.values[g.inputs[i]];
    if (d.dtype != want.dtype || d.shape.rank() != want.shape.rank() || is_sub_byte(d.dtype)) return 0;
    for (int k = 0; k < d.shape.rank(); ++k) {
      if (d.shape[k] == 0 || (want.shape[k] >= 0 && want.shape[k] != d.shape[k])) return 0;
    }
    if (axes_[i] == kNoRows) continue;
    const std::int64_t here = d.shape[axes_[i]];
    if (rows != 0 && here != rows) return 0;
    rows = here;
  }
  const std::int64_t length = length_of(request);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (filled_up_[i] && in[i].tensor->desc().shape[1] != length) return 0;
  }
  for (std::size_t j = 0; j < request.output_count(); ++j) {
    const TensorPtr& given = request.given_output(j);
    if (given != nullptr && (!given->on_host() || given->read_only())) return 0;
  }
  if (any_overlap(in, request.outputs())) return 0;  // a run of its own refuses it
  return rows;
}

bool Batcher::agree(const Request& a, const Request& b) const {
  const RunRequest& x = a.run();
  const RunRequest& y = b.run();
  if (x.random_seed != y.random_seed || x.allow_copies != y.allow_copies || x.skipped != y.skipped) return false;
  if (mask_ != kNoRows && bucket_of(length_of(a)) != bucket_of(length_of(b))) return false;
  for (std::size_t i = 0; i < a.inputs().size(); ++i) {
    const Tensor& s = *a.inputs()[i].tensor;
    const Tensor& t = *b.inputs()[i].tensor;
    if (axes_[i] == kNoRows && &s != &t && !same_bytes(s, t)) return false;
    for (int k = 0; k < s.desc().shape.rank(); ++k) {
      const bool free = k == axes_[i] || (k == 1 && filled_up_[i]);
      if (!free && s.desc().shape[k] != t.desc().shape[k]) return false;
    }
  }
  return true;
}

std::uint64_t Batcher::row_bytes(const Request& request) const {
  const auto rows = static_cast<std::uint64_t>(request.joinable_rows());
  const auto length = static_cast<std::uint64_t>(length_of(request));
  const auto bucket = static_cast<std::uint64_t>(bucket_of(length_of(request)));
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i] == kNoRows) continue;
    const std::uint64_t own = request.inputs()[i].tensor->size_bytes() / rows;
    bytes += filled_up_[i] ? own / length * bucket : own;
  }
  return bytes;
}

// 0: there has been but one, which may have been planned.
std::uint64_t Batcher::shortest_run_ns() const {
  return runs_.load(std::memory_order_relaxed) > 1 ? least_ns_.load(std::memory_order_relaxed) : 0;
}

BatchSizes& Batcher::sizes_of(std::uint64_t row_bytes) noexcept {
  auto it = std::find_if(sizes_.begin(), sizes_.end(), [&](const RowSizes& s) { return s.row_bytes == row_bytes; });
  if (it == sizes_.end()) {
    const BatchSizes made(config_.max_batch, shortest_run_ns(), sizes_.empty() ? nullptr : &sizes_.front().sizes);
    if (sizes_.size() == sizes_.capacity()) sizes_.pop_back();
    sizes_.push_back({row_bytes, made});
    it = sizes_.end() - 1;
  }
  std::rotate(sizes_.begin(), it, it + 1);
  return sizes_.front().sizes;
}

std::uint64_t Batcher::waits_until(const Request& member) const {
  const std::uint64_t end = member.submitted_ns() + std::min(config_.max_delay_ns, UINT64_MAX - member.submitted_ns());
  const std::uint64_t deadline = member.run().stop.deadline_ns;
  if (deadline == 0) return end;
  const std::uint64_t run = 2 * mean_ns_.load(std::memory_order_relaxed) + scheduling::kDeadlineSlackNs;
  return std::min(end, deadline > run ? deadline - run : 0);
}

std::int64_t Batcher::length_of(const Request& request) const {
  return mask_ == kNoRows ? 0 : request.inputs()[static_cast<std::size_t>(mask_)].tensor->desc().shape[1];
}

std::int64_t Batcher::bucket_of(std::int64_t length) const {
  const auto bucket = std::lower_bound(config_.buckets.begin(), config_.buckets.end(), length);
  return bucket == config_.buckets.end() ? length : *bucket;
}

std::shared_ptr<const RowOutputs> Batcher::proof_for(const Request& request, std::int64_t length, std::int64_t rows) {
  RowInputs row = one_row_of(graph_, axes_, request.inputs());
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (filled_up_[i]) row.one[i].shape[1] = length;
  }
  return proofs_.of(std::move(row), rows);
}

void Batcher::note_duration(std::uint64_t duration_ns) noexcept {
  const std::uint64_t mean = mean_ns_.load(std::memory_order_relaxed);
  const std::uint64_t next = mean == 0 ? duration_ns : mean - mean / scheduling::kMeanShare + duration_ns / scheduling::kMeanShare;
  mean_ns_.store(next, std::memory_order_relaxed);
  if (duration_ns < least_ns_.load(std::memory_order_relaxed)) least_ns_.store(duration_ns, std::memory_order_relaxed);
  runs_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace evn
