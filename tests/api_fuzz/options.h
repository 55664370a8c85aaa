// Options structs and lists for random calls.
#pragma once

#include <string>

#include "tests/api_fuzz/handles.h"

namespace evn::fuzz {

// Where the fuzzer's files are, and where calls may write: with a slash at its end. Set once, before any call.
void set_folder(const std::string& folder);
const std::string& folder();

// Text for a parameter called `name`: a name, a path, or what is none.
const char* text_argument(Random& random, const char* name);

// A model's bytes, mostly whole.
struct ModelBytes {
  explicit ModelBytes(Random& random);
  const void* data = nullptr;
  std::size_t size = 0;
};

// What evn_state_save gave for some state, mostly with a few changed bytes.
struct StateBytes {
  explicit StateBytes(Random& random);
  const void* data = nullptr;
  std::size_t size = 0;
};

// A valid struct with some fields set, at random; one overload for each struct that the API reads.
void fill(Random& random, evn_runtime_options& o);
void fill(Random& random, evn_reconfigure_options& o);
void fill(Random& random, evn_operator& o);
void fill(Random& random, evn_model_options& o);
void fill(Random& random, evn_inspect_options& o);
void fill(Random& random, evn_session_options& o);
void fill(Random& random, evn_run_options& o);
void fill(Random& random, evn_calibrate_options& o);
void fill(Random& random, evn_quantizer_options& o);
void fill(Random& random, evn_guard_options& o);
void fill(Random& random, evn_submit_options& o);
void fill(Random& random, evn_state_options& o);
void fill(Random& random, evn_opencl_attach_options& o);
void fill(Random& random, evn_trainer_options& o);
void fill(Random& random, evn_loader_options& o);

template <typename T>
const T* filled_options(Random& random, T options) {
  if (random.chance(25)) return nullptr;
  fill(random, options);
  return options_argument(random, options);
}

struct StatePairs {
  explicit StatePairs(Random& random);
  evn_state_pair pairs[8];
  std::uint32_t count;
};

// Inputs for a session, quantizer or trainer (`user`, nullable): tensors that fit its graph, or any.
void fill_inputs(Random& random, evn_tensor* tensors, void* user, Kind kind);
void fill_inputs(Random& random, evn_value* values, void* user, Kind kind);
// The number of inputs or outputs that `user` has, or another one, at most 8.
std::uint32_t argument_count(Random& random, void* user, Kind kind, bool inputs);

inline constexpr std::size_t kMostArguments = 9;

}  // namespace evn::fuzz
