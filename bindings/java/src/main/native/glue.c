// What the native methods of evener.Native do: opens the library, gives access to its memory, and hands its callbacks to evener.Callbacks.
//
// What the library keeps for a callback is a global reference to one object of Java, which the library takes back on every path: by
// evn_java_release or evn_java_delete, or, where it refused it, by the method of Java that asked for it (Native.drop).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <jni.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "raw_layouts.h"
#include "raw_table.h"

enum { OPENED = 0, NOT_OPENED = 1, NO_SYMBOL = 2, OTHER_VERSION = 3, OTHER_LAYOUT = 4 };

const evn_api *evn_java_table;

static JavaVM *machine;
static pthread_key_t attached;  // of threads that are attached here: detaches them when they end
static jclass callbacks;
static jmethodID log_method, done_method, progress_method, infer_method, run_method, reduce_method;

static void detach(void *unused) {
  (void)unused;
  (*machine)->DetachCurrentThread(machine);
}

// The calling thread's environment. A thread of the library's is attached as a daemon, once, until it ends. NULL: the machine ends.
static JNIEnv *environment(void) {
  void *env = NULL;
  if ((*machine)->GetEnv(machine, &env, JNI_VERSION_1_8) == JNI_OK) return env;
  JavaVMAttachArgs arguments = {JNI_VERSION_1_8, "evener", NULL};
  if ((*machine)->AttachCurrentThreadAsDaemon(machine, &env, &arguments) != JNI_OK) return NULL;
  pthread_setspecific(attached, machine);
  return env;
}

// evener.Callbacks lets no exception out; one that comes all the same (a stack that is full before its first line) must not stay.
static bool failed(JNIEnv *env) {
  if (!(*env)->ExceptionCheck(env)) return false;
  (*env)->ExceptionClear(env);
  return true;
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
  (void)reserved;
  machine = vm;
  void *given = NULL;
  if ((*vm)->GetEnv(vm, &given, JNI_VERSION_1_8) != JNI_OK) return JNI_ERR;
  JNIEnv *env = given;
  // Threads of the library have `detach` to call when they end: this code must outlive the class loader that loaded it.
  Dl_info self;
  if (dladdr(&attached, &self) == 0 || dlopen(self.dli_fname, RTLD_NOW | RTLD_NODELETE) == NULL) return JNI_ERR;
  if (pthread_key_create(&attached, detach) != 0) return JNI_ERR;
  jclass found = (*env)->FindClass(env, "evener/Callbacks");
  if (found == NULL) return JNI_ERR;
  callbacks = (*env)->NewGlobalRef(env, found);
  (*env)->DeleteLocalRef(env, found);
  if (callbacks == NULL) return JNI_ERR;
  if ((log_method = (*env)->GetStaticMethodID(env, callbacks, "log", "(Ljava/lang/Object;J)V")) == NULL) return JNI_ERR;
  if ((done_method = (*env)->GetStaticMethodID(env, callbacks, "done", "(Ljava/lang/Object;J)V")) == NULL) return JNI_ERR;
  if ((progress_method = (*env)->GetStaticMethodID(env, callbacks, "progress", "(Ljava/lang/Object;JJJ)I")) == NULL) return JNI_ERR;
  if ((infer_method = (*env)->GetStaticMethodID(env, callbacks, "infer", "(Ljava/lang/Object;JJIJIJ)I")) == NULL) return JNI_ERR;
  if ((run_method = (*env)->GetStaticMethodID(env, callbacks, "run", "(Ljava/lang/Object;JJIJIJ)I")) == NULL) return JNI_ERR;
  if ((reduce_method = (*env)->GetStaticMethodID(env, callbacks, "reduce", "(Ljava/lang/Object;JJIJ)I")) == NULL) return JNI_ERR;
  return JNI_VERSION_1_8;
}

// ------------------------------------------------------------------------------------------------------- the library

static jlong outcome(int what, uint32_t found) { return (jlong)((uint64_t)found << 8 | (uint64_t)what); }

static void say(char *reason, size_t capacity) {
  const char *text = dlerror();
  snprintf(reason, capacity, "%s", text == NULL ? "the loader does not say why" : text);
}

// Gives what it came to, and above its 8 bits the version that was found. The library stays open until the process ends: objects and
// threads of it may be anywhere.
JNIEXPORT jlong JNICALL Java_evener_Native_open(JNIEnv *env, jclass self, jlong path, jlong reason, jint capacity) {
  (void)env, (void)self;
  void *library = dlopen((const char *)(intptr_t)path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    say((char *)(intptr_t)reason, (size_t)capacity);
    return outcome(NOT_OPENED, 0);
  }
  void *symbol = dlsym(library, "evn_get_api");
  if (symbol == NULL) {
    say((char *)(intptr_t)reason, (size_t)capacity);
    dlclose(library);
    return outcome(NO_SYMBOL, 0);
  }
  evn_get_api_function get_api;
  memcpy(&get_api, &symbol, sizeof(get_api));
  const evn_api *table = NULL;
  uint32_t found = 0;
  if (get_api((uint32_t)EVN_VERSION_NUMBER, &table) != EVN_OK || table == NULL) {
    uint32_t (*number)(void) = NULL;
    symbol = dlsym(library, "evn_version_number");
    memcpy(&number, &symbol, sizeof(number));
    if (number != NULL) found = number();
    dlclose(library);
    return outcome(OTHER_VERSION, found);
  }
  // Only the head may be read before the size is known.
  if (table->struct_size < sizeof(evn_api)) {
    found = table->api_version;
    dlclose(library);
    return outcome(OTHER_VERSION, found);
  }
  if (!evn_java_compare_layouts(table->abi_layout, (char *)(intptr_t)reason, (size_t)capacity)) return outcome(OTHER_LAYOUT, table->api_version);
  evn_java_table = table;
  return outcome(OPENED, table->api_version);
}

// CLOCK_MONOTONIC in nanoseconds.
JNIEXPORT jlong JNICALL Java_evener_Native_now(JNIEnv *env, jclass self) {
  (void)env, (void)self;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (jlong)now.tv_sec * 1000000000 + (jlong)now.tv_nsec;
}

// -------------------------------------------------------------------------------------------------------- references

JNIEXPORT jlong JNICALL Java_evener_Native_reference(JNIEnv *env, jclass self, jobject what) {
  (void)self;
  return (jlong)(intptr_t)(*env)->NewGlobalRef(env, what);
}

JNIEXPORT void JNICALL Java_evener_Native_drop(JNIEnv *env, jclass self, jlong held) {
  (void)self;
  (*env)->DeleteGlobalRef(env, (jobject)(intptr_t)held);
}

// ------------------------------------------------------------------------------------------------------------ memory

JNIEXPORT jlong JNICALL Java_evener_Native_allocate(JNIEnv *env, jclass self, jlong size) {
  (void)env, (void)self;
  return (jlong)(intptr_t)calloc(1, (size_t)size);
}

JNIEXPORT void JNICALL Java_evener_Native_free(JNIEnv *env, jclass self, jlong address) {
  (void)env, (void)self;
  free((void *)(intptr_t)address);
}

JNIEXPORT jlong JNICALL Java_evener_Native_addressOf(JNIEnv *env, jclass self, jobject buffer) {
  (void)self;
  return (jlong)(intptr_t)(*env)->GetDirectBufferAddress(env, buffer);
}

JNIEXPORT jobject JNICALL Java_evener_Native_bufferAt(JNIEnv *env, jclass self, jlong address, jint size) {
  (void)self;
  return (*env)->NewDirectByteBuffer(env, (void *)(intptr_t)address, size);
}

// Gives the bytes of a text that ends in NUL; NULL gives none.
JNIEXPORT jbyteArray JNICALL Java_evener_Native_textAt(JNIEnv *env, jclass self, jlong address) {
  (void)self;
  const char *text = (const char *)(intptr_t)address;
  const size_t size = text == NULL ? 0 : strlen(text);
  jbyteArray made = (*env)->NewByteArray(env, (jsize)size);
  if (made != NULL && size != 0) (*env)->SetByteArrayRegion(env, made, 0, (jsize)size, (const jbyte *)text);
  return made;
}

// Copies `count` elements of an array, from `first` on, into memory, or memory into them. The machine checks the array's bounds.
#define COPIES(Kind, type)                                                                                                     \
  JNIEXPORT void JNICALL Java_evener_Native_write##Kind##s(JNIEnv *env, jclass self, jlong to, type##Array from, jint count) { \
    (void)self;                                                                                                                \
    (*env)->Get##Kind##ArrayRegion(env, from, 0, count, (type *)(intptr_t)to);                                                 \
  }                                                                                                                            \
  JNIEXPORT void JNICALL Java_evener_Native_read##Kind##s(JNIEnv *env, jclass self, jlong from, type##Array to, jint count) {  \
    (void)self;                                                                                                                \
    (*env)->Set##Kind##ArrayRegion(env, to, 0, count, (const type *)(intptr_t)from);                                           \
  }
COPIES(Byte, jbyte)
COPIES(Short, jshort)
COPIES(Int, jint)
COPIES(Long, jlong)
COPIES(Float, jfloat)
COPIES(Double, jdouble)

// ------------------------------------------------------------------------------------------------------------ DLPack

// What evn_tensor_to_dlpack gives, as DLPack 1.0 lays it out: as much of it as is looked at here.
typedef struct {
  uint32_t major, minor;
  void *context;
  void (*deleter)(void *managed);
  uint64_t flags;
  struct {
    char *data;
    int32_t device[2];
    int32_t rank;
    uint8_t element[4];
    int64_t *shape, *strides;
    uint64_t byte_offset;
  } tensor;
} managed_tensor;
enum { IS_READ_ONLY = 1 };

JNIEXPORT jlong JNICALL Java_evener_Native_sharedData(JNIEnv *env, jclass self, jlong managed) {
  (void)env, (void)self;
  const managed_tensor *shared = (const managed_tensor *)(intptr_t)managed;
  return (jlong)(intptr_t)shared->tensor.data + (jlong)shared->tensor.byte_offset;
}

JNIEXPORT jboolean JNICALL Java_evener_Native_sharedIsReadOnly(JNIEnv *env, jclass self, jlong managed) {
  (void)env, (void)self;
  return (((const managed_tensor *)(intptr_t)managed)->flags & IS_READ_ONLY) != 0;
}

JNIEXPORT void JNICALL Java_evener_Native_endShared(JNIEnv *env, jclass self, jlong managed) {
  (void)env, (void)self;
  managed_tensor *shared = (managed_tensor *)(intptr_t)managed;
  shared->deleter(shared);
}

// --------------------------------------------------------------------------------------------------------- callbacks

static void evn_java_release(void *user) {
  JNIEnv *env = environment();
  if (env != NULL) (*env)->DeleteGlobalRef(env, (jobject)user);
}

static void evn_java_delete(void *user, void *data) {
  (void)data;
  evn_java_release(user);
}

static void evn_java_log(void *user, const evn_log_record *record) {
  JNIEnv *env = environment();
  if (env == NULL) return;
  (*env)->CallStaticVoidMethod(env, callbacks, log_method, (jobject)user, (jlong)(intptr_t)record);
  failed(env);
}

static void evn_java_done(void *user, evn_request request) {
  JNIEnv *env = environment();
  if (env == NULL) return;
  (*env)->CallStaticVoidMethod(env, callbacks, done_method, (jobject)user, (jlong)(intptr_t)request);
  failed(env);
}

static int32_t evn_java_progress(void *user, const char *what, uint64_t done, uint64_t total) {
  JNIEnv *env = environment();
  if (env == NULL) return 1;
  const jint stop =
      (*env)->CallStaticIntMethod(env, callbacks, progress_method, (jobject)user, (jlong)(intptr_t)what, (jlong)done, (jlong)total);
  return failed(env) ? 1 : stop;
}

static evn_status operate(jmethodID method, void *user, evn_operator_node node, const void *inputs, uint32_t input_count,
                          const void *outputs, uint32_t output_count, evn_error *error) {
  JNIEnv *env = environment();
  if (env == NULL) {
    if (error != NULL) snprintf(error->message, sizeof(error->message), "the Java VM has no more threads for this operator");
    return EVN_ERROR_INTERNAL;
  }
  const jint status = (*env)->CallStaticIntMethod(env, callbacks, method, (jobject)user, (jlong)(intptr_t)node, (jlong)(intptr_t)inputs,
                                                  (jint)input_count, (jlong)(intptr_t)outputs, (jint)output_count, (jlong)(intptr_t)error);
  if (!failed(env)) return status;
  if (error != NULL) snprintf(error->message, sizeof(error->message), "the operator could not be called: the thread's stack or the heap is full");
  return EVN_ERROR_INTERNAL;
}

static evn_status evn_java_infer(void *user, evn_operator_node node, const evn_tensor_view *inputs, uint32_t input_count,
                                 evn_tensor_view *outputs, uint32_t output_count, evn_error *error) {
  return operate(infer_method, user, node, inputs, input_count, outputs, output_count, error);
}

static evn_status evn_java_run(void *user, evn_operator_node node, const evn_tensor_view *inputs, uint32_t input_count,
                               const evn_tensor_view *outputs, uint32_t output_count, evn_error *error) {
  return operate(run_method, user, node, inputs, input_count, outputs, output_count, error);
}

static evn_status evn_java_reduce(void *context, void *data, uint64_t count, evn_dtype dtype, evn_error *error) {
  JNIEnv *env = environment();
  if (env == NULL) {
    if (error != NULL) snprintf(error->message, sizeof(error->message), "the Java VM has no more threads for a sum over ranks");
    return EVN_ERROR_INTERNAL;
  }
  const jint status = (*env)->CallStaticIntMethod(env, callbacks, reduce_method, (jobject)context, (jlong)(intptr_t)data, (jlong)count, (jint)dtype,
                                                  (jlong)(intptr_t)error);
  if (!failed(env)) return status;
  if (error != NULL) snprintf(error->message, sizeof(error->message), "the sum over ranks could not be called: the thread's stack or the heap is full");
  return EVN_ERROR_INTERNAL;
}

// The address of a callback, for the field of a struct: Native.RELEASE and so on.
JNIEXPORT jlong JNICALL Java_evener_Native_callback(JNIEnv *env, jclass self, jint which) {
  (void)env, (void)self;
  switch (which) {
    case 0: return (jlong)(intptr_t)evn_java_release;
    case 1: return (jlong)(intptr_t)evn_java_delete;
    case 2: return (jlong)(intptr_t)evn_java_log;
    case 3: return (jlong)(intptr_t)evn_java_done;
    case 4: return (jlong)(intptr_t)evn_java_progress;
    case 5: return (jlong)(intptr_t)evn_java_infer;
    case 6: return (jlong)(intptr_t)evn_java_run;
    case 7: return (jlong)(intptr_t)evn_java_reduce;
    default: return 0;
  }
}
