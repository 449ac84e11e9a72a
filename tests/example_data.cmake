# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# In the working directory: frames.zip, clip.avi, pictures/, classes/, run_000000400.safetensors, run.jsonl.
# -DCLIPS=make_clips -DPVM=pvm -DSPEC=
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(result)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()

file(REMOVE_RECURSE frames.zip pictures classes)
run(${CLIPS})
run(${PVM} -q --write-zip frames.zip --frames 60 -S ${SPEC})
run(${PVM} -q --backend host -S ${SPEC} -f frames.zip -n 400 -o run
    --metrics run.jsonl --interval 50)
