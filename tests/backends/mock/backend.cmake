evn_backend(mock LITTLE)
target_include_directories(evn_mock PRIVATE ${CMAKE_SOURCE_DIR})
