# Libraries of ours that libevener opens on demand, from beside itself. libevener_openblas.so has Debian's serial OpenBLAS inside
# (libopenblas-serial-dev): static and hidden, so that it meets no BLAS of the host's, and never the threaded flavour, which starts
# workers when it is loaded.
set(EVN_OPENBLAS AUTO CACHE STRING "Build libevener_openblas.so: ON, OFF, or AUTO (when the static library is there)")
set_property(CACHE EVN_OPENBLAS PROPERTY STRINGS AUTO ON OFF)

if(EVN_OPENBLAS AND NOT CMAKE_CROSSCOMPILING AND TARGET evener)
  find_library(OPENBLAS_ARCHIVE NAMES libopenblas.a PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial NO_DEFAULT_PATH)
  find_path(OPENBLAS_INCLUDE cblas.h PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial NO_DEFAULT_PATH)
  if(OPENBLAS_ARCHIVE AND OPENBLAS_INCLUDE)
    set(EVN_MODULES libevener_openblas.so)
    add_library(evener_openblas MODULE ${CMAKE_SOURCE_DIR}/src/modules/openblas/module.c)
    target_include_directories(evener_openblas SYSTEM PRIVATE ${OPENBLAS_INCLUDE})
    target_link_libraries(evener_openblas PRIVATE ${OPENBLAS_ARCHIVE})
    target_link_options(evener_openblas PRIVATE -Wl,--exclude-libs,ALL -Wl,--wrap=getenv -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--gc-sections)
    install(TARGETS evener_openblas LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    # Whatever has the CPU device in it, tests included, finds the module beside itself.
    add_dependencies(evn_cpu evener_openblas)
    target_compile_definitions(evn_cpu INTERFACE EVN_OPENBLAS_BUILT)
  elseif(NOT EVN_OPENBLAS STREQUAL "AUTO")
    message(FATAL_ERROR "EVN_OPENBLAS is ${EVN_OPENBLAS}, but there is no serial static OpenBLAS (Debian: libopenblas-serial-dev)")
  else()
    message(STATUS "libevener_openblas.so is not built: no serial static OpenBLAS (Debian: libopenblas-serial-dev)")
  endif()
endif()
if(NOT EVN_MODULES)
  file(REMOVE ${CMAKE_BINARY_DIR}/libevener_openblas.so)  # of an earlier configuration; it would be found and used
endif()
