/* Opens the library, runs a model and closes it again, many times; prints the resident memory after the first rounds and at the end.
 * Linked with libc only. usage: dlopen_client LIBRARY MODEL ROUNDS THREADS */
#include <dlfcn.h>
#include <evener/evener.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOAD(name)                                   \
  *(void **)&p_##name = dlsym(library, #name);       \
  if (p_##name == NULL) return 10

static long resident_kib(void) {
  long pages = 0;
  long shared = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f == NULL || fscanf(f, "%ld %ld", &pages, &shared) != 2) exit(11);
  fclose(f);
  return shared * (sysconf(_SC_PAGESIZE) / 1024);
}

static int thread_count(void) {
  char line[256];
  int n = -1;
  FILE *f = fopen("/proc/self/status", "r");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    if (strncmp(line, "Threads:", 8) == 0) n = atoi(line + 8);
  }
  if (f != NULL) fclose(f);
  return n;
}

static int mapped(const char *library) {
  char line[4096];
  int found = 0;
  FILE *f = fopen("/proc/self/maps", "r");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) found |= strstr(line, library) != NULL;
  if (f != NULL) fclose(f);
  return found;
}

static int round_trip(const char *path, const char *model_path, int threads) {
  evn_status (*p_evn_runtime_create)(const evn_runtime_options *, evn_runtime *, evn_error *);
  evn_status (*p_evn_model_load_file)(evn_runtime, const char *, const evn_model_options *, evn_model *, evn_error *);
  evn_status (*p_evn_session_create)(evn_runtime, evn_model, const evn_session_options *, evn_session *, evn_error *);
  evn_status (*p_evn_tensor_wrap)(evn_runtime, void *, size_t, evn_dtype, const int64_t *, uint32_t, evn_deleter, void *, evn_tensor *, evn_error *);
  evn_status (*p_evn_session_run)(evn_session, const evn_tensor *, uint32_t, evn_tensor *, uint32_t, const evn_run_options *, evn_error *);
  evn_status (*p_evn_runtime_release)(evn_runtime);
  evn_status (*p_evn_model_release)(evn_model);
  evn_status (*p_evn_session_release)(evn_session);
  evn_status (*p_evn_tensor_release)(evn_tensor);
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_tensor input = NULL;
  evn_tensor output = NULL;
  float values[6] = {0, 1, 2, 3, 4, 5};
  int64_t dims[2] = {2, 3};
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 9;
  }
  if (thread_count() != 1) return 12; /* loading starts no thread */
  LOAD(evn_runtime_create);
  LOAD(evn_model_load_file);
  LOAD(evn_session_create);
  LOAD(evn_tensor_wrap);
  LOAD(evn_session_run);
  LOAD(evn_runtime_release);
  LOAD(evn_model_release);
  LOAD(evn_session_release);
  LOAD(evn_tensor_release);
  options.thread_count = threads;
  if (p_evn_model_load_file(NULL, model_path, NULL, &model, &error) != EVN_ERROR_INVALID_HANDLE) return 13; /* an exception inside */
  if (p_evn_runtime_create(&options, &runtime, &error) != EVN_OK) return 14;
  if (p_evn_model_load_file(runtime, model_path, NULL, &model, &error) != EVN_OK) return 15;
  if (p_evn_session_create(runtime, model, NULL, &session, &error) != EVN_OK) return 16;
  if (p_evn_tensor_wrap(runtime, values, sizeof values, EVN_DTYPE_FLOAT32, dims, 2, NULL, NULL, &input, &error) != EVN_OK) return 17;
  if (p_evn_session_run(session, &input, 1, &output, 1, NULL, &error) != EVN_OK) return 18;
  p_evn_tensor_release(output);
  p_evn_tensor_release(input);
  p_evn_session_release(session);
  p_evn_model_release(model);
  p_evn_runtime_release(runtime);
  if (dlclose(library) != 0) return 19;
  if (mapped(path)) return 20;
  if (thread_count() != 1) return 21;
  return 0;
}

int main(int argc, char **argv) {
  long early = 0;
  int rounds;
  int i;
  if (argc != 5) return 2;
  rounds = atoi(argv[3]);
  for (i = 0; i < rounds; ++i) {
    const int result = round_trip(argv[1], argv[2], atoi(argv[4]));
    if (result != 0) {
      fprintf(stderr, "round %d: %d\n", i, result);
      return result;
    }
    if (i == rounds / 10) early = resident_kib();
  }
  printf("%ld %ld\n", early, resident_kib());
  return 0;
}
