# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# Compiles each header alone, without optimising, and prints what it took. The budget is generous:
# it is there to notice that a header has become another kind of header, not to measure a machine.
# -DCOMPILER= -DINCLUDE= -DSYSTEM=
set(budget_core 4000)      # milliseconds: core, model but json.hpp, unit, engine
set(budget_library 30000)  # what includes JSON, OpenCV or libzip

set(system)
foreach(directory ${SYSTEM})
  list(APPEND system -isystem ${directory})
endforeach()
file(GLOB_RECURSE headers RELATIVE ${INCLUDE} ${INCLUDE}/pvm/*.hpp)
list(SORT headers)
set(over)
foreach(header ${headers})
  if(header MATCHES "engine/cuda/")
    continue()
  endif()
  set(budget ${budget_library})
  if(header MATCHES "pvm/(core|model|unit)/" AND NOT header MATCHES "json")
    set(budget ${budget_core})
  endif()
  string(TIMESTAMP second0 "%s")
  string(TIMESTAMP micro0 "%f")
  execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I${INCLUDE} ${system} -x c++
                          ${INCLUDE}/${header} -Wno-pragma-once-outside-header
                  RESULT_VARIABLE result ERROR_VARIABLE words)
  string(TIMESTAMP second1 "%s")
  string(TIMESTAMP micro1 "%f")
  if(result)
    message(FATAL_ERROR "${header}: ${words}")
  endif()
  math(EXPR took "(${second1} - ${second0}) * 1000 + (1${micro1} - 1${micro0}) / 1000")
  message("${took} ms of ${budget}  ${header}")
  if(took GREATER budget)
    list(APPEND over ${header})
  endif()
endforeach()
if(over)
  message(FATAL_ERROR "over their budget: ${over}")
endif()
