# Run while the component "debug" is installed: the debug information of EVN_BINARIES, without their code, as
# <prefix>/lib/debug/.build-id/<2 digits>/<the others>.debug, where debuggers look for it.
foreach(binary ${EVN_BINARIES})
  if(NOT EXISTS ${binary})  # it is not built, and not installed either
    continue()
  endif()
  execute_process(COMMAND ${EVN_READELF} --notes ${binary} OUTPUT_VARIABLE notes ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
  if(NOT notes MATCHES "Build ID: ([0-9a-f][0-9a-f])([0-9a-f]+)")
    message(FATAL_ERROR "${binary} has no build-id")
  endif()
  set(folder "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/debug/.build-id/${CMAKE_MATCH_1}")
  set(file "${folder}/${CMAKE_MATCH_2}.debug")
  file(MAKE_DIRECTORY "${folder}")
  execute_process(COMMAND ${EVN_OBJCOPY} --only-keep-debug --compress-debug-sections ${binary} ${file} COMMAND_ERROR_IS_FATAL ANY)
  file(CHMOD "${file}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  message(STATUS "Installing: ${file}")
endforeach()
