// The host's allocator: what passes it, that everything comes back, and what happens when it refuses.
#include <cstdlib>
#include <map>
#include <mutex>

#include "tests/api/support.h"

namespace evn::test {
namespace {

struct Heap {
  std::mutex mutex;
  std::map<void*, size_t> blocks;
  int taken = 0;
  int refuse_at = -1;  // number of the call that is refused
  int wrong = 0;       // blocks given back that are not ours, or with another size

  static void* allocate(void* user, size_t size, size_t alignment) {
    auto& h = *static_cast<Heap*>(user);
    const std::lock_guard<std::mutex> lock(h.mutex);
    if (h.taken++ == h.refuse_at) return nullptr;
    void* p = nullptr;
    if (size == 0 || alignment > 4096 || posix_memalign(&p, alignment, size) != 0) return nullptr;
    h.blocks[p] = size;
    return p;
  }
  static void give_back(void* user, void* memory, size_t size) {
    auto& h = *static_cast<Heap*>(user);
    const std::lock_guard<std::mutex> lock(h.mutex);
    const auto it = h.blocks.find(memory);
    if (it == h.blocks.end() || it->second != size) {
      ++h.wrong;
      return;
    }
    h.blocks.erase(it);
    std::free(memory);
  }
  size_t bytes() const {
    size_t sum = 0;
    for (const auto& [p, size] : blocks) sum += size;
    return sum;
  }
};

struct Allocator : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  Heap heap;

  evn_status run_all(uint64_t* reserved = nullptr) {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 2;
    options.allocator = {&Heap::allocate, &Heap::give_back, &heap};
    evn_runtime runtime = nullptr;
    evn_device cpu = nullptr;
    evn_model model = nullptr;
    evn_session session = nullptr;
    evn_tensor x = nullptr;
    evn_tensor y = nullptr;
    const std::string bytes = small_network().serialize();
    const int64_t dims[] = {2, 3, 8, 8};
    evn_status status = evn_runtime_create(&options, &runtime, &error);
    if (status == EVN_OK) status = evn_runtime_device_at(runtime, 0, &cpu, &error);
    if (status == EVN_OK) status = evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error);
    if (status == EVN_OK) status = evn_session_create(runtime, model, nullptr, &session, &error);
    if (status == EVN_OK) status = evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 4, 0, &x, &error);
    if (status == EVN_OK) status = evn_session_run(session, &x, 1, &y, 1, nullptr, &error);
    if (status == EVN_OK && reserved != nullptr) {
      evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
      EXPECT_OK(evn_device_get_memory_stats(cpu, &stats, &error));
      *reserved = stats.reserved;
      EXPECT_EQ(heap.bytes(), stats.reserved - stats.by_class[EVN_MEMORY_HEAP]) << "blocks of operator new are not the host's";
    }
    evn_tensor_release(x);
    evn_tensor_release(y);
    evn_session_release(session);
    evn_model_release(model);
    evn_device_release(cpu);
    evn_runtime_release(runtime);
    return status;
  }
};

TEST_F(Allocator, HoldsExactlyWhatTheLedgerCounts) {
  uint64_t reserved = 0;
  EXPECT_EQ(run_all(&reserved), EVN_OK) << error.message;
  EXPECT_GT(reserved, 2u * 3 * 8 * 8 * 4);
  EXPECT_GT(heap.taken, 3);
  EXPECT_TRUE(heap.blocks.empty());
  EXPECT_EQ(heap.wrong, 0);
}

TEST_F(Allocator, EveryRefusalIsAnErrorThatLeavesNothing) {
  ASSERT_EQ(run_all(), EVN_OK);
  const int calls = heap.taken;
  int refused = 0;
  for (int k = 0; k < calls; ++k) {
    heap.taken = 0;
    heap.refuse_at = k;
    const evn_status status = run_all();
    EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_OUT_OF_MEMORY) << k << ": " << error.message;
    refused += status == EVN_ERROR_OUT_OF_MEMORY;
    EXPECT_TRUE(heap.blocks.empty()) << k;
  }
  EXPECT_GT(refused, 3);
  EXPECT_EQ(heap.wrong, 0);
}

TEST_F(Allocator, HalfAnAllocatorIsRefused) {
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.allocator.allocate = &Heap::allocate;
  evn_runtime runtime = nullptr;
  EXPECT_EQ(evn_runtime_create(&options, &runtime, &error), EVN_ERROR_INVALID_ARGUMENT);
  options.allocator = {nullptr, &Heap::give_back, nullptr};
  EXPECT_EQ(evn_runtime_create(&options, &runtime, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(runtime, nullptr);
}

}  // namespace
}  // namespace evn::test
