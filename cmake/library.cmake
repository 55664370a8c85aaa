# One static library per folder, in the order of the layers, and libevener made of all of them.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_custom_target(check_layers ALL
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/check_layers.py ${CMAKE_SOURCE_DIR}
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/check_sizes.py ${CMAKE_SOURCE_DIR} COMMENT "Checking the layers and the lengths of files")

file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/version.h CONTENT
  "#define EVN_VERSION_STRING \"@PROJECT_VERSION@\"\n#define EVN_PROJECT_VERSION ((@PROJECT_VERSION_MAJOR@u << 16) | (@PROJECT_VERSION_MINOR@u << 8) | @PROJECT_VERSION_PATCH@u)\n" @ONLY)
include_directories(${CMAKE_BINARY_DIR}/generated)

# yaml-cpp, linked statically and hidden: its memory comes from operator new (src/api/library/new.cc), and so from base/alloc.
find_path(YAML_CPP_INCLUDE yaml-cpp/eventhandler.h REQUIRED)
find_library(YAML_CPP_ARCHIVE NAMES libyaml-cpp.a REQUIRED)

# Link-time optimization of the folders, by gcc, where GNU ld packs relocations (below). Their object files have code as well
# (-ffat-lto-objects), from which all but the library and its module of training is linked as ever; the clusters of the CPU's kernels have code alone. An archive's index
# must name what the code defines: with a target ar leaves gcc's plugin aside, which names what the intermediate representation defines.
set(EVN_LTO_FLAGS "")
if(EVN_LTO AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE MATCHES "^(Release|RelWithDebInfo)$" AND NOT EVN_SANITIZED
   AND NOT CMAKE_CROSSCOMPILING)
  execute_process(COMMAND ${CMAKE_LINKER} --print-output-format OUTPUT_VARIABLE format OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(format)
    set(EVN_LTO_FLAGS -flto -ffat-lto-objects)
    add_link_options($<$<NOT:$<IN_LIST:$<TARGET_PROPERTY:NAME>,evener$<SEMICOLON>evener_train>>:-fno-lto>)
    set(CMAKE_CXX_ARCHIVE_CREATE "<CMAKE_AR> --target=${format} qc <TARGET> <LINK_FLAGS> <OBJECTS>")
    set(CMAKE_CXX_ARCHIVE_APPEND "<CMAKE_AR> --target=${format} q <TARGET> <LINK_FLAGS> <OBJECTS>")
    set(CMAKE_CXX_ARCHIVE_FINISH "<CMAKE_AR> --target=${format} s <TARGET>")
  endif()
endif()

# Compiled for size (decision 0024): the loops of the CPU's kernels are in clusters of their own, and those files that spend their time in
# loops or work for each run and each new shape have -O2.
set(EVN_FAST_FOLDERS memory)
set(EVN_PRECOMPILED_FOLDERS device)  # with the same options
set(EVN_SMALL_FOLDERS base core graph model quant config runtime api)  # with no loops over elements but in the files below; from graph on
# they are precompiled, with the same options
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-Oz EVN_HAS_OZ)  # gcc 12 and clang
set(EVN_SMALLEST -Os)
if(EVN_HAS_OZ)
  set(EVN_SMALLEST -Oz)
endif()
# A section to each function: the linker leaves out those that nobody calls and, where it is lld or gold, makes equal ones one.
set(EVN_SECTIONS $<$<CONFIG:Release,RelWithDebInfo>:-ffunction-sections> $<$<CONFIG:Release,RelWithDebInfo>:-fdata-sections>)
# evn_fast_files(files of src/...)
function(evn_fast_files)
  foreach(file ${ARGN})
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/${file} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS $<$<CONFIG:Release,RelWithDebInfo>:-O2>)
  endforeach()
endfunction()
evn_fast_files(backends/cpu/move/resize_lines.cc backends/cpu/qgemm/interleave.cc base/alloc.cc base/cancel.cc base/hash.cc base/heap.cc base/slab.cc base/thread_pool.cc core/shape.cc
  ops/affine_grid.cc ops/arg_reduce.cc ops/binary.cc ops/bitwise.cc ops/col2im.cc ops/gather_nd.cc ops/infra/fft_passes.cc
  ops/infra/first_largest.cc ops/infra/index.cc ops/infra/line_sums.cc ops/infra/ordered_lines.cc ops/infra/selection.cc ops/infra/sort_by_key.cc ops/infra/terms.cc
  ops/non_max_suppression.cc ops/range.cc ops/reduce.cc ops/top_k.cc ops/variadic.cc quant/observer.cc runtime/lower/shape_walk.cc runtime/run/execute.cc
  runtime/run/session_run.cc)
# evn_small_files(files of src/...): without loops over numbers, in a folder that has such loops
function(evn_small_files)
  foreach(file ${ARGN})
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/${file} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS $<$<CONFIG:Release,RelWithDebInfo>:${EVN_SMALLEST}>)
  endforeach()
endfunction()
evn_small_files(memory/pool.cc ops/loop.cc ops/optional.cc ops/scan.cc ops/sequence.cc ops/strings.cc ops/infra/attributes.cc ops/infra/custom.cc ops/infra/image_decoders.cc ops/infra/registry.cc ops/infra/resize_inputs.cc)
function(evn_precompile_first name first)
  if(name STREQUAL first)
    evn_precompile(evn_${name} <device/kernel.h>)
  else()
    evn_precompile_as(evn_${name} evn_${first})
  endif()
endfunction()
# evn_folder(name, folder of src/ or a whole path, more sources...)
function(evn_folder name dir)
  get_filename_component(dir ${dir} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR}/src)
  file(GLOB sources CONFIGURE_DEPENDS ${dir}/*.cc)
  if(EVN_LEFT_OUT_API)
    list(REMOVE_ITEM sources ${EVN_LEFT_OUT_API})
  endif()
  list(APPEND sources ${ARGN})
  if(NOT sources)
    return()
  endif()
  add_library(evn_${name} STATIC ${sources})
  target_compile_options(evn_${name} PRIVATE ${EVN_LTO_FLAGS})
  if(NOT name IN_LIST EVN_FAST_FOLDERS)
    set(size -Os)
    if(name IN_LIST EVN_SMALL_FOLDERS)
      set(size ${EVN_SMALLEST})
    endif()
    target_compile_options(evn_${name} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:${size}> ${EVN_NO_IPA_VRP} ${EVN_SECTIONS})
  endif()
  if(name STREQUAL "ops")
    evn_precompile(evn_ops <ops/op.h>)
  elseif(name IN_LIST EVN_SMALL_FOLDERS AND NOT name MATCHES "^(base|core)$")
    if(EVN_SANITIZED)
      evn_compile_little(evn_${name})
    endif()
    evn_precompile_first(${name} graph)
  elseif(name IN_LIST EVN_PRECOMPILED_FOLDERS)
    evn_precompile_first(${name} device)
  endif()
  set_property(GLOBAL APPEND PROPERTY EVN_FOLDERS evn_${name})
endfunction()

file(GLOB base_os CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/base/os/*.cc)
evn_folder(base base ${base_os})
evn_folder(core core)
evn_table(OUT op_sources GLOB ${CMAKE_SOURCE_DIR}/src/ops/*.cc TYPE OpFamily SUFFIX _family FUNCTION op_families HEADER ops/op.h)
file(GLOB op_infra CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/infra/*.cc)
list(FILTER op_sources INCLUDE REGEX "generated")
evn_folder(ops ops ${op_sources} ${op_infra})
evn_folder(memory memory)
evn_folder(device device)
file(GLOB passes CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/graph/passes/*.cc)
file(GLOB rows_of_tables CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/model/*.cc ${CMAKE_SOURCE_DIR}/src/graph/gradient/rules_*.cc ${CMAKE_SOURCE_DIR}/src/runtime/batch/row_products.cc
  ${CMAKE_SOURCE_DIR}/src/runtime/lower/passes/*.cc)
set_source_files_properties(${rows_of_tables} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
list(APPEND passes ${CMAKE_SOURCE_DIR}/src/graph/gradient/bind.cc)  # the rest of the folder is in the module of training
evn_folder(graph graph ${passes})
evn_folder(model model)
evn_folder(quant quant)
evn_folder(config config)
include(cmake/backends.cmake)
evn_builtin_backends(builtin_backends)
file(GLOB rooms CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/runtime/*/*.cc ${CMAKE_SOURCE_DIR}/src/runtime/lower/passes/*.cc)
evn_folder(runtime runtime ${rooms})
evn_folder(api api ${builtin_backends} ${CMAKE_BINARY_DIR}/generated/left_out_functions.cc)

# Later folders use earlier ones; each test links the folders up to its own.
get_property(folders GLOBAL PROPERTY EVN_FOLDERS)
set(before "")
foreach(folder ${folders})
  target_link_libraries(${folder} PUBLIC ${before})
  list(PREPEND before ${folder})
endforeach()
find_package(Threads REQUIRED)
target_link_libraries(evn_base PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
if(TARGET evn_config)
  target_include_directories(evn_config SYSTEM PRIVATE ${YAML_CPP_INCLUDE})
  target_link_libraries(evn_config PUBLIC ${YAML_CPP_ARCHIVE})
endif()

if(TARGET evn_api)
  # libstdc++ asks for the types of the facets by dynamic_cast.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/api/library/locale.cc PROPERTIES COMPILE_OPTIONS -frtti)
  # The API's objects themselves: --exclude-libs hides what comes from archives.
  add_library(evener SHARED ${CMAKE_SOURCE_DIR}/src/api/library/new.cc ${CMAKE_SOURCE_DIR}/src/api/library/runtime_support.cc ${CMAKE_SOURCE_DIR}/src/api/library/locale.cc $<TARGET_OBJECTS:evn_api>)
  target_link_libraries(evener PRIVATE $<TARGET_PROPERTY:evn_api,LINK_LIBRARIES>)
  set_target_properties(evener PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  target_link_options(evener PRIVATE
    -static-libstdc++ -static-libgcc -Wl,--build-id -Wl,--exclude-libs,ALL -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--gc-sections -Wl,--no-undefined
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/src/api/library/evener.map)
  # What makes the library smaller, best first: link-time optimization and GNU ld, which packs relative relocations as bitmaps, where the
  # C library here reads them (then the library needs glibc 2.36 where it is used); lld of LLVM 15 or later, which folds equal functions
  # and packs relocations; GNU ld without optimization; gold, which folds functions alone. -O2: strings that end another one are not kept twice.
  # --icf=all folds functions whose address is taken too: no code may tell functions or constants apart by their addresses alone.
  include(CheckLinkerFlag)
  include(CheckCXXSourceCompiles)
  include(CheckCXXSourceRuns)
  find_program(EVN_LLD NAMES ld.lld-19 ld.lld-18 ld.lld-17 ld.lld-16 ld.lld-15 ld.lld)
  if(EVN_LLD)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lld)
    file(CREATE_LINK ${EVN_LLD} ${CMAKE_BINARY_DIR}/lld/ld.lld SYMBOLIC)
    set(EVN_BY_LLD -fuse-ld=lld -B${CMAKE_BINARY_DIR}/lld)
    if(NOT EVN_SANITIZED)
      set(lld ${EVN_BY_LLD} -Wl,--icf=all)
    endif()
  endif()
  # evn_check_packing(result, options of the linker...): a program whose relocations are packed runs.
  function(evn_check_packing result)
    set(CMAKE_REQUIRED_FLAGS -fPIE)
    set(CMAKE_REQUIRED_LINK_OPTIONS ${ARGN} -pie -Wl,--fatal-warnings,-z,pack-relative-relocs)  # a linker that does not know it warns
    set(program "const char* volatile table[] = {\"a\", \"b\"}; int main() { return table[1][0] == 'b' ? 0 : 1; }")
    if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
      # Nothing runs it (and CMake 3.25 crashes where it is asked to): a C library that is new enough loads it.
      check_cxx_source_compiles("#include <features.h>\n#if !__GLIBC_PREREQ(2, 36)\n#error\n#endif\n${program}" ${result})
    else()
      check_cxx_source_runs("${program}" ${result})
    endif()
  endfunction()
  if(DEFINED lld)
    evn_check_packing(EVN_LLD_PACKS_RELOCATIONS ${lld})
  endif()
  evn_check_packing(EVN_PACKS_RELOCATIONS)
  check_linker_flag(CXX "-fuse-ld=gold;-Wl,--icf=safe,-O2" EVN_HAS_FOLDING)
  if(EVN_LTO_FLAGS AND EVN_PACKS_RELOCATIONS)
    target_link_options(evener PRIVATE ${EVN_PREFIX_MAPS} -flto=auto -Werror=odr -Werror=lto-type-mismatch ${EVN_NO_IPA_VRP} -Wl,-z,pack-relative-relocs,-O2)
  elseif(EVN_LLD_PACKS_RELOCATIONS)
    target_link_options(evener PRIVATE ${lld} -Wl,-z,pack-relative-relocs,-O2)
  elseif(EVN_PACKS_RELOCATIONS)
    target_link_options(evener PRIVATE -Wl,-z,pack-relative-relocs,-O2)
  elseif(EVN_HAS_FOLDING AND NOT EVN_SANITIZED)
    target_link_options(evener PRIVATE -fuse-ld=gold -Wl,--icf=safe,-O2)
  elseif(NOT EVN_SANITIZED)
    message(STATUS "The linker packs no relocations and folds no equal functions: libevener.so becomes larger (docs/decisions/0024-size.md)")
  endif()
  set_target_properties(evener PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/src/api/library/evener.map)
  file(GLOB cli CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.cc)
  if(cli)
    set(page ${CMAKE_BINARY_DIR}/generated/cli_page.cc)
    set(page_folder ${CMAKE_SOURCE_DIR}/src/cli/page)
    set(page_scripts data.js layout.js graph.js timeline.js details.js)  # in this order
    list(TRANSFORM page_scripts PREPEND ${page_folder}/)
    set(embed_page ${CMAKE_SOURCE_DIR}/cmake/embed_page.cmake)
    add_custom_command(OUTPUT ${page}
      COMMAND ${CMAKE_COMMAND} -DOUT=${page} -DFOLDER=${page_folder} "-DSCRIPTS=${page_scripts}" -P ${embed_page}
      DEPENDS ${page_folder}/page.html ${page_folder}/page.css ${page_scripts} ${embed_page} VERBATIM)
    add_executable(evener_cli ${cli} ${page})
    if(EVN_SANITIZED)
      evn_compile_little(evener_cli)
    endif()
    set_target_properties(evener_cli PROPERTIES OUTPUT_NAME evener BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    target_link_libraries(evener_cli PRIVATE evener)
    target_link_options(evener_cli PRIVATE -Wl,--build-id)
  endif()
endif()
include(cmake/archive.cmake)
include(cmake/modules.cmake)
