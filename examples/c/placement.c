/* Says by a YAML text what runs where, and prints what the library made of it: for each node its device, kernel and the reason.
 *
 *   cc placement.c $(pkg-config --cflags --libs evener) -o placement
 *   ./placement model.onnx [config.yaml]
 *
 * config/schema.yaml of the library documents every key.
 */
#include <evener/evener.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The GPU gets the convolutions where there is one. It is optional: where there is none its rule is skipped, and the explanation
 * says so. Rules are tried from the top, and the first that matches a node places it. */
static const char kConfig[] =
    "version: 1\n"
    "devices:\n"
    "  host: {type: cpu, threads: 2, memory_limit: 512MiB}\n"
    "  gpu:  {type: opencl, match: {kind: gpu}, optional: true}\n"
    "placement:\n"
    "  default: host\n"
    "  rules:\n"
    "    - {match: {op: [Conv, ConvTranspose]}, device: gpu, policy: prefer}\n"
    "    - {match: {name: \"*\"}, device: host, policy: require}\n";

static evn_error error = EVN_ERROR_INIT;

static void check(evn_status status) {
  if (status == EVN_OK) return;
  /* A wrong configuration is EVN_ERROR_CONFIG, with line, column and the nearest valid key. */
  fprintf(stderr, "%s: %s%s%s\n", evn_status_name(status), error.message, error.node[0] != '\0' ? " at node " : "", error.node);
  exit(1);
}

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: %s MODEL.onnx [CONFIG.yaml]\n", argv[0]);
    return 2;
  }
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  if (argc == 3) {
    options.config_path = argv[2];
  } else {
    options.config_text = kConfig;
    options.config_size = strlen(kConfig);
  }
  evn_runtime runtime = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  check(evn_runtime_create(&options, &runtime, &error));
  check(evn_model_load_file(runtime, argv[1], NULL, &model, &error));
  check(evn_session_create(runtime, model, NULL, &session, &error));

  /* Text of unknown length: the first call gives its size, the second the text. */
  size_t size = 0;
  check(evn_session_explain(session, EVN_FORMAT_TEXT, NULL, 0, &size, &error));
  char* text = malloc(size);
  if (text == NULL) return 1;
  check(evn_session_explain(session, EVN_FORMAT_TEXT, text, size, &size, &error));
  fputs(text, stdout);
  free(text);

  evn_session_release(session);
  evn_model_release(model);
  evn_runtime_release(runtime);
  return 0;
}
