#include "runtime/cost/partition.h"

#include <algorithm>
#include <cmath>

#include "base/cancel.h"

namespace evn {
namespace {

constexpr std::size_t kMostLooks = 100'000'000;  // at nodes, of improve()
constexpr std::size_t kLengths[] = {1, 2, 4, 8, 16, 32, 64, 128};

// The time of copying so many values between two devices, by way of the host, with so many bytes from the one and to the other.
double transfer(const PartitionProblem& p, std::size_t from, std::size_t to, double values, double bytes_from, double bytes_to) {
  double ns = 0;
  if (from != 0) ns += values * p.devices[from].download.latency_ns + bytes_from * p.devices[from].download.ns_per_byte;
  if (to != 0) ns += values * p.devices[to].upload.latency_ns + bytes_to * p.devices[to].upload.ns_per_byte;
  return ns;
}

// Per position before a node, and behind the last: whether a step of the device has nodes on both sides of it.
std::vector<bool> inner_positions(const PartitionProblem::Device& device) {
  const std::size_t n = device.ns.size();
  std::vector<std::int32_t> depth(n + 2, 0);
  std::vector<std::size_t> last(n);
  for (std::size_t i = 0; i < n; ++i) last[static_cast<std::size_t>(device.first_of[i])] = i;
  for (std::size_t i = 0; i < n; ++i) {
    if (device.first_of[i] != static_cast<std::int32_t>(i) || last[i] <= i) continue;
    ++depth[i + 1];
    --depth[last[i] + 1];
  }
  std::vector<bool> inner(n + 1);
  std::int32_t open = 0;
  for (std::size_t i = 0; i <= n; ++i) inner[i] = (open += depth[i]) > 0;
  return inner;
}

}  // namespace

double PartitionCost::of(Objective objective, bool at_once) const {
  if (objective == Objective::kThroughput) return *std::max_element(busy.begin(), busy.end());
  return at_once ? end : total;
}

PartitionCost evaluate(const PartitionProblem& p, const Places& places) {
  const std::size_t count = p.devices.size();
  PartitionCost cost;
  cost.busy.resize(count);
  std::vector<double> free(count), link(count);                // when a device, and its copies, have done what was given to them
  std::vector<double> ready(p.value_bytes.size() * count, 0);  // when a value is on a device where it lies
  const auto ready_at = [&](std::int32_t value, std::size_t device) -> double& {
    return ready[static_cast<std::size_t>(value) * count + device];
  };
  // Begins when `line` is free and not before `begin`; gives the end.
  const auto spend = [&](std::size_t device, double& line, double begin, double ns) {
    cost.busy[device] += ns;
    cost.total += ns;
    line = std::max(line, begin) + ns;
    cost.end = std::max(cost.end, line);
    return line;
  };
  std::vector<std::uint32_t> lies(p.value_bytes.size(), 1);  // bit d: the value is on device d. What no node makes is on the host
  const auto bring = [&](std::int32_t value, std::size_t to) {
    cancellation_point();
    std::uint32_t& on = lies[static_cast<std::size_t>(value)];
    if ((on >> to & 1) != 0) return;
    const double bytes = p.value_bytes[static_cast<std::size_t>(value)];
    const double bytes_there = p.devices[to].bytes_of(p, static_cast<std::size_t>(value));
    if ((on & 1) == 0) {
      std::size_t from = 1;
      while ((on >> from & 1) == 0) ++from;
      ready_at(value, 0) = spend(from, link[from], ready_at(value, from), p.devices[from].download.of(bytes));
      on |= 1;
    }
    if (to != 0) ready_at(value, to) = spend(to, link[to], ready_at(value, 0), p.devices[to].upload.of(bytes_there));
    on |= 1u << to;
  };
  for (std::size_t i = 0; i < p.nodes.size(); ++i) {
    cancellation_point();
    const auto device = static_cast<std::size_t>(places[i]);
    double begin = 0;
    for (const std::int32_t v : p.nodes[i].reads) {
      bring(v, device);
      begin = std::max(begin, ready_at(v, device));
    }
    const auto first = static_cast<std::size_t>(p.devices[device].first_of[i]);
    const bool alone = first != i && places[first] != places[i];
    const double end = spend(device, free[device], begin, p.devices[device].ns[alone ? first : i]);
    for (const std::int32_t v : p.nodes[i].makes) {
      cancellation_point();
      lies[static_cast<std::size_t>(v)] = 1u << device;
      ready_at(v, device) = end;
    }
  }
  for (const std::int32_t v : p.outputs) bring(v, 0);
  return cost;
}

Places best_segments(const PartitionProblem& p) {
  const std::size_t n = p.nodes.size(), devices = p.devices.size();
  // Per position: how many values are made before it and read behind it, and for each device the bytes of theirs that are copied.
  std::vector<double> values(n + 1);
  std::vector<std::vector<double>> bytes(devices, std::vector<double>(n + 1));
  {
    std::vector<std::int64_t> made(p.value_bytes.size(), 0), read(p.value_bytes.size(), -1);
    for (std::size_t i = 0; i < n; ++i) {
      for (const std::int32_t v : p.nodes[i].makes) made[static_cast<std::size_t>(v)] = static_cast<std::int64_t>(i) + 1;
      for (const std::int32_t v : p.nodes[i].reads) read[static_cast<std::size_t>(v)] = static_cast<std::int64_t>(i);
    }
    for (const std::int32_t v : p.outputs) read[static_cast<std::size_t>(v)] = static_cast<std::int64_t>(n);
    // The sums over the values that live at each position.
    const auto add_up = [&](auto&& of_value, std::vector<double>* sums) {
      std::vector<double> more(n + 2);
      for (std::size_t v = 0; v < made.size(); ++v) {
        if (read[v] < made[v]) continue;
        more[static_cast<std::size_t>(made[v])] += of_value(v);
        more[static_cast<std::size_t>(read[v]) + 1] -= of_value(v);
      }
      double sum = 0;
      for (std::size_t i = 0; i <= n; ++i) (*sums)[i] = sum += more[i];
    };
    add_up([](std::size_t) { return 1.0; }, &values);
    for (std::size_t d = 0; d < devices; ++d) add_up([&](std::size_t v) { return p.devices[d].bytes_of(p, v); }, &bytes[d]);
  }
  std::vector<std::vector<bool>> inner;
  for (const PartitionProblem::Device& d : p.devices) inner.push_back(inner_positions(d));
  // Before node i, on device d: the least time of all before, and on which device node i - 1 was.
  std::vector<double> now(devices, HUGE_VAL), next(devices);
  std::vector<std::vector<std::int32_t>> came(n + 1, std::vector<std::int32_t>(devices));
  now[0] = 0;
  const auto cross = [&](std::size_t i) {
    for (std::size_t to = 0; to < devices; ++to) {
      next[to] = now[to];
      came[i][to] = static_cast<std::int32_t>(to);
      for (std::size_t from = 0; from < devices; ++from) {
        if (from == to || inner[from][i] || inner[to][i]) continue;
        const double ns = now[from] + transfer(p, from, to, values[i], bytes[from][i], bytes[to][i]);
        if (ns >= next[to]) continue;
        next[to] = ns;
        came[i][to] = static_cast<std::int32_t>(from);
      }
    }
    now = next;
  };
  for (std::size_t i = 0; i < n; ++i) {
    cancellation_point(kNodeWork);
    cross(i);
    for (std::size_t d = 0; d < devices; ++d) now[d] += p.devices[d].ns[i];
  }
  cross(n);
  if (now[0] == HUGE_VAL) return {};
  Places places(n);
  std::int32_t at = came[n][0];
  for (std::size_t i = n; i-- > 0;) {
    places[i] = at;
    at = came[i][static_cast<std::size_t>(at)];
  }
  return places;
}

Places improve(const PartitionProblem& p, Places places, Objective objective, bool at_once) {
  const std::size_t n = p.nodes.size();
  double best = evaluate(p, places).of(objective, at_once);
  std::size_t looks = 0;
  // Gives the steps of [begin, end) that a device can run, and that lie in it, to that device, if this is better.
  const auto give = [&](std::size_t begin, std::size_t end, std::size_t device) {
    looks += n;
    const auto from = places.begin() + static_cast<std::ptrdiff_t>(begin);
    const Places before(from, places.begin() + static_cast<std::ptrdiff_t>(end));
    bool changed = false;
    for (std::size_t i = begin; i < end; ++i) {
      cancellation_point();
      if (p.devices[device].ns[i] == HUGE_VAL || places[i] == static_cast<std::int32_t>(device)) continue;
      places[i] = static_cast<std::int32_t>(device);
      changed = true;
    }
    if (!changed) return false;
    const double ns = evaluate(p, places).of(objective, at_once);
    if (ns < best * (1 - 1e-9)) {
      best = ns;
      return true;
    }
    std::copy(before.begin(), before.end(), from);
    return false;
  };
  for (bool better = true; better && looks < kMostLooks;) {
    better = false;
    // Whole runs of nodes on one device, then parts of all lengths at all places.
    for (std::size_t begin = 0; begin < n && looks < kMostLooks;) {
      std::size_t end = begin + 1;
      while (end < n && places[end] == places[begin]) ++end;
      for (std::size_t d = 0; d < p.devices.size(); ++d) better |= give(begin, end, d);
      begin = end;
    }
    for (const std::size_t length : kLengths) {
      for (std::size_t begin = 0; begin + length <= n && looks < kMostLooks; begin += (length + 1) / 2) {
        for (std::size_t d = 0; d < p.devices.size(); ++d) better |= give(begin, begin + length, d);
      }
    }
  }
  return places;
}

}  // namespace evn
