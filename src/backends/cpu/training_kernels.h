// The kernels that only training needs: those of conv_gradient/ and training/. They are in libevener_train.so, which is compiled
// with the library, has what they share with others in it once more, and is opened when a graph first has such a node. Without it
// the reference kernels run. docs/decisions/0086-training.md
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/kernel.h"

namespace evn {

// Operators that have kernels there.
bool is_of_training(const Node& node);

// Opens the module, where it is there and fits. From any thread; later calls do nothing.
void open_training_kernels();
// Takes these in the place of the module's, for programs that have them linked in (tests). Before anything is opened.
void take_training_kernels(std::span<const KernelFamily* const> families);

// Why there are none of them; nullptr: they are there, or nothing has asked for them yet. For explain.
const char* why_no_training_kernels();

// All kernels of the CPU, those of the module among them once it is open.
std::span<const KernelFamily* const> cpu_kernels();

// What the module exports under this name: its kernels, where `build` is kTrainingBuild; else nullptr. `isa`: where the choice of
// an instruction set is kept.
#define EVN_TRAINING_KERNELS_SYMBOL "evn_training_kernels"
using TrainingKernelsFunction = const KernelFamily* const* (*)(std::uint64_t build, std::atomic<int>* isa, std::size_t* count);

// Differs where the two were not compiled from the same headers.
inline constexpr std::uint64_t kTrainingBuild =
    ((((sizeof(Kernel) * 4099 + sizeof(OpDesc)) * 4099 + sizeof(KernelPlan)) * 4099 + sizeof(KernelArgs)) * 4099 + sizeof(Node)) *
        4099 +
    EVN_VERSION_NUMBER;

}  // namespace evn
