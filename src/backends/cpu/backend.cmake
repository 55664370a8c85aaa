# A folder for each family of kernels: <name>_kernels.cc has drivers, <name>_loops.cc inner loops for each instruction set, the others what
# they share.
include(${CMAKE_CURRENT_LIST_DIR}/instruction_sets.cmake)
file(GLOB shared CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*/*.cc)
list(FILTER shared EXCLUDE REGEX "_(kernels|loops|loops_[a-z0-9_]+)\\.cc$")
if(of_training)
  list(FILTER shared EXCLUDE REGEX ${of_training})
endif()
evn_table(OUT kernels GLOB ${CMAKE_CURRENT_LIST_DIR}/*/*_kernels.cc EXCLUDE "${of_training}" TYPE KernelFamily SUFFIX "" FUNCTION cpu_kernel_families HEADER device/kernel.h)
evn_simd(OUT loops NAME simd GLOB ${CMAKE_CURRENT_LIST_DIR}/*/*_loops.cc ${CMAKE_CURRENT_LIST_DIR}/*/*_loops_*.cc EXCLUDE "${of_training}")
evn_backend(cpu SOURCES ${shared} ${kernels} ${loops})
# These have loops over elements of their own. They are aligned as the clusters' loops are, or the speed of the same code (a third of a Resize)
# depends on what is linked before it.
set(aligned conv/conv_transpose_kernels.cc elementwise/quantize_kernels.cc move/gather_kernels.cc move/pad_kernels.cc move/resize_kernels.cc move/select_kernels.cc move/strided_copy.cc training/pool_gradient_kernels.cc)
list(TRANSFORM aligned PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
set_source_files_properties(${aligned} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
# Options that a precompiled header does not have.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/elementwise/numbers_loops.cc PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
# Plain loops that gcc vectorizes at -O3 only, because arrays may overlap.
set_property(SOURCE ${CMAKE_CURRENT_LIST_DIR}/elementwise/numbers_loops.cc ${CMAKE_CURRENT_LIST_DIR}/move/select_kernels.cc APPEND PROPERTY COMPILE_OPTIONS
  "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release,RelWithDebInfo>>:-ftree-loop-vectorize;-fvect-cost-model=dynamic;--param=vect-epilogues-nomask=0>")
set_property(SOURCE ${aligned} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-falign-functions=64>)
