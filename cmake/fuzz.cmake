# SPDX-License-Identifier: Apache-2.0
# Builds every fuzz target; scripts/test runs each for a few seconds.
add_custom_target(fuzzers)

# tugline_fuzz(NAME SOURCES ... LIBRARIES ...): a program around LLVMFuzzerTestOneInput. With TUGLINE_FUZZ it is a
# libFuzzer program; in every other build it is a test that replays the kept corpus, tests/fuzz/corpus/<name>.
function(tugline_fuzz name)
  cmake_parse_arguments(F "" "" "SOURCES;LIBRARIES" ${ARGN})
  set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
  if(TUGLINE_FUZZ)
    add_executable(${name} ${F_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzzers)
    add_dependencies(fuzzers ${name})
  else()
    add_executable(${name} ${F_SOURCES} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cpp)
    add_test(NAME ${name} COMMAND ${name} ${corpus})
    set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 120)
    if(TUGLINE_SANITIZE)
      set_tests_properties(${name} PROPERTIES LABELS "fuzz;sanitized")
      add_dependencies(sanitized_tests ${name})
    endif()
  endif()
  target_link_libraries(${name} PRIVATE tugline_flags ${F_LIBRARIES})
endfunction()
