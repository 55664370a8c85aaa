#include "tests/base/simulation/fiber.h"

#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace evn::sim {
namespace {

constinit thread_local Fiber* t_from = nullptr;
constinit thread_local Fiber* t_to = nullptr;

}  // namespace

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  if (stack_ != nullptr) __tsan_destroy_fiber(thread_);
#endif
}

void Fiber::prepare(void (*body)(void*), void* argument) {
  stack_ = std::make_unique_for_overwrite<unsigned char[]>(kStackBytes);
  body_ = body;
  argument_ = argument;
  bottom_ = stack_.get();
  size_ = kStackBytes;
#if defined(__SANITIZE_THREAD__)
  thread_ = __tsan_create_fiber(0);
#endif
  ::getcontext(&context_);
  context_.uc_stack.ss_sp = stack_.get();
  context_.uc_stack.ss_size = kStackBytes;
  ::makecontext(&context_, &Fiber::enter, 0);
}

// First instructions on a new stack.
void Fiber::enter() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &t_from->bottom_, &t_from->size_);
#endif
  t_to->body_(t_to->argument_);
}

void Fiber::switch_between(Fiber* from, Fiber* to) {
  void* const globals = abi::__cxa_get_globals();
  std::memcpy(&from->exceptions_, globals, sizeof(Exceptions));
  std::memcpy(globals, &to->exceptions_, sizeof(Exceptions));
  from->run_thread_ = RunThread::current();
  RunThread::current() = to->run_thread_;
  t_from = from;
  t_to = to;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from->fake_stack_, to->bottom_, to->size_);
#endif
#if defined(__SANITIZE_THREAD__)
  if (from->stack_ == nullptr) from->thread_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to->thread_, 0);
#endif
  ::swapcontext(&from->context_, &to->context_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from->fake_stack_, &t_from->bottom_, &t_from->size_);
#endif
}

}  // namespace evn::sim
