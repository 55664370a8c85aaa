evn_table(OUT kernels GLOB ${CMAKE_CURRENT_LIST_DIR}/kernels/*.cc TYPE KernelFamily SUFFIX _opencl_kernels FUNCTION opencl_kernel_families HEADER device/kernel.h)
evn_embed(OUT programs DIR ${CMAKE_CURRENT_LIST_DIR}/kernels FUNCTION opencl_sources)
evn_backend(opencl LITTLE SOURCES ${kernels} ${programs})
