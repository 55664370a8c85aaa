// What the tests need in C: a run in a loop, for the cost of a call of Java's above it, and a mistake that -Xcheck:jni has to see.
#include <dlfcn.h>
#include <jni.h>
#include <string.h>
#include <time.h>

#include "raw_table.h"

static jlong now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (jlong)at.tv_sec * 1000000000 + (jlong)at.tv_nsec;
}

// Gives the nanoseconds of `count` runs of one input into a given output; -1: a run failed, or there is no library.
JNIEXPORT jlong JNICALL Java_evener_InC_runs(JNIEnv *env, jclass self, jbyteArray path, jlong session, jlong input, jlong output, jint count) {
  (void)self;
  char name[4096] = {0};
  (*env)->GetByteArrayRegion(env, path, 0, (*env)->GetArrayLength(env, path), (jbyte *)name);
  if ((*env)->ExceptionCheck(env)) return -1;
  void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  if (library == NULL) return -1;
  void *symbol = dlsym(library, "evn_get_api");
  evn_get_api_function get_api;
  memcpy(&get_api, &symbol, sizeof(get_api));
  const evn_api *api = NULL;
  if (symbol == NULL || get_api((uint32_t)EVN_VERSION_NUMBER, &api) != EVN_OK) return -1;
  evn_tensor inputs[] = {(evn_tensor)(intptr_t)input}, outputs[] = {(evn_tensor)(intptr_t)output};
  evn_error error;
  api->error_init(&error, sizeof(error));
  const jlong begin = now();
  for (jint i = 0; i < count; i++) {
    if (api->session_run((evn_session)(intptr_t)session, inputs, 1, outputs, 1, NULL, &error) != EVN_OK) return -1;
  }
  return now() - begin;
}

// Calls the machine while an exception is pending.
JNIEXPORT void JNICALL Java_evener_InC_misuse(JNIEnv *env, jclass self) {
  (void)self;
  (*env)->ThrowNew(env, (*env)->FindClass(env, "java/lang/IllegalStateException"), "meant");
  (*env)->FindClass(env, "java/lang/String");
}
