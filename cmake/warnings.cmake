# SPDX-License-Identifier: Apache-2.0
# Flags that every target of the project gets: warnings are errors, sanitizers by option.
add_library(tugline_flags INTERFACE)
target_compile_options(tugline_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  # Designated initialisers leave fields out on purpose: that is what defaults are for.
  -Wno-missing-field-initializers
  -fno-math-errno)
if(TUGLINE_SANITIZE)
  target_compile_options(tugline_flags INTERFACE -fsanitize=${TUGLINE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(tugline_flags INTERFACE -fsanitize=${TUGLINE_SANITIZE})
endif()
