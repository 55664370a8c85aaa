# Installation: the library, its header, pkg-config and CMake package files, the command.
if(TARGET evener)
  install(TARGETS evener EXPORT evener-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  if(TARGET evener_cli)
    install(TARGETS evener_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
  install(FILES include/evener/evener.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/evener)
  target_include_directories(evener INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(EXPORT evener-targets NAMESPACE evener:: FILE evener-targets.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/evener)
  include(CMakePackageConfigHelpers)
  configure_file(cmake/evener-config.cmake.in ${CMAKE_BINARY_DIR}/generated/evener-config.cmake COPYONLY)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/evener-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/generated/evener-config.cmake ${CMAKE_BINARY_DIR}/generated/evener-config-version.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/evener)
  # The prefix is found from the file's own place, so that an installed tree can be moved.
  file(RELATIVE_PATH EVN_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  configure_file(pkgconfig/evener.pc.in ${CMAKE_BINARY_DIR}/generated/evener.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/generated/evener.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
