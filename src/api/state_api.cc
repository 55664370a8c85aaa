// evn_state_*.
#include "evener/state.h"

#include "api/barrier.h"
#include "api/objects.h"
#include "base/checked.h"

namespace {

using namespace evn;

StateRequest request_of(const evn_state_pair* pairs, uint32_t pair_count, const evn_state_options* options) {
  static constexpr evn_state_options defaults = EVN_STATE_OPTIONS_INIT;
  const evn_state_options o = read_options(options, defaults, sizeof(evn_state_options));
  constexpr uint32_t kNarrow = EVN_STATE_FLOAT16 | EVN_STATE_INT8, kFlags = EVN_STATE_ON_DEMAND | kNarrow;
  if ((o.flags & ~kFlags) != 0 || (o.flags & kNarrow) == kNarrow) fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %u", o.flags);
  if (o.reserved != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
  require(pairs != nullptr || pair_count == 0, "pairs");
  if (pair_count == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "pair_count is 0");
  require(o.dims != nullptr || o.dim_count == 0, "dims");
  StateRequest request;
  request.on_demand = (o.flags & EVN_STATE_ON_DEMAND) != 0;
  if ((o.flags & EVN_STATE_FLOAT16) != 0) request.format = RowFormat::kFloat16;
  if ((o.flags & EVN_STATE_INT8) != 0) request.format = RowFormat::kInt8;
  for (uint32_t i = 0; i < pair_count; ++i) {
    require(pairs[i].output != nullptr, "the output of a pair");
    require(pairs[i].input != nullptr, "the input of a pair");
    request.pairs.push_back({pairs[i].output, pairs[i].input, pairs[i].capacity});
  }
  for (uint32_t i = 0; i < o.dim_count; ++i) {
    const evn_input_shape& d = o.dims[i];
    require(d.name != nullptr, "the name of dims");
    require(d.dims != nullptr || d.rank == 0, "dims");
    if (d.reserved != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "reserved of dims is not 0");
    if (d.rank > EVN_MAX_RANK) fail(EVN_ERROR_LIMIT, "rank %u is above the limit of %d", d.rank, EVN_MAX_RANK);
    request.dims.push_back({d.name, Shape(std::span<const int64_t>(d.dims, d.rank))});
  }
  return request;
}

// Does something with the state while no run uses it.
template <typename F>
evn_status with_state(evn_state state, evn_error* error, F&& f) {
  return guarded(error, [&] {
    const Pin<StatePtr> pin(state);
    const StatePtr leased = State::lease(*pin);
    const HeapScope counted(heap_of(leased->session().runtime()));
    f(*leased);
  });
}

}  // namespace

extern "C" {

evn_status evn_state_create(evn_session session, const evn_state_pair* pairs, uint32_t pair_count, const evn_state_options* options,
                            evn_state* state, evn_error* error) {
  return guarded(error, [&] {
    const SessionPin s(session);
    require(state != nullptr, "state");
    const StateRequest request = request_of(pairs, pair_count, options);
    *state = static_cast<evn_state>(make_handle(std::make_shared<State>(s.shared(), request)));
  });
}

evn_status evn_state_reset(evn_state state, evn_error* error) {
  return with_state(state, error, [](State& s) { s.reset(); });
}

evn_status evn_state_fork(evn_state state, evn_state* copy, evn_error* error) {
  return with_state(state, error, [&](State& s) {
    require(copy != nullptr, "copy");
    *copy = static_cast<evn_state>(make_handle(s.fork()));
  });
}

evn_status evn_state_length(evn_state state, uint32_t index, int64_t* positions, evn_error* error) {
  return guarded(error, [&] {
    const Pin<StatePtr> s(state);
    require(positions != nullptr, "positions");
    *positions = (*s)->length(index);
  });
}

evn_status evn_state_truncate(evn_state state, int64_t positions, evn_error* error) {
  return with_state(state, error, [&](State& s) { s.truncate(positions); });
}

evn_status evn_state_save(evn_state state, void* buffer, size_t capacity, size_t* size, evn_error* error) {
  return with_state(state, error, [&](State& s) {
    require(size != nullptr, "size");
    require(buffer != nullptr || capacity == 0, "buffer");
    const std::size_t needed = s.saved_size();
    if (buffer != nullptr && capacity >= needed) {
      s.save({static_cast<unsigned char*>(buffer), needed});
    } else if (buffer != nullptr || capacity > 0) {
      throw make_error(EVN_ERROR_BUFFER_TOO_SMALL, "the state has %zu bytes, the buffer %zu", needed, capacity)
          .with_bytes(needed, capacity);
    }
    *size = needed;
  });
}

evn_status evn_state_restore(evn_state state, const void* data, size_t size, evn_error* error) {
  return with_state(state, error, [&](State& s) {
    require(data != nullptr, "data");
    s.restore({static_cast<const unsigned char*>(data), size});
  });
}

evn_status evn_state_describe(evn_state state, evn_format format, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] {
    const Pin<StatePtr> s(state);
    if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    write_text((*s)->describe(format), buffer, capacity, size);
  });
}

evn_status evn_state_release(evn_state state) { return release_handle(state, HandleKind::kState); }

}  // extern "C"
