// Inputs and outputs of a run: inputs from .npy files or a fixed pseudo-random pattern, outputs summed up or written to files.
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

// Runs once. The outputs lie on the CPU device.
std::vector<Tensor> run_once(const Session& session, const std::vector<Tensor>& inputs, std::uint64_t timeout_ns);

// Prints name, element type, dimensions, and least, mean and greatest value of each output; writes them to --output-dir
// and --output.
void report_outputs(const Arguments& arguments, const Session& session, const std::vector<Tensor>& outputs);

}  // namespace evn::cli
