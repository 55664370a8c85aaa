// Fibers: stacks between which one thread switches.
#pragma once

#include <cxxabi.h>
#include <ucontext.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace evn::sim {

// A default-constructed fiber stands for the thread itself. Thread-local variables of the program (not those of shared libraries)
// and the state of exceptions belong to the fiber.
class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // `body` must not return: its last action is a switch to another fiber.
  void prepare(void (*body)(void*), void* argument);
  static void switch_between(Fiber* from, Fiber* to);

 private:
  // AddressSanitizer clears the shadow of the whole stack at each switch, and above 512 KiB it maps new pages for that.
  static constexpr std::size_t kStackBytes = std::size_t{448} << 10;
  static void enter();

  struct Exceptions {  // begin of __cxa_eh_globals (Itanium C++ ABI)
    void* caught = nullptr;
    unsigned int uncaught = 0;
  };

  ucontext_t context_ = {};
  std::unique_ptr<unsigned char[]> stack_;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::vector<unsigned char> variables_;  // thread-local, while another fiber executes
  Exceptions exceptions_;
  [[maybe_unused]] void* fake_stack_ = nullptr;  // of AddressSanitizer, as the next two
  [[maybe_unused]] const void* bottom_ = nullptr;
  [[maybe_unused]] std::size_t size_ = 0;
  [[maybe_unused]] void* thread_ = nullptr;  // of ThreadSanitizer
};

}  // namespace evn::sim
