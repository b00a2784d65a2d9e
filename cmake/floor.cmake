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

# tugline_test(NAME SOURCES ... LIBRARIES ... LABELS ...): a GoogleTest program, one CTest entry.
function(tugline_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE tugline_flags ${T_LIBRARIES} GTest::gmock GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}")
endfunction()
