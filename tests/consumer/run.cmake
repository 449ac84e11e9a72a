# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# Configures, builds and runs the consumer project. -DWAY= -DSOURCE= -DBUILD= -DWORK= -DGENERATOR=
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(result)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
set(arguments -DWAY=${WAY} -DPVM_SOURCE=${SOURCE} -DCMAKE_BUILD_TYPE=Release)
if(WAY STREQUAL "find_package")
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed)
  list(APPEND arguments -DCMAKE_PREFIX_PATH=${WORK}/installed)
endif()
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer -B ${WORK}/build -G ${GENERATOR} ${arguments})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer ${SOURCE}/model_zoo/tiny.json)
