// A descriptor for event loops that says one thing: whether there is something.
#pragma once

namespace evn::os {

// Throws EVN_ERROR_LIMIT.
int make_event_descriptor();
// Negative descriptors are none.
void close_event_descriptor(int descriptor) noexcept;
// Whether it can be read from. Called by one thread at a time, and only to change it (or where it is not set yet).
void set_event_descriptor(int descriptor, bool readable) noexcept;

}  // namespace evn::os
