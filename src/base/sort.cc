#include "base/sort.h"

#include <algorithm>

#include "base/cancel.h"

namespace evn {

std::vector<std::size_t> sorted_order(std::size_t count, ComesBefore comes_before, const void* context) {
  std::vector<std::size_t> order(count), merged(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  for (std::size_t width = 1; width < count; width *= 2) {
    for (std::size_t begin = 0; begin < count; begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, count), end = std::min(begin + 2 * width, count);
      std::size_t left = begin, right = middle;
      for (std::size_t to = begin; to < end; ++to) {
        cancellation_point();
        const bool takes_right = left == middle || (right < end && comes_before(context, order[right], order[left]));
        merged[to] = order[takes_right ? right++ : left++];
      }
    }
    order.swap(merged);
  }
  return order;
}

}  // namespace evn
