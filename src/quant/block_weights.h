// Matrices in 8 or 4 bits with a scale for each block of k, as weights alone are quantized.
#pragma once

#include <string>
#include <vector>

#include "core/weight.h"

namespace evn {

struct BlockWeight {
  int bits = 8;  // 8: symmetric, numbers from 1 to 255 around 128; 4: from 0 to 15, with zero points
  std::int64_t k = 0, n = 0, block = 0;
  std::vector<std::uint8_t> numbers;  // [n][k]
  std::vector<float> scales;          // [n][blocks]
  std::vector<std::uint8_t> zeros;    // likewise

  std::int64_t blocks() const { return (k + block - 1) / block; }
};

// The weight is a matrix with k along `axis`. 8 bits span a block's largest magnitude; of 4 bits, the range with the least mean
// square error among some that are narrower than all of the block is taken. Throws EVN_ERROR_INVALID_MODEL naming the weight if an
// element is NaN or infinite.
BlockWeight quantize_blocks(const Weight& weight, const std::string& name, int axis, int bits, std::int64_t block);

}  // namespace evn
