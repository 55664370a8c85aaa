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

# Folders in which tests with a sanitizer spend little of their time: quick builds leave them without optimization there, and put several
# sources together. A release compiles them for size (-Os), but for FAST sources: quant, trainers, and the folders lower, run and session of runtime. FAST
# sources and the other folders have the build type's options, -O2 in a release.
set(EVN_PRECOMPILED_FOLDERS device)
set(EVN_TOGETHER_FOLDERS base core memory device)  # quick builds put their sources together
set(EVN_LITTLE_FOLDERS graph model quant config runtime api)  # precompiled as well
# A section to each function and each constant: the linker leaves out those that nobody uses.
set(EVN_SECTIONS "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-ffunction-sections;-fdata-sections>")
# Options of a folder's objects. SPEED: of its FAST sources.
function(evn_compile_folder target name speed)
  target_compile_options(${target} PRIVATE ${EVN_NO_IPA_VRP} ${EVN_FALSE_WARNINGS} ${EVN_SECTIONS})
  if(name IN_LIST EVN_TOGETHER_FOLDERS)
    evn_compile_together(${target})
  endif()
  if(name STREQUAL "ops")
    evn_precompile(${target} <ops/op.h>)
  elseif(name IN_LIST EVN_LITTLE_FOLDERS AND (EVN_SANITIZED OR NOT speed))
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-Os>)
    if(EVN_SANITIZED)
      evn_compile_little(${target})
    else()
      evn_compile_together(${target})
    endif()
    evn_precompile_as(${target} evn_graph <device/kernel.h>)
  elseif(name IN_LIST EVN_LITTLE_FOLDERS)
    evn_compile_together(${target})
    evn_precompile_as(${target} evn_device <device/kernel.h>)
  elseif(name IN_LIST EVN_PRECOMPILED_FOLDERS)
    evn_precompile_as(${target} evn_device <device/kernel.h>)
  endif()
endfunction()
# evn_folder(name, folder of src/ or a whole path, more sources... [FAST sources...])
function(evn_folder name dir)
  cmake_parse_arguments(PARSE_ARGV 2 A "" "" "FAST")
  get_filename_component(dir ${dir} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR}/src)
  file(GLOB sources CONFIGURE_DEPENDS ${dir}/*.cc)
  if(EVN_LEFT_OUT_API)
    list(REMOVE_ITEM sources ${EVN_LEFT_OUT_API})
  endif()
  list(APPEND sources ${A_UNPARSED_ARGUMENTS})
  if(A_FAST)
    list(REMOVE_ITEM sources ${A_FAST})
    add_library(evn_${name}_fast OBJECT ${A_FAST})
    evn_compile_folder(evn_${name}_fast ${name} TRUE)
    set(fast $<TARGET_OBJECTS:evn_${name}_fast>)
  endif()
  add_library(evn_${name} STATIC ${sources} ${fast})
  evn_compile_folder(evn_${name} ${name} FALSE)
  set_property(GLOBAL APPEND PROPERTY EVN_FOLDERS evn_${name})
endfunction()

file(GLOB base_os CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/base/os/*.cc)
# Functions that tests redirect (--wrap) are in objects of their own: the linker redirects no call within an object.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/base/alloc.cc ${CMAKE_SOURCE_DIR}/src/base/os/system_linux.cc ${CMAKE_SOURCE_DIR}/src/base/os/futex_linux.cc
  ${CMAKE_SOURCE_DIR}/src/base/os/threads_linux.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
evn_folder(base base ${base_os})
evn_folder(core core)
set(of_training "")  # sources that a build without training leaves out
if(NOT EVN_HAS_training)
  set(of_training "/(training|conv_gradient|train)/")
endif()
evn_table(OUT op_sources GLOB ${CMAKE_SOURCE_DIR}/src/ops/*.cc ${CMAKE_SOURCE_DIR}/src/ops/training/*.cc EXCLUDE "${of_training}" TYPE OpFamily SUFFIX _family FUNCTION op_families HEADER ops/op.h)
file(GLOB op_infra CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/infra/*.cc)
list(FILTER op_sources INCLUDE REGEX "generated|/training/")
evn_folder(ops ops ${op_sources} ${op_infra})
evn_folder(memory memory)
evn_folder(device device)
file(GLOB passes CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/graph/passes/*.cc)
file(GLOB rows_of_tables CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/model/*.cc ${CMAKE_SOURCE_DIR}/src/graph/gradient/rules_*.cc ${CMAKE_SOURCE_DIR}/src/runtime/rows/row_products.cc
  ${CMAKE_SOURCE_DIR}/src/runtime/lower/passes/*.cc)
set_source_files_properties(${rows_of_tables} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
file(GLOB gradient CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/graph/gradient/*.cc)
list(APPEND passes ${gradient})
evn_folder(graph graph ${passes})
evn_folder(model model)
file(GLOB quant CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/quant/*.cc)
evn_folder(quant quant FAST ${quant})
evn_folder(config config)
include(cmake/backends.cmake)
evn_builtin_backends(builtin_backends)
file(GLOB rooms CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/runtime/*/*.cc ${CMAKE_SOURCE_DIR}/src/runtime/lower/passes/*.cc)
file(GLOB fast_rooms CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/runtime/lower/*.cc ${CMAKE_SOURCE_DIR}/src/runtime/run/*.cc ${CMAKE_SOURCE_DIR}/src/runtime/session/*.cc)
evn_folder(runtime runtime ${rooms} FAST ${fast_rooms})
# Trainers and loaders (src/train) call the C API, whose table calls them.
set(train "")
if(EVN_HAS_training)
  file(GLOB train CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/train/*.cc)
endif()
evn_folder(api api ${builtin_backends} ${CMAKE_BINARY_DIR}/generated/left_out_functions.cc FAST ${train})

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
  # The API's objects themselves: --exclude-libs hides what comes from archives.
  add_library(evener SHARED ${CMAKE_SOURCE_DIR}/src/api/library/new.cc ${CMAKE_SOURCE_DIR}/src/api/library/runtime_support.cc $<TARGET_OBJECTS:evn_api>)
  if(TARGET evn_api_fast)
    target_sources(evener PRIVATE $<TARGET_OBJECTS:evn_api_fast>)
  endif()
  target_link_libraries(evener PRIVATE $<TARGET_PROPERTY:evn_api,LINK_LIBRARIES>)
  set_target_properties(evener PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  target_link_options(evener PRIVATE
    -static-libstdc++ -static-libgcc -Wl,--build-id -Wl,--exclude-libs,ALL -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--gc-sections -Wl,--no-undefined
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/src/api/library/evener.map)
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
    else()
      evn_compile_together(evener_cli)
    endif()
    set_target_properties(evener_cli PROPERTIES OUTPUT_NAME evener BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    target_link_libraries(evener_cli PRIVATE evener Threads::Threads)
    target_link_options(evener_cli PRIVATE -Wl,--build-id)
  endif()
endif()
include(cmake/archive.cmake)
include(cmake/modules.cmake)
