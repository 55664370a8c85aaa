# How fast a build is, and nothing of what is shipped (docs/decisions/0049). With ccache, precompiled headers need
# CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime and CCACHE_COMMENTS=1 (scripts/test sets them); without that what includes them is not cached.
option(EVN_QUICK_BUILD "Precompile the common headers, and compile tests as unity builds with little optimization" OFF)

set(EVN_COMMON_HEADERS <algorithm> <atomic> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <mutex> <optional> <set> <span>
  <string> <string_view> <tuple> <utility> <vector>)
set(evn_precompile_options "")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(evn_precompile_options -fpch-preprocess)  # so that ccache sees which precompiled header was used
endif()

# evn_precompile(target, headers beside the common ones...): objects that are compiled with the same options share the first one's.
function(evn_precompile target)
  if(EVN_QUICK_BUILD)
    target_precompile_headers(${target} PRIVATE ${EVN_COMMON_HEADERS} ${ARGN})
    target_compile_options(${target} PRIVATE ${evn_precompile_options})
  endif()
endfunction()
function(evn_precompile_as target first)
  if(EVN_QUICK_BUILD AND NOT target STREQUAL first)
    target_precompile_headers(${target} REUSE_FROM ${first})
    target_compile_options(${target} PRIVATE ${evn_precompile_options})
  endif()
endfunction()
