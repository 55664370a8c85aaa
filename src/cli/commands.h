// The commands of `evener`, in the order of its help.
#pragma once

#include <span>

#include "cli/arguments.h"

namespace evn::cli {

std::span<const Command> commands();

// The help of all commands, and of one.
void print_help(bool to_stderr);
void print_help(const Command& command);

}  // namespace evn::cli
