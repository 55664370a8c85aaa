// Runs of sessions whose outputs may be sequences and maps, and what is printed and written of outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/arguments.h"
#include "cli/library.h"
#include "evener/request.h"

namespace evn::cli {

using Value = Owner<evn_value, evn_value_release>;

// Outputs of a run: tensors, or values where one of them is no tensor.
struct Outputs {
  std::vector<Tensor> tensors;
  std::vector<Value> values;
};

// A session with inputs, for runs by the library's functions of tensors, or by those of values where an output is no tensor. The
// inputs live as long.
class RunArguments {
 public:
  RunArguments(evn_session session, const std::vector<Tensor>& inputs);

  evn_session session() const { return session_; }
  bool by_values() const { return by_values_; }
  std::uint32_t output_count() const { return output_count_; }

  // Runs, and gives the outputs if `outputs` is not null.
  evn_status run(const evn_run_options& options, Outputs* outputs, evn_error* error) const;
  evn_status submit(const evn_run_options& options, const evn_submit_options& submit, evn_error* error) const;
  // Takes what a request has made, and lets go of it.
  evn_status take(evn_request request, evn_error* error) const;

 private:
  evn_session session_;
  bool by_values_ = false;
  std::uint32_t output_count_ = 0;
  std::vector<evn_tensor> tensors_;
  std::vector<Value> owned_;
  std::vector<evn_value> values_;  // those of owned_
};

// Runs once. Tensors among the outputs lie on the CPU device.
Outputs run_once(const RunArguments& arguments, std::uint64_t timeout_ns);
Outputs run_once(const Session& session, const std::vector<Tensor>& inputs, std::uint64_t timeout_ns);

// Prints name, type, dimensions, and least, mean and greatest value of each output, or some of its texts or parts; writes them to
// --output-dir, in `subfolder` where one is given, and to --output.
void report_outputs(const Arguments& arguments, const Session& session, const Outputs& outputs, const std::string& subfolder = "");

}  // namespace evn::cli
