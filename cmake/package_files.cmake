# evn_package_files(OUT folder, LIBDIR folder of libraries below the prefix, VERSION, SOVERSION, MODULES names): evener.pc and
# evener-config.cmake. The prefix is found from the files' own place, so that an installed tree can be moved. Also run with -P, by
# scripts/packages/deb.py, for libraries that lie elsewhere than where the build installs them.
function(evn_package_files)
  cmake_parse_arguments(EVN "" "OUT;LIBDIR;VERSION;SOVERSION;MODULES" "" ${ARGN})
  file(RELATIVE_PATH EVN_PREFIX_FROM_PC /${EVN_LIBDIR}/pkgconfig /)
  file(RELATIVE_PATH EVN_PREFIX_FROM_CONFIG /${EVN_LIBDIR}/cmake/evener /)
  string(REGEX REPLACE "/$" "" EVN_PREFIX_FROM_PC "${EVN_PREFIX_FROM_PC}")
  string(REGEX REPLACE "/$" "" EVN_PREFIX_FROM_CONFIG "${EVN_PREFIX_FROM_CONFIG}")
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/evener-config.cmake.in ${EVN_OUT}/evener-config.cmake @ONLY)
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../pkgconfig/evener.pc.in ${EVN_OUT}/evener.pc @ONLY)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  evn_package_files(OUT ${OUT} LIBDIR ${LIBDIR} VERSION ${VERSION} SOVERSION ${SOVERSION} MODULES "${MODULES}")
endif()
