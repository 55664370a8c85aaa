// What the statically linked C++ runtime needs so that the library leaves nothing behind and never aborts for want of memory.
//
// The first throw on a new thread makes libstdc++ look up a thread-local that it would allocate, and abort when that fails:
// these hidden definitions answer from an initial-exec thread-local instead (Itanium C++ ABI 2.2.2). The emergency pool for
// exceptions is given back when the library is unloaded.
namespace __gnu_cxx {
void __freeres();
}  // namespace __gnu_cxx

namespace {

// The layout that libstdc++ and the Itanium ABI give __cxa_eh_globals.
struct ExceptionGlobals {
  void* caught_exceptions;
  unsigned int uncaught_exceptions;
#ifdef __ARM_EABI_UNWINDER__
  void* propagating_exceptions;
#endif
};

__attribute__((tls_model("initial-exec"))) thread_local ExceptionGlobals t_globals;

__attribute__((destructor)) void give_back() { __gnu_cxx::__freeres(); }

}  // namespace

namespace __cxxabiv1 {
extern "C" {
void* __cxa_get_globals();
void* __cxa_get_globals_fast();
void* __cxa_get_globals() { return &t_globals; }
void* __cxa_get_globals_fast() { return &t_globals; }
}
}  // namespace __cxxabiv1
