# libevener.a: the library for hosts that are linked statically (decision 0081). One object: the folders' code, the members of yaml-cpp and of
# libstdc++ that it needs, linked with -r; then every symbol but those of the C API is made local, so that the host meets no operator new and
# no C++ runtime in it.
if(NOT TARGET evener OR EVN_SANITIZED OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  return()
endif()
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE EVN_RUNTIME_ARCHIVE OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT IS_ABSOLUTE "${EVN_RUNTIME_ARCHIVE}")
  message(STATUS "libevener.a is not built: ${CMAKE_CXX_COMPILER} has no libstdc++.a")
  return()
endif()

# The names of the API: roots of the link, and what stays global.
set(map ${CMAKE_SOURCE_DIR}/src/api/library/evener.map)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${map})
file(READ ${map} names)
string(REGEX MATCHALL "evn_[a-z0-9_]+" names "${names}")
list(REMOVE_DUPLICATES names)
list(JOIN names "\n" lines)
set(archive_folder ${CMAKE_BINARY_DIR}/archive)
file(CONFIGURE OUTPUT ${archive_folder}/names.txt CONTENT "${lines}\n" @ONLY)
file(CONFIGURE OUTPUT ${archive_folder}/roots.ld CONTENT "EXTERN(\n${lines}\n__cxa_pure_virtual\n)\n" @ONLY)

add_library(evn_archive_parts OBJECT ${CMAKE_SOURCE_DIR}/src/api/library/new.cc ${CMAKE_SOURCE_DIR}/src/api/library/runtime_support.cc)
get_property(folders GLOBAL PROPERTY EVN_FOLDERS)
set(archives "")
foreach(folder ${folders})
  list(PREPEND archives $<TARGET_FILE:${folder}>)
endforeach()
# --force-group-allocation: a host whose inline functions have the names of ours would have the linker discard ours, and ours are local.
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/libevener.a
  COMMAND ${CMAKE_CXX_COMPILER} -r -nostdlib -Wl,--gc-sections -Wl,--force-group-allocation -o linked.o
    $<TARGET_OBJECTS:evn_archive_parts> roots.ld -Wl,--start-group ${archives} ${YAML_CPP_ARCHIVE} ${EVN_RUNTIME_ARCHIVE} -Wl,--end-group
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/unique_symbols.py linked.o
  COMMAND ${CMAKE_OBJCOPY} --keep-global-symbols=names.txt --strip-unneeded
    linked.o evener.o
  COMMAND ${CMAKE_COMMAND} -E rm -f linked.o ${CMAKE_BINARY_DIR}/libevener.a
  COMMAND ${CMAKE_AR} rcsD ${CMAKE_BINARY_DIR}/libevener.a evener.o
  COMMAND ${CMAKE_COMMAND} -E rm -f evener.o
  DEPENDS evn_archive_parts $<TARGET_OBJECTS:evn_archive_parts> ${folders} ${archives} ${archive_folder}/names.txt ${CMAKE_SOURCE_DIR}/cmake/unique_symbols.py
  WORKING_DIRECTORY ${archive_folder} COMMAND_EXPAND_LISTS VERBATIM COMMENT "Linking libevener.a")
add_custom_target(evener_archive ALL DEPENDS ${CMAKE_BINARY_DIR}/libevener.a)
