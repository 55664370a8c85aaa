// Inputs with a default in evn_session_explain.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/json_writer.h"
#include "runtime/session/session.h"

namespace evn {

// Writes, for each input with a default, that it is a constant, or open in this graph or in one that a run had compiled.
void write_defaults(JsonWriter& json, std::string& text, const Model& model, std::span<const std::shared_ptr<Session>> opened);

}  // namespace evn
