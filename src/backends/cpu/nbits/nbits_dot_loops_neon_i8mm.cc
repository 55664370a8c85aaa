#include "backends/cpu/nbits/nbits_dot.h"
