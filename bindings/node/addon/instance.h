// What the addon keeps for each environment (the main thread, each worker): the library, slots of handles, and the way from threads
// of the library's to JavaScript.
#ifndef EVENER_NODE_INSTANCE_H
#define EVENER_NODE_INSTANCE_H

#include <node_api.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "raw.h"

namespace evn_node {

class Instance;
struct Pending;
struct Work;

struct Entry;

// What a function of JavaScript has as its data.
struct Bound {
  Instance* instance;
  const Entry* entry;
  bool is_async;
};

// A JavaScript exception is pending.
struct Thrown {};

// Something for the JavaScript thread. Where the environment has ended it is only deleted, on any thread.
struct Message {
  virtual ~Message() = default;
  virtual void Deliver(Instance& instance) = 0;
};

class Instance : public std::enable_shared_from_this<Instance> {
 public:
  // Makes what belongs to an environment, with the hook that ends it.
  static std::shared_ptr<Instance> Make(napi_env env);

  // Handles stand in slots, which JavaScript's side knows by numbers that only its private fields have. A number is used once.
  double Add(Kind kind, void* handle, bool counts_memory = true);
  void* Get(double id, Kind kind) const;  // NULL: there is no such slot
  // Empties a slot and gives its handle. NULL: there is no such slot, or it is in use, and the last EndUse releases the handle.
  void* Take(double id, Kind kind);
  // Keeps a handle until EndUse, also if Take is called meanwhile. False: there is no such slot.
  bool Use(double id);
  void EndUse(double id);
  void Forget(double id);  // the bytes of a tensor, which something else tells V8 of

  // Hands a message to the JavaScript thread. Any thread.
  void Post(std::unique_ptr<Message> message);

  // While something is under way that will post its end, the event loop goes on.
  void Begin();
  void End();

  // Deletes a reference, on the JavaScript thread. Any thread. In order: behind the messages that were posted before, which may use
  // it.
  void Delete(napi_ref reference, bool in_order);

  // Whether this is the thread of an environment that has not ended.
  bool IsHere() {
    std::lock_guard<std::mutex> lock(mutex_);
    return !closed_ && std::this_thread::get_id() == thread_;
  }

  // What a function is bound to, as long as the instance.
  Bound* Bind(const Entry* entry, bool is_async) {
    return bound_.emplace_back(std::make_unique<Bound>(Bound{this, entry, is_async})).get();
  }

  napi_env env = nullptr;
  const evn_api* api = nullptr;  // NULL: no library is open yet
  napi_ref make_error = nullptr;
  double* scratch = nullptr;  // numbers of slots of a run, which JavaScript's side writes
  size_t scratch_count = 0;
  std::set<std::shared_ptr<Pending>> pending;
  std::set<std::shared_ptr<Work>> works;

 private:
  struct Slot {
    void* handle = nullptr;
    uint32_t generation = 0;
    Kind kind = kNoKind;
    int64_t bytes = 0;       // that V8 was told of
    uint32_t uses = 0;       // promised calls that have the handle
    bool is_closed = false;  // Take was called while the slot was in use
  };

  static void End(void* self);
  static void Deliver(napi_env env, napi_value function, void* context, void* data);
  const Slot* Find(double id) const;
  const Slot* Find(double id, Kind kind) const;
  void* Empty(Slot* slot);
  void Tell(int64_t bytes);

  std::vector<std::unique_ptr<Bound>> bound_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  std::thread::id thread_;
  std::mutex mutex_;  // of the two below
  bool closed_ = false;
  napi_threadsafe_function queue_ = nullptr;
  size_t under_way_ = 0;
};

// Throws an EvenerError.
[[noreturn]] void Throw(Instance& instance, const evn_error& error);
[[noreturn]] void Throw(Instance& instance, evn_status status, const std::string& message);
napi_value MakeError(Instance& instance, const evn_error& error);

// Throws where a function of N-API failed.
void Check(napi_env env, napi_status status);

// Opens the library; a process has one.
const evn_api* OpenLibrary(Instance& instance, const std::string& path);

}  // namespace evn_node

#endif
