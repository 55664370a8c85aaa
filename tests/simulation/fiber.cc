#include "tests/simulation/fiber.h"

#include <link.h>

#include <algorithm>
#include <cstring>
#include <span>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace evn::sim {
namespace {

// Switch under way: of the one thread that executes fibers, and in no fiber's thread-local variables.
constinit Fiber* g_from = nullptr;
constinit Fiber* g_to = nullptr;

// Thread-local variables of the program: those of the calling thread, and their first values.
struct Variables {
  std::span<unsigned char> own;
  std::span<const unsigned char> first;  // the rest is zero
};

constinit thread_local std::span<unsigned char> t_own;  // Variables::own, once it is known

Variables thread_variables() {
  Variables found;
  ::dl_iterate_phdr(
      [](dl_phdr_info* program, std::size_t, void* to) {
        for (int i = 0; i < program->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = program->dlpi_phdr[i];
          if (part.p_type != PT_TLS) continue;
          *static_cast<Variables*>(to) = {
              {static_cast<unsigned char*>(program->dlpi_tls_data), part.p_memsz},
              {reinterpret_cast<const unsigned char*>(program->dlpi_addr + part.p_vaddr), part.p_filesz}};
        }
        return 1;  // the program itself comes first
      },
      &found);
  return found;
}

}  // namespace

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  if (stack_ != nullptr) __tsan_destroy_fiber(thread_);
#endif
}

void Fiber::prepare(void (*body)(void*), void* argument) {
  stack_ = std::make_unique_for_overwrite<unsigned char[]>(kStackBytes);
  const Variables variables = thread_variables();
  variables_.assign(variables.first.begin(), variables.first.end());
  variables_.resize(variables.own.size());
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
  __sanitizer_finish_switch_fiber(nullptr, &g_from->bottom_, &g_from->size_);
#endif
  g_to->body_(g_to->argument_);
}

void Fiber::switch_between(Fiber* from, Fiber* to) {
  void* const globals = abi::__cxa_get_globals();
  std::memcpy(&from->exceptions_, globals, sizeof(Exceptions));
  std::memcpy(globals, &to->exceptions_, sizeof(Exceptions));
  if (t_own.empty()) t_own = thread_variables().own;
  const std::span<unsigned char> own = t_own;
  from->variables_.assign(own.begin(), own.end());
  std::copy(to->variables_.begin(), to->variables_.end(), own.begin());
  g_from = from;
  g_to = to;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from->fake_stack_, to->bottom_, to->size_);
#endif
#if defined(__SANITIZE_THREAD__)
  if (from->stack_ == nullptr) from->thread_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to->thread_, 0);
#endif
  ::swapcontext(&from->context_, &to->context_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from->fake_stack_, &g_from->bottom_, &g_from->size_);
#endif
}

}  // namespace evn::sim
