# Cross-build for 64-bit Arm Linux with Debian's g++-aarch64-linux-gnu, against libraries that scripts/arm64_sysroot unpacks. The C library
# and the compiler's own are the cross-compiler's; the sysroot has them too, for qemu, which runs what is built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(sysroot ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-sysroot ABSOLUTE)
set(EVN_ARM64_SYSROOT ${sysroot} CACHE PATH "Debian's arm64 packages, unpacked by scripts/arm64_sysroot")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES EVN_ARM64_SYSROOT)
if(NOT EXISTS ${EVN_ARM64_SYSROOT}/usr/lib/aarch64-linux-gnu/libyaml-cpp.a)
  message(FATAL_ERROR "${EVN_ARM64_SYSROOT} has no libyaml-cpp.a for aarch64: run scripts/arm64_sysroot, or give -DEVN_ARM64_SYSROOT=FOLDER with one that has it")
endif()
set(CMAKE_FIND_ROOT_PATH ${EVN_ARM64_SYSROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${EVN_ARM64_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${EVN_ARM64_SYSROOT}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${EVN_ARM64_SYSROOT})
# Shared libraries of the sysroot need others of it.
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT -Wl,-rpath-link,${EVN_ARM64_SYSROOT}/usr/lib/aarch64-linux-gnu)
endforeach()

# What runs tests. "max" has every extension that qemu knows.
find_program(EVN_QEMU_AARCH64 qemu-aarch64 NO_CMAKE_FIND_ROOT_PATH)
if(EVN_QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${EVN_QEMU_AARCH64} -cpu max -L ${EVN_ARM64_SYSROOT})
endif()
