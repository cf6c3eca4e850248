# Brings in GTest::gtest and GTest::gtest_main: the installed library, or for
# another processor, for which distributions install none, one built from the
# source tree LKV_GOOGLETEST_DIR (their package googletest).
if(NOT LKV_GOOGLETEST_DIR)
  find_package(GTest REQUIRED)
  return()
endif()
set(BUILD_GMOCK OFF CACHE INTERNAL "")
set(INSTALL_GTEST OFF CACHE INTERNAL "")
add_subdirectory("${LKV_GOOGLETEST_DIR}" googletest EXCLUDE_FROM_ALL SYSTEM)
