// Functions of the library that trainers and loaders use beside the C API.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "evener/request.h"
#include "evener/train.h"
#include "model/save.h"
#include "runtime/run/output_listener.h"
#include "train/source_model.h"

namespace evn_train {

// Reads a model where `options` or `path` say: checked, functions expanded, in its inference form, nothing folded or fused, of
// opset `least_opset` or newer. Throws EVN_ERROR_CANCELLED once their token is requested, EVN_ERROR_TIMEOUT after limits.load_time
// of the configuration, and what loading throws.
SourceModel read_source(evn_runtime runtime, const char* path, const evn_trainer_options& options, std::int64_t least_opset);

// When loads end early: after so many nanoseconds (limits.load_time of the configuration; 0: never), and once the token is
// requested (null without one).
struct LoadLimits {
  std::uint64_t time_ns = 0;
  const std::atomic<bool>* requested = nullptr;
};
LoadLimits load_limits(evn_runtime runtime, evn_cancel cancel);

// A loaded model of one that load_onnx might have given. `is_own`: it may have the library's own operators (domain "evener").
// `cancel` may be NULL.
evn_model take_model(evn_runtime runtime, evn::Model model, bool is_own, evn_cancel cancel);
// Loads what save_onnx has made.
evn_model load_saved(evn_runtime runtime, const evn::SavedModel& saved);

// Runs as evn_session_run, and evn_session_submit, do, with a listener.
void run_listened(evn_session session, std::span<const evn_tensor> inputs, std::span<evn_tensor> outputs,
                  const evn_run_options& options, evn::OutputListener listener);
void submit_listened(evn_session session, std::span<const evn_tensor> inputs, std::span<const evn_tensor> outputs,
                     const evn_run_options& options, const evn_submit_options& submit, evn::OutputListener listener,
                     evn_request* request);

// The plans of a session's latest run; zeros before the first.
struct RunMemory {
  std::uint64_t arena_bytes = 0;        // intermediate values
  std::uint64_t unlimited_bytes = 0;    // without a limit
  std::uint32_t steps = 0;              // of the plans, those that run a second time not counted
  std::uint32_t recomputed_steps = 0;   // that run a second time
  std::uint32_t kept_values = 0;        // that live at the fullest moment; 0: nothing is computed again
  std::uint32_t recomputed_values = 0;  // that are let go of and made again
};
RunMemory memory_of(evn_session session);

// Returns a pointer that is the same for all handles of a runtime, as long as it lives.
void* identity_of(evn_runtime runtime);

bool is_requested(evn_cancel cancel);

// Waits for other threads or processes from within an operator: meanwhile another run may compute on the core of the run that the
// operator is in.
void wait_without_core(const std::function<void()>& wait);

// The function `symbol` of a module that lies beside the library. It stays open. Throws EVN_ERROR_UNSUPPORTED where there is no
// such module, or it has no such function.
void* function_of_module(const char* file, const char* symbol);

}  // namespace evn_train
