# Libraries of ours that libevener opens on demand, from beside itself. libevener_openblas.so has Debian's serial OpenBLAS inside
# (libopenblas-serial-dev): static and hidden, so that it meets no BLAS of the host's, and never the threaded flavour, which starts
# workers when it is loaded.
set(EVN_OPENBLAS AUTO CACHE STRING "Build libevener_openblas.so: ON, OFF, or AUTO (when the static library is there)")
set_property(CACHE EVN_OPENBLAS PROPERTY STRINGS AUTO ON OFF)

if(EVN_OPENBLAS AND TARGET evener)
  find_library(OPENBLAS_ARCHIVE NAMES libopenblas.a PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial NO_DEFAULT_PATH)
  find_path(OPENBLAS_INCLUDE cblas.h PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial NO_DEFAULT_PATH)
  if(OPENBLAS_ARCHIVE AND OPENBLAS_INCLUDE)
    list(APPEND EVN_MODULES libevener_openblas.so)
    add_library(evener_openblas MODULE ${CMAKE_SOURCE_DIR}/src/modules/openblas/module.c)
    target_include_directories(evener_openblas SYSTEM PRIVATE ${OPENBLAS_INCLUDE})
    target_link_libraries(evener_openblas PRIVATE ${OPENBLAS_ARCHIVE})
    target_link_options(evener_openblas PRIVATE -Wl,--build-id -Wl,--exclude-libs,ALL -Wl,--wrap=getenv -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--gc-sections)
    # Whatever has the CPU device in it, tests included, finds the module beside itself.
    add_dependencies(evn_cpu evener_openblas)
    target_compile_definitions(evn_cpu INTERFACE EVN_OPENBLAS_BUILT)
  elseif(NOT EVN_OPENBLAS STREQUAL "AUTO")
    message(FATAL_ERROR "EVN_OPENBLAS is ${EVN_OPENBLAS}, but there is no serial static OpenBLAS (Debian: libopenblas-serial-dev)")
  else()
    message(STATUS "libevener_openblas.so is not built: no serial static OpenBLAS (Debian: libopenblas-serial-dev)")
  endif()
endif()

# libevener_image.so reads pictures with the system's libraries, which are linked as shared ones: they are what a system keeps up to date.
set(EVN_IMAGE AUTO CACHE STRING "Build libevener_image.so: ON, OFF, or AUTO (when its libraries are there)")
set_property(CACHE EVN_IMAGE PROPERTY STRINGS AUTO ON OFF)

if(EVN_IMAGE AND TARGET evener)
  find_package(PkgConfig QUIET)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(EVN_IMAGE_LIBRARIES QUIET IMPORTED_TARGET libjpeg libpng>=1.6 libtiff-4>=4.5 libwebp>=1.0 libwebpdemux libopenjp2>=2.4)
  endif()
  if(TARGET PkgConfig::EVN_IMAGE_LIBRARIES)
    list(APPEND EVN_MODULES libevener_image.so)
    file(GLOB image_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/modules/image/*.c)
    add_library(evener_image MODULE ${image_sources})
    target_link_libraries(evener_image PRIVATE PkgConfig::EVN_IMAGE_LIBRARIES)
    target_link_options(evener_image PRIVATE -Wl,--build-id -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--gc-sections -Wl,--as-needed)
    add_dependencies(evn_ops evener_image)  # whatever has the operators in it finds the module beside itself
  else()
    set(why "not all of libjpeg-turbo, libpng, libtiff 4.5, libwebp and OpenJPEG are found by pkg-config")
    set(why "${why} (Debian: pkg-config libjpeg-dev libpng-dev libtiff-dev libwebp-dev libopenjp2-7-dev)")
    if(NOT EVN_IMAGE STREQUAL "AUTO")
      message(FATAL_ERROR "EVN_IMAGE is ${EVN_IMAGE}, but ${why}")
    endif()
    message(STATUS "libevener_image.so is not built: ${why}")
  endif()
endif()

# libevener_train.so calls the library by the C API, and has a C++ runtime of its own. The kernels of training of the CPU and of OpenCL devices are in it,
# with what they share with others of src/backends.
if(TARGET evener AND EVN_HAS_training)
  list(APPEND EVN_MODULES libevener_train.so)
  set(cpu ${CMAKE_SOURCE_DIR}/src/backends/cpu)
  file(GLOB of_kernels CONFIGURE_DEPENDS ${cpu}/conv_gradient/*.cc ${cpu}/training/*.cc)
  list(FILTER of_kernels EXCLUDE REGEX "_kernels\\.cc$|_loops(_[a-z0-9_]+)?\\.cc$|/export\\.cc$")
  evn_table(OUT train_kernels GLOB ${cpu}/conv_gradient/*_kernels.cc ${cpu}/training/*_kernels.cc TYPE KernelFamily SUFFIX "" FUNCTION training_kernel_families
    HEADER device/kernel.h)
  evn_simd(OUT train_loops NAME simd_training GLOB ${cpu}/conv_gradient/*_loops.cc ${cpu}/conv_gradient/*_loops_*.cc ${cpu}/training/*_loops.cc)
  evn_table(OUT train_operators GLOB ${CMAKE_SOURCE_DIR}/src/ops/training/*.cc EXCLUDE "/(export|linked)\\.cc$" TYPE OpFamily SUFFIX _family
    FUNCTION training_op_families HEADER ops/op.h)
  add_library(evn_training_operators OBJECT ${train_operators} ${CMAKE_SOURCE_DIR}/src/ops/training/linked.cc)
  target_link_libraries(evn_training_operators PUBLIC evn_ops)
  file(GLOB of_gradients CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/graph/gradient/*.cc)
  list(FILTER of_gradients EXCLUDE REGEX "/bind\\.cc$")
  add_library(evn_gradient OBJECT ${of_gradients})
  target_link_libraries(evn_gradient PUBLIC evn_graph)
  add_library(evn_training STATIC ${of_kernels} ${train_kernels} ${train_loops})  # which tests link themselves
  target_link_libraries(evn_training PUBLIC evn_cpu)
  set(train_exports ${cpu}/training/export.cc ${CMAKE_SOURCE_DIR}/src/ops/training/export.cc)
  if(TARGET evn_opencl)
    set(opencl ${CMAKE_SOURCE_DIR}/src/backends/opencl/training)
    evn_table(OUT opencl_train_kernels GLOB ${opencl}/*.cc EXCLUDE "/export\\.cc$" TYPE KernelFamily SUFFIX _opencl_kernels
      FUNCTION opencl_training_kernel_families HEADER device/kernel.h)
    evn_embed(OUT opencl_train_programs DIR ${opencl} FUNCTION opencl_training_embedded)
    target_sources(evn_training PRIVATE ${opencl_train_kernels} ${opencl_train_programs})
    target_link_libraries(evn_training PUBLIC evn_opencl)
    list(APPEND train_exports ${opencl}/export.cc)
  endif()
  file(GLOB train_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/modules/train/*.cc)
  add_library(evener_train MODULE ${train_sources} ${train_exports} ${CMAKE_SOURCE_DIR}/src/api/library/new.cc $<TARGET_OBJECTS:evn_gradient>
    $<TARGET_OBJECTS:evn_training_operators> ${CMAKE_SOURCE_DIR}/src/memory/recompute/search.cc
    ${CMAKE_SOURCE_DIR}/src/memory/recompute/export.cc)
  foreach(target evn_gradient evn_training evn_training_operators evener_train)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-Os> ${EVN_SECTIONS} ${EVN_NO_IPA_VRP})
  endforeach()
  target_link_libraries(evener_train PRIVATE evn_training)
  if(NOT EVN_SANITIZED)  # there operator new is the process's, and what it throws needs the C++ runtime of the process
    target_link_options(evener_train PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  target_link_options(evener_train PRIVATE -Wl,--build-id -Wl,--exclude-libs,ALL -Wl,-z,relro,-z,now,-z,noexecstack
    -Wl,--gc-sections -Wl,--no-undefined -Wl,--version-script=${CMAKE_SOURCE_DIR}/src/modules/train/module.map)
  if(EVN_LTO_FLAGS)  # the code beside the intermediate representation names the build folder in its debug information
    target_link_options(evener_train PRIVATE ${EVN_PREFIX_MAPS} -flto=auto ${EVN_NO_IPA_VRP})
  endif()
  add_dependencies(evn_api evener_train)  # whatever has the C API in it finds the module beside itself
endif()

# All-reduce over processes by engines of the system, which are linked as shared libraries with the C++ runtime that they have.
set(EVN_MPI AUTO CACHE STRING "Build libevener_mpi.so: ON, OFF, or AUTO (when MPI is there)")
set(EVN_GLOO AUTO CACHE STRING "Build libevener_gloo.so: ON, OFF, or AUTO (when Gloo is there)")
set_property(CACHE EVN_MPI EVN_GLOO PROPERTY STRINGS AUTO ON OFF)
function(evn_collective name source library)
  add_library(evener_${name} MODULE ${CMAKE_SOURCE_DIR}/src/modules/collective/${source})
  target_link_libraries(evener_${name} PRIVATE ${library})
  target_link_options(evener_${name} PRIVATE -Wl,--build-id -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--gc-sections -Wl,--as-needed)
  add_dependencies(evener_train evener_${name})
  set(EVN_MODULES ${EVN_MODULES} libevener_${name}.so PARENT_SCOPE)
endfunction()

foreach(engine MPI GLOO)  # when cross-compiling, what is found is of this machine
  if(EVN_${engine} STREQUAL "AUTO" AND CMAKE_CROSSCOMPILING)
    set(EVN_${engine} OFF)
  elseif(EVN_${engine} AND NOT EVN_${engine} STREQUAL "AUTO" AND (CMAKE_CROSSCOMPILING OR NOT TARGET evener_train))
    message(FATAL_ERROR "EVN_${engine} is ${EVN_${engine}}, but this build is for another machine, or has no training")
  endif()
endforeach()
if(TARGET evener_train AND EVN_MPI)
  find_package(MPI QUIET COMPONENTS C)
  if(MPI_C_FOUND)
    evn_collective(mpi mpi.c MPI::MPI_C)
  elseif(NOT EVN_MPI STREQUAL "AUTO")
    message(FATAL_ERROR "EVN_MPI is ${EVN_MPI}, but there is no MPI (Debian: libopenmpi-dev)")
  else()
    message(STATUS "libevener_mpi.so is not built: no MPI (Debian: libopenmpi-dev)")
  endif()
endif()
if(TARGET evener_train AND EVN_GLOO)
  find_package(Gloo QUIET CONFIG)
  if(TARGET gloo)
    evn_collective(gloo gloo.cc gloo)
  elseif(NOT EVN_GLOO STREQUAL "AUTO")
    message(FATAL_ERROR "EVN_GLOO is ${EVN_GLOO}, but there is no Gloo (Debian: libgloo-dev)")
  else()
    message(STATUS "libevener_gloo.so is not built: no Gloo (Debian: libgloo-dev)")
  endif()
endif()

foreach(module libevener_openblas.so libevener_image.so libevener_train.so libevener_mpi.so libevener_gloo.so)
  if(NOT module IN_LIST EVN_MODULES)
    file(REMOVE ${CMAKE_BINARY_DIR}/${module})  # of an earlier configuration; it would be found and used
  endif()
endforeach()
list(JOIN EVN_MODULES " " EVN_MODULE_NAMES)  # for evener.pc
