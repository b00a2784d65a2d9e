# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` copies: library, headers, command, and how CMake and pkg-config find them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS tugline EXPORT tugline-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TUGLINE_CUDA)
  install(TARGETS tugline_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(TARGETS tugline_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tugline DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tugline)
install(EXPORT tugline-targets NAMESPACE tugline:: DESTINATION ${package_folder})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tugline-config.cmake.in
  ${PROJECT_BINARY_DIR}/tugline-config.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tugline-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tugline-config.cmake ${PROJECT_BINARY_DIR}/tugline-config-version.cmake
  DESTINATION ${package_folder})

# The .pc file lies in <libdir>/pkgconfig and finds its way from there, so that the tree can be moved.
file(RELATIVE_PATH pc_prefix /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
configure_file(${CMAKE_CURRENT_LIST_DIR}/tugline.pc.in ${PROJECT_BINARY_DIR}/tugline.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tugline.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
