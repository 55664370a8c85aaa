#include "runtime/plain_weights.h"

#include <cstring>

#include "base/error.h"
#include "runtime/model.h"

namespace evn {
namespace {

// Tells changed bytes from the old ones; four lanes, so that it takes no longer than reading them.
std::uint64_t checksum_of(const void* bytes, std::size_t size) {
  constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15u;
  const auto* p = static_cast<const unsigned char*>(bytes);
  std::uint64_t lanes[4] = {size, kPrime, ~kPrime, 1};
  const auto mix = [&](std::uint64_t& lane, const unsigned char* at, std::size_t count) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, count);
    lane = (lane ^ word) * kPrime;
    lane ^= lane >> 29;
  };
  for (; size >= 32; size -= 32, p += 32) {
    for (std::size_t i = 0; i < 4; ++i) mix(lanes[i], p + 8 * i, 8);
  }
  for (std::size_t i = 0; size > 0; ++i) {
    const std::size_t count = size < 8 ? size : 8;
    mix(lanes[i], p, count);
    p += count;
    size -= count;
  }
  for (int i = 1; i < 4; ++i) mix(lanes[0], reinterpret_cast<const unsigned char*>(&lanes[i]), 8);
  return lanes[0];
}

[[noreturn]] void fail_changed(const LoadedModel& model) {
  fail(EVN_ERROR_IO, "'%s' has changed since it was loaded: constants that were let go cannot be read again", model.file_name.c_str());
}

// What the file holds now. It was a good model when it was loaded.
Model read_unchanged(const LoadedModel& model) {
  model.file->check_unchanged();
  try {
    return read_again(model);
  } catch (const Error& e) {
    if (e.status == EVN_ERROR_INVALID_MODEL || e.status == EVN_ERROR_UNSUPPORTED || e.status == EVN_ERROR_LIMIT) fail_changed(model);
    throw;
  }
}

}  // namespace

PlainWeights::Access::Access(const LoadedModel& model) : model_(model), weights_(model.plain), lock_(model.plain.mutex_) {}

bool PlainWeights::Access::may_go(const Weight& weight) const { return model_.file != nullptr && weight.size_bytes >= kLeastBytes; }

void PlainWeights::Access::bring_back(const Weight& weight) {
  if (weight.data != nullptr) return;
  if (again_ == nullptr) again_ = std::make_unique<Model>(read_unchanged(model_));
  const std::vector<Value>& values = model_.graph().values;
  const std::vector<Value>& found = again_->graph.values;
  if (values.size() != found.size()) fail_changed(model_);
  for (std::size_t v = 0; v < values.size(); ++v) {
    if (values[v].constant.get() != &weight) continue;
    const Weight* same = found[v].constant.get();
    if (same == nullptr || !(same->desc == weight.desc)) fail_changed(model_);
    if (checksum_of(same->data.get(), same->size_bytes) != weights_.states_[&weight].checksum) fail_changed(model_);
    const_cast<Weight&>(weight).data = same->data;
    return;
  }
  fail(EVN_ERROR_INTERNAL, "a constant that was let go is not in the graph");
}

void PlainWeights::Access::keep(const Weight& weight) {
  if (!may_go(weight)) return;
  State& state = weights_.states_[&weight];
  bring_back(weight);
  state.kept = true;
}

void PlainWeights::Access::let_go(const Weight& weight) {
  if (!may_go(weight) || weight.data == nullptr) return;
  State& state = weights_.states_[&weight];
  if (state.kept) return;
  state.checksum = checksum_of(weight.data.get(), weight.size_bytes);
  const_cast<Weight&>(weight).data.reset();
}

}  // namespace evn
