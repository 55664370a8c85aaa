#include "ops/infra/part_list.h"

#include <algorithm>
#include <utility>

#include "base/cancel.h"

namespace evn {

PartList::PartList(const std::vector<RuntimeValuePtr>& parts) {
  blocks_.reserve(parts.size() / kBlock + 1);
  for (std::size_t at = 0; at < parts.size(); at += kBlock) {
    const std::size_t count = std::min(kBlock, parts.size() - at);
    cancellation_point(static_cast<std::int64_t>(count));
    const auto first = parts.begin() + static_cast<std::ptrdiff_t>(at);
    append({first, first + static_cast<std::ptrdiff_t>(count)});
  }
}

void PartList::append(std::vector<RuntimeValuePtr> parts) {
  if (parts.empty()) return;
  const std::size_t end = size() + parts.size();
  blocks_.push_back({std::make_shared<const std::vector<RuntimeValuePtr>>(std::move(parts)), end});
}

std::size_t PartList::block_of(std::size_t at) const {
  const auto it = std::upper_bound(blocks_.begin(), blocks_.end(), at, [](std::size_t a, const Block& b) { return a < b.end; });
  return static_cast<std::size_t>(it - blocks_.begin());
}

const RuntimeValuePtr& PartList::operator[](std::size_t at) const {
  const std::size_t block = block_of(at);
  return (*blocks_[block].parts)[at - begin_of(block)];
}

PartList PartList::with(std::size_t at, RuntimeValuePtr part) const {
  PartList list;
  if (empty()) {
    list.append({std::move(part)});
    return list;
  }
  const std::size_t changed = at == size() ? blocks_.size() - 1 : block_of(at);  // what is added at the end joins the last block
  cancellation_point(static_cast<std::int64_t>(std::min(blocks_.size(), std::size_t{kWorkPerLook / 2}) + kBlock));
  list.blocks_.reserve(blocks_.size() + 2);
  list.blocks_.assign(blocks_.begin(), blocks_.begin() + static_cast<std::ptrdiff_t>(changed));
  std::vector<RuntimeValuePtr> parts;
  parts.reserve(blocks_[changed].parts->size() + 1);
  parts = *blocks_[changed].parts;
  parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(at - begin_of(changed)), std::move(part));
  if (parts.size() <= kBlock) {
    list.append(std::move(parts));
  } else if (at == size()) {  // blocks of a list that grows at its end are full
    RuntimeValuePtr last = std::move(parts.back());
    list.blocks_.push_back(blocks_[changed]);
    list.append({std::move(last)});
  } else {
    const auto middle = parts.begin() + static_cast<std::ptrdiff_t>(parts.size() / 2);
    list.append({parts.begin(), middle});
    list.append({middle, parts.end()});
  }
  for (std::size_t b = changed + 1; b < blocks_.size(); ++b) list.blocks_.push_back({blocks_[b].parts, blocks_[b].end + 1});
  return list;
}

PartList PartList::without(std::size_t at) const {
  const std::size_t changed = block_of(at);
  cancellation_point(static_cast<std::int64_t>(std::min(blocks_.size(), std::size_t{kWorkPerLook / 2}) + kBlock));
  PartList list;
  list.blocks_.reserve(blocks_.size());
  list.blocks_.assign(blocks_.begin(), blocks_.begin() + static_cast<std::ptrdiff_t>(changed));
  std::vector<RuntimeValuePtr> parts = *blocks_[changed].parts;
  parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at - begin_of(changed)));
  list.append(std::move(parts));
  for (std::size_t b = changed + 1; b < blocks_.size(); ++b) list.blocks_.push_back({blocks_[b].parts, blocks_[b].end - 1});
  return list;
}

std::vector<RuntimeValuePtr> PartList::all() const {
  std::vector<RuntimeValuePtr> all;
  all.reserve(size());
  for (const Block& block : blocks_) {
    cancellation_point(static_cast<std::int64_t>(block.parts->size()));
    all.insert(all.end(), block.parts->begin(), block.parts->end());
  }
  return all;
}

}  // namespace evn
