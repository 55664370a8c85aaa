#include "tests/interpose/interpose.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>

namespace evn::test {

Interposer& interposer() {
  static Interposer* one = new Interposer;
  return *one;
}

namespace {

template <typename F>
F real(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

// The size that a transfer may have now, or 0 when it is to be interrupted.
std::size_t allowed(std::size_t size) {
  Interposer& i = interposer();
  if (!i.short_transfers.load(std::memory_order_relaxed) || size == 0) return size;
  return i.transfers.fetch_add(1) % 2 == 0 ? 0 : 1;
}

}  // namespace
}  // namespace evn::test

using namespace evn::test;

extern "C" {

ssize_t pread(int fd, void* to, size_t size, off_t at) {
  static const auto next = real<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  if (interposer().before_pread) {
    const std::function<void()> once = std::move(interposer().before_pread);
    interposer().before_pread = nullptr;
    once();
  }
  const size_t n = allowed(size);
  if (n == 0 && size > 0) {
    errno = EINTR;
    return -1;
  }
  return next(fd, to, n, at);
}

ssize_t read(int fd, void* to, size_t size) {
  static const auto next = real<ssize_t (*)(int, void*, size_t)>("read");
  const size_t n = allowed(size);
  if (n == 0 && size > 0) {
    errno = EINTR;
    return -1;
  }
  return next(fd, to, n);
}

ssize_t write(int fd, const void* from, size_t size) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t)>("write");
  const size_t n = fd > 2 ? allowed(size) : size;
  if (n == 0 && size > 0) {
    errno = EINTR;
    return -1;
  }
  return next(fd, from, n);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto next = real<Create>("pthread_create");
  const std::int64_t k = interposer().thread_fails_at.load();
  if (k > 0 && interposer().thread_calls.fetch_add(1) + 1 >= k) return EAGAIN;
  return next(thread, attributes, body, argument);
}
}
