// A C++ client whose operator throws: each run must end with EVN_ERROR_INTERNAL, and the client's own C++ runtime must be none the
// worse.
#include <evener/evener.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

namespace {

struct Unknown {
  std::string text = std::string(200, 'x');
};

int g_runs = 0;

evn_status infer(void*, evn_operator_node, const evn_tensor_view* in, uint32_t, evn_tensor_view* out, uint32_t, evn_error*) {
  out[0] = in[0];
  return EVN_OK;
}

evn_status run(void*, evn_operator_node, const evn_tensor_view*, uint32_t, const evn_tensor_view*, uint32_t, evn_error*) {
  switch (g_runs++ % 3) {
    case 0: throw Unknown();
    case 1: throw std::runtime_error("boom");
    default: throw 5;
  }
}

}  // namespace

int main(int, char** argv) {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_model model = nullptr;
  evn_session session = nullptr;
  evn_tensor x = nullptr;
  evn_tensor y = nullptr;
  evn_operator op = EVN_OPERATOR_INIT;
  op.domain = "example";
  op.name = "Fold";
  op.min_inputs = op.max_inputs = 1;
  op.infer = infer;
  op.run = run;
  float data[12] = {};
  const int64_t dims[2] = {1, 12};
  if (evn_runtime_create(nullptr, &runtime, &error) != EVN_OK || evn_runtime_register_operator(runtime, &op, &error) != EVN_OK ||
      evn_model_load_file(runtime, argv[1], nullptr, &model, &error) != EVN_OK ||
      evn_session_create(runtime, model, nullptr, &session, &error) != EVN_OK ||
      evn_tensor_wrap(runtime, data, sizeof data, EVN_DTYPE_FLOAT32, dims, 2, nullptr, nullptr, &x, &error) != EVN_OK) {
    std::printf("%s\n", error.message);
    return 1;
  }
  for (int i = 0; i < 999; ++i) {
    const evn_status status = evn_session_run(session, &x, 1, &y, 1, nullptr, &error);
    if (status != EVN_ERROR_INTERNAL) {
      std::printf("run %d: status %d\n", i, status);
      return 1;
    }
    if (i < 3) std::printf("%s\n", error.message);
  }
  evn_tensor_release(x);
  evn_session_release(session);
  evn_model_release(model);
  evn_runtime_release(runtime);
  return 0;
}
