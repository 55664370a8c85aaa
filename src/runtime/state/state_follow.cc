// A state that goes on with another placement of its session, which may want what it holds elsewhere and in another form.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "runtime/request/session_identity.h"
#include "runtime/state/state.h"

namespace evn {
namespace {

// Whether tensors of both pairs can take each other's place.
bool are_alike(const State::Pair& a, const Session& of_a, const State::Pair& b, const Session& of_b) {
  if (a.storage != b.storage || a.axis != b.axis || a.format != b.format) return false;
  return of_a.compiled().devices[a.slot] == of_b.compiled().devices[b.slot];
}

}  // namespace

std::shared_ptr<Session> State::newest_session() const {
  const std::shared_ptr<PlacementOwner> owner = session_->identity()->owner.lock();
  return owner != nullptr ? owner->current() : session_;
}

// The elements of a pair, on the host, in the order of a tensor.
TensorPtr State::plain_copy(const Pair& p) const {
  if (p.storage != Storage::kPages) return host_copy(p);
  auto plain = std::make_shared<Tensor>(session_->runtime(), &session_->runtime()->cpu(), p.desc, false, Tensor::Fill::kNone,
                                        MemoryClass::kStates);
  if (plain->size_bytes() > 0) p.cache->gather(0, p.positions(), p.desc.dtype, plain->buffer().address());
  return plain;
}

// Has a pair of `made`, which holds nothing, hold what the one of this state does.
void State::copy_contents(const Pair& from, Pair* to, const State& made) const {
  to->desc = from.desc;
  if (are_alike(from, *session_, *to, made.session())) return;  // what it holds goes over as it is
  const TensorPtr plain = plain_copy(from);
  if (to->storage == Storage::kPages) {
    made.allocate(*to, nullptr);
    to->cache->extend(0, to->positions());
    if (plain->size_bytes() > 0) to->cache->write(0, to->positions(), to->desc.dtype, plain->buffer().address());
    return;
  }
  to->current = made.make_tensor(*to, to->desc, false);
  if (to->storage == Storage::kDoubleBuffered) to->spare = made.make_tensor(*to, to->desc, false);
  copy_tensor(*plain, *to->current);
}

void State::follow(const std::shared_ptr<Session>& session, bool with_contents) {
  State made(session, request_, Empty{}, pairs_);
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    if (with_contents) copy_contents(pairs_[i], &made.pairs_[i], made);
    else made.allocate(made.pairs_[i], nullptr);
  }
  take(made);
}

// `made` has the old placement in the end, and what is left of the pairs there; its destructor takes their bytes back.
void State::take(State& made) {
  const std::lock_guard<Mutex> lock(mutex_);
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    Pair& p = made.pairs_[i];
    if (p.cache == nullptr && p.current == nullptr) {
      p.cache = std::move(pairs_[i].cache);
      p.current = std::move(pairs_[i].current);
      p.spare = std::move(pairs_[i].spare);
      p.counted = pairs_[i].counted;
      made.add_bytes(static_cast<std::int64_t>(p.counted));
    }
    std::swap(p, pairs_[i]);
  }
  session_.swap(made.session_);
  input_pairs_.swap(made.input_pairs_);
  count_bytes();
}

// Checks all bytes, and takes all memory, before anything changes, also if the session has another placement by now.
void State::restore(std::span<const unsigned char> bytes) {
  const std::shared_ptr<Session> newest = newest_session();
  if (newest == session_) return read(bytes);
  State made(newest, request_, Empty{}, pairs_);
  for (Pair& p : made.pairs_) made.allocate(p, nullptr);
  made.read(bytes);
  take(made);
}

}  // namespace evn
