#include "cli/compare.h"

#include "cli/values.h"

namespace evn::cli {

int run_compare(const Arguments& arguments) {
  const char* const other = arguments.get("--with");
  if (other == nullptr && !arguments.has("--precision") && !arguments.has("--numerics") && !arguments.has("--products")) {
    fail_usage("compare needs --with, --precision, --numerics or --products");
  }
  const Runtime runtime = open_runtime(arguments);
  const Model model = load_model(runtime, arguments.operand(0));
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.device = "cpu";
  options.precision = EVN_PRECISION_FP32;
  Session expected;
  Call create;
  create.check(evn_session_create(runtime.get(), model.get(), &options, expected.out(), create));
  const Model second = load_model(runtime, other != nullptr ? std::string(other) : arguments.operand(0));
  const Session got = open_session(arguments, runtime, second);
  const std::vector<Tensor> inputs = make_inputs(arguments, runtime, expected, false);
  std::vector<evn_tensor> handles;
  for (const Tensor& t : inputs) handles.push_back(t.get());
  std::string text(std::size_t{1} << 16, '\0');  // asking for the size would run both
  for (;;) {
    std::size_t size = 0;
    Call call(kExitFailure);
    evn_error* const error = call;
    const evn_status status =
        evn_session_compare(expected.get(), got.get(), handles.data(), static_cast<std::uint32_t>(handles.size()),
                            text_format(arguments), text.data(), text.size(), &size, error);
    if (status == EVN_ERROR_BUFFER_TOO_SMALL) {
      text.resize(2 * error->bytes_requested);
      continue;
    }
    call.check(status);
    text.resize(text.find('\0'));
    print_text(text);
    return kExitOk;
  }
}

}  // namespace evn::cli
