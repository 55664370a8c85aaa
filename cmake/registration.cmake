# The file name is the registration: folders are scanned, and tables of extern symbols are written into the build tree. A file
# that does not define the symbol that its name promises breaks the link.

# A build of some operators: names of operators, ONNX files or patterns of such files. Operators, kernels and rewrites that these models do not
# need stand in no table then, and the linker leaves them out (decision 0082).
set(EVN_OPERATORS "" CACHE STRING "ONNX files, patterns of files, or names of operators that the library must run; empty: all operators")
find_package(Python3 COMPONENTS Interpreter REQUIRED)
execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/select_operators.py --cmake ${CMAKE_BINARY_DIR}/generated/kept.cmake
  --header ${CMAKE_BINARY_DIR}/generated/kept_operators.h ${EVN_OPERATORS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "EVN_OPERATORS is ${EVN_OPERATORS}, which is not understood")
endif()
include(${CMAKE_BINARY_DIR}/generated/kept.cmake)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/scripts/select_operators.py
  ${CMAKE_SOURCE_DIR}/src/graph/passes/operators.txt ${EVN_READ_MODELS})

# evn_table(OUT_SOURCES variable, GLOB patterns, EXCLUDE regular expression, TYPE C++ type, SUFFIX symbol suffix, FUNCTION accessor, HEADER declares
# the type)
function(evn_table)
  cmake_parse_arguments(A "" "OUT;TYPE;SUFFIX;FUNCTION;HEADER;EXCLUDE" "GLOB" ${ARGN})
  file(GLOB files CONFIGURE_DEPENDS ${A_GLOB})
  if(A_EXCLUDE)
    list(FILTER files EXCLUDE REGEX ${A_EXCLUDE})
  endif()
  set_source_files_properties(${files} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # they name their rows alike
  set(externs "")
  set(rows "")
  foreach(file ${files})
    if(EVN_OPERATORS AND NOT file IN_LIST EVN_KEPT_FILES)
      continue()
    endif()
    get_filename_component(name ${file} NAME_WE)
    string(APPEND externs "extern const ${A_TYPE} ${name}${A_SUFFIX};\n")
    string(APPEND rows "    &${name}${A_SUFFIX},\n")
  endforeach()
  set(text "// Made by cmake/registration.cmake.\n#include <span>\n#include \"${A_HEADER}\"\nnamespace evn {\n${externs}std::span<const ${A_TYPE}* const> ${A_FUNCTION}();\nstd::span<const ${A_TYPE}* const> ${A_FUNCTION}() {\n  static constexpr const ${A_TYPE}* kRows[] = {\n${rows}  };\n  return kRows;\n}\n}  // namespace evn\n")
  set(out ${CMAKE_BINARY_DIR}/generated/${A_FUNCTION}.cc)
  file(CONFIGURE OUTPUT ${out} CONTENT "${text}" @ONLY)
  set(${A_OUT} ${files} ${out} PARENT_SCOPE)
endfunction()

# evn_embed(OUT_SOURCES variable, DIRS folders with *.cl, FUNCTION accessor): each file as text, by its name. They may include what lies in
# src/backends/opencl/kernels/shared.
function(evn_embed)
  cmake_parse_arguments(A "" "OUT;FUNCTION" "DIRS" ${ARGN})
  list(TRANSFORM A_DIRS APPEND /*.cl)
  file(GLOB files CONFIGURE_DEPENDS ${A_DIRS})
  set(shared ${CMAKE_SOURCE_DIR}/src/backends/opencl/kernels/shared)
  file(GLOB shared_files CONFIGURE_DEPENDS ${shared}/*.cl)
  set(out ${CMAKE_BINARY_DIR}/generated/${A_FUNCTION}.cc)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} "-DFILES=${files}" -DSHARED=${shared} -DFUNCTION=${A_FUNCTION}
      -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${files} ${shared_files} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
  set(${A_OUT} ${out} PARENT_SCOPE)
endfunction()

# gcc 12 took a loop's counter for one more than it was in a function that it did not inline (-Os, interprocedural value ranges).
set(EVN_NO_IPA_VRP "")
# gcc 12 takes `std::string("a") + b` at -O2 for a write beyond the string.
set(EVN_FALSE_WARNINGS "")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(EVN_FALSE_WARNINGS -Wno-array-bounds -Wno-restrict)
endif()
# Between the calls that -fsanitize=thread adds, gcc sees less of what a constructor has set.
if(EVN_SANITIZE_THREAD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND EVN_FALSE_WARNINGS -Wno-maybe-uninitialized)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(EVN_NO_IPA_VRP $<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-fno-ipa-vrp>)
endif()
