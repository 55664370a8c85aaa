#include "base/os/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/fault.h"

namespace evn::os {
namespace {

constexpr std::size_t kBytes = 100'000;

TEST(SharedMemory, IsFoundByItsNameAlone) {
  SharedMemory made, found, other;
  ASSERT_TRUE(made.create(kBytes));
  EXPECT_TRUE(std::all_of(made.data(), made.data() + kBytes, [](std::byte b) { return b == std::byte{0}; }));
  ASSERT_TRUE(found.open(made.name(), kBytes));
  std::memcpy(made.data() + kBytes - 4, "word", 4);
  EXPECT_EQ(std::memcmp(found.data() + kBytes - 4, "word", 4), 0);
  EXPECT_NE(::truncate(("/proc/self/fd/" + std::to_string(made.name().descriptor)).c_str(), 0), 0);  // nobody makes it smaller
  SharedMemoryName wrong = made.name();
  wrong.key ^= 1;
  EXPECT_FALSE(other.open(wrong, kBytes));
  EXPECT_FALSE(other.open(made.name(), kBytes + 1));
  EXPECT_FALSE(other.open({}, kBytes));
  EXPECT_FALSE(other.open({static_cast<std::uint32_t>(::getpid()), 0, 0}, kBytes));  // which is no such memory
  EXPECT_FALSE(other.open({UINT32_MAX, UINT32_MAX, UINT64_MAX}, kBytes));
  EXPECT_FALSE(other.is_open());
  EXPECT_EQ(other.data(), nullptr);
}

TEST(SharedMemory, LocksEndWithTheirMember) {
  SharedMemory made;
  ASSERT_TRUE(made.create(kBytes));
  EXPECT_FALSE(made.is_locked(1));
  {
    SharedMemory member;
    ASSERT_TRUE(member.open(made.name(), kBytes));
    ASSERT_TRUE(member.lock(1));
    EXPECT_TRUE(made.is_locked(1));
    EXPECT_FALSE(made.is_locked(0));
    EXPECT_FALSE(made.lock(1));
  }
  EXPECT_FALSE(made.is_locked(1));
}

TEST(SharedMemory, LocksEndWithTheirProcess) {
  SharedMemory made;
  ASSERT_TRUE(made.create(kBytes));
  const SharedMemoryName name = made.name();
  const pid_t child = ::fork();
  if (child == 0) {
    SharedMemory member;
    const bool done = member.open(name, kBytes) && member.lock(3);
    made.data()[0] = std::byte{1};
    ::_exit(done && made.is_locked(3) ? 0 : 1);  // no destructor runs
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(made.data()[0], std::byte{1});
  EXPECT_FALSE(made.is_locked(3));
}

TEST(SharedMemory, WhatTheSystemRefusesIsNotThere) {
  for (const Seam seam : {Seam::kIo, Seam::kAlloc}) {
    SharedMemory made, found, other;
    ASSERT_TRUE(made.create(kBytes));
    fault_arm(seam, 1, false);
    EXPECT_FALSE(found.open(made.name(), kBytes));
    fault_arm(seam, 1, false);
    EXPECT_FALSE(other.create(kBytes));
    fault_arm(seam, 0, false);
    EXPECT_FALSE(found.is_open() || other.is_open());
    EXPECT_TRUE(found.open(made.name(), kBytes));
  }
}

}  // namespace
}  // namespace evn::os
