evn_backend(mock SMALL)
target_include_directories(evn_mock PRIVATE ${CMAKE_SOURCE_DIR})
