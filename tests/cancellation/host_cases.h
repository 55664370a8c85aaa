// A long case of each operator that runs on the host (ops/host.h), called without a session.
#pragma once

#include <map>
#include <string>

#include "ops/host.h"
#include "tests/support/graph_builder.h"

namespace evn::test {

struct HostCase {
  Node node;
  std::vector<RuntimeValuePtr> inputs;
};

// What host operators need of a run: memory, and a body that gives back its inputs, or what `body` says.
class TestServices final : public HostServices {
 public:
  std::shared_ptr<RuntimeValue> make_tensor(const TensorDesc& desc, void** bytes) override;
  RuntimeValuePtr keep(const RuntimeValuePtr& runtime_value) override { return runtime_value; }
  std::vector<RuntimeValuePtr> run_body(std::span<const RuntimeValuePtr> inputs, std::uint64_t iteration) override;
  void check_stop() override {}
  const Limits& limits() const override { return limits_; }

 private:
  Limits limits_;
};

// By the operator's name and version, "Loop 1".
std::map<std::string, HostCase> host_cases();

// Runs the operator; what it made, as text.
std::vector<std::string> results_of(const HostCase& c);

}  // namespace evn::test
