// Names of a graph as keys. Names are hostile: the hash is keyed anew for each load, so that nobody can prepare names that collide.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/cancel.h"
#include "base/os/os.h"
#include "core/graph.h"

namespace evn {

class KeyedHash {
 public:
  KeyedHash() : key_(mix(os::now_ns() ^ 0x9e3779b97f4a7c15u, reinterpret_cast<std::uintptr_t>(this) | 1)) {}

  std::size_t operator()(std::string_view text) const {
    std::uint64_t h = key_ ^ text.size();
    const char* p = text.data();
    std::size_t left = text.size();
    for (; left >= 8; left -= 8, p += 8) h = mix(h ^ word(p, 8), key_ | 1);
    return static_cast<std::size_t>(mix(h ^ word(p, left), key_ ^ 0xd6e8feb86659fd93u));
  }

 private:
  // The two halves of the product, folded.
  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  static std::uint64_t word(const char* p, std::size_t bytes) {
    std::uint64_t w = 0;
    std::memcpy(&w, p, bytes);
    return w;
  }

  std::uint64_t key_;
};

// The names are views: whoever holds them outlives the map.
using NameMap = std::unordered_map<std::string_view, ValueId, KeyedHash>;

using NameSet = std::unordered_set<std::string, KeyedHash>;

// Set of views: whoever holds the names outlives it.
using NameViewSet = std::unordered_set<std::string_view, KeyedHash>;

// Work of a look-up of a name, or of its insertion.
inline constexpr std::int64_t kNameWork = 8;

// Has a cancellation point for each name.
inline NameViewSet set_of(std::span<const std::string> names) {
  NameViewSet set;
  for (const std::string& name : names) {
    cancellation_point(kNameWork);
    set.insert(name);
  }
  return set;
}

}  // namespace evn
