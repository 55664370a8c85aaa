// Convolutions that follow each other as a cascade (device/cascade.h): first layers, depthwise ones and 1 x 1, channels last.
#pragma once

#include "device/cascade.h"

namespace evn {

extern const Cascades cpu_cascades;

// For tests: which nodes run as cascades. Plans that exist stay as they are.
enum class CascadeUse { kWhereItPays, kNever, kAlways };
void force_cascades(CascadeUse use);

}  // namespace evn
