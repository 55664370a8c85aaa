// Sessions that follow their runtime's settings, over mock devices.
#pragma once

#include "runtime/live/live_session.h"
#include "tests/runtime/support.h"

namespace evn::test {

inline std::shared_ptr<LiveSession> make_live(const ModelPtr& model, SessionRequest request = "") {
  return LiveSession::create(model->runtime, std::make_unique<GivenRecipe>(model, std::move(request), std::nullopt, std::nullopt));
}

inline std::string place_of(const Session& session, const std::string& node) {
  const Graph& graph = session.graph();
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].name == node) return session.compiled().placement.nodes[i].device->name();
  }
  throw std::runtime_error("no node " + node);
}

inline std::string reason_of(const Session& session, const std::string& node) {
  const Graph& graph = session.graph();
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].name == node) return session.compiled().placement.nodes[i].reason;
  }
  throw std::runtime_error("no node " + node);
}

inline HostTensor network_input(float at = 0) {
  HostTensor x({DType::kFloat32, {2, 3, 8, 8}});
  for (std::size_t i = 0; i < x.as<float>().size(); ++i) x.as<float>()[i] = at + 0.1f * static_cast<float>(i * 7 % 23) - 1.0f;
  return x;
}

}  // namespace evn::test
