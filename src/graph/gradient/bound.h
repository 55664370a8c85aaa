// A Gradient between bind_gradients and expand_gradients.
#pragma once

namespace evn {

inline constexpr const char kBoundCount[] = "xs";  // its attribute: how many of the inputs are differentiated by

}  // namespace evn
