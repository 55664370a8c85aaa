#include "runtime/loaded/plain_weights.h"

#include <algorithm>

#include "base/cancel.h"
#include "base/error.h"
#include "base/hash.h"
#include "model/external_files.h"
#include "runtime/loaded/model.h"

namespace evn {

namespace {

[[noreturn]] void fail_changed(const LoadedModel& model) {
  fail(EVN_ERROR_IO, "'%s' has changed since it was loaded: constants that were let go cannot be read again",
       model.file_name.c_str());
}

// What the file holds now. It was a good model when it was loaded.
Model read_unchanged(const LoadedModel& model) {
  model.file->check_unchanged();
  try {
    return read_again(model);
  } catch (const Error& e) {
    if (e.status == EVN_ERROR_INVALID_MODEL || e.status == EVN_ERROR_UNSUPPORTED || e.status == EVN_ERROR_LIMIT)
      fail_changed(model);
    throw;
  }
}

struct Reading {
  const WeightSource* source;
  char* to;
  std::size_t size;
};
constexpr std::size_t kTileBytes = std::size_t{1} << 20;

void read_tiles(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel&) {
  const Reading& r = args.plan->state<Reading>();
  const std::size_t from = static_cast<std::size_t>(begin) * kTileBytes;
  r.source->read(from, r.to + from, std::min(r.size, static_cast<std::size_t>(end) * kTileBytes) - from);
}

// By the threads of the CPU, as if that were a kernel: what takes the time is the memory.
std::shared_ptr<const void> read_by_threads(Device& cpu, const Weight& weight) {
  static constexpr Kernel kReading = {"reading", "", "", 0, nullptr, nullptr, nullptr, nullptr, nullptr, read_tiles};
  std::shared_ptr<void> memory = allocate_charged(weight.source->ledger, weight.size_bytes, MemoryClass::kWeights);
  KernelPlan plan;
  plan.tiles = static_cast<std::int64_t>((weight.size_bytes + kTileBytes - 1) / kTileBytes);
  plan.bytes = 2.0 * static_cast<double>(weight.size_bytes);
  plan.state<Reading>() = {weight.source.get(), static_cast<char*>(memory.get()), weight.size_bytes};
  static constinit const Cancel never{};
  const Cancel& cancel = CancelScope::current() != nullptr ? *CancelScope::current() : never;
  KernelCall call;
  call.kernel = &kReading;
  call.cancel = &cancel;
  call.args.plan = &plan;
  cpu.wait(cpu.enqueue(call, {}));
  if (cancel.stop()) cancel.fail();
  return memory;
}

}  // namespace

PlainWeights::Access::Access(const LoadedModel& model)
    : cut_(model),
      model_(model.whole != nullptr ? *model.whole : model),
      weights_(*model_.plain),
      lock_(lock_or_stop(model_.plain->mutex_, CancelScope::current())) {}

std::map<const Weight*, PlainWeights::State>& PlainWeights::Access::states_of(const Weight& weight) const {
  return weight.slice != nullptr ? cut_.plain->states_ : weights_.states_;
}

bool PlainWeights::Access::may_go(const Weight& weight) const {
  if (model_.file == nullptr) return may_go_in_bodies(model_, weight);
  return weight.size_bytes >= kLeastBytes;
}

// Bodies have no file of a model, but the files of external data.
bool PlainWeights::Access::may_go_in_bodies(const LoadedModel& model, const Weight& weight) {
  return model.external != nullptr && weight.source != nullptr && weight.source->is_external && weight.size_bytes >= kLeastBytes;
}

void PlainWeights::Access::bring_back(const Weight& weight) {
  if (weight.data != nullptr) return;
  if (weight.source != nullptr) {
    weight.source->check_unchanged();
    std::shared_ptr<const void> bytes = map_weight(weight);
    const bool is_mapped = bytes != nullptr;
    if (!is_mapped) bytes = read_by_threads(model_.runtime->cpu(), weight);
    weight.source->check_unchanged();
    if (!is_mapped) check(weight, bytes.get());  // nobody has looked at the pages of a mapped file, and nobody need do so now
    const_cast<Weight&>(weight).data = std::move(bytes);
    return;
  }
  if (weight.slice != nullptr) return make_slice(weight);
  if (again_ == nullptr) again_ = std::make_unique<Model>(read_unchanged(model_));
  const std::vector<Value>& values = model_.graph().values;
  const std::vector<Value>& found = again_->graph.values;
  if (values.size() != found.size()) fail_changed(model_);
  for (std::size_t v = 0; v < values.size(); ++v) {
    if (values[v].constant.get() != &weight) continue;
    const Weight* same = found[v].constant.get();
    if (same == nullptr || !(same->desc == weight.desc)) fail_changed(model_);
    check(weight, same->bytes());
    const_cast<Weight&>(weight).data = same->data;
    return;
  }
  fail(EVN_ERROR_INTERNAL, "a constant that was let go is not in the graph");
}

// Out of the whole weight's bytes, which are then let go.
void PlainWeights::Access::make_slice(const Weight& part) {
  const Weight& whole = *part.slice->whole;
  bring_back(whole);
  std::shared_ptr<const void> bytes = copy_slice(part, model_.runtime->cpu().ledger());
  check(part, bytes.get());
  const_cast<Weight&>(part).data = std::move(bytes);
  let_go(whole);
}

void PlainWeights::Access::check_unchanged() const {
  if (model_.file != nullptr) model_.file->check_unchanged();
  if (model_.external != nullptr) model_.external->check_unchanged();
}

void PlainWeights::Access::check(const Weight& weight, const void* bytes) const {
  const std::map<const Weight*, State>& states = states_of(weight);
  const auto state = states.find(&weight);
  if (state == states.end() || !state->second.has_checksum) return;
  if (checksum_of(bytes, weight.size_bytes) != state->second.checksum) fail_changed(model_);
}

void PlainWeights::Access::note_checksum(const Weight& weight, std::uint64_t checksum) {
  if (!may_go(weight)) return;
  State& state = states_of(weight)[&weight];
  if (state.has_checksum && state.checksum != checksum) fail_changed(model_);
  state.checksum = checksum;
  state.has_checksum = true;
}

void PlainWeights::Access::keep(const Weight& weight) {
  if (!may_go(weight)) return;
  State& state = states_of(weight)[&weight];
  bring_back(weight);
  state.kept = true;
}

void PlainWeights::Access::let_go(const Weight& weight) {
  if (!may_go(weight) || weight.data == nullptr) return;
  State& state = states_of(weight)[&weight];
  if (state.kept) return;
  const bool is_mapped = weight.source != nullptr && weight.source->mapping != nullptr;
  if (!state.has_checksum && !is_mapped) {
    state.checksum = checksum_of(weight.data.get(), weight.size_bytes);
    state.has_checksum = true;
  }
  const_cast<Weight&>(weight).data.reset();
}

}  // namespace evn
