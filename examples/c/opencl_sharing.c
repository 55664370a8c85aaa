/* Shares OpenCL buffers with a model, so that what an own kernel makes goes into the model, and out of it into another own kernel,
 * without a way through the host's memory. Here a kernel makes a picture of three channels and 24 x 24 points, the model classifies
 * it, and a second kernel finds the largest of its values.
 *
 *   cc opencl_sharing.c $(pkg-config --cflags --libs evener) -lOpenCL -o opencl_sharing
 *   ./opencl_sharing model.onnx
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <evener/evener.h>
#include <evener/opencl.h>
#include <stdio.h>
#include <stdlib.h>

#define POINTS (3 * 24 * 24)
#define CLASSES 10

static const char* kKernels =
    "kernel void draw(global float *picture) {\n"
    "  const size_t i = get_global_id(0);\n"
    "  picture[i] = (float)(i % 256) / 255.0f;\n"
    "}\n"
    "kernel void largest(global const float *values, int count, global float *result) {\n"
    "  int best = 0;\n"
    "  for (int i = 1; i < count; ++i) best = values[i] > values[best] ? i : best;\n"
    "  result[0] = (float)best;\n"
    "  result[1] = values[best];\n"
    "}\n";

static evn_error error = EVN_ERROR_INIT;

static void check(evn_status status) {
  if (status == EVN_OK) return;
  fprintf(stderr, "%s: %s%s%s\n", evn_status_name(status), error.message, error.node[0] != '\0' ? " at node " : "", error.node);
  exit(1);
}

static void check_cl(cl_int code, const char* what) {
  if (code == CL_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", what, (int)code);
  exit(1);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s MODEL.onnx\n", argv[0]);
    return 2;
  }

  /* What the program has of OpenCL for itself. */
  cl_platform_id platform;
  cl_device_id id;
  cl_int code;
  check_cl(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
  check_cl(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &id, NULL), "clGetDeviceIDs");
  cl_context context = clCreateContext(NULL, 1, &id, NULL, NULL, &code);
  check_cl(code, "clCreateContext");
  cl_command_queue queue = clCreateCommandQueue(context, id, 0, &code);
  check_cl(code, "clCreateCommandQueue");
  cl_program program = clCreateProgramWithSource(context, 1, &kKernels, NULL, &code);
  check_cl(code, "clCreateProgramWithSource");
  check_cl(clBuildProgram(program, 1, &id, "", NULL, NULL), "clBuildProgram");
  cl_kernel draw = clCreateKernel(program, "draw", &code);
  check_cl(code, "clCreateKernel");
  cl_kernel largest = clCreateKernel(program, "largest", &code);
  check_cl(code, "clCreateKernel");
  cl_mem picture = clCreateBuffer(context, CL_MEM_READ_WRITE, POINTS * sizeof(float), NULL, &code);
  check_cl(code, "clCreateBuffer");
  cl_mem result = clCreateBuffer(context, CL_MEM_READ_WRITE, 2 * sizeof(float), NULL, &code);
  check_cl(code, "clCreateBuffer");

  /* The library uses the same context, as a device with a name. The queue stays the program's: events order the two. */
  evn_runtime runtime = NULL;
  evn_device device = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_opencl_attach_options attach = EVN_OPENCL_ATTACH_OPTIONS_INIT;
  attach.name = "display";
  attach.context = context;
  attach.device = id;
  check(evn_runtime_create(NULL, &runtime, &error));
  check(evn_opencl_attach(runtime, &attach, &device, &error));
  check(evn_model_load_file(runtime, argv[1], NULL, &model, &error));
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.device = "display";
  check(evn_session_create(runtime, model, &options, &session, &error));

  /* The program's buffer is the input; the output is a tensor of the library's, whose buffer the program reads. */
  const int64_t in_dims[] = {1, 3, 24, 24}, out_dims[] = {1, CLASSES};
  evn_tensor input = NULL, output = NULL;
  check(evn_opencl_wrap_buffer(device, picture, 0, EVN_DTYPE_FLOAT32, in_dims, 4, 0, NULL, NULL, &input, &error));
  check(evn_tensor_create(device, EVN_DTYPE_FLOAT32, out_dims, 2, 0, &output, &error));

  /* The first kernel: what the device of the library is given next begins after it. */
  const size_t points = POINTS, one = 1;
  cl_event drawn;
  check_cl(clSetKernelArg(draw, 0, sizeof picture, &picture), "clSetKernelArg");
  check_cl(clEnqueueNDRangeKernel(queue, draw, 1, NULL, &points, NULL, 0, NULL, &drawn), "clEnqueueNDRangeKernel");
  check_cl(clFlush(queue), "clFlush");
  evn_event event = NULL;
  check(evn_opencl_import_event(device, drawn, &event, &error));
  check(evn_device_wait_event(device, event, &error));
  check(evn_event_release(event));
  clReleaseEvent(drawn);

  check(evn_session_run(session, &input, 1, &output, 1, NULL, &error));

  /* The second kernel waits for all that the device has been given. */
  void *native = NULL, *values = NULL;
  uint64_t offset = 0;
  check(evn_device_record_event(device, &event, &error));
  check(evn_opencl_export_event(event, device, &native, &error));
  check(evn_event_release(event));
  check(evn_opencl_get_buffer(output, &values, &offset, &error));
  if (offset != 0) return 1; /* not of a tensor that evn_tensor_create made; a view has one */
  cl_event ran = native;
  cl_mem scores = values;
  const cl_int count = CLASSES;
  float best[2];
  check_cl(clSetKernelArg(largest, 0, sizeof scores, &scores), "clSetKernelArg");
  check_cl(clSetKernelArg(largest, 1, sizeof count, &count), "clSetKernelArg");
  check_cl(clSetKernelArg(largest, 2, sizeof result, &result), "clSetKernelArg");
  check_cl(clEnqueueNDRangeKernel(queue, largest, 1, NULL, &one, NULL, 1, &ran, NULL), "clEnqueueNDRangeKernel");
  check_cl(clEnqueueReadBuffer(queue, result, CL_TRUE, 0, sizeof best, best, 0, NULL, NULL), "clEnqueueReadBuffer");
  printf("%d %.6f\n", (int)best[0], (double)best[1]);

  clReleaseEvent(ran);
  evn_tensor_release(output);
  evn_tensor_release(input);
  evn_session_release(session);
  evn_model_release(model);
  evn_device_release(device);
  evn_runtime_release(runtime); /* the last that keeps the context and the picture besides the program */
  clReleaseMemObject(result);
  clReleaseMemObject(picture);
  clReleaseKernel(largest);
  clReleaseKernel(draw);
  clReleaseProgram(program);
  clReleaseCommandQueue(queue);
  clReleaseContext(context);
  return 0;
}
