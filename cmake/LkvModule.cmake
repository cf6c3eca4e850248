# lkv_module(<folder> [SOURCES a.cc ...] [DEPENDS folder ...] [LIBRARIES ...]
#            [TESTS a_test.cc ...] [TEST_LIBRARIES ...])
#
# One static library lkv_<folder> per source folder, so that the layer table
# holds at link time too, and one test binary <folder>_test from the x_test.cc
# files that stand beside the code. Without SOURCES the folder is headers only.
# LIBRARIES are third-party targets that only this folder may include.
function(lkv_module folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LIBRARIES;TESTS;TEST_LIBRARIES"
                        ${ARGN})
  set(target lkv_${folder})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE ${ARG_LIBRARIES})
    target_compile_options(${target} PRIVATE -Wall -Wextra -Werror)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope}
    "${PROJECT_SOURCE_DIR}/src"
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>")
  list(TRANSFORM ARG_DEPENDS PREPEND lkv_ OUTPUT_VARIABLE depends)
  target_link_libraries(${target} ${scope} ${depends})

  if(LKV_BUILD_TESTS AND ARG_TESTS)
    add_executable(${folder}_test ${ARG_TESTS})
    target_compile_options(${folder}_test PRIVATE -Wall -Wextra -Werror)
    target_link_libraries(${folder}_test PRIVATE ${target} lkv_testing
      ${ARG_TEST_LIBRARIES} GTest::gtest GTest::gtest_main)
    target_compile_definitions(${folder}_test PRIVATE
      LKV_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
      LKV_LLAMA_CPP_DIR="${LKV_LLAMA_CPP_DIR}")
    add_test(NAME ${folder} COMMAND ${folder}_test)
  endif()
endfunction()
