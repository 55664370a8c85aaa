// A layer of the OpenCL loader (OPENCL_LAYERS=libopencl_slow.so) that makes devices slower by a known factor: EVN_SLOW_OPENCL, 1 to
// 100. Every kernel is enqueued that often, on the average, so that a device is as slow as one that takes so much longer. Kernels
// that read what they overwrite then give other numbers: this is for measuring times.
#include <CL/cl_layer.h>
#include <stdlib.h>

static const struct _cl_icd_dispatch* next;
static struct _cl_icd_dispatch mine;
static double factor = 1;

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void* value, size_t* size_ret) {
  if (name != CL_LAYER_API_VERSION) return CL_INVALID_VALUE;
  if (value != NULL) {
    if (size < sizeof(cl_layer_api_version)) return CL_INVALID_VALUE;
    *(cl_layer_api_version*)value = CL_LAYER_API_VERSION_100;
  }
  if (size_ret != NULL) *size_ret = sizeof(cl_layer_api_version);
  return CL_SUCCESS;
}

static CL_API_ENTRY cl_int CL_API_CALL enqueue(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t* offset,
                                               const size_t* global, const size_t* local, cl_uint waits, const cl_event* wait_list,
                                               cl_event* event) {
  static _Thread_local double owed;  // kernels, of those that make up the factor
  for (owed += factor - 1; owed >= 1; owed -= 1) {
    const cl_int code = next->clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, waits, wait_list, NULL);
    if (code != CL_SUCCESS) return code;
  }
  return next->clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, waits, wait_list, event);
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint count, const struct _cl_icd_dispatch* target, cl_uint* count_ret,
                                            const struct _cl_icd_dispatch** layer) {
  const char* text = getenv("EVN_SLOW_OPENCL");
  if (text != NULL) factor = atof(text);
  if (!(factor >= 1 && factor <= 100) || target == NULL || count_ret == NULL || layer == NULL) return CL_INVALID_VALUE;
  next = target;
  mine.clEnqueueNDRangeKernel = enqueue;  // a null entry is the next layer's
  *layer = &mine;
  *count_ret = sizeof mine / sizeof(void*);
  return count >= 1 ? CL_SUCCESS : CL_INVALID_VALUE;
}
