#include "runtime/lower/pass.h"

namespace evn {

extern const LoweringPassInfo sum_epilogue_pass;
extern const LoweringPassInfo cascade_pass;
extern const LoweringPassInfo channel_views_pass;
extern const LoweringPassInfo contiguous_views_pass;
extern const LoweringPassInfo cache_append_pass;
extern const LoweringPassInfo storage_16bit_pass;

std::span<const LoweringPassInfo* const> lowering_passes() {
  static constexpr const LoweringPassInfo* kPasses[] = {
      &sum_epilogue_pass, &cascade_pass, &channel_views_pass, &contiguous_views_pass, &storage_16bit_pass, &cache_append_pass,
  };
  return kPasses;
}

std::uint32_t lowering_pass_bit(const LoweringPassInfo& pass) {
  std::uint32_t bit = 1;
  for (const LoweringPassInfo* p : lowering_passes()) {
    if (p == &pass) break;
    bit <<= 1;
  }
  return bit;
}

}  // namespace evn
