# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# pvm on a bare system: the two commands of the README, without a GPU.
#     docker build -f .ci/docker/plain.Dockerfile -t pvm .
#     docker run --rm -v "$PWD/runs:/pvm/runs" pvm
FROM debian:12
WORKDIR /pvm
COPY . .
RUN .ci/install-packages
RUN tests/run.sh
CMD ["examples/first_steps.sh"]
