#include "tests/backends/mock/queues.h"

#include <algorithm>

namespace evn {

// Never destroyed: threads of hold_until may still use them while the process exits.
std::mutex& MockQueues::mutex_ = *new std::mutex;
std::condition_variable& MockQueues::changed_ = *new std::condition_variable;
bool MockQueues::held_ = false;
int MockQueues::begun_ = 0;

namespace {

bool collide(const MockQueues::Use& a, const MockQueues::Use& b) {
  const auto end = [](const Buffer& buffer) { return buffer.offset + buffer.size; };
  return (a.written || b.written) && a.buffer.memory == b.buffer.memory && a.buffer.offset < end(b.buffer) &&
         b.buffer.offset < end(a.buffer);
}

}  // namespace

MockQueues::MockQueues() {
  for (Line& line : lines_) line.thread = std::thread([this, &line] { work(line); });
}

MockQueues::~MockQueues() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  for (Line& line : lines_) line.thread.join();
}

std::uint64_t MockQueues::add(Queue queue, std::chrono::nanoseconds takes, std::vector<Use> uses,
                              std::vector<std::shared_ptr<const Done>> waits, std::function<void()> work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Line& line : lines_) {
    if (&line == &lines_[queue]) continue;
    for (const Command& other : line.commands) {
      const bool before = std::any_of(uses.begin(), uses.end(), [&](const Use& a) {
        return std::any_of(other.uses.begin(), other.uses.end(), [&](const Use& b) { return collide(a, b); });
      });
      if (before) waits.push_back(other.done);
    }
  }
  all_.push_back(std::make_shared<Done>());
  lines_[queue].commands.push_back({all_.back(), takes, Clock::now(), std::move(uses), std::move(waits), std::move(work)});
  changed_.notify_all();
  return all_.size();
}

std::shared_ptr<const MockQueues::Done> MockQueues::done(std::uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return all_[number - 1];
}

void MockQueues::hold(bool held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ = held;
  changed_.notify_all();
}

int MockQueues::begun() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return begun_;
}

void MockQueues::wait(std::uint64_t number) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return all_[number - 1]->ended; });
}

bool MockQueues::wait_or_stop(std::uint64_t number, const Cancel& cancel) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!all_[number - 1]->ended) {
    if (cancel.stop()) return false;
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  return true;
}

void MockQueues::hold_until(std::uint64_t number, std::shared_ptr<const void> held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++*holding_;
  std::thread([done = all_[number - 1], held = std::move(held), holding = holding_]() mutable {
    {
      std::unique_lock<std::mutex> waiting(mutex_);
      changed_.wait(waiting, [&] { return done->ended; });
    }
    held.reset();
    const std::lock_guard<std::mutex> ended(mutex_);
    --*holding;
    changed_.notify_all();
  }).detach();
}

bool MockQueues::settle(const Cancel& cancel) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (*holding_ > 0) {
    if (cancel.stop()) return false;
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  return true;
}

// A command begins when its queue is free, it has been given, and what it waits for has ended, and ends so much later: by these
// times and not by those at which the thread wakes up, so that lateness does not add up.
void MockQueues::work(Line& line) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopped_ || !line.commands.empty(); });
    if (line.commands.empty()) return;
    ++begun_;
    Command& command = line.commands.front();
    changed_.wait(lock,
                  [&] { return std::all_of(command.waits.begin(), command.waits.end(), [](const auto& d) { return d->ended; }); });
    Clock::time_point end = std::max(line.free, command.given);
    for (const auto& before : command.waits) end = std::max(end, before->at);
    end += command.takes;
    lock.unlock();
    std::this_thread::sleep_until(end);
    lock.lock();
    changed_.wait(lock, [&] { return !held_; });
    lock.unlock();
    command.work();  // others are added behind it meanwhile, which leaves it where it is
    lock.lock();
    line.free = command.done->at = end;
    command.done->ended = true;
    line.commands.pop_front();
    --begun_;
    changed_.notify_all();
  }
}

}  // namespace evn
