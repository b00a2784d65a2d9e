# SPDX-License-Identifier: Apache-2.0
# tugline_floor(NAME SOURCES ... LIBRARIES ... PUBLIC ...): one folder of src/ as a static library that
# the tests link and that libtugline.so is made of. PUBLIC names the lower floors it stands on.
function(tugline_floor name)
  cmake_parse_arguments(FLOOR "" "" "SOURCES;LIBRARIES;PUBLIC" ${ARGN})
  add_library(tugline_${name} STATIC ${FLOOR_SOURCES})
  target_include_directories(tugline_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(tugline_${name} PUBLIC ${FLOOR_PUBLIC} Threads::Threads
                                        PRIVATE tugline_flags ${FLOOR_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY TUGLINE_FLOORS tugline_${name})
  set_property(GLOBAL APPEND PROPERTY TUGLINE_FLOOR_LIBRARIES ${FLOOR_LIBRARIES})
endfunction()

# Builds every test that the sanitizer builds run.
add_custom_target(sanitized_tests)
# Builds what TUGLINE_CUDA adds: the library and its tests (label gpu).
add_custom_target(cuda_parts)

# tugline_test(NAME SOURCES ... LIBRARIES ... LABELS ... TIMEOUT seconds): a GoogleTest program, one CTest entry.
# Labels: unit, property, contract, process, fuzz say what kind it is; no-asan and no-tsan keep it out of that
# build; gpu says that it needs a GPU, without which it says so and ends well; tsan takes a process test (kept out
# otherwise, because it forks threads away) into the TSan build.
function(tugline_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE tugline_flags ${T_LIBRARIES} GTest::gmock GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  tugline_quick_to_compile(${name} ${T_LABELS})
  if(TUGLINE_SANITIZE)
    tugline_sanitized_test(${name} "${T_LABELS}")
    math(EXPR T_TIMEOUT "${T_TIMEOUT} * 3")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}")
  if("gpu" IN_LIST T_LABELS)
    add_dependencies(cuda_parts ${name})
  endif()
  # CTest starts with those that cost most, lest one of them runs alone in the end.
  if("property" IN_LIST T_LABELS)
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endfunction()

# The library is optimised, not what is around it: that runs in no time, and compiling it takes twice as long with -O2 -g
# as with -O1 -g1, in sanitizer builds three times as long with -O1 as with -O0. Property tests compute for long.
function(tugline_quick_to_compile target)
  if("property" IN_LIST ARGN)
    return()
  elseif(TUGLINE_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1;-g1>)
  endif()
endfunction()

# Adds the label `sanitized` to a test that this sanitizer build runs, and builds it with sanitized_tests.
function(tugline_sanitized_test name labels)
  if(TUGLINE_SANITIZE MATCHES "thread")
    if("no-tsan" IN_LIST labels OR ("process" IN_LIST labels AND NOT "tsan" IN_LIST labels))
      return()
    endif()
  elseif("no-asan" IN_LIST labels)
    return()
  endif()
  add_dependencies(sanitized_tests ${name})
  set(T_LABELS ${labels} sanitized PARENT_SCOPE)
endfunction()
