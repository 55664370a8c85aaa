// Other shares of nodes that devices share, while runs go on with those of now.
#include "base/cancel.h"
#include "base/error.h"
#include "runtime/live/live_session.h"

namespace evn {

LiveSession::~LiveSession() {
  stops_sharing_.store(true);
  sharer_.reset();
}

void LiveSession::share_anew(const Session& measured) {
  // The session is made on a thread of the library's. A host with an executor wants none, and operators that are called on the
  // caller's thread alone could not infer shapes there.
  if (measured.runtime()->has_executor() || !measured.compiled().model->model.callers_operator.empty()) return;
  const std::lock_guard<Mutex> lock(sharing_);
  if (is_sharing_.load()) return;
  sharer_.reset();  // has ended
  measured_ = &measured;
  is_sharing_.store(true);
  try {
    sharer_.emplace([](void* live) { static_cast<LiveSession*>(live)->make_shares_anew(); }, this);
  } catch (...) {  // the system gives no thread: the shares stay as they are
    is_sharing_.store(false);
  }
}

void LiveSession::make_shares_anew() noexcept {
  std::shared_ptr<Session> before;
  try {
    before = current();
    const std::shared_ptr<Runtime>& runtime = before->runtime();
    Cancel cancel;
    cancel.requested = &stops_sharing_;
    const CancelScope scope(cancel);
    const SettingsPtr settings = runtime->settings();
    if (before.get() == measured_ && settings == before->compiled().settings) {
      std::shared_ptr<Session> session = make(runtime, settings);
      const std::lock_guard<Mutex> lock(runtime->live().mutex_);
      const bool is_other = session->compiled().model != before->compiled().model;
      if (is_other && runtime->settings() == settings && current() == before)
        replace(std::move(session), "shares of split nodes follow the devices' speeds");
    }
  } catch (const Error& e) {
    if (e.status != EVN_ERROR_CANCELLED && before != nullptr) {
      LogEvent(before->runtime()->log(), EVN_LOG_INFO, "split.refused")
          .field("file", before->compiled().model->file_name.c_str())
          .field("node", e.node)
          .write("split nodes keep their shares: %s", e.message);
    }
  } catch (...) {  // no memory: they keep them
  }
  before.reset();
  is_sharing_.store(false);
}

}  // namespace evn
