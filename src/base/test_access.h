// How tests reach private state of the process: a class declares test::Access of itself a friend, and a test defines it.
#pragma once

namespace evn::test {

template <typename T>
struct Access;

}  // namespace evn::test
