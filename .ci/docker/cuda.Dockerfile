# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# The same with the CUDA toolkit, for machines with an NVIDIA GPU and its container toolkit.
#     docker build -f .ci/docker/cuda.Dockerfile -t pvm-cuda .
#     docker run --rm --gpus all -v "$PWD/runs:/pvm/runs" pvm-cuda
FROM nvidia/cuda:12.6.3-devel-ubuntu24.04
WORKDIR /pvm
COPY . .
RUN .ci/install-packages
RUN tests/run.sh
CMD ["examples/first_steps.sh"]
