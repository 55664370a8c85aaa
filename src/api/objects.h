// What each kind of handle refers to.
#pragma once

#include "api/handles.h"
#include "runtime/live/deployment.h"
#include "runtime/live/live_session.h"
#include "runtime/objects/event.h"
#include "runtime/quantize/quantizer.h"
#include "runtime/request/completion_queue.h"
#include "runtime/request/request.h"
#include "runtime/state/state.h"

namespace evn {

// A device keeps its runtime alive.
struct DeviceView {
  std::shared_ptr<Runtime> runtime;
  Device* device = nullptr;
};

// What an evn_value refers to.
struct ValueObject {
  std::shared_ptr<Runtime> runtime;
  RunValue value;
};

using RuntimePtr = std::shared_ptr<Runtime>;
using SessionPtr = std::shared_ptr<Session>;
using LiveSessionPtr = std::shared_ptr<LiveSession>;
using QuantizerPtr = std::shared_ptr<Quantizer>;
using CancelPtr = std::shared_ptr<CancelToken>;
using QueuePtr = std::shared_ptr<CompletionQueue>;

// The heap that counts what calls for the runtime allocate.
inline Heap* heap_of(const RuntimePtr& runtime) { return &runtime->cpu().pool(); }

template <>
struct HandleTraits<RuntimePtr> {
  static constexpr HandleKind kind = HandleKind::kRuntime;
  static constexpr const char* name = "runtime";
  static Heap* heap(const RuntimePtr& v) { return heap_of(v); }
};
// The host's hold on a runtime: while it lasts, the sessions that the configuration names stay.
template <>
class HandleObjectOf<RuntimePtr> final : public HandleObject {
 public:
  explicit HandleObjectOf(RuntimePtr v) : HandleObject(HandleKind::kRuntime), value(std::move(v)) {}
  RuntimePtr value;
  DeployedSessions deployed;
};

template <>
struct HandleTraits<DeviceView> {
  static constexpr HandleKind kind = HandleKind::kDevice;
  static constexpr const char* name = "device";
  static Heap* heap(const DeviceView& v) { return heap_of(v.runtime); }
};
template <>
struct HandleTraits<TensorPtr> {
  static constexpr HandleKind kind = HandleKind::kTensor;
  static constexpr const char* name = "tensor";
  static Heap* heap(const TensorPtr& v) { return heap_of(v->runtime()); }
  static void begin_handle(const TensorPtr& v) { v->begin_handle(); }
  static void end_handle(const TensorPtr& v) { v->end_handle(); }
};
template <>
struct HandleTraits<ModelPtr> {
  static constexpr HandleKind kind = HandleKind::kModel;
  static constexpr const char* name = "model";
  static Heap* heap(const ModelPtr& v) { return heap_of(v->runtime); }
};
template <>
struct HandleTraits<LiveSessionPtr> {
  static constexpr HandleKind kind = HandleKind::kSession;
  static constexpr const char* name = "session";
};

template <>
struct HandleTraits<ValueObject> {
  static constexpr HandleKind kind = HandleKind::kValue;
  static constexpr const char* name = "value";
  static Heap* heap(const ValueObject& v) { return heap_of(v.runtime); }
};
template <>
struct HandleTraits<QuantizerPtr> {
  static constexpr HandleKind kind = HandleKind::kQuantizer;
  static constexpr const char* name = "quantizer";
  static Heap* heap(const QuantizerPtr& v) { return heap_of(v->runtime()); }
};
template <>
struct HandleTraits<CancelPtr> {
  static constexpr HandleKind kind = HandleKind::kCancel;
  static constexpr const char* name = "cancel";
};
template <>
struct HandleTraits<RequestPtr> {
  static constexpr HandleKind kind = HandleKind::kRequest;
  static constexpr const char* name = "request";
  static Heap* heap(const RequestPtr& v) { return heap_of(v->runtime()); }
};
template <>
struct HandleTraits<StatePtr> {
  static constexpr HandleKind kind = HandleKind::kState;
  static constexpr const char* name = "state";
};
template <>
struct HandleTraits<EventPtr> {
  static constexpr HandleKind kind = HandleKind::kEvent;
  static constexpr const char* name = "event";
};
template <>
struct HandleTraits<QueuePtr> {
  static constexpr HandleKind kind = HandleKind::kQueue;
  static constexpr const char* name = "queue";
};

// A session for the length of a call, with the placement that it has at its begin.
class SessionPin {
 public:
  explicit SessionPin(evn_session session) : pin_(session), session_((*pin_)->current()), counted_(heap_of(session_->runtime())) {}
  Session& operator*() const { return *session_; }
  Session* operator->() const { return session_.get(); }
  const SessionPtr& shared() const { return session_; }
  const LiveSessionPtr& live() const { return *pin_; }

 private:
  const Pin<LiveSessionPtr> pin_;
  const SessionPtr session_;
  const HeapScope counted_;
};

}  // namespace evn
