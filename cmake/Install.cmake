# What users of the library get: bin/lkv, one shared library that shows the
# classes of include/lookaheadkv and nothing else, its headers, and
# find_package(lookaheadkv) with the target lookaheadkv::lookaheadkv.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(headers engine.h export.h hit_rates.h options.h status.h)
list(TRANSFORM headers PREPEND "${PROJECT_SOURCE_DIR}/include/lookaheadkv/")

add_library(lookaheadkv SHARED)
add_library(lookaheadkv::lookaheadkv ALIAS lookaheadkv)
target_sources(lookaheadkv PUBLIC FILE_SET HEADERS
  BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${headers})
# Whole: nothing inside the library calls its public classes, so the linker
# would leave them out. The other layers follow from what these call.
target_link_libraries(lookaheadkv PRIVATE
  "$<LINK_LIBRARY:WHOLE_ARCHIVE,lkv_eval>")
# llama.cpp is compiled with its own visibility; a program that links another
# copy of it must not meet ours.
target_link_options(lookaheadkv PRIVATE
  "LINKER:--exclude-libs,libllama.a:libggml.a:libggml-base.a:libggml-cpu.a")
set_target_properties(lookaheadkv PROPERTIES
  LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION}
  # Until 1.0 a minor version may break what was linked against the last one.
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
target_compile_features(lookaheadkv INTERFACE cxx_std_20)

set_target_properties(lkv PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

install(TARGETS lkv)
install(TARGETS lookaheadkv EXPORT lookaheadkvTargets FILE_SET HEADERS)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/lookaheadkv")
install(EXPORT lookaheadkvTargets NAMESPACE lookaheadkv::
        DESTINATION "${package_dir}")
configure_package_config_file(cmake/lookaheadkvConfig.cmake.in
  lookaheadkvConfig.cmake INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(lookaheadkvConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/lookaheadkvConfig.cmake"
              "${PROJECT_BINARY_DIR}/lookaheadkvConfigVersion.cmake"
        DESTINATION "${package_dir}")
