# Brings in llama.cpp (libllama and ggml) from its source tree as static
# libraries: GGUF, quantisation formats, tokenizer, sampler, grammar, and the
# whole engine as a test oracle. One way only, so that every build uses the
# same pinned code.
if(NOT EXISTS "${LKV_LLAMA_CPP_DIR}/CMakeLists.txt")
  message(FATAL_ERROR
    "llama.cpp source not found in ${LKV_LLAMA_CPP_DIR}; run scripts/setup.sh "
    "or pass -DLKV_LLAMA_CPP_DIR=<its source tree>")
endif()

foreach(part TOOLS TESTS EXAMPLES SERVER COMMON APP UI)
  set(LLAMA_BUILD_${part} OFF CACHE INTERNAL "")
endforeach()
# A preempted libgomp barrier costs a scheduler tick (4 ms) per operation.
set(GGML_OPENMP OFF CACHE INTERNAL "")
set(GGML_NATIVE OFF CACHE INTERNAL "")
set(BUILD_SHARED_LIBS OFF)
# AddressSanitizer watches llama.cpp too; what UndefinedBehaviorSanitizer finds
# there is not ours to fix and must not stop our tests.
get_directory_property(lkv_compile_options COMPILE_OPTIONS)
if(LKV_SANITIZE)
  add_compile_options(-fno-sanitize=undefined)
endif()
add_subdirectory("${LKV_LLAMA_CPP_DIR}" llama.cpp EXCLUDE_FROM_ALL SYSTEM)
set_directory_properties(PROPERTIES COMPILE_OPTIONS "${lkv_compile_options}")
