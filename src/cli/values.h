// Inputs of a run: from .npy files, or a fixed pseudo-random pattern.
#pragma once

#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/library.h"
#include "cli/npy.h"

namespace evn::cli {

// The dimensions of --shape NAME=1,3,224,224 (or 1x3x224x224); throws a usage Failure.
std::vector<std::int64_t> parse_dims(const std::string& name, const std::string& text);

// A text without control characters: names of hostile models may steer a terminal.
std::string printable(const std::string& name);

// A tensor on the CPU with an array's values.
Tensor tensor_of(const Runtime& runtime, const NpyArray& array);

// Makes all inputs of the session, in its order, as --input and --shape say. What is not given is filled with a pattern. With
// `say` a line on stdout tells for each where its values come from.
std::vector<Tensor> make_inputs(const Arguments& arguments, const Runtime& runtime, const Session& session, bool say);

// Reads all inputs of the session, in its order, from a .npz archive. Throws a Failure where one is missing.
std::vector<Tensor> read_inputs(const std::string& archive, const Runtime& runtime, const Session& session);

}  // namespace evn::cli
