// CPU quotas of control groups, versions 1 and 2. A quota of any ancestor binds too. Inside a container the process's path may
// not be visible, but the mount's root then is the container's own group, and it is on the way up.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/os/files_linux.h"

namespace evn::os {
namespace {

constexpr std::size_t kPathBytes = 2048;

// ceil(quota / period) in cores; 0 where there is no quota.
int cores_of(std::int64_t quota, std::int64_t period) {
  if (quota <= 0 || period <= 0) return 0;
  const std::int64_t cores = quota / period + (quota % period > 0 ? 1 : 0);
  return cores > 1'000'000 ? 0 : static_cast<int>(cores);
}

bool parse(std::string_view text, std::int64_t* value) {
  return std::from_chars(text.data(), text.data() + text.size(), *value).ec == std::errc();
}

bool read_number(const char* folder, const char* file, std::int64_t* value) {
  char path[kPathBytes + 64], text[64];
  std::snprintf(path, sizeof path, "%s/%s", folder, file);
  const int n = read_small_file(path, text, sizeof text);
  return n > 0 && parse({text, static_cast<std::size_t>(n)}, value);
}

// Version 2: one line, "QUOTA PERIOD" in microseconds, QUOTA may be "max".
int quota_v2(const char* folder) {
  char path[kPathBytes + 64], text[64];
  std::snprintf(path, sizeof path, "%s/cpu.max", folder);
  const int n = read_small_file(path, text, sizeof text);
  if (n <= 0) return 0;
  const std::string_view line(text, static_cast<std::size_t>(n));
  const std::size_t space = line.find(' ');
  std::int64_t quota = 0, period = 0;
  if (space == std::string_view::npos || !parse(line, &quota) || !parse(line.substr(space + 1), &period)) return 0;
  return cores_of(quota, period);
}

int quota_v1(const char* folder) {
  std::int64_t quota = 0, period = 0;
  if (!read_number(folder, "cpu.cfs_quota_us", &quota) || !read_number(folder, "cpu.cfs_period_us", &period)) return 0;
  return cores_of(quota, period);
}

int smaller(int a, int b) { return a == 0 ? b : b == 0 ? a : a < b ? a : b; }

// The smallest quota of mount/group and its ancestors up to the mount.
int quota_upwards(const char* mount, std::string_view group, int (*quota)(const char*)) {
  char path[kPathBytes];
  const std::size_t stem = std::strlen(mount);
  if (group.find("..") != std::string_view::npos || stem + group.size() >= sizeof path) group = "";
  std::snprintf(path, sizeof path, "%s%.*s", mount, static_cast<int>(group.size()), group.data());
  int least = 0;
  for (;;) {
    least = smaller(least, quota(path));
    char* slash = std::strrchr(path, '/');
    if (slash == nullptr || static_cast<std::size_t>(slash - path) < stem) return least;
    *slash = '\0';
  }
}

bool lists_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "cpu") return true;
    if (comma == std::string_view::npos) break;
    controllers.remove_prefix(comma + 1);
  }
  return false;
}

// One line of /proc/self/cgroup: "ID:CONTROLLERS:PATH"; version 2 has ID 0 and no controllers.
int quota_of_line(std::string_view line, const char* root) {
  const std::size_t first = line.find(':');
  const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
  if (second == std::string_view::npos) return 0;
  const std::string_view controllers = line.substr(first + 1, second - first - 1);
  const std::string_view group = line.substr(second + 1);
  char mount[256];
  if (controllers.empty()) {
    std::snprintf(mount, sizeof mount, "%s/unified", root);
    return smaller(quota_upwards(root, group, quota_v2), quota_upwards(mount, group, quota_v2));
  }
  if (!lists_cpu(controllers)) return 0;
  std::snprintf(mount, sizeof mount, "%s/cpu", root);
  const int linked = quota_upwards(mount, group, quota_v1);
  std::snprintf(mount, sizeof mount, "%s/%.*s", root, static_cast<int>(controllers.size()), controllers.data());
  return smaller(linked, quota_upwards(mount, group, quota_v1));
}

}  // namespace

int quota_cores(const char* membership, const char* root) noexcept {
  char text[8192];
  const int n = read_small_file(membership, text, sizeof text);
  if (n <= 0) return 0;
  int least = 0;
  for (std::string_view rest(text, static_cast<std::size_t>(n)); !rest.empty();) {
    const std::size_t end = rest.find('\n');
    least = smaller(least, quota_of_line(rest.substr(0, end), root));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return least;
}

}  // namespace evn::os
