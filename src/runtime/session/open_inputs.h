// Inputs of a session that have a default: their values for runs that do not give them, and the sessions for runs that give others.
// docs/decisions/0091-inputs-with-a-default.md
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "runtime/loaded/model.h"
#include "runtime/objects/tensor.h"

namespace evn {

class Session;

// Makes a session of the same identity and settings, of the model with other inputs open. Throws what making a session throws.
using MakeOpened = std::function<std::shared_ptr<Session>(const ModelPtr& model)>;

class OpenInputs {
 public:
  // `of`: the session whose inputs they are. `make`: none where no others are opened.
  OpenInputs(Session& of, const LoadedModel& model, MakeOpened make);

  // The session for runs that give these inputs with a default (a byte per Model::defaults): the own one where they are open in it,
  // else one in which they are, which is kept for runs to come. Throws what loading a model and making a session throw.
  std::shared_ptr<Session> with(std::span<const std::uint8_t> given);
  std::shared_ptr<Session> with(std::span<const std::string> names);
  // Value of an input with a default that is open here, for a run that does not give it.
  const TensorPtr& default_value(std::size_t number) const { return default_values_[number]; }
  // The sessions that were made and are kept.
  std::vector<std::shared_ptr<Session>> opened() const;

 private:
  std::shared_ptr<Session> find(std::span<const std::string> names);

  Session& of_;
  const MakeOpened make_;
  std::vector<TensorPtr> default_values_;         // per Model::defaults; null: it is a constant
  mutable Mutex mutex_;                           // guards opened_; held for moments
  std::vector<std::shared_ptr<Session>> opened_;  // most recently used first
};

}  // namespace evn
