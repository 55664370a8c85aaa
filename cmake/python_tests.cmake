# The tests in Python, run by ${EVN_PYTHON}. Where the sanitizers are built in, tests/tools/sanitized.py runs it, has their runtime loaded
# before it and judges what they report.
set(run ${EVN_PYTHON})
set(timeout 1800)  # seconds a test
set(run_options "")
set(run_end "")
set(pytest -m pytest -q -rs -p no:cacheprovider)
if(EVN_SANITIZE)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    message(FATAL_ERROR "With EVN_SANITIZE the tests in Python need GCC, whose runtime is loaded before Python: leave EVN_PYTHON empty")
  endif()
  foreach(library libasan.so libstdc++.so)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${library} OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT IS_ABSOLUTE "${path}")
      message(FATAL_ERROR "This compiler has no ${library} that could be loaded before Python: leave EVN_PYTHON empty")
    endif()
    list(APPEND preload ${path})
  endforeach()
  set(timeout 14400)
  list(JOIN preload " " preload)
  list(APPEND run ${CMAKE_SOURCE_DIR}/tests/tools/sanitized.py --preload ${preload})
  set(run_end --)
  list(APPEND pytest -p no:faulthandler)  # the sanitizers tell more of a fault
endif()

# evn_python_test(name, arguments of Python...): COST has them begun first, as they take longest and one of them takes one core.
function(evn_python_test name)
  add_test(NAME ${name} COMMAND ${run} ${run_options} ${run_end} ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} COST 1000 ENVIRONMENT
    "EVENER_LIBRARY=$<TARGET_FILE:evener>;EVENER_COMMAND=${CMAKE_BINARY_DIR}/evener;EVENER_BUILD=${CMAKE_BINARY_DIR};EVENER_MODELS=${CMAKE_SOURCE_DIR}/build/models;PYTHONPATH=${CMAKE_SOURCE_DIR}/bindings/python:${CMAKE_SOURCE_DIR}/tests/tools/plugins;PYTHONDONTWRITEBYTECODE=1")
endfunction()
function(evn_pytest name path)
  if(EXISTS ${CMAKE_SOURCE_DIR}/${path})
    evn_python_test(python.${name} ${pytest} ${CMAKE_SOURCE_DIR}/${path} ${ARGN})
  endif()
endfunction()
# A test that a build with the sanitizers runs only under EVN_TEST_FULL=1.
function(evn_long_pytest name)
  if(EVN_SANITIZE)
    set(run_options --full-only python.${name})
  endif()
  evn_pytest(${name} ${ARGN})
  if(EVN_SANITIZE)
    set_tests_properties(python.${name} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
endfunction()

# ONNX's node tests: with the sanitizers 200, and all under EVN_TEST_FULL=1.
set(sample "")
if(EVN_SANITIZE)
  set(sample --sample 200)
endif()
evn_python_test(python.onnx_node ${CMAKE_SOURCE_DIR}/tests/conformance/onnx_node/run.py ${sample})
evn_pytest(binding bindings/python/tests)
# A process takes 0.3 s to start with the sanitizers, and each of the command's tests starts one: a third of them in turn.
set(shares "")
if(EVN_SANITIZE)
  set(shares -p turn --shares 3)
endif()
evn_pytest(cli tests/cli ${shares})
evn_pytest(examples tests/examples)
evn_long_pytest(training tests/training -p turn --shares 2)  # the tests of trainers in C++ run each time
set(models ${CMAKE_SOURCE_DIR}/tests/models)
set(last 1)
set(shares --shares 2)  # half of them, in turn
if(EVN_SANITIZE)  # more than an hour in all
  set(last 7)
  set(shares "")
endif()
math(EXPR parts "${last} + 1")
foreach(part RANGE ${last})
  evn_long_pytest(models.${part} tests/models --ignore=${models}/test_differential.py --ignore=${models}/test_kernels.py
    --ignore=${models}/test_cuts.py -p turn --share ${part}/${parts} ${shares})
endforeach()
evn_long_pytest(cuts tests/models/test_cuts.py)
set_tests_properties(python.cuts PROPERTIES TIMEOUT 14400)
foreach(share 0 1 2 3)  # of the operators, side by side
  evn_long_pytest(differential.${share} tests/models/test_differential.py ${models}/test_kernels.py)
  set_tests_properties(python.differential.${share} PROPERTIES TIMEOUT 14400)
  set_property(TEST python.differential.${share} APPEND PROPERTY ENVIRONMENT EVN_SHARE=${share}/4)
  if(EVN_SANITIZE)  # fewer than the 10,000 of a release build, as in the C++ tests
    set_property(TEST python.differential.${share} APPEND PROPERTY ENVIRONMENT EVN_DIFFERENTIAL_CASES=1000)
  endif()
endforeach()
if(EVN_SANITIZE)
  set_property(TEST python.cuts APPEND PROPERTY ENVIRONMENT EVN_CUTS=200)  # fewer than the 5,000 of a release build
  evn_pytest(ocr tests/models/test_ocr.py ${models}/test_models.py -k "ocr or det or cls or rec or lines")
else()  # what is shipped, and what stands beside the library
  evn_pytest(install tests/install)
  evn_pytest(abi tests/abi)
  evn_pytest(scripts tests/python)
endif()
