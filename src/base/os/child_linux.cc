#include "base/os/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/fault.h"
#include "base/os/os.h"

extern char** environ;

namespace evn::os {
namespace {

constexpr int kAnswer = 3;                                        // the child's descriptor
constexpr std::uint64_t kBetweenLooksNs = 5'000'000;              // whether it is over
constexpr std::uint64_t kToBeKilledNs = 2'000'000'000;            // at most, until the system has ended it
constexpr std::uint64_t kLongestNs = std::uint64_t{86400} << 30;  // of a limit

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void set(int fd) { fd_ = fd; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// What posix_spawn is told. The functions fail for want of memory alone.
class Plan {
 public:
  Plan() {
    failed_ = posix_spawn_file_actions_init(&actions);
    if (failed_ != 0) return;
    failed_ = posix_spawnattr_init(&attributes);
    if (failed_ != 0) posix_spawn_file_actions_destroy(&actions);
  }
  ~Plan() {
    if (failed_ != 0) return;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  int set(int answer) {
    if (failed_ != 0) return failed_;
    int code = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    for (int fd = 1; code == 0 && fd <= 2; ++fd) code = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
    if (code == 0) code = posix_spawn_file_actions_adddup2(&actions, answer, kAnswer);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    if (code == 0) code = posix_spawnattr_setsigmask(&attributes, &none);
    if (code == 0) code = posix_spawnattr_setsigdefault(&attributes, &all);
    if (code == 0) code = posix_spawnattr_setpgroup(&attributes, 0);
    constexpr short kFlags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP;
    return code != 0 ? code : posix_spawnattr_setflags(&attributes, kFlags);
  }

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

 private:
  int failed_ = 0;
};

std::vector<std::string> environment_with(std::span<const std::pair<std::string, std::string>> variables) {
  std::vector<std::string> all;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const bool is_set = std::any_of(variables.begin(), variables.end(), [&](const auto& v) {
      return entry.size() > v.first.size() && entry[v.first.size()] == '=' && entry.substr(0, v.first.size()) == v.first;
    });
    if (!is_set) all.emplace_back(entry);
  }
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Two ends of a pipe that no other child inherits, the first without blocking; neither is the child's descriptor.
int make_pipe(Descriptor* read_end, Descriptor* write_end) {
  if (fault_hit(Seam::kIo)) return EMFILE;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  read_end->set(ends[0]);
  write_end->set(ends[1]);
  if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return errno;
  if (ends[1] > kAnswer) return 0;
  const int higher = fcntl(ends[1], F_DUPFD_CLOEXEC, kAnswer + 1);  // dup2 onto itself would leave it to be closed
  if (higher < 0) return errno;
  write_end->close();
  write_end->set(higher);
  return 0;
}

// Reads what there is, up to `most` bytes in all, and throws the rest away; false at the end of the pipe.
bool take_answer(int fd, std::size_t most, std::string* answer) {
  char bytes[256];
  for (int round = 0; round < 64; ++round) {  // a program that never ceases to write is looked at in between
    const ssize_t got = read(fd, bytes, sizeof bytes);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    answer->append(bytes, std::min(static_cast<std::size_t>(got), most + 1 - std::min(answer->size(), most + 1)));
  }
  return true;
}

// Whether the process is over; then *end says how.
bool is_over(pid_t pid, ChildEnd* end) {
  int status = 0;
  const pid_t got = waitpid(pid, &status, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return false;
  if (got < 0) {
    end->how = ChildEnd::How::kUnknown;
  } else if (WIFSIGNALED(status)) {
    end->how = ChildEnd::How::kSignalled;
    end->code = WTERMSIG(status);
  } else {
    end->how = ChildEnd::How::kExited;
    end->code = WEXITSTATUS(status);
  }
  return true;
}

void sleep_for(std::uint64_t ns) { poll(nullptr, 0, static_cast<int>(ns / 1'000'000)); }

void follow(pid_t pid, int answer, std::size_t most, std::uint64_t timeout_ns, ChildEnd* end) {
  const std::uint64_t begin = now_ns();
  bool open = true;
  while (!is_over(pid, end)) {
    if (now_ns() - begin >= timeout_ns) {
      kill(-pid, SIGKILL);
      kill(pid, SIGKILL);
      const std::uint64_t killed = now_ns();
      ChildEnd ignored;
      while (!is_over(pid, &ignored) && now_ns() - killed < kToBeKilledNs) sleep_for(kBetweenLooksNs);
      end->how = ChildEnd::How::kTimedOut;
      return;
    }
    pollfd ready{answer, POLLIN, 0};
    if (open && poll(&ready, 1, static_cast<int>(kBetweenLooksNs / 1'000'000)) > 0) open = take_answer(answer, most, &end->answer);
    if (!open) sleep_for(kBetweenLooksNs);
  }
  take_answer(answer, most, &end->answer);
}

}  // namespace

ChildEnd run_child(const std::string& program, std::span<const char* const> arguments,
                   std::span<const std::pair<std::string, std::string>> variables, std::size_t most, std::uint64_t timeout_ns) {
  ChildEnd end;
  Descriptor read_end, write_end;
  Plan plan;
  int code = make_pipe(&read_end, &write_end);
  if (code == 0) code = plan.set(write_end.get());
  pid_t pid = 0;
  if (code == 0) {
    std::vector<std::string> words = {program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<std::string> environment = environment_with(variables);
    const std::vector<char*> argv = pointers_to(words), envp = pointers_to(environment);
    code = fault_hit(Seam::kThread) ? EAGAIN
                                    : posix_spawn(&pid, program.c_str(), &plan.actions, &plan.attributes, argv.data(), envp.data());
  }
  if (code != 0) {
    end.reason = std::strerror(code);
    return end;
  }
  write_end.close();  // so that its end is seen
  follow(pid, read_end.get(), most, std::min(timeout_ns, kLongestNs), &end);
  return end;
}

}  // namespace evn::os
