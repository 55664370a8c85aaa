// The structs of the public headers that a client makes by a macro EVN_..._INIT or by a function evn_..._init.
#pragma once

#include "evener/evener.h"
#include "evener/opencl.h"
#include "evener/quantize.h"
#include "evener/request.h"
#include "evener/state.h"
#include "evener/train.h"

// EVN_STRUCT(name, macro) for each of them; tests/abi holds this list against the headers.
#define EVN_STRUCTS(EVN_STRUCT)                                         \
  EVN_STRUCT(evn_error, EVN_ERROR_INIT)                                 \
  EVN_STRUCT(evn_runtime_options, EVN_RUNTIME_OPTIONS_INIT)             \
  EVN_STRUCT(evn_reconfigure_options, EVN_RECONFIGURE_OPTIONS_INIT)     \
  EVN_STRUCT(evn_operator, EVN_OPERATOR_INIT)                           \
  EVN_STRUCT(evn_device_info, EVN_DEVICE_INFO_INIT)                     \
  EVN_STRUCT(evn_memory_stats, EVN_MEMORY_STATS_INIT)                   \
  EVN_STRUCT(evn_tensor_info, EVN_TENSOR_INFO_INIT)                     \
  EVN_STRUCT(evn_model_options, EVN_MODEL_OPTIONS_INIT)                 \
  EVN_STRUCT(evn_inspect_options, EVN_INSPECT_OPTIONS_INIT)             \
  EVN_STRUCT(evn_calibrate_options, EVN_CALIBRATE_OPTIONS_INIT)         \
  EVN_STRUCT(evn_value_info, EVN_VALUE_INFO_INIT)                       \
  EVN_STRUCT(evn_batching_options, EVN_BATCHING_OPTIONS_INIT)           \
  EVN_STRUCT(evn_session_options, EVN_SESSION_OPTIONS_INIT)             \
  EVN_STRUCT(evn_session_memory_stats, EVN_SESSION_MEMORY_STATS_INIT)   \
  EVN_STRUCT(evn_submit_options, EVN_SUBMIT_OPTIONS_INIT)               \
  EVN_STRUCT(evn_run_options, EVN_RUN_OPTIONS_INIT)                     \
  EVN_STRUCT(evn_state_options, EVN_STATE_OPTIONS_INIT)                 \
  EVN_STRUCT(evn_opencl_attach_options, EVN_OPENCL_ATTACH_OPTIONS_INIT) \
  EVN_STRUCT(evn_quantizer_options, EVN_QUANTIZER_OPTIONS_INIT)         \
  EVN_STRUCT(evn_guard_options, EVN_GUARD_OPTIONS_INIT)                 \
  EVN_STRUCT(evn_trainer_options, EVN_TRAINER_OPTIONS_INIT)             \
  EVN_STRUCT(evn_step_info, EVN_STEP_INFO_INIT)                         \
  EVN_STRUCT(evn_loader_options, EVN_LOADER_OPTIONS_INIT)               \
  EVN_STRUCT(evn_evaluation, EVN_EVALUATION_INIT)
