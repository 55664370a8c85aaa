// What one stream keeps from run to run. docs/decisions/0063-states.md
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/run/paged_cache.h"
#include "runtime/session/session.h"

namespace evn {

class State;
using StatePtr = std::shared_ptr<State>;

// What a state is made of.
struct StatePairRequest {
  std::string output, input;
  std::int64_t capacity = 0;  // 0: dims stay the same
};
struct StateRequest {
  struct Dims {
    std::string input;
    Shape shape;
  };
  std::vector<StatePairRequest> pairs;
  std::vector<Dims> dims;  // of inputs whose dims the model leaves open
  bool on_demand = false;
  RowFormat format = RowFormat::kPlain;  // of pages, of numbers that it can hold
};

class State {
 public:
  enum class Storage : std::uint8_t {
    kPages,           // rows in pages, which runs append to
    kDoubleBuffered,  // two tensors of the same dims: a run reads one and writes the other
    kTensor           // the tensor that the latest run made
  };
  struct Pair {
    std::size_t output = 0, input = 0;  // positions among those of the graph
    std::int64_t capacity = 0;
    int axis = -1;  // on which it grows; -1: it does not
    Storage storage = Storage::kDoubleBuffered;
    RowFormat format = RowFormat::kPlain;  // kPages
    const char* reason = "";               // why it is stored so
    std::uint8_t slot = 0;                 // of the session's devices, where its tensors lie
    TensorDesc first;                      // as it begins
    TensorDesc desc;                       // as it is now
    std::unique_ptr<PagedCache> cache;     // kPages
    TensorPtr current, spare;              // else; `spare` kDoubleBuffered alone
    std::size_t counted = 0;               // of its bytes, among the session's

    std::int64_t positions() const { return axis >= 0 ? desc.shape[axis] : 0; }
    std::size_t bytes() const;
    // The size of what save() writes for this pair.
    std::size_t saved_bytes() const { return cache != nullptr ? cache->stored_bytes(positions()) : desc.size_bytes(); }
  };

  State(std::shared_ptr<Session> session, const StateRequest& request);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // The state for one user at a time; what it returns ends that. Throws EVN_ERROR_BUSY.
  static StatePtr lease(const StatePtr& state);

  // Only the holder of the lease may call these, but for what says otherwise.
  Session& session() const { return *session_; }
  // Goes on with another placement of its session, with what it holds or empty. Throws EVN_ERROR_DEVICE_LOST where what it holds
  // lay on a device that is lost, and EVN_ERROR_OUT_OF_MEMORY; the state is then as it was.
  void follow(const std::shared_ptr<Session>& session, bool with_contents);
  std::span<Pair> pairs() { return pairs_; }
  // The pair of the graph's input or output at a position; nullptr: it is in none.
  Pair* pair_of_input(std::size_t input) { return has_input(input) ? find(input_pairs_[input]) : nullptr; }
  Pair* pair_of_output(std::size_t output) { return find(output_pairs_[output]); }
  // False for an input that is open only in a session that the state has not followed.
  bool has_input(std::size_t input) const { return input < input_pairs_.size() && input_pairs_[input] >= 0; }
  bool has_output(std::size_t output) const { return output_pairs_[output] >= 0; }
  // A tensor of a pair, on its device. Throws EVN_ERROR_OUT_OF_MEMORY.
  TensorPtr make_tensor(const Pair& pair, const TensorDesc& desc, bool zeroed) const;
  // Sets what pairs are now; calls `change` while nobody else looks.
  template <typename F>
  void commit(F&& change) {
    const std::lock_guard<Mutex> lock(mutex_);
    change();
    count_bytes();
  }

  void reset();
  StatePtr fork() const;
  void truncate(std::int64_t positions);
  std::size_t saved_size() const;
  void save(std::span<unsigned char> to) const;  // of saved_size() bytes
  void restore(std::span<const unsigned char> bytes);

  // From any thread.
  std::int64_t length(std::size_t pair) const;
  std::string describe(evn_format format) const;

 private:
  struct Empty {};
  State(const State& from, Empty);
  // `before`: pairs of another placement, which say on which axis a pair grows where the graph does not.
  State(std::shared_ptr<Session> session, const StateRequest& request, Empty, std::span<const Pair> before = {});
  // Takes the pairs of `made`, a state with another placement. A pair that is empty there keeps its contents.
  void take(State& made);
  // Reads what save() wrote.
  void read(std::span<const unsigned char> bytes);
  std::shared_ptr<Session> newest_session() const;
  // Adds to the memory of the session's states.
  void add_bytes(std::int64_t bytes) const;
  TensorPtr plain_copy(const Pair& pair) const;
  void copy_contents(const Pair& from, Pair* to, const State& made) const;
  class Index;
  void add_pair(const StatePairRequest& request, const StateRequest& all, Index& index, int known_axis);
  Shape first_shape(const Pair& pair, Index& index) const;
  int growing_axis(const Pair& pair, const Index& index) const;
  void allocate(Pair& pair, const Pair* forked_from) const;
  TensorPtr host_copy(const Pair& pair) const;
  void count_bytes();
  Pair* find(std::int32_t number) { return number < 0 ? nullptr : &pairs_[static_cast<std::size_t>(number)]; }

  std::shared_ptr<Session> session_;  // the lease's
  const StateRequest request_;
  std::vector<Pair> pairs_;
  std::vector<std::int32_t> input_pairs_, output_pairs_;  // per input and output of the graph
  std::atomic<bool> leased_{false};
  mutable Mutex mutex_;  // guards what commit changes, for who has no lease
};

}  // namespace evn
