/* An OpenCL driver that does what EVN_ICD says when it is loaded or asked for its platforms. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CRASHES 1     /* when it is asked */
#define CONSTRUCTOR 2 /* crashes when it is loaded */
#define SPINS 3       /* when it is asked */
#define NOISE 4       /* writes to wherever it can, and has no platform */
#define EXITS 5       /* ends the process when it is asked */
#define LATE 6        /* crashes when the process ends */

__attribute__((unused)) static void crash(void) {
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
}

#if EVN_ICD == CONSTRUCTOR
__attribute__((constructor)) static void load(void) { crash(); }
#endif

__attribute__((visibility("default"))) int clIcdGetPlatformIDsKHR(unsigned entries, void** platforms, unsigned* count) {
  (void)entries;
  (void)platforms;
#if EVN_ICD == CRASHES
  crash();
#elif EVN_ICD == SPINS
  for (volatile unsigned i = 0;; ++i) {}
#elif EVN_ICD == EXITS
  _exit(0);
#elif EVN_ICD == NOISE
  for (int i = 0; i < 1000; ++i) {
    printf("{\"backends\": [%d\n", i);
    fprintf(stderr, "driver: \033[31m%d\n", i);
  }
#elif EVN_ICD == LATE
  atexit(crash);
#endif
  if (count != NULL) *count = 0;
  return -1001;
}

/* Loaders want it to be there. */
__attribute__((visibility("default"))) int clGetPlatformInfo(void* platform, unsigned what, size_t size, void* value, size_t* got) {
  (void)platform;
  (void)what;
  (void)size;
  (void)value;
  (void)got;
  return -32;
}

__attribute__((visibility("default"))) void* clGetExtensionFunctionAddress(const char* name) {
  if (strcmp(name, "clIcdGetPlatformIDsKHR") != 0) return NULL;
  int (*function)(unsigned, void**, unsigned*) = clIcdGetPlatformIDsKHR;
  void* address;
  memcpy(&address, &function, sizeof address);
  return address;
}
