// Whose work a thread does: that of a call which the host made on it, or the library's own.
#pragma once

namespace evn {

// While it lives, the calling thread does the library's own work, as in a request, or again the host's, as in a callback that tells
// of the end of one. Threads that the library starts do its own from the beginning on, all others the host's.
class LibraryWork {
 public:
  explicit LibraryWork(bool is_own) noexcept : before_(t_is_own) { t_is_own = is_own; }
  ~LibraryWork() { t_is_own = before_; }
  LibraryWork(const LibraryWork&) = delete;
  LibraryWork& operator=(const LibraryWork&) = delete;

  static bool is_here() noexcept { return t_is_own; }

 private:
  const bool before_;
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local bool t_is_own = false;
};

}  // namespace evn
