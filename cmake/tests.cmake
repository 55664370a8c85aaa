# One test program per folder of tests/ that mirrors src/; it links the folders of src/ that its name names, and those below.
find_package(GTest REQUIRED)

# Processes that divide a program's tests: one for each test would take minutes to start them all, with a sanitizer 0.3 s each.
set(EVN_TEST_SHARDS 8)
set(EVN_TEST_TIMEOUT 1800)  # seconds a process
if(EVN_SANITIZED OR CMAKE_CROSSCOMPILING_EMULATOR)
  set(EVN_TEST_TIMEOUT 7200)
endif()

# Where programs are run by an emulator, those that tests start are as well: by scripts that start it, which any system can run.
if(CMAKE_CROSSCOMPILING_EMULATOR)
  list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
  file(WRITE ${CMAKE_BINARY_DIR}/emulated "#!/bin/sh\nexec ${emulator} \"$@\"\n")
  file(WRITE ${CMAKE_BINARY_DIR}/emulated_evener "#!/bin/sh\nexec ${emulator} ${CMAKE_BINARY_DIR}/evener \"$@\"\n")
  file(CHMOD ${CMAKE_BINARY_DIR}/emulated ${CMAKE_BINARY_DIR}/emulated_evener
    PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
endif()

# Tests are compiled as fast as can be: what they test is compiled as it is shipped, in libraries.
set(EVN_TEST_OPTIONS "")
if(EVN_QUICK_BUILD)
  # Sources of a unity build see each other's names, and gcc takes them for headers: -Wshadow and -Wsubobject-linkage would warn of both.
  set(EVN_TEST_OPTIONS $<IF:$<BOOL:${EVN_SANITIZED}>,-O0,$<$<CONFIG:Release,RelWithDebInfo>:-O1>> $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage> -Wno-shadow)
endif()

# The few that read files of the tree. Others know no path, so that a compiler cache serves every checkout.
set(read_the_tree ${CMAKE_SOURCE_DIR}/tests/fault/functions_test.cc ${CMAKE_SOURCE_DIR}/tests/config/schema_test.cc)
set_source_files_properties(${read_the_tree} PROPERTIES COMPILE_DEFINITIONS EVN_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/api/probe_test.cc PROPERTIES COMPILE_DEFINITIONS EVN_BINARY_DIR="${CMAKE_BINARY_DIR}")

# lld takes half of the time that GNU ld does. The library is linked by the compiler's own linker.
set(EVN_TEST_LINK_OPTIONS "")
find_program(EVN_LLD NAMES ld.lld-19 ld.lld-18 ld.lld-17 ld.lld-16 ld.lld-15 ld.lld)
if(EVN_LLD)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lld)
  file(CREATE_LINK ${EVN_LLD} ${CMAKE_BINARY_DIR}/lld/ld.lld SYMBOLIC)
  set(EVN_TEST_LINK_OPTIONS -fuse-ld=lld -B${CMAKE_BINARY_DIR}/lld)
endif()

# How tests are compiled, in programs and in what several of them link: in a unity build, whose batches have the names of their anonymous
# namespaces in common.
function(evn_compile_test target)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${target} PRIVATE ${EVN_TEST_OPTIONS})
  if(EVN_QUICK_BUILD)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
    target_link_options(${target} PRIVATE ${EVN_TEST_LINK_OPTIONS})
  endif()
endfunction()

# An object library that test programs link, or whose precompiled headers they use: compiled as executables are.
function(evn_add_test_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_link_libraries(${name} PRIVATE GTest::gtest)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF EXCLUDE_FROM_ALL ON)
  target_compile_options(${name} PRIVATE -fPIE)
  evn_compile_test(${name})
endfunction()
if(EVN_QUICK_BUILD)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/test_headers.cc CONTENT "")
  evn_add_test_objects(evn_test_headers ${CMAKE_BINARY_DIR}/generated/test_headers.cc)
  evn_precompile(evn_test_headers <gtest/gtest.h> <ops/op.h>)
endif()

# evn_test_objects(name, sources...): what several test programs link, compiled once.
function(evn_test_objects name)
  evn_add_test_objects(${name} ${ARGN})
  evn_precompile_as(${name} evn_test_headers)
endfunction()

# Programs of a run of scripts/test that tests the others with another build, or at another time.
set(EVN_TEST_ONLY "" CACHE STRING "Names of the test programs that are built, python for the tests in Python; empty: all of them")
set(EVN_TEST_NOT "" CACHE STRING "Names of test programs that are not built")

function(evn_is_chosen out name)
  set_property(GLOBAL APPEND PROPERTY EVN_TEST_NAMES ${name})
  if((EVN_TEST_ONLY AND NOT name IN_LIST EVN_TEST_ONLY) OR name IN_LIST EVN_TEST_NOT)
    set(${out} FALSE PARENT_SCOPE)
  else()
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()

# evn_test(name, folder under tests/, libraries...)
function(evn_test name dir)
  evn_is_chosen(chosen ${name})
  if(NOT chosen)
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${dir}/*.cc)
  foreach(library ${ARGN})
    if(NOT TARGET ${library})
      return()
    endif()
  endforeach()
  if(NOT sources)
    return()
  endif()
  list(FILTER sources EXCLUDE REGEX "/tests/conformance/case(s/.*)?\\.cc$")  # evn_cases
  add_executable(test_${name} ${sources} ${CMAKE_SOURCE_DIR}/tests/support/whole_children.cc $<TARGET_OBJECTS:evn_new>)
  evn_compile_test(test_${name})
  target_link_libraries(test_${name} PRIVATE ${ARGN} GTest::gtest GTest::gtest_main)
  if(NOT name STREQUAL "config")  # whose key types have the names of operators' element types
    evn_precompile_as(test_${name} evn_test_headers)
  endif()
  math(EXPR last "${EVN_TEST_SHARDS} - 1")
  foreach(shard RANGE ${last})
    add_test(NAME ${name}.${shard} COMMAND test_${name} --gtest_brief=1)
    set_tests_properties(${name}.${shard} PROPERTIES TIMEOUT ${EVN_TEST_TIMEOUT} LABELS ${name}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${EVN_TEST_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

# The library's operator new, and the conformance tables.
add_library(evn_new OBJECT ${CMAKE_SOURCE_DIR}/src/api/library/new.cc)
file(GLOB cases CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/conformance/cases/*.cc)
evn_test_objects(evn_cases ${cases} ${CMAKE_SOURCE_DIR}/tests/conformance/case.cc)

# The mock backend stands outside src/: nothing there knows it.
include(${CMAKE_SOURCE_DIR}/tests/backends/mock/backend.cmake)
target_link_libraries(evn_mock PUBLIC evn_device)

foreach(layer base core ops memory device model quant)
  evn_test(${layer} ${layer} evn_${layer})
endforeach()
evn_test(config config evn_api)  # with the options of the built-in backends
if(TARGET test_ops AND TARGET evener_image)
  target_compile_definitions(test_ops PRIVATE EVN_IMAGE_BUILT)
endif()
evn_test(graph graph evn_graph evn_model)
# All rows of the operator tables against the clock, on the cases of the conformance tables.
set(EVN_TEST_SHARDS 1)  # most of their time they look for long cases, of which all of them have the same
evn_test(cancellation cancellation evn_graph)
set(EVN_TEST_SHARDS 8)
if(TARGET test_cancellation)
  target_sources(test_cancellation PRIVATE $<TARGET_OBJECTS:evn_cases>)
endif()
# The same rows and cases against the memory limit.
evn_test(limits limits evn_api)
if(TARGET test_limits)
  target_sources(test_limits PRIVATE ${CMAKE_SOURCE_DIR}/tests/cancellation/enlarge.cc ${CMAKE_SOURCE_DIR}/tests/cancellation/more_cases.cc $<TARGET_OBJECTS:evn_cases>)
endif()
evn_test(runtime runtime evn_mock evn_api)
evn_test(api api evn_api)
# How work grows with the size of models, and the stop condition at every stage.
evn_test(work work evn_mock evn_api)
# Drivers that crash, hang or write when they are asked for their devices, and the command that asks them first. The tests in Python use them too.
if(TARGET evener_cli AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(mode 0)
  foreach(icd crashes constructor spins noise exits late)
    math(EXPR mode "${mode} + 1")
    add_library(evn_icd_${icd} MODULE ${CMAKE_SOURCE_DIR}/tests/api/icds/driver.c)
    target_compile_definitions(evn_icd_${icd} PRIVATE EVN_ICD=${mode})
    if(TARGET test_api)
      add_dependencies(test_api evn_icd_${icd})
    endif()
  endforeach()
endif()
if(TARGET test_api AND TARGET evener_cli AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
  add_dependencies(test_api evener_cli)
  if(CMAKE_CROSSCOMPILING_EMULATOR)
    target_compile_definitions(test_api PRIVATE EVN_COMMAND="${CMAKE_BINARY_DIR}/emulated_evener")
  else()
    target_compile_definitions(test_api PRIVATE EVN_COMMAND="$<TARGET_FILE:evener_cli>")
  endif()
endif()
foreach(name base api)  # which start programs
  if(CMAKE_CROSSCOMPILING_EMULATOR AND TARGET test_${name})
    target_compile_definitions(test_${name} PRIVATE EVN_EMULATOR="${CMAKE_BINARY_DIR}/emulated")
  endif()
endforeach()
evn_test(wrapper wrapper evn_api)
# Scheduling on a simulated machine: calls that reach the operating system are redirected to it on simulated threads.
evn_test(simulation simulation evn_api)
if(TARGET test_simulation)
  set(simulated pthread_mutex_lock pthread_mutex_unlock pthread_create pthread_join pthread_detach pthread_self
      _ZN3evn10ThreadPool12parallel_forEllPFvPvillES1_PNS_12ScheduledRunE)
  foreach(name 6now_nsEv 14thread_time_nsEv 12usable_coresEv 10futex_waitEPKjj 14futex_wait_forEPKjjm 14futex_wake_oneEPKj 14futex_wake_allEPKj 5relaxEv 12current_coreEv 10leave_coreEv)
    list(APPEND simulated _ZN3evn2os${name})
  endforeach()
  list(TRANSFORM simulated PREPEND -Wl,--wrap=)
  target_link_options(test_simulation PRIVATE ${simulated})
endif()
evn_test(train train evn_api)
evn_test(fault fault evn_api)
if(TARGET test_fault)  # counts what the library allocates and frees
  target_link_options(test_fault PRIVATE -Wl,--wrap=_ZN3evn14allocate_bytesEmm,--wrap=_ZN3evn10free_bytesEPv)
endif()
set(seconds_a_test ${EVN_TEST_TIMEOUT})
set(EVN_TEST_TIMEOUT 7200)  # their long forms, under a sanitizer too
foreach(backend ${EVN_BACKENDS})
  evn_test(${backend} backends/${backend} evn_${backend} evn_cpu)  # the reference
endforeach()
evn_test(fuzz fuzz evn_api)
# Random calls of all exported functions, with callers that are made from the description of the API: 20 seconds, with
# EVN_TEST_FULL=1 and a sanitizer ten minutes of each of six seeds.
evn_is_chosen(chosen api_fuzz)
if(TARGET evn_api AND chosen)
  set(calls ${CMAKE_BINARY_DIR}/generated/api_fuzz)
  file(MAKE_DIRECTORY ${calls})
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/evener/*.h)
  add_custom_command(OUTPUT ${calls}/calls.inc BYPRODUCTS ${calls}/calls_kinds.inc ${calls}/calls_releases.inc
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/api_fuzz/make_calls.py ${calls}
    DEPENDS ${CMAKE_SOURCE_DIR}/tests/api_fuzz/make_calls.py ${CMAKE_SOURCE_DIR}/bindings/description.py ${headers})
  add_executable(api_fuzz tests/api_fuzz/api_fuzz.cc tests/api_fuzz/arguments.cc tests/api_fuzz/handles.cc tests/api_fuzz/models.cc
    tests/api_fuzz/options.cc tests/api_fuzz/scenes.cc ${calls}/calls.inc $<TARGET_OBJECTS:evn_new>)
  target_include_directories(api_fuzz PRIVATE ${CMAKE_SOURCE_DIR} ${calls})
  target_compile_options(api_fuzz PRIVATE ${EVN_TEST_OPTIONS})
  target_link_libraries(api_fuzz PRIVATE evn_api)
  add_test(NAME api_fuzz.0 COMMAND api_fuzz)
  set(more_seeds "")
  if(EVN_SANITIZED)
    set(more_seeds 1 2 3 4 5)
  endif()
  foreach(seed ${more_seeds})
    add_test(NAME api_fuzz.${seed} COMMAND api_fuzz --full-only --seed 10${seed})
  endforeach()
  foreach(seed 0 ${more_seeds})
    set_tests_properties(api_fuzz.${seed} PROPERTIES TIMEOUT 7200 LABELS api_fuzz SKIP_REGULAR_EXPRESSION "skipped: set EVN_TEST_FULL=1")
  endforeach()
endif()
evn_test(conformance conformance evn_mock evn_api)
if(TARGET test_conformance)
  target_sources(test_conformance PRIVATE $<TARGET_OBJECTS:evn_cases>)
  # Notes which attributes the library reads: tests/conformance/attributes_test.cc.
  foreach(reader 8attr_int 10attr_float 11attr_stringB5cxx11 9attr_ints 11attr_floats 12attr_stringsB5cxx11 11attr_tensor 10attr_given)
    target_link_options(test_conformance PRIVATE -Wl,--wrap=_ZN3evn${reader}ERKNS_4NodeEi)
  endforeach()
endif()
set(EVN_TEST_TIMEOUT ${seconds_a_test})
if(NOT EVN_SANITIZE_THREAD)  # it stands before ThreadSanitizer's own pthread_create and read
  evn_test(interpose interpose evn_api)
endif()

evn_is_chosen(chosen_python python)
get_property(names GLOBAL PROPERTY EVN_TEST_NAMES)
foreach(name ${EVN_TEST_ONLY})
  if(NOT name IN_LIST names)
    message(FATAL_ERROR "EVN_TEST_ONLY: there is no test program ${name}; there are ${names}")
  endif()
endforeach()

# What the tests in Python and scripts/make_operators.py know of the operator tables.
if(TARGET evn_api)
  add_executable(list_operators ${CMAKE_SOURCE_DIR}/tests/tools/list_operators.cc $<TARGET_OBJECTS:evn_new>)
  target_include_directories(list_operators PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(list_operators PRIVATE evn_api)
endif()

# What tests/models/test_quiet.py runs. Sanitizers have a malloc and system calls of their own.
if(TARGET evener AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT EVN_SANITIZED)
  add_executable(quiet_run ${CMAKE_SOURCE_DIR}/tests/tools/quiet_run.c)
  target_link_libraries(quiet_run PRIVATE evener)
  target_compile_options(quiet_run PRIVATE -fno-builtin-malloc)
endif()

# The tests again with each instruction set, chosen by EVN_CPU_ISA; one that the machine lacks is skipped. Tests with random cases and
# cancellation tests go through all instruction sets by themselves and are left out. The CPU's tests also run with the extensions of the
# clusters, but not under the sanitizers, which make them several times slower. As the tests force each instruction set themselves, all of
# these runs are long forms.
function(evn_test_by_isa program)
  if(TARGET test_${program})
    foreach(isa ${ARGN})
      add_test(NAME ${program}.${isa} COMMAND test_${program} --gtest_brief=1 --gtest_filter=-*Drawn*:*Exhaustive*:Cancelled.*:Isas/*:*JoinedRows*)
      set_tests_properties(${program}.${isa} PROPERTIES TIMEOUT 1800 ENVIRONMENT "EVN_CPU_ISA=${isa};EVN_LONG_FORM=1"
        SKIP_REGULAR_EXPRESSION "this CPU has no ${isa};set EVN_TEST_FULL=1 for one more run")
    endforeach()
  endif()
endfunction()
evn_test_by_isa(conformance ${EVN_ISAS})
if(NOT EVN_SANITIZED)
  evn_test_by_isa(cpu ${EVN_ISAS} ${EVN_ISA_EXTENSIONS})
endif()

# The objects of each instruction-set cluster export one symbol each.
if(TARGET evn_simd_baseline_o2)
  add_test(NAME simd.symbols COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/check_simd_symbols.py ${CMAKE_BINARY_DIR})
endif()

# What is tested from outside: the Python binding, the command, the installed library, real models. EVN_PYTHON is an interpreter
# with the packages of scripts/requirements.txt; scripts/test sets it.
set(EVN_PYTHON "" CACHE FILEPATH "Python with the test packages; empty: the tests in Python are not registered")
if(EVN_PYTHON AND chosen_python AND TARGET evener AND NOT EVN_SANITIZE_THREAD)
  include(cmake/python_tests.cmake)
endif()
