// CLBlast's C interface (1.5 and later), opened at run time like OpenCL itself and never closed. Its header is not needed: the few
// types are declared here.
#pragma once

#include <string>

#include "backends/opencl/loader.h"

namespace evn {

// CLBlastLayout, CLBlastTranspose.
enum : int { kClBlastRowMajor = 101, kClBlastNotTransposed = 111, kClBlastTransposed = 112 };

// Sizes, offsets and leading dimensions are in elements; a status of 0 is success, others are OpenCL's or CLBlast's own below
// -1023.
struct ClBlastApi {
  // CLBlastSgemmWithTempBuffer: C = alpha * A' * B' + beta * C.
  int (*sgemm)(int layout, int a_transpose, int b_transpose, std::size_t m, std::size_t n, std::size_t k, float alpha, cl_mem a,
               std::size_t a_offset, std::size_t a_ld, cl_mem b, std::size_t b_offset, std::size_t b_ld, float beta, cl_mem c,
               std::size_t c_offset, std::size_t c_ld, cl_command_queue* queue, cl_event* event, cl_mem temp);
  // CLBlastSGemmTempBufferSize: bytes of `temp` that such a call needs.
  int (*temp_bytes)(int layout, int a_transpose, int b_transpose, std::size_t m, std::size_t n, std::size_t k, std::size_t a_offset,
                    std::size_t a_ld, std::size_t b_offset, std::size_t b_ld, std::size_t c_offset, std::size_t c_ld,
                    cl_command_queue* queue, std::size_t* bytes);
};

// Opens a library of that name and fills *api. False and *why when it cannot be opened or lacks a function.
bool open_clblast_library(const char* name, ClBlastApi* api, std::string* why);

// The process's table, or nullptr and *why. A failure is not remembered: the next call tries again.
const ClBlastApi* clblast_api(std::string* why);

}  // namespace evn
