// The CPU's kernels that only training needs: those of conv_gradient/ and training/. Without the module that has them the reference
// kernels run.
#pragma once

#include "device/training_kernels.h"

namespace evn {

// Opens the module. From any thread; later calls do nothing.
void open_training_kernels();
// Takes these in the place of the module's, for programs that have them linked in (tests). Before anything is opened.
void take_training_kernels(std::span<const KernelFamily* const> families);
// Adds to the reason why no kernel takes a node that the module is not there.
void explain_training_kernels(const Node& node, std::string* reason);

// All kernels of the CPU, those of the module among them once it is open.
std::span<const KernelFamily* const> cpu_kernels();

// What the module exports under this name is a TrainingKernelsFunction; what it shares is where the choice of an instruction set is
// kept, a std::atomic<int>.
#define EVN_TRAINING_KERNELS_SYMBOL "evn_training_kernels"

}  // namespace evn
