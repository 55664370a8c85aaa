// Convolutions that follow each other, run in bands (device/bands.h): first layers, depthwise ones and 1 x 1, channels last.
#pragma once

#include "device/bands.h"

namespace evn {

extern const Bands cpu_bands;

// For tests: which nodes run in bands. Plans that exist stay as they are.
enum class BandsUse { kWhereItPays, kNever, kAlways };
void force_bands(BandsUse use);

}  // namespace evn
