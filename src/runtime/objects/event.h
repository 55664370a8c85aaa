// An event of the C API: the end of a copy, of all work that a device had been given, or of something of the host's driver.
#pragma once

#include <memory>
#include <optional>

#include "base/error.h"
#include "base/mutex.h"
#include "runtime/objects/runtime.h"

namespace evn {

class HostEvent {
 public:
  // `event`: of a device of the runtime; no device: it has happened. A native event has been retained, and is released here.
  HostEvent(std::shared_ptr<Runtime> runtime, const Event& event) : runtime_(std::move(runtime)), event_(event) {}
  // Before anybody else has it: what it is of, where it could not be made before that was enqueued.
  void set(const Event& event) { event_ = event; }
  ~HostEvent();
  HostEvent(const HostEvent&) = delete;
  HostEvent& operator=(const HostEvent&) = delete;

  // What a command can wait for. Throws EVN_ERROR_INVALID_ARGUMENT where it is of another runtime.
  const Event& of(const Runtime& runtime) const;

  // True: it has happened. False when `cancel` says stop first. Throws the error with which it ended, however often it is asked.
  bool wait(const Cancel& cancel);

 private:
  const std::shared_ptr<Runtime> runtime_;
  Event event_;
  Mutex mutex_;  // guards what follows
  bool has_ended_ = false;
  std::optional<Error> error_;
};
using EventPtr = std::shared_ptr<HostEvent>;

}  // namespace evn
