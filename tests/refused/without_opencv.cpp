// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// says: pvm reads pictures and videos with OpenCV, which is not found
// (These programs are compiled without the include directories of pvm::io.)
#include <pvm/io/video.hpp>

int main() { pvm::io::Video video{"clip.avi"}; }
