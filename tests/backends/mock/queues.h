// Queues of a mock device that work by themselves: of kernels, and of copies to and from the device, each with a thread, and each
// command taking as long as the test says. What a command does is done at its end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device/device.h"

namespace evn {

class MockQueues {
 public:
  enum Queue { kKernels, kUploads, kDownloads };
  using Clock = std::chrono::steady_clock;

  // Memory that a command reads or writes.
  struct Use {
    Buffer buffer;
    bool written;
  };
  // The end of a command.
  struct Done {
    bool ended = false;
    Clock::time_point at;  // when it was to end
  };

  MockQueues();
  // Waits for what there is.
  ~MockQueues();

  // Behind the commands of its queue, those of the others that use the same memory, and `waits`. Gives its number, from 1.
  std::uint64_t add(Queue queue, std::chrono::nanoseconds takes, std::vector<Use> uses,
                    std::vector<std::shared_ptr<const Done>> waits, std::function<void()> work);
  // While set, no command of any device ends.
  static void hold(bool held);
  // Queues of all devices that have a command.
  static int begun();
  void wait(std::uint64_t number);
  // False: `cancel` said stop first.
  bool wait_or_stop(std::uint64_t number, const Cancel& cancel);
  // Lets go of `held` on another thread when the command has ended, perhaps as the last thing that keeps the device.
  void hold_until(std::uint64_t number, std::shared_ptr<const void> held);
  // Until all that hold_until was given has been let go of. False: `cancel` said stop first.
  bool settle(const Cancel& cancel);
  std::shared_ptr<const Done> done(std::uint64_t number);

 private:
  struct Command {
    std::shared_ptr<Done> done;
    std::chrono::nanoseconds takes;
    Clock::time_point given;
    std::vector<Use> uses;
    std::vector<std::shared_ptr<const Done>> waits;
    std::function<void()> work;
  };
  struct Line {
    std::deque<Command> commands;  // the first is under way
    Clock::time_point free;        // when it was to have done what it has done
    std::thread thread;
  };
  void work(Line& line);

  // Shared by all devices: they wait for each other.
  static std::mutex& mutex_;
  static std::condition_variable& changed_;
  static bool held_;
  static int begun_;
  bool stopped_ = false;
  std::shared_ptr<int> holding_ = std::make_shared<int>(0);  // the threads that hold outlive this
  std::vector<std::shared_ptr<Done>> all_;
  Line lines_[3];
};

}  // namespace evn
