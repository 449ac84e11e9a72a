# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# Builds and runs a consumer project. -DWAY= -DSOURCE= -DBUILD= -DWORK= -DGENERATOR= -DCOMPILER=
#   find_package      the installed tree, with pvm::io
#   compiled          the installed tree, with pvm::io and pvm::compiled, without nvcc
#   plain             the installed tree, headers alone, no CUDA and no other package, and compiled
#                     for this processor: what is inlined into the kernels must suit them
#   cuda              the installed tree, headers alone, by nvcc
#   pkg-config        as plain, by pkg-config, without CMake
#   add_subdirectory  the source tree
#   fetch             FetchContent from a local path, with pvm::compiled
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(result)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
set(project ${SOURCE}/tests/consumer)
set(arguments -DWAY=${WAY} -DPVM_SOURCE=${SOURCE} -DCMAKE_BUILD_TYPE=Release
              -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DCMAKE_CXX_COMPILER=${COMPILER})  # sooner there
if(WAY MATCHES "find_package|compiled|plain|cuda|pkg-config")
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed)
  list(APPEND arguments -DCMAKE_PREFIX_PATH=${WORK}/installed)
endif()
if(WAY MATCHES "plain|cuda|fetch")
  set(project ${SOURCE}/tests/consumer/${WAY})
endif()

if(WAY STREQUAL "pkg-config")
  set(ENV{PKG_CONFIG_PATH} ${WORK}/installed/share/pkgconfig)
  execute_process(COMMAND pkg-config --cflags --libs pvm OUTPUT_VARIABLE flags RESULT_VARIABLE result
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(result)
    message(FATAL_ERROR "pkg-config does not find pvm")
  endif()
  separate_arguments(flags UNIX_COMMAND "${flags}")
  run(${COMPILER} -O1 ${project}/plain/main.cpp ${flags} -o ${WORK}/consumer)
  run(${WORK}/consumer)
  return()
endif()

if(WAY STREQUAL "plain")
  list(APPEND arguments -DCMAKE_CXX_FLAGS=-march=native)
endif()
if(WAY STREQUAL "fetch")
  list(APPEND arguments -DPVM_CUDA=OFF)  # kernels take minutes
endif()

run(${CMAKE_COMMAND} -S ${project} -B ${WORK}/build -G ${GENERATOR} ${arguments})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer ${SOURCE}/model_zoo/tiny.json)
