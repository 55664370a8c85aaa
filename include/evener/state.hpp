// States of streams in C++: what goes from an output of one run to an input of the next. Included by evener.hpp; see state.h for
// the rules.
#ifndef EVENER_STATE_HPP
#define EVENER_STATE_HPP

#include "state.h"
#include "tensor.hpp"

namespace evener {
inline namespace EVENER_SPANS {

// An output that is the input of the next run. capacity: 0 where its dims stay the same, else the most positions that it grows to.
struct StatePair {
  std::string output;
  std::string input;
  std::int64_t capacity = 0;
};

struct StateOptions {
  std::map<std::string, std::vector<std::int64_t>> dims;  // of inputs whose dims the model leaves open; 0 for the axis that grows
  bool on_demand = false;                                 // memory is taken as the state grows
  bool float16 = false, int8 = false;                     // EVN_STATE_FLOAT16, EVN_STATE_INT8
};

// What one stream keeps from run to run: RunOptions::state. Its inputs are given as empty Tensors, and its outputs come so.
class State : public detail::Object<evn_state, evn_state_release> {
 public:
  State() noexcept = default;

  void reset() {
    detail::check([&](evn_error* e) { return evn_state_reset(get(), e); });
  }
  State fork() const {
    State copy;
    detail::check([&](evn_error* e) { return evn_state_fork(get(), copy.handle_.out(), e); });
    return copy;
  }
  // Positions of the pair at `index`.
  std::int64_t length(std::size_t index = 0) const {
    std::int64_t positions = 0;
    detail::check([&](evn_error* e) { return evn_state_length(get(), static_cast<std::uint32_t>(index), &positions, e); });
    return positions;
  }
  void truncate(std::int64_t positions) {
    detail::check([&](evn_error* e) { return evn_state_truncate(get(), positions, e); });
  }
  std::vector<unsigned char> save() const {
    std::vector<unsigned char> bytes;
    std::size_t size = 0;
    detail::check([&](evn_error* e) { return evn_state_save(get(), nullptr, 0, &size, e); });
    bytes.resize(size);
    detail::check([&](evn_error* e) { return evn_state_save(get(), bytes.data(), bytes.size(), &size, e); });
    return bytes;
  }
  void restore(Span<const unsigned char> bytes) {
    detail::check([&](evn_error* e) { return evn_state_restore(get(), bytes.data(), bytes.size(), e); });
  }
  // Its pairs, and how they are held.
  std::string describe(Format format = Format::kText) const {
    return detail::text([&](char* buffer, std::size_t capacity, std::size_t* size, evn_error* e) {
      return evn_state_describe(get(), static_cast<evn_format>(format), buffer, capacity, size, e);
    });
  }

 private:
  friend class Session;
};

}  // inline namespace
}  // namespace evener
#endif
