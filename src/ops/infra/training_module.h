// libevener_train.so, which has the rules of differentiation and the kernels that only training needs, as C++ that is compiled from
// the headers of the library. It is opened, from beside the library, when a graph first needs it. docs/decisions/0086-training.md
#pragma once

namespace evn {

// What the module exports under this name; nullptr where it cannot be used. From any thread. The module stays open.
void* training_module_symbol(const char* name);

// Why it cannot be used; nullptr: it is there, or nothing has asked for it yet.
const char* why_no_training_module();

}  // namespace evn
