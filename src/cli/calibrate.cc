#include "cli/calibrate.h"

namespace evn::cli {
namespace {

// Measures once: asking for the size of the text would measure too.
std::string calibrate(const Runtime& runtime, const Model& model, evn_format format) {
  std::string text(std::size_t{1} << 16, '\0');
  for (;;) {
    std::size_t size = 0;
    Call call(kExitFailure);
    evn_error* const error = call;
    const evn_status status =
        evn_runtime_calibrate(runtime.get(), model.get(), nullptr, format, text.data(), text.size(), &size, error);
    if (status == EVN_ERROR_BUFFER_TOO_SMALL) {
      text.resize(2 * error->bytes_requested);
      continue;
    }
    call.check(status);
    text.resize(size - 1);
    return text;
  }
}

}  // namespace

int run_calibrate(const Arguments& arguments) {
  const Runtime runtime = open_runtime(arguments);
  const Model model = arguments.operand_count() != 0 ? load_model(runtime, arguments.operand(0)) : Model();
  print_text(calibrate(runtime, model, text_format(arguments)));
  return kExitOk;
}

}  // namespace evn::cli
