#include "train/loader.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>

#include "base/float_environment.h"
#include "base/guarded.h"
#include "base/os/fork.h"
#include "core/dtype.h"
#include "train/host.h"

namespace evn_train {
namespace {

using Lock = std::unique_lock<evn::Mutex>;

constexpr std::uint32_t kFlags = EVN_LOADER_SHUFFLE | EVN_LOADER_DROP_LAST | EVN_LOADER_STREAM;
constexpr std::uint32_t kMostPrefetch = 1024;
constexpr std::size_t kCopyPiece = std::size_t{1} << 20;  // bytes copied between two looks at the stop condition
constexpr std::chrono::milliseconds kCancelLook{10};      // how long a request of the token goes unseen

unsigned long long wide(std::uint64_t n) { return n; }

const evn_loader_options& checked(const evn_loader_options& o) {
  const auto require = [](bool holds, const char* text) {
    if (!holds) fail(EVN_ERROR_INVALID_ARGUMENT, "%s", text);
  };
  const bool is_stream = (o.flags & EVN_LOADER_STREAM) != 0;
  const std::uint32_t ranks = o.rank_count == 0 ? 1 : o.rank_count;
  if ((o.flags & ~kFlags) != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %u", o.flags);
  require(o.reserved == 0, "reserved is not 0");
  require(o.array_count > 0 && o.arrays != nullptr, "there are no arrays");
  require(o.batch > 0, "batch is 0");
  require(o.batch <= INT32_MAX, "batch is above 2^31 - 1");
  if (o.prefetch > kMostPrefetch) fail(EVN_ERROR_INVALID_ARGUMENT, "prefetch is %u, expected 0 .. %u", o.prefetch, kMostPrefetch);
  if (o.rank >= ranks) fail(EVN_ERROR_INVALID_ARGUMENT, "rank is %u of %u ranks", o.rank, ranks);
  if (o.batch < ranks) fail(EVN_ERROR_INVALID_ARGUMENT, "a batch of %u samples cannot be divided among %u ranks", o.batch, ranks);
  require(is_stream || o.sample_count > 0, "sample_count is 0");
  require(!is_stream || o.sample_count == 0, "sample_count of EVN_LOADER_STREAM is not 0");
  require(!is_stream || ((o.flags & EVN_LOADER_SHUFFLE) == 0 && ranks == 1), "EVN_LOADER_STREAM has no order and no ranks");
  const bool shuffles = (o.flags & EVN_LOADER_SHUFFLE) != 0;
  if (shuffles && o.sample_count > UINT32_MAX) fail(EVN_ERROR_LIMIT, "%llu samples are too many to shuffle", wide(o.sample_count));
  return o;
}

std::string printed(const char* name, std::uint32_t index) {
  return name != nullptr ? std::string("array \"") + name + "\"" : "array " + std::to_string(index);
}

}  // namespace

std::vector<Loader::Array> Loader::read_arrays(const evn_loader_options& o) {
  std::vector<Array> arrays;
  const bool is_stream = (o.flags & EVN_LOADER_STREAM) != 0;
  for (std::uint32_t i = 0; i < o.array_count; ++i) {
    const evn_loader_array& given = o.arrays[i];
    Array a;
    a.name = printed(given.name, i);
    a.dtype = given.dtype;
    a.data = static_cast<const unsigned char*>(given.data);
    const auto type = static_cast<evn::DType>(given.dtype);
    if (given.dtype <= 0 || given.dtype >= evn::kDTypeCount || !evn::is_stored(type) || evn::is_sub_byte(type) ||
        type == evn::DType::kString) {
      fail(EVN_ERROR_UNSUPPORTED, "%.160s is of dtype %d, which loaders do not have", a.name.c_str(), given.dtype);
    }
    if (given.rank >= EVN_MAX_RANK)
      fail(EVN_ERROR_LIMIT, "%.160s has samples of rank %u, and batches of one more: the limit is %d", a.name.c_str(), given.rank,
           EVN_MAX_RANK);
    if (given.rank > 0 && given.dims == nullptr) fail(EVN_ERROR_INVALID_ARGUMENT, "dims of %.160s is NULL", a.name.c_str());
    a.dims.push_back(0);
    std::size_t bytes = evn::dtype_size(type);
    for (std::uint32_t d = 0; d < given.rank; ++d) {
      if (given.dims[d] <= 0)
        fail(EVN_ERROR_INVALID_ARGUMENT, "dims[%u] of %.160s is %lld", d, a.name.c_str(), static_cast<long long>(given.dims[d]));
      if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(given.dims[d]), &bytes))
        fail(EVN_ERROR_LIMIT, "a sample of %.160s is larger than memory can be", a.name.c_str());
      a.dims.push_back(given.dims[d]);
    }
    std::size_t all = 0;
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(o.sample_count), &all) || all > SIZE_MAX / 2)
      fail(EVN_ERROR_LIMIT, "%.160s is larger than memory can be", a.name.c_str());
    a.sample_bytes = bytes;
    if (a.data == nullptr && o.produce == nullptr)
      fail(EVN_ERROR_INVALID_ARGUMENT, "%.160s has no data, and produce is NULL", a.name.c_str());
    if (a.data != nullptr && is_stream)
      fail(EVN_ERROR_INVALID_ARGUMENT, "%.160s has data, but those of EVN_LOADER_STREAM come from produce", a.name.c_str());
    arrays.push_back(std::move(a));
  }
  return arrays;
}

void Loader::Batched::fit(const Array& array, std::uint32_t samples, std::uint32_t most) {
  is_full = samples == most;
  if (is_full || (part.get() != nullptr && part_samples == samples)) return;
  std::vector<std::int64_t> dims = array.dims;
  dims[0] = samples;
  Tensor made(whole.get(), 0, dims);
  part = std::move(made);
  part_samples = samples;
}

Loader::Loader(evn_runtime runtime, const evn_loader_options& options)
    : arrays_(read_arrays(checked(options))),
      order_(options),
      produce_(options.produce),
      context_(options.produce_context),
      cancel_(options.cancel),
      most_(order_.most()),
      prefetch_(options.prefetch == 0 ? 2 : options.prefetch),
      is_stream_((options.flags & EVN_LOADER_STREAM) != 0),
      drops_last_((options.flags & EVN_LOADER_DROP_LAST) != 0),
      process_(evn::os::fork_generation()),
      buffers_(arrays_.size()) {
  make_slots(runtime, options);
  numbers_ = static_cast<std::uint64_t*>(make_numbers(runtime, EVN_DTYPE_UINT64, most_));
  if (const std::uint64_t count = order_.shuffled_count(); count > 0)
    order_.use_memory(static_cast<std::uint32_t*>(make_numbers(runtime, EVN_DTYPE_UINT32, count)));
  thread_.emplace([](void* self) { static_cast<Loader*>(self)->work(); }, this);
}

Loader::~Loader() {
  if (process_ == evn::os::fork_generation()) stop();
}

void Loader::make_slots(evn_runtime runtime, const evn_loader_options& o) {
  slots_.resize(prefetch_ + 1);
  std::optional<Device> device;
  if (o.device != nullptr) device.emplace(runtime, o.device);
  const bool is_host = !device || device->is_host();
  for (Slot& slot : slots_) {
    slot.host.resize(arrays_.size());
    if (!is_host) slot.device.resize(arrays_.size());
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      std::vector<std::int64_t> dims = arrays_[i].dims;
      dims[0] = most_;
      if (is_host) {
        slot.host[i].whole = Tensor(runtime, arrays_[i].dtype, dims);
      } else {
        slot.host[i].whole = Tensor(*device, arrays_[i].dtype, dims, EVN_TENSOR_PINNED);
        slot.device[i].whole = Tensor(*device, arrays_[i].dtype, dims, 0);
      }
      if (order_.least() == 0) continue;
      slot.host[i].fit(arrays_[i], order_.least(), most_);
      if (!is_host) slot.device[i].fit(arrays_[i], order_.least(), most_);
    }
  }
}

void* Loader::make_numbers(evn_runtime runtime, evn_dtype dtype, std::uint64_t count) {
  return number_tensors_.emplace_back(Tensor(runtime, dtype, {static_cast<std::int64_t>(count)})).mapped.data();
}

void Loader::require_own_process() const {
  if (process_ != evn::os::fork_generation()) fail(EVN_ERROR_FORKED, "a forked child does not have the loader's thread");
}

void Loader::require_other_thread(const char* call) {
  const Lock lock(mutex_);
  if (worker_ != nullptr && worker_ == evn::os::this_thread())
    fail(EVN_ERROR_WRONG_STATE, "%s cannot be called from the loader's own callback", call);
}

void Loader::start_epoch(std::uint64_t epoch, std::uint64_t first_batch) {
  require_own_process();
  require_other_thread("evn_loader_start_epoch");
  if (!is_stream_ && first_batch > order_.batch_count()) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "first_batch is %llu, an epoch has %llu batches", wide(first_batch),
         wide(order_.batch_count()));
  }
  Lock lock(mutex_);
  begin_epoch(lock, epoch, first_batch);
}

void Loader::begin_epoch(Lock& lock, std::uint64_t epoch, std::uint64_t first_batch) {
  do {
    if (state_ == State::kStopping) fail(EVN_ERROR_CANCELLED, "the loader is being released");
    leave_epoch(State::kIdle);
    if (is_filling_) changed_.wait(lock);
  } while (is_filling_);
  if (state_ == State::kStopping) fail(EVN_ERROR_CANCELLED, "the loader is being released");
  failure_.reset();
  epoch_ = epoch;
  orders_ = true;
  made_ = given_ = first_batch;
  end_ = is_stream_ ? UINT64_MAX : order_.batch_count();
  is_started_ = true;
  state_ = State::kWorking;
  changed_.notify_all();
}

// The batch that is being filled, if any, is abandoned.
void Loader::leave_epoch(State state) {
  state_ = state;
  abandoned_.store(true, std::memory_order_relaxed);
}

bool Loader::is_abandoned() const {
  return abandoned_.load(std::memory_order_relaxed) || (cancel_ != nullptr && is_requested(cancel_));
}

std::uint32_t Loader::next(std::span<evn_tensor> tensors) {
  require_own_process();
  require_other_thread("evn_loader_next");
  const Lock only_one(next_mutex_);
  if (tensors.size() != arrays_.size())
    fail(EVN_ERROR_INVALID_ARGUMENT, "the loader has %zu arrays, there is room for %zu tensors", arrays_.size(), tensors.size());
  Lock lock(mutex_);
  if (!is_started_) begin_epoch(lock, 0, 0);
  const auto is_there = [&] { return made_ > given_ || failure_ || given_ >= end_ || state_ == State::kStopping; };
  while (!is_there()) {
    if (cancel_ == nullptr) {
      changed_.wait(lock);
    } else if (is_requested(cancel_)) {
      break;
    } else {
      changed_.wait_for(lock, kCancelLook);
    }
  }
  if (cancel_ != nullptr && is_requested(cancel_)) fail(EVN_ERROR_CANCELLED, "the loader's token was requested");
  if (state_ == State::kStopping) fail(EVN_ERROR_CANCELLED, "the loader is being released");
  if (made_ == given_ && failure_) throw *failure_;
  if (made_ == given_) return 0;
  Slot& slot = slots_[given_ % slots_.size()];
  const std::vector<Batched>& list = slot.device.empty() ? slot.host : slot.device;
  for (std::size_t i = 0; i < arrays_.size(); ++i) tensors[i] = list[i].get();
  ++given_;
  changed_.notify_all();
  return slot.samples;
}

void Loader::stop() {
  {
    const evn::LockIfAlive lock(mutex_);
    if (worker_ != nullptr && worker_ == evn::os::this_thread())
      fail(EVN_ERROR_WRONG_STATE, "the loader cannot be released from its own callback");
    leave_epoch(State::kStopping);
    changed_.notify_all();
  }
  const std::lock_guard<evn::Mutex> lock(thread_mutex_);
  thread_.reset();
}

// The thread.
void Loader::work() noexcept {
  Lock lock(mutex_);
  worker_ = evn::os::this_thread();
  while (true) {
    changed_.wait(lock, [&] {
      return state_ == State::kStopping || (state_ == State::kWorking && !failure_ && made_ < end_ && made_ - given_ < prefetch_);
    });
    if (state_ == State::kStopping) return;
    const std::uint64_t batch = made_;
    const bool orders = std::exchange(orders_, false);
    is_filling_ = true;
    abandoned_.store(false, std::memory_order_relaxed);
    Slot& slot = slots_[batch % slots_.size()];
    lock.unlock();
    bool ends = false;
    std::optional<evn::Error> failure;
    evn_error reported = EVN_ERROR_INIT;
    const evn_status status = evn::guarded(&reported, [&] { ends = prepare_batch(slot, batch, orders); });
    if (status != EVN_OK) {
      failure = evn::make_error(status, "%s", reported.message)
                    .with_node(reported.node)
                    .with_device(reported.device)
                    .with_bytes(reported.bytes_requested, reported.bytes_available);
    }
    lock.lock();
    is_filling_ = false;
    if (state_ == State::kWorking) {  // else the epoch is no more
      if (failure) {
        failure_ = failure;
      } else {
        if (ends) end_ = batch + (slot.samples > 0 ? 1 : 0);
        made_ = slot.samples > 0 ? batch + 1 : batch;
      }
    }
    changed_.notify_all();
  }
}

bool Loader::prepare_batch(Slot& slot, std::uint64_t batch, bool orders) {
  if (orders && !order_.start(epoch_, [this] { return is_abandoned(); })) abandon();
  return fill(slot, batch);
}

// The failure reaches a caller only if the token was requested: begin_epoch and stop discard the batch that they abandon.
void Loader::abandon() { fail(EVN_ERROR_CANCELLED, "the loader's token was requested"); }

void Loader::copy_samples(const Array& array, unsigned char* to, std::uint32_t samples) const {
  std::size_t left = kCopyPiece;
  for (std::uint32_t s = 0; s < samples; ++s) {
    const unsigned char* const from = array.data + numbers_[s] * array.sample_bytes;
    for (std::size_t done = 0; done < array.sample_bytes;) {
      const std::size_t bytes = std::min(array.sample_bytes - done, left);
      std::memcpy(to, from + done, bytes);
      to += bytes;
      done += bytes;
      left -= bytes;
      if (left > 0) continue;
      if (is_abandoned()) abandon();
      left = kCopyPiece;
    }
  }
}

std::uint32_t Loader::produce(std::uint32_t asked) {
  std::uint32_t made = asked;
  evn_error error = EVN_ERROR_INIT;
  const auto call_host = [&] {
    const evn::HostFloatEnvironment hosts;
    return produce_(context_, numbers_, asked, buffers_.data(), &made, &error);
  };
  const evn_status status = call_host();
  if (status != EVN_OK) {
    error.message[sizeof error.message - 1] = '\0';
    throw evn::make_error(status, "%s", error.message[0] != '\0' ? error.message : "the producer of samples has failed");
  }
  if (made > asked || (made < asked && !is_stream_))
    fail(EVN_ERROR_INVALID_ARGUMENT, "the producer has made %u samples, %u were asked for", made, asked);
  return made;
}

// Where the memory of a slot is, for the time of filling it.
class Loader::MappedSlot {
 public:
  MappedSlot(const Slot& slot, std::vector<void*>& addresses) : slot_(slot) {
    try {
      for (; count_ < slot.host.size(); ++count_)
        call(evn_tensor_map, slot.host[count_].whole.get(), std::uint32_t{EVN_MAP_WRITE}, &addresses[count_],
             static_cast<std::size_t*>(nullptr));
    } catch (...) {
      unmap();
      throw;
    }
  }
  ~MappedSlot() { unmap(); }
  MappedSlot(const MappedSlot&) = delete;
  MappedSlot& operator=(const MappedSlot&) = delete;

 private:
  void unmap() {
    for (std::size_t i = 0; i < count_; ++i) evn_tensor_unmap(slot_.host[i].whole.get(), nullptr);
  }
  const Slot& slot_;
  std::size_t count_ = 0;
};

bool Loader::fill(Slot& slot, std::uint64_t batch) {
  const std::uint32_t asked = order_.samples(batch, numbers_);
  {
    const MappedSlot mapped(slot, buffers_);
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      const Array& a = arrays_[i];
      if (a.data == nullptr) continue;
      copy_samples(a, static_cast<unsigned char*>(std::exchange(buffers_[i], nullptr)), asked);
    }
    slot.samples = produce_ == nullptr ? asked : produce(asked);
  }
  const bool ends = is_stream_ && slot.samples < asked;
  if (ends && drops_last_) slot.samples = 0;
  if (slot.samples == 0) return ends;
  for (std::vector<Batched>* const list : {&slot.host, &slot.device}) {
    for (std::size_t i = 0; i < list->size(); ++i) (*list)[i].fit(arrays_[i], slot.samples, most_);
  }
  for (std::size_t i = 0; i < slot.device.size(); ++i) call(evn_tensor_copy, slot.host[i].get(), slot.device[i].get());
  return ends;
}

}  // namespace evn_train
