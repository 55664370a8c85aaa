#!/bin/sh
# Compiles the glue of the Java package into a folder by platform, and puts the library beside it, where it is given.
#
# usage: build.sh JAVA_HOME OUTPUT [BUILD]      (BUILD: a folder with libevener.so)
#
# CC and CFLAGS say how; EVENER_PLATFORM (linux-x86_64, linux-aarch64) for what, where CC is a cross-compiler.
set -eu
here=$(dirname "$0")
folder="$2/${EVENER_PLATFORM:-linux-$(uname -m)}"
mkdir -p "$folder"
# shellcheck disable=SC2086
${CC:-cc} -std=c11 -O2 -fPIC -fvisibility=hidden -Wall -Wextra -Werror ${CFLAGS:-} -shared -I"$1/include" -I"$1/include/linux" \
  -o "$folder/libevener_java.so" "$here/glue.c" "$here/raw_objects.c" "$here/raw_runs.c" "$here/raw_layout.c" -ldl -lpthread
rm -f "$folder/libevener.so" # of an earlier build
if [ -n "${3:-}" ]; then cp -L "$3/libevener.so" "$folder/libevener.so"; fi
