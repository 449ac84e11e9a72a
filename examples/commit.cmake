# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# Writes OUT, a C++ file that says of which commit the tree SOURCE is, if that has changed:
# cmake -DSOURCE=... -DOUT=... -P commit.cmake. It is empty for a tree that is no clone.
cmake_minimum_required(VERSION 3.25)
set(commit "")
find_package(Git QUIET)
if(Git_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} rev-parse --show-toplevel
                  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH "${SOURCE}" source)
  if(top)
    file(REAL_PATH "${top}" top)
  endif()
  if(top STREQUAL source)  # not that of a project around it
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} describe --always --abbrev=12 --dirty --exclude=*
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT
"extern const char* const pvm_commit;
const char* const pvm_commit = \"@commit@\";
")
