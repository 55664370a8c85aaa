// A C++ host of libevener.a that replaces operator new and counts its calls: the library's own containers must not come here, the
// host's must. Its exceptions are caught by its own runtime, though the archive has another one inside.
#include <evener/evener.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

std::atomic<long> g_news{0};

void check(evn_status status, const evn_error& error) {
  if (status == EVN_OK) return;
  std::printf("%s: %s\n", evn_status_name(status), error.message);
  std::exit(1);
}

}  // namespace

void* operator new(std::size_t size) {
  ++g_news;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

int main(int, char** argv) {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = 0;
  evn_model model = 0;
  evn_session session = 0;
  evn_tensor x = 0;
  evn_tensor y = 0;
  float data[3] = {1, 1, 1};
  const int64_t dims[2] = {1, 3};
  void* out = nullptr;
  size_t size = 0;
  const long before = g_news;
  check(evn_runtime_create(nullptr, &runtime, &error), error);
  check(evn_model_load_file(runtime, argv[1], nullptr, &model, &error), error);
  check(evn_session_create(runtime, model, nullptr, &session, &error), error);
  check(evn_tensor_wrap(runtime, data, sizeof data, EVN_DTYPE_FLOAT32, dims, 2, nullptr, nullptr, &x, &error), error);
  check(evn_session_run(session, &x, 1, &y, 1, nullptr, &error), error);
  if (evn_model_load_buffer(runtime, "none", 4, nullptr, &model, &error) == EVN_OK) return 2;  // an exception inside
  const long of_the_library = g_news - before;
  auto* const words = new std::vector<std::string>;
  words->reserve(1);
  std::printf("new: %ld of the library's, %ld of the host's\n", of_the_library, g_news - before - of_the_library);
  delete words;
  try {
    throw std::runtime_error("boom");
  } catch (const std::exception& thrown) {
    std::printf("caught: %s\n", thrown.what());
  }
  check(evn_tensor_map(y, EVN_MAP_READ, &out, &size, &error), error);
  const float* const values = static_cast<const float*>(out);
  std::printf("%g %g %g\n", values[0], values[1], values[2]);
  evn_runtime_release(runtime);
  return 0;
}
