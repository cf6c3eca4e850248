# Applies LKV_SANITIZE to everything built after this point, llama.cpp
# included: a hostile GGUF file is read by ggml before our own checks see it.
if(LKV_SANITIZE)
  add_compile_options(-fsanitize=${LKV_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LKV_SANITIZE})
endif()
