#include "runtime/batch/batch_run.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/guarded.h"
#include "base/os/os.h"
#include "runtime/objects/tensor.h"

namespace evn {
namespace {

bool is_stopped(const Request& request) { return Cancel{request.run().stop}.stop(); }

}  // namespace

BatchRun::BatchRun(Batcher& batcher, std::vector<RequestPtr>&& members)
    : batcher_(batcher), session_(members.front()->shared_session()), members_(members.size()) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    members_[i].rows = members[i]->joinable_rows();
    members_[i].length = batcher_.length_of(*members[i]);
    has_stops_ = has_stops_ || members[i]->run().stop.exists();
  }
  for (std::size_t i = 0; i < members.size(); ++i) members_[i].request = std::move(members[i]);
}

std::shared_ptr<BatchRun> BatchRun::make(Batcher& batcher, std::vector<RequestPtr> members) noexcept {
  std::shared_ptr<BatchRun> made;
  if (any_error_of([&] { made = std::make_shared<BatchRun>(batcher, std::move(members)); })) {
    const std::uint32_t process = os::fork_generation();
    for (const RequestPtr& r : members) {
      if (os::fork_generation() == process) r->execute(r);
    }
  }
  return made;
}

void BatchRun::drop_stopped() {
  const std::uint32_t process = os::fork_generation();
  for (Member& m : members_) {
    if (!is_stopped(*m.request)) continue;
    const RequestPtr request = std::move(m.request);
    Request::end_stopped(request);
    if (os::fork_generation() != process) return;  // a callback has forked: the others are the parent's
  }
  std::erase_if(members_, [](const Member& m) { return m.request == nullptr; });
  if (!members_.empty()) leader_ = members_.front().request;
}

bool BatchRun::prepare() noexcept {
  try {
    const std::uint32_t process = os::fork_generation();
    drop_stopped();
    if (os::fork_generation() != process || members_.size() < 2 || !prove()) return false;
    copy_rows();
    request_ = leader().run();
    request_.timeout_ns = 0;
    request_.stop = stop_of_all();
    outputs_.resize(leader().output_count());
    return true;
  } catch (...) {  // whatever it was, it is each member's own when that runs alone
    inputs_.clear();
    return false;
  }
}

// For the batch, and for each number of rows and each length that a member has alone.
bool BatchRun::prove() {
  bool alike = true;
  for (Member& m : members_) {
    m.first = rows_;
    rows_ += m.rows;
    alike = alike && m.length == members_.front().length;
  }
  length_ = alike ? members_.front().length : batcher_.bucket_of(members_.front().length);
  proof_ = batcher_.proof_for(leader(), length_, rows_);
  if (proof_ == nullptr) return false;
  for (Member& m : members_) {
    m.proof = proof_;
    if (m.rows == 1 && m.length == length_) continue;
    m.proof = batcher_.proof_for(*m.request, m.length, std::max<std::int64_t>(m.rows, 2));
    if (m.proof == nullptr || m.proof->axes != proof_->axes) return false;
    // An output is as long as its row, along axis 1, or has nothing to do with that.
    for (std::size_t j = 0; j < proof_->one.size(); ++j) {
      TensorDesc own = m.proof->one[j];
      if (own == proof_->one[j]) continue;
      const bool by_length = proof_->axes[j] == 0 && own.shape.rank() > 1 && own.shape[1] == m.length;
      if (!by_length) return false;
      own.shape[1] = length_;
      if (!(own == proof_->one[j])) return false;
    }
  }
  return true;
}

void BatchRun::copy_rows() {
  const std::span<const RunValue> first = leader().inputs();
  const std::shared_ptr<Runtime>& runtime = session_->runtime();
  for (std::size_t i = 0; i < first.size(); ++i) {
    const int axis = batcher_.axis_of(i);
    if (axis == kNoRows) {
      inputs_.push_back(first[i]);
      continue;
    }
    TensorDesc desc = first[i].tensor->desc();
    desc.shape[axis] = rows_;
    if (batcher_.is_filled_up(i)) desc.shape[1] = length_;
    auto joined = std::make_shared<Tensor>(runtime, &runtime->cpu(), desc, false, Tensor::Fill::kNone);
    copy_input(i, *joined);
    inputs_.push_back({std::move(joined), nullptr});
  }
}

void BatchRun::copy_input(std::size_t input, const Tensor& to) const {
  const int axis = batcher_.axis_of(input);
  const bool fills = batcher_.is_filled_up(input);
  const Shape& shape = to.desc().shape;
  const auto before = static_cast<std::size_t>(shape.elements(0, axis));
  const std::size_t row = to.size_bytes() / before / static_cast<std::size_t>(rows_);
  auto* at = static_cast<unsigned char*>(to.buffer().address());
  for (std::size_t p = 0; p < before; ++p) {
    for (const Member& m : members_) {
      const Tensor& from = *m.request->inputs()[input].tensor;
      const auto rows = static_cast<std::size_t>(m.rows);
      const std::size_t own = from.size_bytes() / before / rows;
      const auto* source = static_cast<const unsigned char*>(from.buffer().address()) + p * own * rows;
      if (!fills || own == row) {
        move_in_pieces(at, source, row * rows);
      } else {
        for (std::size_t r = 0; r < rows; ++r) {
          move_in_pieces(at + r * row, source + r * own, own);
          fill_in_pieces(at + r * row + own, 0, row - own);
        }
      }
      at += row * rows;
    }
  }
}

// It stops when all members are: at the latest of their deadlines, by the token that all of them have, or by take_stopped().
StopCondition BatchRun::stop_of_all() {
  StopCondition all = leader().run().stop;
  bool ever = true;
  for (const Member& m : members_) {
    const StopCondition& own = m.request->run().stop;
    ever = ever && own.exists();
    all.deadline_ns = all.deadline_ns == 0 || own.deadline_ns == 0 ? 0 : std::max(all.deadline_ns, own.deadline_ns);
    if (own.requested != all.requested) all.requested = nullptr;
  }
  if (ever && all.requested == nullptr) all.requested = &token_.requested;
  return all;
}

void BatchRun::take_stopped(std::vector<RequestPtr>* to) noexcept {
  const std::lock_guard<Mutex> lock(mutex_);
  bool some = false;
  for (Member& m : members_) {
    if (m.request == nullptr) continue;
    if (is_stopped(*m.request)) to->push_back(std::move(m.request));
    else some = true;
  }
  if (!some) token_.requested.store(true, std::memory_order_relaxed);
}

// The members that have not been stopped run alone, so that a failure is only that of whose it is; a batch that fails again and
// again costs its run each time, which the log tells.
void BatchRun::note_failure(const Error& e) const noexcept {
  if (e.status == EVN_ERROR_CANCELLED || e.status == EVN_ERROR_TIMEOUT) return;  // all members have been stopped
  LogEvent(session_->runtime()->log(), EVN_LOG_INFO, "batching.failed")
      .field("node", e.node)
      .field("rows", static_cast<std::uint64_t>(rows_))
      .write("a batch of %lld rows failed, and its requests run alone: %s", static_cast<long long>(rows_), e.message);
}

bool BatchRun::run() noexcept {
  times_.requests = static_cast<std::uint32_t>(members_.size());
  request_.times = &times_;
  Runtime& runtime = *session_->runtime();
  runtime.begin_run();
  const std::uint64_t begin = os::now_ns();
  const std::optional<Error> e = any_error_of([&] { session_->run(inputs_, outputs_, request_); });
  session_->identity()->requests.add_run_time(leader().size_class(), os::now_ns() - begin, !e);
  inputs_.clear();  // before the end, at which pools that trim when idle are trimmed
  runtime.end_run();
  if (e) note_failure(*e);
  return !e;
}

void BatchRun::finish(bool has_run) noexcept {
  if (has_run) {
    session_->identity()->statistics.note_rows(static_cast<std::size_t>(rows_));
  }
  const std::uint32_t process = os::fork_generation();
  for (Member& m : members_) {
    if (os::fork_generation() != process) return;  // a callback has forked: the others are the parent's
    RequestPtr request;
    {
      const std::lock_guard<Mutex> lock(mutex_);
      request.swap(m.request);
    }
    has_computed_all_ = has_computed_all_ && (has_run || request != nullptr);
    if (request == nullptr) continue;
    if (is_stopped(*request)) {
      has_computed_all_ = has_computed_all_ && has_run;
      Request::end_stopped(request);
      continue;
    }
    bool given = false;
    try {
      given = has_run && give(m, request);
    } catch (...) {  // as above
    }
    if (!given) has_computed_all_ = request->execute(request) && has_computed_all_;
  }
}

// False: a tensor that was given for an output is not of its shape, of which a run tells.
bool BatchRun::give(const Member& member, const RequestPtr& to) {
  Request& request = *to;
  std::vector<RunValue> made(outputs_.size());
  for (std::size_t j = 0; j < outputs_.size(); ++j) {
    const TensorPtr& given = request.given_output(j);
    if (outputs_[j].tensor == nullptr) continue;
    if (given != nullptr && !(given->desc() == desc_of_part(member, j))) return false;
    if (given == nullptr) made[j].tensor = part(member, j);
  }
  for (std::size_t j = 0; j < outputs_.size(); ++j) {
    const TensorPtr& given = request.given_output(j);
    if (given != nullptr && outputs_[j].tensor != nullptr) copy_part(member, j, *given);
  }
  const std::uint64_t came = request.submitted_ns();
  session_->identity()->statistics.note_run(request.run().priority, RunOutcome::kCompleted,
                                            (times_.begin_ns > came ? times_.begin_ns - came : 0) + times_.waited_ns,
                                            times_.end_ns - times_.begin_ns - times_.waited_ns);
  request.end_joined(to, made);
  return true;
}

TensorDesc BatchRun::desc_of_part(const Member& member, std::size_t output) const {
  TensorDesc desc = member.proof->one[output];
  const int axis = member.proof->axes[output];
  if (axis != kNoRows) desc.shape[axis] *= member.rows;
  return desc;
}

// Without a copy where its elements stand in a row, and belong to it alone.
TensorPtr BatchRun::part(const Member& member, std::size_t output) const {
  const TensorPtr& whole = outputs_[output].tensor;
  const TensorDesc desc = desc_of_part(member, output);
  const int axis = proof_->axes[output];
  if (axis != kNoRows && member.proof->one[output] == proof_->one[output] && desc.shape.elements(0, axis) == 1) {
    const std::size_t row = whole->size_bytes() / static_cast<std::size_t>(rows_);
    return Tensor::part(whole, row * static_cast<std::size_t>(member.first), desc, true);
  }
  auto made = std::make_shared<Tensor>(session_->runtime(), &session_->runtime()->cpu(), desc, false, Tensor::Fill::kNone);
  copy_part(member, output, *made);
  return made;
}

// A row has one place or several on the axis of the rows. A place is a block of bytes, and a member has the beginning of it where
// the batch's rows were filled up.
void BatchRun::copy_part(const Member& member, std::size_t output, Tensor& to) const {
  const Tensor& whole = *outputs_[output].tensor;
  const auto* from = static_cast<const unsigned char*>(whole.buffer().address());
  auto* at = static_cast<unsigned char*>(to.buffer().address());
  const int axis = proof_->axes[output];
  if (to.size_bytes() == 0) return;
  if (axis == kNoRows) return move_in_pieces(at, from, to.size_bytes());
  const auto before = static_cast<std::size_t>(to.desc().shape.elements(0, axis));
  const auto all_places = static_cast<std::size_t>(whole.desc().shape[axis]);
  const auto places = static_cast<std::size_t>(to.desc().shape[axis]);
  const std::size_t first = places / static_cast<std::size_t>(member.rows) * static_cast<std::size_t>(member.first);
  const std::size_t place = whole.size_bytes() / before / all_places;
  const std::size_t own = to.size_bytes() / before / places;
  for (std::size_t p = 0; p < before; ++p) {
    const unsigned char* source = from + (p * all_places + first) * place;
    if (own == place) {
      move_in_pieces(at, source, own * places);
      at += own * places;
    } else {
      for (std::size_t k = 0; k < places; ++k, at += own, source += place) move_in_pieces(at, source, own);
    }
  }
}

void BatchList::add(BatchRun& batch) {
  batch.next_ = first_;
  first_ = &batch;
}

void BatchList::remove(BatchRun& batch) {
  BatchRun** at = &first_;
  while (*at != &batch) at = &(*at)->next_;
  *at = batch.next_;
}

std::vector<std::shared_ptr<BatchRun>> BatchList::all() const noexcept {
  std::vector<std::shared_ptr<BatchRun>> found;
  try {
    for (BatchRun* b = first_; b != nullptr; b = b->next_) found.push_back(b->shared_from_this());
  } catch (const std::bad_alloc&) {}
  return found;
}

}  // namespace evn
