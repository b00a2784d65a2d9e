#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_package.sh SOURCE BUILD WORK: installs into a new prefix, moves it, and builds a user's program against it
# by CMake and by pkg-config; looks at the library's name and at what it exports.
set -eu
source=$1 build=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
prefix=$work/prefix

cmake -S "$source/tests/package/consumer" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_BUILD_TYPE=Release >"$work/cmake.log"
cmake --build "$work/cmake" >>"$work/cmake.log"
"$work/cmake/consumer"

pc=$(find "$prefix" -name tugline.pc)
flags=$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --cflags --libs tugline)
# shellcheck disable=SC2086  # flags are words
c++ -std=c++20 "$source/tests/package/consumer/main.cpp" $flags -o "$work/by_pkg_config"
library=$(find "$prefix" -name 'libtugline.so')
LD_LIBRARY_PATH=$(dirname "$library") "$work/by_pkg_config"

soname=$(objdump -p "$library" | awk '$1 == "SONAME" { print $2 }')
[ "$soname" = libtugline.so.0 ] || { echo "the soname is $soname" >&2; exit 1; }
# Only the public surface is exported: nothing of the floors inside, nothing of other libraries.
nm -D --defined-only -C "$library" | cut -d' ' -f3- |
  grep -vE '^((typeinfo|typeinfo name|vtable|VTT) for )?tugline(::|_)' >"$work/foreign" || true
nm -D --defined-only -C "$library" | cut -d' ' -f3- |
  grep -E '^((typeinfo|vtable) for )?tugline::(base|core|comm|broker|topology)::' >>"$work/foreign" || true
nm -D --defined-only -C "$library" | grep -q ' typeinfo for tugline::Error$' ||
  echo "(the typeinfo of tugline::Error is not exported)" >>"$work/foreign"
if [ -s "$work/foreign" ]; then
  echo "libtugline.so exports other than its public surface:" >&2
  cat "$work/foreign" >&2
  exit 1
fi
"$prefix/bin/tugline" --version
