// The constant matrices W and R of LSTM, GRU and RNN, packed, and products by them: of float32, or with operands that are rounded
// to bfloat16. Gates lie `padded` columns apart, whole vectors.
#pragma once

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"
#include "device/kernel.h"

namespace evn {

struct RecurrentMatrix {
  Isa isa;
  bool is_w, is_bfloat;
  std::int32_t gates;
  std::int64_t hidden, padded, depth;  // depth: k, the inputs' size for W, the hidden one for R

  std::int64_t bytes() const;  // of one direction, packed
  // Rows [begin, end) of all gates of all directions. What pads a gate, or the last panel, is written with the row before it.
  void pack(const float* rows, std::int64_t begin, std::int64_t end, void* packed) const;
};

// W or R of a node, by the node's input.
RecurrentMatrix recurrent_matrix(const OpDesc& d, int input, bool is_bfloat);

// A GRU's third product with R waits for the first two: its columns are a matrix of their own.
int joined_gates(int gates, bool is_w);

// to = init + a B for m rows and the columns [column, column + n) of B, which are those of the joined gates or of the others.
struct RecurrentProduct {
  const float* a;
  std::int64_t lda, m;
  std::int64_t column, n;
  const float* init;
  std::int64_t init_row;
  float* to;
  std::int64_t ldc;
  bool backwards = false;  // as simd_recurrent::Loops::row has it
};

// Bytes of scratch for products of so many rows.
std::int64_t product_bytes(const RecurrentMatrix& b, std::int64_t rows);
void multiply(const RecurrentMatrix& b, const void* packed, const RecurrentProduct& p, void* scratch, CancelPoints* points);

}  // namespace evn
