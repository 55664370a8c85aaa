// A session as its handle names it: its placement may be replaced while runs go on, when the runtime is reconfigured or a device is
// lost. docs/decisions/0071-reconfiguration.md
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "base/os/background.h"
#include "runtime/objects/live_sessions.h"
#include "runtime/request/session_identity.h"
#include "runtime/session/session.h"

namespace evn {

// How a session is made by some settings: what its caller asks for, and beside that what a configuration says.
class SessionRecipe {
 public:
  virtual ~SessionRecipe() = default;
  // `before`: in whose place it comes, or null. From any thread.
  virtual std::shared_ptr<Session> make(const std::shared_ptr<Runtime>& runtime, const SettingsPtr& settings,
                                        const std::shared_ptr<Session>& before) const = 0;
  // A session that was made by these settings is in use from now on.
  virtual void note_use_of(const SettingsPtr& /*settings*/) noexcept {}
  // For errors: "session of model.onnx".
  virtual std::string name() const = 0;

 protected:
  // False where the same settings have made a session before, which has warned.
  static bool warns_of_names(const SettingsPtr& settings, const Session* before) {
    return before == nullptr || before->compiled().settings != settings;
  }
};

// Makes sessions of a model that the host has loaded, with what its options say.
class GivenRecipe final : public SessionRecipe {
 public:
  // `model`: with the inputs open that its caller is going to give.
  GivenRecipe(ModelPtr model, SessionRequest request, std::optional<BatchingConfig> batching, std::optional<CacheConfig> cache)
      : model_(std::move(model)), request_(std::move(request)), batching_(std::move(batching)), cache_(std::move(cache)) {}
  std::shared_ptr<Session> make(const std::shared_ptr<Runtime>& runtime, const SettingsPtr& settings,
                                const std::shared_ptr<Session>& before) const override;
  std::string name() const override;

 private:
  const ModelPtr model_;
  const SessionRequest request_;
  const std::optional<BatchingConfig> batching_;  // none: the configuration's
  const std::optional<CacheConfig> cache_;        // as well
};

class LiveSession final : public std::enable_shared_from_this<LiveSession>, public PlacementOwner {
 public:
  // Makes a session by the settings that the runtime has when it is done, and has it follow them.
  static std::shared_ptr<LiveSession> create(const std::shared_ptr<Runtime>& runtime, std::unique_ptr<SessionRecipe> recipe);
  explicit LiveSession(std::unique_ptr<SessionRecipe> recipe) : recipe_(std::move(recipe)) {}
  ~LiveSession();

  std::shared_ptr<Session> current() const override;
  std::shared_ptr<Session> without_lost_devices(const Session& failed, const StopCondition& stop) override;
  void share_anew(const Session& measured) override;

 private:
  friend class LiveSessions;

  static bool has_lost_device(const Session& session);
  // A session by other settings, with which runs of this one's handle can go on. Throws with the session's name.
  std::shared_ptr<Session> make(const std::shared_ptr<Runtime>& runtime, const SettingsPtr& settings) const;
  void replace(std::shared_ptr<Session> session, const char* why) noexcept;

  const std::unique_ptr<SessionRecipe> recipe_;
  Mutex losing_;         // one thread at a time looks for a place without lost devices; taken before that of LiveSessions
  mutable Mutex mutex_;  // guards current_
  std::shared_ptr<Session> current_;

  void make_shares_anew() noexcept;
  Mutex sharing_;                           // guards sharer_ and measured_
  const Session* measured_ = nullptr;       // is not followed: it may be gone
  std::atomic<bool> is_sharing_{false};     // the thread is at work
  std::atomic<bool> stops_sharing_{false};  // its work is not wanted any more
  std::optional<os::BackgroundThread> sharer_;
};

}  // namespace evn
