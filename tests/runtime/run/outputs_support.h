// Models with several outputs, and runs of them that are asked for some, or for all where they are made.
#pragma once

#include "tests/runtime/support.h"

namespace evn::test {

// What one run gave: per output its bytes on the host, and where it lay.
struct Given {
  std::vector<HostTensor> tensors;  // an undefined dtype: nothing was given
  std::vector<std::string> devices;
};

inline HostTensor to_host(const std::shared_ptr<Runtime>& runtime, const TensorPtr& t) {
  HostTensor h(t->desc());
  if (t->size_bytes() == 0) return h;
  Tensor host(runtime, &runtime->cpu(), t->desc(), false);
  copy_tensor(*t, host);
  std::memcpy(h.bytes.data(), host.buffer().address(), host.size_bytes());
  return h;
}

inline Given run_with(Session& session, const std::vector<TensorPtr>& in, const RunRequest& request) {
  std::vector<RunValue> inputs, outputs(session.graph().outputs.size());
  for (const TensorPtr& t : in) inputs.push_back({t, nullptr});
  session.run(inputs, outputs, request);
  Given given;
  for (const RunValue& v : outputs) {
    EXPECT_EQ(v.runtime_value, nullptr);
    given.tensors.push_back(v.tensor != nullptr ? to_host(session.runtime(), v.tensor) : HostTensor());
    given.devices.push_back(v.tensor != nullptr ? v.tensor->device()->name() : "");
  }
  return given;
}

inline std::vector<TensorPtr> to_tensors(const std::shared_ptr<Runtime>& runtime, const std::vector<HostTensor>& inputs) {
  std::vector<TensorPtr> in;
  for (const HostTensor& t : inputs) in.push_back(to_tensor(runtime, t));
  return in;
}

inline void expect_same_bits(const HostTensor& got, const HostTensor& want, const std::string& what) {
  ASSERT_EQ(got.desc, want.desc) << what;
  EXPECT_EQ(std::memcmp(got.bytes.data(), want.bytes.data(), want.desc.size_bytes()), 0) << what;
}

inline std::vector<float> drawn(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> w(static_cast<std::size_t>(count));
  for (float& e : w) e = random.uniform(-0.5f, 0.5f);
  return w;
}

}  // namespace evn::test
