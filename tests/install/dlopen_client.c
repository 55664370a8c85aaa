/* Opens the library, runs a model by its table of functions and closes it again, many times; prints the resident memory after the
 * first rounds and at the end. Linked with libc only. usage: dlopen_client LIBRARY MODEL ROUNDS THREADS */
#include <dlfcn.h>
#include <evener/api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long resident_kib(void) {
  long pages = 0;
  long shared = 0;
  FILE* f = fopen("/proc/self/statm", "r");
  if (f == NULL || fscanf(f, "%ld %ld", &pages, &shared) != 2) exit(11);
  fclose(f);
  return shared * (sysconf(_SC_PAGESIZE) / 1024);
}

static int thread_count(void) {
  char line[256];
  int n = -1;
  FILE* f = fopen("/proc/self/status", "r");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    if (strncmp(line, "Threads:", 8) == 0) n = atoi(line + 8);
  }
  if (f != NULL) fclose(f);
  return n;
}

static int mapped(const char* library) {
  char line[4096];
  int found = 0;
  FILE* f = fopen("/proc/self/maps", "r");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) found |= strstr(line, library) != NULL;
  if (f != NULL) fclose(f);
  return found;
}

static void count_end(void* user) { ++*(int*)user; }

static int round_trip(const char* path, const char* model_path, int threads) {
  evn_get_api_function get_api = NULL;
  const evn_api* evn = NULL;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_tensor input = NULL;
  evn_tensor output = NULL;
  float values[6] = {0, 1, 2, 3, 4, 5};
  int64_t dims[2] = {2, 3};
  int ended = 0;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 9;
  }
  if (thread_count() != 1) return 12; /* loading starts no thread */
  *(void**)&get_api = dlsym(library, "evn_get_api");
  if (get_api == NULL || get_api(EVN_VERSION_NUMBER, &evn) != EVN_OK) return 10;
  options.thread_count = threads;
  options.ended = count_end;
  options.ended_user = &ended;
  if (evn->model_load_file(NULL, model_path, NULL, &model, &error) != EVN_ERROR_INVALID_HANDLE) return 13; /* an exception inside */
  if (evn->runtime_create(&options, &runtime, &error) != EVN_OK) return 14;
  if (evn->model_load_file(runtime, model_path, NULL, &model, &error) != EVN_OK) return 15;
  if (evn->session_create(runtime, model, NULL, &session, &error) != EVN_OK) return 16;
  if (evn->tensor_wrap(runtime, values, sizeof values, EVN_DTYPE_FLOAT32, dims, 2, NULL, NULL, &input, &error) != EVN_OK) return 17;
  if (evn->session_run(session, &input, 1, &output, 1, NULL, &error) != EVN_OK) return 18;
  evn->tensor_release(output);
  evn->tensor_release(input);
  evn->session_release(session);
  evn->model_release(model);
  evn->runtime_release(runtime);
  if (ended != 1) return 22;
  if (dlclose(library) != 0) return 19;
  if (!mapped(path)) return 20; /* the first runtime keeps the library loaded */
  if (thread_count() != 1) return 21;
  return 0;
}

int main(int argc, char** argv) {
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
