# lkv_module(<folder> [SOURCES a.cc ...] [DEPENDS folder ...] [LIBRARIES ...]
#            [TESTS a_test.cc ...] [MODEL_TESTS b_test.cc ...]
#            [TEST_LIBRARIES ...])
#
# One static library lkv_<folder> per source folder, so that the layer table
# holds at link time too, and one test binary <folder>_test from the x_test.cc
# files that stand beside the code. Without SOURCES the folder is headers only.
# LIBRARIES are third-party targets that only this folder may include.
#
# MODEL_TESTS are those that run the real model for more than a second. They
# become <folder>_model_test with the ctest label `model`: sanitizer runs leave
# them out (test.sh --no-model), because ASan makes them ten times slower and
# the same code also runs on small random models.
function(lkv_module folder)
  cmake_parse_arguments(ARG "" ""
    "SOURCES;DEPENDS;LIBRARIES;TESTS;MODEL_TESTS;TEST_LIBRARIES" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR
      "lkv_module(${folder}): unknown words ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  set(target lkv_${folder})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE ${ARG_LIBRARIES})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope}
    "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
  list(TRANSFORM ARG_DEPENDS PREPEND lkv_ OUTPUT_VARIABLE depends)
  target_link_libraries(${target} ${scope} ${depends})

  if(LKV_BUILD_TESTS AND ARG_TESTS)
    lkv_test_binary(${folder} "${ARG_TESTS}" ${target} ${ARG_TEST_LIBRARIES})
  endif()
  if(LKV_BUILD_TESTS AND ARG_MODEL_TESTS)
    lkv_test_binary(${folder}_model "${ARG_MODEL_TESTS}" ${target}
      ${ARG_TEST_LIBRARIES})
    set_property(TEST ${folder}_model PROPERTY LABELS model)
  endif()
endfunction()

# lkv_test_binary(<name> <sources> <library> ...)
#
# A GoogleTest binary <name>_test, run by ctest as <name>. Its own report goes
# to test_reports/<name>.json, where tools/summarise_tests.py counts the cases.
function(lkv_test_binary name sources)
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE ${ARGN} lkv_testing GTest::gtest
    GTest::gtest_main)
  target_compile_definitions(${name}_test PRIVATE
    LKV_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    LKV_LLAMA_CPP_DIR="${LKV_LLAMA_CPP_DIR}")
  add_test(NAME ${name} COMMAND ${name}_test)
  set_property(TEST ${name} PROPERTY ENVIRONMENT
    "GTEST_OUTPUT=json:${PROJECT_BINARY_DIR}/test_reports/${name}.json")
endfunction()

# lkv_instructions(<folder>)
#
# A program <folder>_instructions from instructions_bench.cc, whose counted
# calls tools/check_instructions.py compares with bench/instructions.
function(lkv_instructions folder)
  add_executable(${folder}_instructions instructions_bench.cc)
  target_link_libraries(${folder}_instructions PRIVATE lkv_${folder}
    lkv_testing)
  target_compile_definitions(${folder}_instructions PRIVATE
    LKV_COMPILER="${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
endfunction()
