// Rows of scores for the derivative of Attention, float32, between its products.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"

namespace evn::simd_attention_gradient {

// One query over `keys` keys, of which it sees [low, high).
struct Query {
  std::int64_t keys, low, high;
  float scale, softcap;           // softcap 0: none
  const float* mask;              // nullable: is added
  const std::uint8_t* bool_mask;  // nullable: 0 hides the key
};

struct Loops {
  // scores: the products of the query with the keys, in; the weights, out, which are 0 where it sees nothing. slopes: with softcap,
  // by which its derivative is multiplied.
  void (*weigh)(const Query& query, float* scores, float* slopes);
  // dweights: the derivatives by the weights, in; by the products, out. dmask (nullable) grows by those by what is added.
  void (*back)(const Query& query, const float* weights, const float* slopes, float* dweights, float* dmask);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_attention_gradient
