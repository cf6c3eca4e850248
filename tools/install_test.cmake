# Installs a build into an empty prefix, then builds and runs examples/ against
# it, as a user of the library would.
#   cmake -DBUILD_DIR=... -DSOURCE_DIR=... -DMODEL=... -P install_test.cmake
set(work "${BUILD_DIR}/install_test")
file(REMOVE_RECURSE "${work}")

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${work}/prefix")
run("${CMAKE_COMMAND}" -S "${SOURCE_DIR}/examples" -B "${work}/examples"
    "-DCMAKE_PREFIX_PATH=${work}/prefix" -DCMAKE_BUILD_TYPE=Release)
run("${CMAKE_COMMAND}" --build "${work}/examples")
run("${work}/examples/generate" "${MODEL}" "${SOURCE_DIR}/CONTRIBUTING.md")
run("${work}/prefix/bin/lkv" --version)
