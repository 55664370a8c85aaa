// Which library multiplies matrices: MatMul and Gemm, and nothing else.
#pragma once

#include <cstdint>

#include "evener/evener.h"

namespace evn {

enum class Products : std::int32_t {
  kDefault = EVN_PRODUCTS_DEFAULT,  // whatever the next authority says; kAuto at the end
  kOwn = EVN_PRODUCTS_OWN,
  kOpenBlas = EVN_PRODUCTS_OPENBLAS,
  kClBlast = EVN_PRODUCTS_CLBLAST,
  kAuto = EVN_PRODUCTS_AUTO,
  kMeasured = EVN_PRODUCTS_MEASURED,  // what was faster when the plan for a shape was made
};

// Words of the configuration; kMeasured is `auto` with `measure: true`.
inline constexpr char kProductsWords[] = "own|openblas|clblast|auto";
constexpr const char* products_name(Products p) {
  switch (p) {
    case Products::kOwn: return "own";
    case Products::kOpenBlas: return "openblas";
    case Products::kClBlast: return "clblast";
    case Products::kMeasured: return "measured";
    default: return "auto";
  }
}

// Whether a library of others is asked for.
constexpr bool asks_for_library(Products p) { return p == Products::kOpenBlas || p == Products::kClBlast; }

}  // namespace evn
