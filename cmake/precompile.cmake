# How fast a build is, and nothing of what is shipped (docs/decisions/0049). With ccache, precompiled headers need
# CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime and CCACHE_COMMENTS=1 (scripts/test sets them); without that what includes them is not cached.
option(EVN_QUICK_BUILD "Precompile the common headers, and compile tests as unity builds with little optimization" OFF)

set(EVN_COMMON_HEADERS <algorithm> <atomic> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <mutex> <optional> <set> <span>
  <string> <string_view> <tuple> <utility> <vector>)
set(evn_precompile_options "")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(evn_precompile_options -fpch-preprocess)  # so that ccache sees which precompiled header was used
endif()

# evn_precompile(target, headers beside the common ones...): objects that are compiled with the same options share the first one's. Headers are
# named as <folder/name.h>: with a whole path what includes them would be compiled again in every checkout.
function(evn_precompile target)
  evn_precompile_alone(${target} ${EVN_COMMON_HEADERS} ${ARGN})
endfunction()
# evn_precompile_alone(target, headers...): without the common ones.
function(evn_precompile_alone target)
  if(EVN_QUICK_BUILD)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    target_compile_options(${target} PRIVATE ${evn_precompile_options})
  endif()
endfunction()
# evn_precompile_as(target, first, headers of first...)
function(evn_precompile_as target first)
  if(target STREQUAL first)
    evn_precompile(${target} ${ARGN})
  elseif(EVN_QUICK_BUILD)
    target_precompile_headers(${target} REUSE_FROM ${first})
    target_compile_options(${target} PRIVATE ${evn_precompile_options})
  endif()
endfunction()

# evn_compile_together(target): a unity build, as most of a compiler's time goes into what each source instantiates again. Sources of a table, which
# name their rows alike, are compiled by themselves (SKIP_UNITY_BUILD_INCLUSION); others of a target may not name two things alike.
function(evn_compile_together target)
  if(EVN_QUICK_BUILD)
    # Sources of a unity build see each other's names, and gcc takes them for headers: -Wshadow and -Wsubobject-linkage would warn of both.
    target_compile_options(${target} PRIVATE -Wno-shadow $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()
# evn_compile_little(target): for instrumented code in which tests spend little of their time, which takes a compiler longest.
function(evn_compile_little target)
  if(EVN_QUICK_BUILD)
    target_compile_options(${target} PRIVATE -O0)
    evn_compile_together(${target})
  endif()
endfunction()
