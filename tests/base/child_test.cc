// Programs that are run for their answer, whatever they do instead of giving one.
#include "base/os/child.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/fault.h"
#include "base/os/folder.h"

namespace evn::os {
namespace {

using How = ChildEnd::How;
constexpr std::uint64_t kLong = 60'000'000'000;

ChildEnd shell(const std::string& script, std::uint64_t timeout_ns = kLong, std::size_t most = 100,
               std::span<const std::pair<std::string, std::string>> variables = {}) {
  const char* const arguments[] = {"-c", script.c_str()};
  return run_child("/bin/sh", arguments, variables, most, timeout_ns);
}

int descriptors() { return static_cast<int>(names_in("/proc/self/fd").size()); }

TEST(Child, AnswersOnItsDescriptor) {
  const ChildEnd end = shell("echo noise; echo noise >&2; printf yes >&3; exit 7");
  EXPECT_EQ(end.how, How::kExited);
  EXPECT_EQ(end.code, 7);
  EXPECT_EQ(end.answer, "yes");
}

TEST(Child, AnAnswerThatIsTooLongShowsThatItIs) {
  const ChildEnd end = shell("i=0; while [ $i -lt 20000 ]; do printf 0123456789 >&3; i=$((i+1)); done", kLong, 5);
  EXPECT_EQ(end.how, How::kExited);
  EXPECT_EQ(end.answer, "012345");
}

TEST(Child, ASignalIsTold) {
  const ChildEnd end = shell("printf yes >&3; kill -SEGV $$");
  EXPECT_EQ(end.how, How::kSignalled);
  EXPECT_EQ(end.code, SIGSEGV);
  EXPECT_EQ(end.answer, "yes");
}

TEST(Child, OneThatTakesTooLongIsKilledWithItsOwnChildren) {
  const ChildEnd end = shell("sleep 1000 & echo $! >&3; trap '' TERM; wait", 300'000'000);
  EXPECT_EQ(end.how, How::kTimedOut);
  const pid_t grandchild = std::atoi(end.answer.c_str());
  if (grandchild > 0) {  // it got so far
    bool gone = false;
    for (int i = 0; i < 10000 && !gone; ++i) {
      const std::string stat = "/proc/" + std::to_string(grandchild) + "/fd";
      gone = kill(grandchild, 0) != 0 || names_in(stat).empty();  // or nobody has reaped it yet
      usleep(1000);
    }
    EXPECT_TRUE(gone);
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Child, AGrandchildThatKeepsThePipeHoldsUpNobody) {
  const ChildEnd end = shell("(trap '' HUP; exec sleep 3) & printf yes >&3; exit 0");
  EXPECT_EQ(end.how, How::kExited);
  EXPECT_EQ(end.answer, "yes");
}

TEST(Child, WhatCannotBeStartedIsTold) {
#if defined(EVN_EMULATOR)
  GTEST_SKIP() << "the emulator's vfork is a fork, whose parent is not told that exec failed";
#endif
  const ChildEnd end = run_child("/no-such-program", {}, {}, 10, kLong);
  EXPECT_EQ(end.how, How::kNotStarted);
  EXPECT_FALSE(end.reason.empty());
}

TEST(Child, VariablesAreSetAndOthersStay) {
  setenv("EVN_TEST_KEPT", "kept", 1);
  setenv("EVN_TEST_REPLACED", "before", 1);
  const std::vector<std::pair<std::string, std::string>> variables = {{"EVN_TEST_REPLACED", "after"}, {"EVN_TEST_NEW", "new"}};
  EXPECT_EQ(shell("printf $EVN_TEST_KEPT,$EVN_TEST_REPLACED,$EVN_TEST_NEW >&3", kLong, 100, variables).answer, "kept,after,new");
  unsetenv("EVN_TEST_KEPT");
  unsetenv("EVN_TEST_REPLACED");
}

TEST(Child, NoDescriptorIsLeftAndNoChild) {
  const int before = descriptors();
  shell("exit 0");
  shell("sleep 1000", 50'000'000);
  run_child("/no-such-program", {}, {}, 10, kLong);
  EXPECT_EQ(descriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(Child, ThePipeIsItsAnswersAlone) {
  EXPECT_EQ(shell("pipe=$(readlink /proc/$$/fd/3); ls -l /proc/$$/fd | grep -cF \"$pipe\" >&3").answer, "1\n");
}

TEST(Child, AHostThatIgnoresItsChildrenIsNotDisturbed) {
  struct sigaction ignored {
  }, before{};
  ignored.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGCHLD, &ignored, &before), 0);
  const ChildEnd end = shell("printf yes >&3");
  EXPECT_EQ(end.how, How::kUnknown);
  EXPECT_EQ(end.answer, "yes");
  EXPECT_EQ(shell("sleep 1000", 50'000'000).how, How::kTimedOut);
  struct sigaction now {};
  sigaction(SIGCHLD, &before, &now);
  EXPECT_EQ(now.sa_handler, SIG_IGN);
}

TEST(Child, OtherChildrenAreLeftToTheHost) {
  const pid_t other = fork();
  if (other == 0) _exit(9);
  EXPECT_EQ(shell("exit 0").how, How::kExited);
  int status = 0;
  EXPECT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(WEXITSTATUS(status), 9);
}

TEST(Child, TheSystemMayRefuse) {
  for (const Seam seam : {Seam::kIo, Seam::kThread}) {
    fault_arm(seam, 1, false);
    const ChildEnd end = shell("exit 0");
    fault_arm(seam, 0, false);
    EXPECT_EQ(end.how, How::kNotStarted);
    EXPECT_FALSE(end.reason.empty());
  }
  EXPECT_EQ(shell("exit 0").how, How::kExited);
}

}  // namespace
}  // namespace evn::os
