#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

"""What it costs to watch a run: the rate of steps of a plain run; with a live page that nobody looks
at; with one page that is looked at, which asks for 30 pictures a second and for the status, as the
page in a browser does (whose own work is not in it); and with a trace. The kinds of run take turns.

    bench/watch_cost.py build/run/examples/pvm [--rounds 5] -- -S model_zoo/small.json -f clip.avi --steps 20000
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

KINDS = ("plain", "live, nobody looks", "live, one page", "trace")


class Page:
    """Asks a run for what a page shows, until it ends."""

    def __init__(self, url):
        base, token = url.split("?token=")
        self.base, self.headers = base.rstrip("/"), {"X-Pvm-Token": token}
        self.pictures = 0
        for ask in (self.watch_pictures, self.watch_status):
            threading.Thread(target=ask, daemon=True).start()

    def ask(self, path):
        request = urllib.request.Request(self.base + path, headers=self.headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read()

    def watch_pictures(self):
        number = 0
        while True:
            started = time.monotonic()
            try:
                picture = self.ask(f"/picture?after={number}")
            except OSError:
                return  # the run has ended
            if picture:
                number = int.from_bytes(picture[:8], "little")
                self.pictures += 1
            time.sleep(max(0, 0.033 - (time.monotonic() - started)))

    def watch_status(self):
        while True:
            try:
                self.ask("/status")
            except OSError:
                return
            time.sleep(0.2)


def run(kind, pvm, arguments):
    """The median rate of the metrics' intervals but the first, processor seconds, pictures a second."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        command = [pvm, *arguments, "--metrics", metrics, "-o", os.path.join(folder, "out.safetensors")]
        if kind.startswith("live"):
            command += ["--live"]
        if kind == "trace":
            command += ["--trace", os.path.join(folder, "trace.json")]
        before, started = os.times(), time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        page, said = None, []
        for line in process.stdout:
            said.append(line)
            found = re.search(r"http://\S+\?token=\w+", line)
            if found and kind == "live, one page" and page is None:
                page = Page(found[0])
        if process.wait() != 0:
            sys.exit("".join(said))
        took, after = time.monotonic() - started, os.times()
        with open(metrics) as lines:
            rates = [json.loads(line)["fps"] for line in lines][1:]
    if not rates:
        sys.exit("the run has one interval only: give more --steps, or a smaller --interval")
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return statistics.median(rates), seconds, page.pictures / took if page else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pvm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("arguments", nargs="+", help="of pvm, behind --")
    choices = parser.parse_args()
    results = {kind: [] for kind in KINDS}
    for _ in range(choices.rounds):
        for kind in KINDS:
            results[kind].append(run(kind, choices.pvm, choices.arguments))
    plain = results["plain"]
    for kind in KINDS:
        rates, seconds, pictures = zip(*results[kind])
        costs = [100 * (1 - rate / before[0]) for rate, before in zip(rates, plain)]
        print(json.dumps({"run": kind, "frames_per_second": round(statistics.median(rates)),
                          "best": round(max(rates)), "cost_percent": round(statistics.median(costs), 2),
                          "costs": [round(cost, 1) for cost in costs],
                          "processor_seconds": round(statistics.median(seconds), 2),
                          "pictures_a_second": round(statistics.median(pictures), 1)}))


if __name__ == "__main__":
    main()
