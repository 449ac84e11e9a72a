# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# Compiles FILE, which must fail with the sentence that FILE names in its line "// says: ...", and
# with a single sentence of the library. -DCOMPILER= -DINCLUDE= -DFILE=
file(STRINGS ${FILE} says REGEX "^// says: ")
string(REGEX REPLACE "^// says: " "" says "${says}")
execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I${INCLUDE} ${FILE}
                RESULT_VARIABLE result OUTPUT_VARIABLE words ERROR_VARIABLE words)
if(result EQUAL 0)
  message(FATAL_ERROR "${FILE} compiles, and should be refused")
endif()
string(FIND "${words}" "${says}" place)
if(place EQUAL -1)
  message(FATAL_ERROR "refused, but not with '${says}':\n${words}")
endif()
string(REPLACE ";" "," words "${words}")  # a list would be cut there
string(REGEX MATCHALL "error: (static[_ ]assert|#error|\")[^\n]*pvm" sentences "${words}")
list(LENGTH sentences count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "${count} sentences instead of one:\n${words}")
endif()
