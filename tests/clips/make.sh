#!/usr/bin/env bash
# Makes the clips of this directory, which the GPU tests decode: with ffmpeg, libx264, libx265 and libvpx.
# They are kept because the machines that have a GPU may have no encoder.
#     tests/clips/make.sh
set -euo pipefail
cd "$(dirname "$0")"

# clip SIZE SECONDS FLAGS... FILE
clip() {
  local size=$1 seconds=$2
  shift 2
  ffmpeg -v error -y -f lavfi -i "testsrc2=size=$size:rate=25:duration=$seconds,noise=alls=4:allf=t:all_seed=3" \
         -map_metadata -1 -fflags +bitexact -flags +bitexact -threads 1 "$@"
}
h264=(-c:v libx264 -crf 34 -sc_threshold 0)

clip 128x96 22 "${h264[@]}" -crf 40 -g 20 -bf 3 -pix_fmt yuv420p closed.mp4  # IDR pictures: cut into segments
clip 256x144 6 "${h264[@]}" -g 20 -bf 3 -pix_fmt yuv420p -x264-params open-gop=1 open.mkv
clip 256x144 2 "${h264[@]}" -pix_fmt yuvj420p -colorspace bt709 full.mp4   # values 0 to 255
clip 256x144 12 -c:v libx265 -crf 42 -g 20 -x265-params log-level=none:open-gop=0 -pix_fmt yuv420p hevc.mp4
clip 256x144 2 -c:v libvpx-vp9 -crf 45 -b:v 0 -g 20 -pix_fmt yuv420p vp9.mkv
clip 256x144 3 "${h264[@]}" -g 20 -pix_fmt yuv420p first.ts                # a size, and then another
clip 320x180 1 "${h264[@]}" -g 20 -pix_fmt yuv420p second.ts
cat first.ts second.ts > sizes.ts
rm first.ts second.ts
