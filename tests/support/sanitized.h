// Whether code is instrumented, which makes it many times slower: what only takes time is tried less often then.
#pragma once

namespace evn::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace evn::test
