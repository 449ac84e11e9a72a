# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# Runs doxygen on the headers and the documents; any warning is a failure. -DDOXYGEN= -DSOURCE= -DOUTPUT=
if(NOT DOXYGEN)
  message("SKIPPED: doxygen is not installed")
  return()
endif()
file(MAKE_DIRECTORY ${OUTPUT})
file(READ ${SOURCE}/docs/Doxyfile settings)
file(WRITE ${OUTPUT}/Doxyfile "${settings}OUTPUT_DIRECTORY = ${OUTPUT}\n")
execute_process(COMMAND ${DOXYGEN} ${OUTPUT}/Doxyfile WORKING_DIRECTORY ${SOURCE}
                RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE words)
string(STRIP "${words}" words)
if(result OR words)
  message(FATAL_ERROR "${words}")
endif()
