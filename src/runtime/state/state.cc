#include "runtime/state/state.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/cancel.h"
#include "base/checked.h"
#include "base/error.h"
#include "core/name_map.h"
#include "ops/infra/small_types.h"
#include "runtime/lower/passes/cache_append.h"
#include "runtime/request/session_identity.h"

namespace evn {
namespace {

const std::string* symbol_of(const Value& v, int axis) {
  const auto i = static_cast<std::size_t>(axis);
  return i < v.symbols.size() && !v.symbols[i].empty() ? &v.symbols[i] : nullptr;
}

// What pages of a dtype store where `wanted` is asked for.
RowFormat format_for(DType dtype, RowFormat wanted) {
  if (dtype == DType::kFloat32) return wanted;
  const RowFormat own = format_of(dtype);  // 16 bits stay so
  return own != RowFormat::kPlain && wanted == RowFormat::kInt8 ? wanted : own;
}

using Positions = std::unordered_map<std::string_view, std::size_t, KeyedHash>;

Positions positions_of(const Graph& graph, const std::vector<ValueId>& list) {
  Positions positions;
  for (std::size_t i = 0; i < list.size(); ++i) {
    cancellation_point(kNameWork);
    positions.try_emplace(graph.values[list[i]].name, i);
  }
  return positions;
}

// Copies the first positions on an axis. `to` has fewer of them than `from`, and the same other dims.
void copy_first(const Tensor& from, const Tensor& to, int axis) {
  const DType dtype = to.desc().dtype;
  const Shape& shape = to.desc().shape;
  const std::int64_t outer = shape.elements(0, axis), kept = shape.elements(axis, shape.rank());
  const std::int64_t had = from.desc().shape.elements(axis, shape.rank());
  if (outer == 0 || kept == 0) return;
  const auto* const source = static_cast<const char*>(from.buffer().address());
  auto* const target = static_cast<char*>(to.buffer().address());
  if (!is_sub_byte(dtype)) {
    const auto size = static_cast<std::int64_t>(dtype_size(dtype));
    for (std::int64_t o = 0; o < outer; ++o)
      std::memcpy(target + o * kept * size, source + o * had * size, static_cast<std::size_t>(kept * size));
    return;
  }
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < kept; ++i) {
      cancellation_point();
      set_small_bits(dtype, target, o * kept + i, small_bits(dtype, source, o * had + i));
    }
  }
  clear_rest(dtype, target, outer * kept);
}

}  // namespace

// Look-up of all that a request for a state names. The graph and the request outlive it.
class State::Index {
 public:
  Index(const CompiledGraph& graph, const StateRequest& request)
      : c_(graph),
        request_(request),
        inputs_(positions_of(graph.graph(), graph.graph().inputs)),
        outputs_(positions_of(graph.graph(), graph.graph().outputs)),
        makers_(makers_of(graph.graph())) {
    for (const StateRequest::Dims& d : request.dims) {
      cancellation_point(kNameWork);
      given_.try_emplace(d.input, &d.shape);
    }
  }

  std::size_t input(const std::string& name) const { return position(inputs_, name, "input"); }
  std::size_t output(const std::string& name) const { return position(outputs_, name, "output"); }

  int append_axis(ValueId made, ValueId read, const char** why) const { return evn::append_axis(c_, makers_, made, read, why); }

  // Dims that the request gives for an input; nullptr: none.
  const Shape* given_for(const std::string& name) const {
    const auto it = given_.find(name);
    return it != given_.end() ? it->second : nullptr;
  }

  // The slot of the device that makes a value and reads another; the CPU where these differ, as its tensors go everywhere.
  std::uint8_t slot_of(ValueId made, ValueId read) const {
    const std::int32_t maker = makers_[static_cast<std::size_t>(made)];
    const bool runs = maker >= 0 && (c_.nodes[maker].mode == NodeMode::kKernel || c_.nodes[maker].mode == NodeMode::kSegment);
    const std::uint8_t slot = runs ? c_.nodes[maker].slot : std::uint8_t{0};
    const auto v = static_cast<std::size_t>(read);
    for (std::uint32_t i = c_.reader_begin[v]; i < c_.reader_begin[v + 1]; ++i) {
      cancellation_point();
      if (c_.nodes[static_cast<std::size_t>(c_.readers[i])].slot != slot) return 0;
    }
    return slot;
  }

  // Dim that the dims of the request give for a symbol (nullable): the last of several; -1: none. Throws if they are for no input.
  std::int64_t dim_of(const std::string* symbol) {
    if (!has_symbols_) read_symbols();
    has_symbols_ = true;
    const auto it = symbol != nullptr ? symbols_.find(*symbol) : symbols_.end();
    return it != symbols_.end() ? it->second : -1;
  }

 private:
  const CompiledGraph& c_;
  const StateRequest& request_;
  const Positions inputs_, outputs_;
  const std::vector<std::int32_t> makers_;
  std::unordered_map<std::string_view, const Shape*, KeyedHash> given_;
  bool has_symbols_ = false;
  std::unordered_map<std::string_view, std::int64_t, KeyedHash> symbols_;

  static std::size_t position(const Positions& positions, const std::string& name, const char* what) {
    cancellation_point(kNameWork);
    const auto it = positions.find(name);
    if (it == positions.end()) fail(EVN_ERROR_INVALID_ARGUMENT, "the model has no %s \"%s\"", what, name.c_str());
    return it->second;
  }

  void read_symbols() {
    const Graph& graph = c_.graph();
    for (const StateRequest::Dims& d : request_.dims) {
      const Value& value = graph.values[graph.inputs[input(d.input)]];
      for (int i = 0; i < d.shape.rank(); ++i) {
        if (const std::string* const symbol = symbol_of(value, i)) symbols_[*symbol] = d.shape[i];
      }
    }
  }
};

std::size_t State::Pair::bytes() const {
  return (cache != nullptr ? cache->bytes() : 0) + (current != nullptr ? current->size_bytes() : 0) +
         (spare != nullptr ? spare->size_bytes() : 0);
}

State::State(std::shared_ptr<Session> session, const StateRequest& request) : State(std::move(session), request, Empty{}) {
  for (Pair& p : pairs_) allocate(p, nullptr);
  count_bytes();
}

// Without memory as yet.
State::State(std::shared_ptr<Session> session, const StateRequest& request, Empty, std::span<const Pair> before)
    : session_(std::move(session)),
      request_(request),
      input_pairs_(session_->graph().inputs.size(), -1),
      output_pairs_(session_->graph().outputs.size(), -1) {
  for (const StateRequest::Dims& d : request.dims) {
    for (const std::int64_t dim : d.shape.dims()) {
      if (dim < 0) fail(EVN_ERROR_INVALID_ARGUMENT, "a dim of \"%s\" is %lld", d.input.c_str(), static_cast<long long>(dim));
    }
  }
  pairs_.reserve(request.pairs.size());
  Index index(session_->compiled(), request);
  for (const StatePairRequest& pair : request.pairs)
    add_pair(pair, request, index, pairs_.size() < before.size() ? before[pairs_.size()].axis : -1);
  for (const StateRequest::Dims& d : request.dims) {
    if (input_pairs_[index.input(d.input)] < 0)
      fail(EVN_ERROR_INVALID_ARGUMENT, "dims are given for input \"%s\", which is in no pair", d.input.c_str());
  }
}

State::State(const State& from, Empty)
    : session_(from.session_), request_(from.request_), input_pairs_(from.input_pairs_), output_pairs_(from.output_pairs_) {
  pairs_.reserve(from.pairs_.size());
  for (const Pair& p : from.pairs_) {
    Pair& made = pairs_.emplace_back();
    made.output = p.output;
    made.input = p.input;
    made.capacity = p.capacity;
    made.axis = p.axis;
    made.storage = p.storage;
    made.format = p.format;
    made.reason = p.reason;
    made.slot = p.slot;
    made.first = p.first;
    made.desc = p.desc;
  }
}

State::~State() {
  for (const Pair& p : pairs_) add_bytes(-static_cast<std::int64_t>(p.counted));
}

void State::add_bytes(std::int64_t bytes) const {
  session_->identity()->state_bytes.fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
}

void State::count_bytes() {
  for (Pair& p : pairs_) {
    const std::size_t now = p.bytes();
    if (now != p.counted) add_bytes(static_cast<std::int64_t>(now) - static_cast<std::int64_t>(p.counted));
    p.counted = now;
  }
}

StatePtr State::lease(const StatePtr& state) {
  if (state->leased_.exchange(true, std::memory_order_acquire)) fail(EVN_ERROR_BUSY, "another run uses the state");
  struct End {
    StatePtr held;
    void operator()(State* s) noexcept { s->leased_.store(false, std::memory_order_release); }
  };
  return StatePtr(state.get(), End{state});  // which calls it where it throws
}

void State::add_pair(const StatePairRequest& request, const StateRequest& all, Index& index, int known_axis) {
  const Graph& graph = session_->graph();
  Pair& p = pairs_.emplace_back();
  p.output = index.output(request.output);
  p.input = index.input(request.input);
  p.capacity = request.capacity;
  const auto number = static_cast<std::int32_t>(pairs_.size() - 1);
  if (output_pairs_[p.output] >= 0) fail(EVN_ERROR_INVALID_ARGUMENT, "output \"%s\" is in two pairs", request.output.c_str());
  if (input_pairs_[p.input] >= 0) fail(EVN_ERROR_INVALID_ARGUMENT, "input \"%s\" is in two pairs", request.input.c_str());
  output_pairs_[p.output] = number;
  input_pairs_[p.input] = number;
  const ValueId out_id = graph.outputs[p.output], in_id = graph.inputs[p.input];
  const Value& out = graph.values[out_id];
  const Value& in = graph.values[in_id];
  if (out.wraps || in.wraps || in.dtype == DType::kString)
    fail(EVN_ERROR_UNSUPPORTED, "pair \"%s\", \"%s\": only tensors of numbers are states", out.name.c_str(), in.name.c_str());
  if (out.dtype != in.dtype || (out.has_shape && in.has_shape && out.shape.rank() != in.shape.rank())) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "output \"%s\" is %s of rank %d, input \"%s\" %s of rank %d", out.name.c_str(),
         dtype_name(out.dtype), out.shape.rank(), in.name.c_str(), dtype_name(in.dtype), in.shape.rank());
  }
  if (p.capacity < 0)
    fail(EVN_ERROR_INVALID_ARGUMENT, "the capacity of \"%s\" is %lld", in.name.c_str(), static_cast<long long>(p.capacity));
  p.reason = "its dims stay the same";
  if (p.capacity > 0) {
    p.axis = index.append_axis(out_id, in_id, &p.reason);
    p.storage = p.axis >= 0 ? Storage::kPages : Storage::kTensor;
    if (p.axis >= 0) p.reason = "runs append to it";
    if (p.axis < 0) p.axis = known_axis >= 0 ? known_axis : growing_axis(p, index);
  }
  if (p.storage == Storage::kPages) p.format = format_for(in.dtype, all.format);
  p.slot = p.storage == Storage::kPages ? std::uint8_t{0} : index.slot_of(out_id, in_id);
  p.first = {in.dtype, first_shape(p, index)};
  const std::size_t bytes = p.first.size_bytes();
  const Limits& limits = session_->compiled().limits();
  if (bytes > limits.tensor_bytes) {
    throw make_error(EVN_ERROR_LIMIT, "input \"%s\" of the state has %zu bytes, above the limit tensor_bytes", in.name.c_str(),
                     bytes)
        .with_bytes(bytes, limits.tensor_bytes);
  }
  p.desc = p.first;
}

// Where the graph does not say it: the axis that the options give 0 for, or the only open one of another name in the output.
int State::growing_axis(const Pair& pair, const Index& index) const {
  const Graph& graph = session_->graph();
  const Value& in = graph.values[graph.inputs[pair.input]];
  const Value& out = graph.values[graph.outputs[pair.output]];
  const Shape* const given = index.given_for(in.name);
  int found = -1, count = 0;
  const int rank = given != nullptr ? given->rank() : in.shape.rank();
  for (int axis = 0; axis < rank; ++axis) {
    bool grows = false;
    if (given != nullptr) {
      grows = (*given)[axis] == 0;
    } else if (in.has_shape && in.shape[axis] < 0) {
      const std::string* const a = symbol_of(in, axis);
      const std::string* const b = out.has_shape ? symbol_of(out, axis) : nullptr;
      grows = a == nullptr || b == nullptr || *a != *b;
    }
    if (grows) found = axis;
    count += grows ? 1 : 0;
  }
  if (count == 1) return found;
  fail(EVN_ERROR_INVALID_ARGUMENT, "it cannot be told on which axis \"%s\" grows: give its dims, with 0 for that axis",
       in.name.c_str());
}

Shape State::first_shape(const Pair& pair, Index& index) const {
  const Graph& graph = session_->graph();
  const Value& in = graph.values[graph.inputs[pair.input]];
  const Value& out = graph.values[graph.outputs[pair.output]];
  const Shape* const given = index.given_for(in.name);
  if (!in.has_shape && given == nullptr)
    fail(EVN_ERROR_INVALID_ARGUMENT, "the model does not say the rank of \"%s\": give its dims", in.name.c_str());
  if (in.has_shape && given != nullptr && given->rank() != in.shape.rank()) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "dims of rank %d are given for \"%s\", which is of rank %d", given->rank(), in.name.c_str(),
         in.shape.rank());
  }
  Shape shape = given != nullptr ? *given : in.shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t declared = in.has_shape ? in.shape[axis] : -1;
    if (axis == pair.axis) {
      if (declared > 0)
        fail(EVN_ERROR_INVALID_ARGUMENT, "axis %d of \"%s\" is %lld in the model: it cannot grow", axis, in.name.c_str(),
             static_cast<long long>(declared));
      shape[axis] = 0;
      continue;
    }
    if (declared >= 0 && shape[axis] != declared) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "dim %d of \"%s\" is %lld in the model, %lld is given", axis, in.name.c_str(),
           static_cast<long long>(declared), static_cast<long long>(shape[axis]));
    }
    if (shape[axis] >= 0) continue;
    // An open dim is that of the output, where the graph tells it: exporters leave the width of a head's cache open.
    shape[axis] = out.has_shape && out.shape[axis] >= 0 ? out.shape[axis] : 1;
    if (const std::int64_t dim = index.dim_of(symbol_of(in, axis)); dim >= 0) shape[axis] = dim;
  }
  return shape;
}

TensorPtr State::make_tensor(const Pair& pair, const TensorDesc& desc, bool zeroed) const {
  return std::make_shared<Tensor>(session_->runtime(), session_->compiled().devices[pair.slot], desc, false,
                                  zeroed ? Tensor::Fill::kZero : Tensor::Fill::kNone, MemoryClass::kStates);
}

void State::allocate(Pair& p, const Pair* from) const {
  if (p.storage == Storage::kPages) {
    const Shape& shape = p.first.shape;
    p.cache = std::make_unique<PagedCache>(session_->runtime()->cpu(), shape.elements(0, p.axis),
                                           shape.elements(p.axis + 1, shape.rank()), p.first.dtype, p.format, p.capacity);
    if (from != nullptr) p.cache->fork(*from->cache, from->positions());
    if (!request_.on_demand) p.cache->add_pages(p.capacity);
    return;
  }
  p.current = make_tensor(p, p.first, true);
  if (p.storage == Storage::kDoubleBuffered) p.spare = make_tensor(p, p.first, true);
}

void State::reset() {
  if (const std::shared_ptr<Session> newest = newest_session(); newest != session_) return follow(newest, false);
  std::vector<TensorPtr> tensors(pairs_.size());
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    Pair& p = pairs_[i];
    if (p.storage == Storage::kTensor) tensors[i] = make_tensor(p, p.first, true);
    if (p.storage != Storage::kDoubleBuffered) continue;
    if (!p.spare->on_host()) {
      copy_tensor(*std::make_shared<Tensor>(session_->runtime(), &session_->runtime()->cpu(), p.first, false), *p.spare);
    } else if (p.spare->size_bytes() > 0) {
      std::memset(p.spare->buffer().address(), 0, p.spare->size_bytes());
    }
  }
  commit([&] {
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      Pair& p = pairs_[i];
      p.desc = p.first;
      if (p.storage == Storage::kDoubleBuffered) p.current.swap(p.spare);
      if (p.storage == Storage::kTensor) p.current = std::move(tensors[i]);
    }
  });
}

StatePtr State::fork() const {
  StatePtr made(new State(*this, Empty{}));
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const Pair& from = pairs_[i];
    Pair& to = made->pairs_[i];
    if (from.storage == Storage::kPages) {
      made->allocate(to, &from);
      continue;
    }
    to.current = make_tensor(to, from.desc, false);
    if (from.storage == Storage::kDoubleBuffered) to.spare = make_tensor(to, from.desc, false);
    copy_tensor(*from.current, *to.current);
  }
  made->count_bytes();
  return made;
}

// A tensor of the pair's on the host, or a copy of it there.
TensorPtr State::host_copy(const Pair& p) const {
  if (p.current->on_host()) return p.current;
  if (const Device& device = *p.current->device(); device.is_lost()) {
    const Graph& graph = session_->graph();
    throw make_error(EVN_ERROR_DEVICE_LOST,
                     "the state's \"%s\" lay on device %s, which is lost: reset the state, or restore what was saved of it",
                     graph.values[graph.inputs[p.input]].name.c_str(), device.name().c_str())
        .with_device(device.name().c_str());
  }
  auto copy = std::make_shared<Tensor>(session_->runtime(), &session_->runtime()->cpu(), p.desc, false, Tensor::Fill::kNone,
                                       MemoryClass::kStates);
  copy_tensor(*p.current, *copy);
  return copy;
}

void State::truncate(std::int64_t positions) {
  if (positions < 0) fail(EVN_ERROR_INVALID_ARGUMENT, "positions is %lld", static_cast<long long>(positions));
  std::vector<TensorPtr> tensors(pairs_.size());
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const Pair& p = pairs_[i];
    if (p.storage != Storage::kTensor || p.positions() <= positions) continue;
    TensorDesc desc = p.desc;
    desc.shape[p.axis] = positions;
    const TensorPtr from = host_copy(p);
    const auto cut = std::make_shared<Tensor>(session_->runtime(), &session_->runtime()->cpu(), desc, false, Tensor::Fill::kNone,
                                              MemoryClass::kStates);
    copy_first(*from, *cut, p.axis);
    tensors[i] = cut;
    if (!p.current->on_host()) copy_tensor(*cut, *(tensors[i] = make_tensor(p, desc, false)));
  }
  commit([&] {
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      Pair& p = pairs_[i];
      if (p.axis >= 0) p.desc.shape[p.axis] = std::min(p.desc.shape[p.axis], positions);
      if (tensors[i] != nullptr) p.current = std::move(tensors[i]);
    }
  });
}

std::int64_t State::length(std::size_t pair) const {
  const std::lock_guard<Mutex> lock(mutex_);
  if (pair >= pairs_.size()) fail(EVN_ERROR_INVALID_ARGUMENT, "index is %zu, there are %zu pairs", pair, pairs_.size());
  return pairs_[pair].positions();
}

}  // namespace evn
