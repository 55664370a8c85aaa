#include "runtime/loaded/packed.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/cancel.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/guarded.h"
#include "base/hash.h"

namespace evn {

namespace {

// Bytes of a part of plain bytes, which stay in L2 from when they are read until they are packed.
constexpr std::size_t kPartBytes = std::size_t{256} << 10;

std::size_t row_bytes(const Kernel& kernel, const Weight& weight) {
  return weight.size_bytes / static_cast<std::size_t>(kernel.prepack_parts.rows(weight));
}

// 0: the constant is packed as a whole. Parts begin on lines of the checksum.
std::int64_t rows_of_part(const Kernel& kernel, const OpDesc& desc, int input) {
  const Weight& weight = *desc.constant(input);
  const std::int64_t step =
      kernel.prepack_parts.step == nullptr || weight.size_bytes == 0 ? 0 : kernel.prepack_parts.step(desc, input);
  if (step == 0) return 0;
  const std::size_t row = row_bytes(kernel, weight);
  const std::size_t line = Checksum::kLineBytes / std::gcd(row, Checksum::kLineBytes);
  const std::size_t unit = std::lcm(static_cast<std::size_t>(step), line);
  const auto rows = static_cast<std::int64_t>(std::max<std::size_t>(1, kPartBytes / (unit * row)) * unit);
  return std::min(rows, kernel.prepack_parts.rows(weight));
}

// Size of the block from which the constant is packed when it is in the file yet.
std::size_t block_of(const Kernel& kernel, const OpDesc& desc, int input) {
  const Weight& weight = *desc.constant(input);
  const std::int64_t rows = rows_of_part(kernel, desc, input);
  const std::size_t bytes = rows == 0 ? weight.size_bytes : static_cast<std::size_t>(rows) * row_bytes(kernel, weight);
  return align_up(bytes, std::size_t{64});
}

}  // namespace

PackedStore::Key PackedStore::key_of(const Device& device, const Kernel& kernel, const OpDesc& desc, int input) {
  const Weight* weight = desc.constant(input);
  if (weight == nullptr || kernel.prepack_bytes == nullptr) return {};
  const std::size_t bytes = kernel.prepack_bytes(desc, input);
  if (bytes == 0) return {};
  const std::uint64_t variant = kernel.prepack_variant != nullptr ? kernel.prepack_variant(desc, input) : 0;
  return {weight->id, weight->version, &device, &kernel, input, variant, bytes};
}

WeightCache::Copy PackedStore::copy_of(const Key& key, const OpDesc& desc) {
  return {desc.constant(key.input), key.kernel, key.input, key.variant, key.bytes};
}

const WeightCache::Entry* PackedStore::find_cached(const Key& key, const OpDesc& desc) const {
  return cache_ != nullptr && opened_for_ == key.device ? cache_->find(copy_of(key, desc)) : nullptr;
}

std::shared_ptr<PackedStore::Copy> PackedStore::allocate(Device& device, std::size_t bytes) {
  auto copy = std::make_shared<Copy>();
  if (slab_ != nullptr && opened_for_ == &device) copy->block = slab_->take(bytes, MemoryClass::kPacked);
  if (copy->block == nullptr) copy->pooled = device.allocate(bytes, MemoryClass::kPacked);
  return copy;
}

void PackedStore::upload(Device& device, const std::shared_ptr<Copy>& copy, std::shared_ptr<const void> bytes,
                         std::size_t size) const {
  if (size == 0) return;
  struct Held {
    std::shared_ptr<const void> owner, bytes;
    std::shared_ptr<Copy> copy;  // goes first
  };
  static const Cancel kNever;
  const Cancel* const scope = CancelScope::current();
  std::shared_ptr<Held> held;
  if (std::shared_ptr<const void> owner = owner_.lock(); owner != nullptr)
    held = std::make_shared<Held>(Held{std::move(owner), bytes, copy});
  const Cancel& cancel = held != nullptr && scope != nullptr ? *scope : kNever;
  device.require_ready(cancel);
  const Event done = device.copy({nullptr, {const_cast<void*>(bytes.get()), 0, size}}, {&device, {copy->memory(), 0, size}}, {});
  held != nullptr ? device.wait_or_leave(done, cancel, std::move(held)) : device.wait(done);
}

bool PackedStore::Batch::packs(const Device& device, const Kernel& kernel, const OpDesc& desc, int input) const {
  const Key key = key_of(device, kernel, desc, input);
  return key.bytes != 0 && !store_.copies_.contains(key) && store_.find_cached(key, desc) == nullptr;
}

Buffer PackedStore::Batch::add(Device& device, const Kernel& kernel, const OpDesc& desc, int input, PlainWeights::Access* plain) {
  const Key key = key_of(device, kernel, desc, input);
  if (key.bytes == 0) return {};
  WeightCache* const cache = store_.opened_for_ == &device ? store_.cache_ : nullptr;
  const auto noted = [&](const std::shared_ptr<Copy>& copy) {
    note_use_of(copy);
    if (cache != nullptr) cache->note(copy_of(key, desc), copy->memory());
    return Buffer{copy->memory(), 0, key.bytes};
  };
  if (const auto it = store_.copies_.find(key); it != store_.copies_.end()) return noted(it->second);
  const auto queued = std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& j) { return j.key == key; });
  if (queued != jobs_.end()) return {queued->copy->memory(), 0, key.bytes};
  if (!device.traits().host_addressable) return send(device, kernel, desc, key, plain);
  const Weight& weight = *desc.constant(input);
  const WeightCache::Entry* const cached = store_.find_cached(key, desc);
  if (cached != nullptr && cache->maps()) {
    auto copy = std::make_shared<Copy>();
    copy->block = cache->map(*cached, key.bytes, MemoryClass::kPacked);
    keep_copy(key, copy);
    return noted(copy);
  }
  if (cached == nullptr && plain != nullptr && weight.source == nullptr) plain->bring_back(weight);
  std::shared_ptr<Copy> copy = store_.allocate(device, key.bytes);
  const Buffer target{copy->memory(), 0, key.bytes};
  noted(copy);
  jobs_.push_back({key, &kernel, desc, std::move(copy), target.memory, plain != nullptr && plain->may_go(weight), cached});
  if (cached == nullptr || weight.data != nullptr) bytes_ += key.bytes;
  return target;
}

// The weight itself stays as it is: other threads may pack it too.
void PackedStore::Batch::run_part(const Part& part, const Work& work, void* block) {
  Job& job = *part.job;
  if (job.cached != nullptr) {
    job.done = work.cache->read(*job.cached, job.target, job.key.bytes);
    return;
  }
  const int input = job.key.input;
  const Weight& weight = *job.desc.constant(input);
  const bool in_file = weight.data == nullptr;
  const void* bytes = block;
  if (in_file) {
    weight.source->read(part.offset, block, part.bytes);
  } else {
    bytes = static_cast<const char*>(weight.data.get()) + part.offset;
  }
  if (part.end != 0) {
    job.kernel->prepack_parts.run(job.desc, input, bytes, part.begin, part.end, job.target);
  } else {
    OpDesc read = job.desc;
    std::vector<WeightPtr> constants(read.constants.begin(), read.constants.end());
    const std::shared_ptr<const void> unowned(std::shared_ptr<const void>(), bytes);
    if (in_file) constants[static_cast<std::size_t>(input)] = make_weight_over(weight.desc, unowned);
    read.constants = constants;
    job.kernel->prepack(read, input, job.target);
  }
  if (!job.noted) return;
  Checksum sum;
  sum.add(bytes, part.bytes, part.offset);
  const std::lock_guard<Mutex> lock(*work.checksums);
  job.checksum.add(sum);
}

void PackedStore::Batch::pack(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const Work& work = args.plan->state<Work>();
  for (std::int64_t i = begin; i < end && !cancel.stop(); ++i) run_part(work.parts[i], work, args.thread_scratch);
}

// Those that are not done.
std::vector<PackedStore::Batch::Part> PackedStore::Batch::cut_jobs() {
  std::vector<Part> parts;
  for (Job& j : jobs_) {
    if (j.done) continue;
    const Weight& weight = *j.desc.constant(j.key.input);
    const std::int64_t rows = j.cached != nullptr ? 0 : rows_of_part(*j.kernel, j.desc, j.key.input);
    if (rows == 0) parts.push_back({&j, 0, 0, 0, weight.size_bytes});
    const std::int64_t all = rows == 0 ? 0 : j.kernel->prepack_parts.rows(weight);
    for (std::int64_t begin = 0; begin < all; begin += rows) {
      const std::int64_t end = std::min(begin + rows, all);
      const std::size_t row = row_bytes(*j.kernel, weight);
      parts.push_back({&j, begin, end, static_cast<std::size_t>(begin) * row, static_cast<std::size_t>(end - begin) * row});
    }
  }
  return parts;
}

void PackedStore::Batch::reserve(Device& device, std::size_t bytes) {
  if (bytes <= scratch_bytes_) return;
  scratch_ = nullptr;
  scratch_bytes_ = 0;
  scratch_ = allocate_charged(device.ledger(), bytes, MemoryClass::kWeights);
  scratch_bytes_ = bytes;
}

bool PackedStore::Batch::trim(std::size_t bytes) {
  if (bytes > scratch_bytes_ / 2) return false;
  scratch_ = nullptr;
  scratch_bytes_ = 0;
  return true;
}

// The device's threads run the batch as if it were a kernel whose tiles are the parts.
void PackedStore::Batch::run_jobs(PlainWeights::Access* plain) {
  static constexpr Kernel kPacking = {"packing", "", "", 0, nullptr, nullptr, nullptr, nullptr, nullptr, pack};
  static constinit const Cancel never{};
  const Cancel& cancel = CancelScope::current() != nullptr ? *CancelScope::current() : never;
  auto* const device = const_cast<Device*>(jobs_[0].key.device);
  const bool one_device = std::all_of(jobs_.begin(), jobs_.end(), [&](const Job& j) { return j.key.device == device; });
  const std::vector<Part> parts = cut_jobs();
  bool threads = parts.size() > 1 && one_device && device->traits().kind == EVN_DEVICE_CPU;
  KernelPlan plan;
  plan.tiles = static_cast<std::int64_t>(parts.size());
  for (const Job& j : jobs_) {
    plan.bytes += 2.0 * static_cast<double>(j.key.bytes);
    if (j.cached != nullptr || j.desc.constant(j.key.input)->data != nullptr) continue;
    plan.thread_scratch_bytes = std::max(plan.thread_scratch_bytes, block_of(*j.kernel, j.desc, j.key.input));
  }
  Mutex checksums;
  plan.state<Work>() = {parts.data(), store_.cache_, &checksums};
  const std::size_t blocks = threads ? device->traits().compute_units : 1;
  if (const std::optional<Error> failure = error_of([&] { reserve(*device, plan.thread_scratch_bytes * blocks); })) {
    if (!threads || failure->status != EVN_ERROR_OUT_OF_MEMORY) throw *failure;
    threads = false;  // there is no memory for a block for each
    reserve(*device, plan.thread_scratch_bytes);
  }
  const bool reads = plan.thread_scratch_bytes != 0 && plain != nullptr;
  if (reads) plain->check_unchanged();
  KernelCall call;
  call.kernel = &kPacking;
  call.cancel = &cancel;
  call.args.plan = &plan;
  OpDesc keeps_all;  // one copy may serve strict and other nodes
  keeps_all.strict = true;
  call.args.desc = &keeps_all;
  call.args.scratch = {scratch_.get(), 0, scratch_bytes_};
  call.args.thread_scratch = scratch_.get();
  if (threads) {
    device->wait(device->enqueue(call, {}));
  } else {
    pack(call.args, 0, plan.tiles, cancel);
  }
  if (cancel.stop()) cancel.fail();
  if (reads) plain->check_unchanged();
  for (Job& j : jobs_) j.done |= j.cached == nullptr;
}

// Those that the cache file should have given, and did not. Whether there are any.
bool PackedStore::Batch::go_back_to_plain(PlainWeights::Access* plain) {
  bool any = false;
  for (Job& j : jobs_) {
    if (j.done) continue;
    any = true;
    j.cached = nullptr;
    store_.cache_->drop(copy_of(j.key, j.desc));
    const Weight& weight = *j.desc.constant(j.key.input);
    if (plain != nullptr && weight.source == nullptr) plain->bring_back(weight);
  }
  return any;
}

void PackedStore::Batch::run(PlainWeights::Access* plain) {
  if (jobs_.empty()) return;
  run_jobs(plain);
  if (go_back_to_plain(plain)) run_jobs(plain);
  for (Job& j : jobs_) {
    if (j.noted && j.cached == nullptr) plain->note_checksum(*j.desc.constant(j.key.input), j.checksum.value());
    if (j.page == nullptr) {
      keep_copy(j.key, std::move(j.copy));
    } else {
      store_.pager_.keep(*std::exchange(j.page, nullptr), std::move(j.copy->pooled), j.pinned);
    }
  }
  jobs_.clear();
  bytes_ = 0;
}

Buffer PackedStore::Batch::keep_copy(const Key& key, std::shared_ptr<Copy> copy) {
  made_.push_back(key);
  const Copy& kept = *store_.copies_.emplace(key, std::move(copy)).first->second;
  return {kept.memory(), 0, key.bytes};
}

void PackedStore::Batch::note_use_of(const std::shared_ptr<Copy>& copy) {
  if (user_ != nullptr) user_->add(copy);
}

void PackedStore::Batch::undo() noexcept {
  for (const Key& key : made_) store_.copies_.erase(key);
  made_.clear();
}

// Runs that wait for memory go on when a page is given up: then its memory is free.
PackedStore::Batch::~Batch() {
  leave_uploads();
  scratch_.reset();
  for (Job& j : jobs_) {
    j.copy.reset();
    if (j.page != nullptr) store_.pager_.give_up(*j.page);
  }
}

Buffer PackedStore::Batch::add_paged(Device& device, const Kernel& kernel, const OpDesc& desc, int input) {
  const Key key = key_of(device, kernel, desc, input);
  if (key.bytes == 0) return {};
  if (const auto it = store_.copies_.find(key); it != store_.copies_.end()) {
    note_use_of(it->second);
    return {it->second->memory(), 0, key.bytes};
  }
  std::unique_ptr<PagedWeight>& entry = store_.pages_[key];
  if (entry == nullptr) {
    auto page = std::make_unique<PagedWeight>(device, kernel, desc, input, key.bytes);
    store_.pager_.add(*page);
    entry = std::move(page);
  }
  PagedWeight& page = *entry;
  Pool& pool = device.pool();
  if (pool.left() < key.bytes + block_of(kernel, desc, input) || !store_.pager_.begin(page)) return paged_buffer(page);
  const std::optional<Error> failure = error_of([&] { add_job(page, false); });
  // Others took the memory meanwhile: the first run packs it.
  if (failure && failure->status != EVN_ERROR_OUT_OF_MEMORY) throw *failure;
  return paged_buffer(page);
}

void PackedStore::Batch::restore(PagedWeight& page) { add_job(page, true); }

// This thread has begun to pack the page. The pager waits for the copy: what fails says so.
void PackedStore::Batch::add_job(PagedWeight& page, bool pinned) {
  try {
    Job job{key_of(page.device, page.kernel, page.desc, page.input), &page.kernel, page.desc, {}, nullptr, true};
    job.copy = std::make_shared<Copy>();
    job.copy->pooled = page.device.allocate(page.bytes, MemoryClass::kPacked);
    job.target = job.copy->memory();
    job.page = &page;
    job.pinned = pinned;
    jobs_.push_back(std::move(job));
  } catch (...) {
    store_.pager_.give_up(page);
    throw;
  }
  bytes_ += page.bytes;  // the destructor gives it up from here on
}

void* PackedStore::pin(PagedWeight& page, const LoadedModel& model, std::uint32_t held) {
  constexpr int kMostWaits = 1000;           // other runs may come and go for ever
  constexpr std::uint64_t kOwnReleases = 1;  // of the page that could not be packed
  for (int waits = 0;; ++waits) {
    const std::uint64_t releases = pager_.all().releases();
    void* pinned = nullptr;
    const std::optional<Error> failure = error_of([&] { pinned = pin_now(page, model); });
    if (!failure) return pinned;
    const bool may_wait = failure->status == EVN_ERROR_OUT_OF_MEMORY && waits < kMostWaits;
    if (!may_wait || !pager_.all().wait_for_release(held, releases + kOwnReleases)) throw *failure;
  }
}

void* PackedStore::pin_now(PagedWeight& page, const LoadedModel& model) {
  bool was_there = false;
  if (void* const there = pager_.pin(page, &was_there)) return there;
  std::optional<PlainWeights::Access> plain;
  std::optional<Batch> batch;
  try {
    plain.emplace(model);
    batch.emplace(*this, nullptr);
  } catch (...) {
    pager_.give_up(page);
    throw;
  }
  batch->restore(page);  // what fails from here on gives it up
  batch->run(&*plain);
  if (was_there) page.device.pool().note_weights(0, page.bytes);
  return pager_.address(page);
}

Buffer PackedStore::packed(Device& device, const Kernel& kernel, const OpDesc& desc, int input, PlainWeights::Access* plain,
                           KeptCopies& user) {
  Batch batch(*this, &user);
  const Buffer buffer = batch.add(device, kernel, desc, input, plain);
  batch.run(plain);
  batch.finish();
  return buffer;
}

PackedStore::Key PackedStore::plain_key(const Device& device, const Weight& weight) {
  return {.weight = weight.id,
          .version = weight.version,
          .device = &device,
          .kernel = nullptr,
          .input = 0,
          .variant = 0,
          .bytes = weight.size_bytes};
}

std::unique_lock<Mutex> PackedStore::lock() { return lock_or_stop(mutex_, CancelScope::current()); }

bool PackedStore::has_plain(const Device& device, const Weight& weight) {
  const std::unique_lock<Mutex> locked = lock();
  return copies_.contains(plain_key(device, weight));
}

Buffer PackedStore::plain(Device& device, const Weight& weight, KeptCopies& user) {
  if (device.traits().host_addressable) return {const_cast<void*>(weight.data.get()), 0, weight.size_bytes};
  const Key key = plain_key(device, weight);
  const std::unique_lock<Mutex> locked = lock();
  if (const auto it = copies_.find(key); it != copies_.end()) {
    user.add(it->second);
    return {it->second->memory(), 0, weight.size_bytes};
  }
  auto copy = std::make_shared<Copy>();
  copy->pooled = device.allocate(weight.size_bytes, MemoryClass::kWeights);
  const Buffer target{copy->memory(), 0, weight.size_bytes};
  upload(device, copy, weight.data, weight.size_bytes);
  user.add(copy);
  copies_.emplace(key, std::move(copy));
  return target;
}

void PackedStore::drop_unused() noexcept {
  std::map<Key, std::shared_ptr<Copy>> unused;  // goes without the lock
  const LockIfAlive lock(mutex_);
  for (auto it = copies_.begin(); it != copies_.end();) {
    const auto next = std::next(it);
    if (it->second.use_count() == 1) unused.insert(copies_.extract(it));
    it = next;
  }
}

void KeptCopies::add(const std::shared_ptr<const void>& copy) {
  const std::lock_guard<Mutex> lock(mutex_);
  copies_.insert(copy);
}

PackedStore::Need PackedStore::need_of(Device& device, const Kernel& kernel, const OpDesc& desc, int input) {
  const Key key = key_of(device, kernel, desc, input);
  const std::unique_lock<Mutex> locked = lock();
  if (key.bytes == 0 || copies_.contains(key)) return {};
  const bool cached = find_cached(key, desc) != nullptr;
  const bool reads = !cached && desc.constant(input)->data == nullptr;
  return {cached && cache_->maps() ? 0 : Slab::room_of(key.bytes), reads ? block_of(kernel, desc, input) : 0};
}

bool PackedStore::has_pages() {
  const std::unique_lock<Mutex> locked = lock();
  return !pages_.empty();
}

void PackedStore::open(Device& device, WeightCache* cache) {
  const std::unique_lock<Mutex> locked = lock();
  opened_for_ = &device;
  cache_ = cache;
}

void PackedStore::open_slab(std::size_t room) {
  const std::unique_lock<Mutex> locked = lock();
  slab_ = Slab::make(const_cast<Device*>(opened_for_)->ledger(), room);
}

void PackedStore::close() {
  const LockIfAlive lock(mutex_);
  slab_ = nullptr;
  cache_ = nullptr;
  opened_for_ = nullptr;
}

}  // namespace evn
