# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

"""Clients of the live page that mean no good: python3 live_hostile_test.py PVM SPEC.

The run goes on, its memory does not grow, and the page answers afterwards."""

import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

pvm, spec = sys.argv[1:3]
work = tempfile.mkdtemp()
process = subprocess.Popen([pvm, "-S", spec, "-n", "1000000000", "--interval", "1000000000", "-o",
                            work + "/run", "--live"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
for line in process.stdout:
    if "no live page" in line:
        print("SKIPPED: " + line.strip())
        sys.exit(0)
    found = re.search(r"live page: (http://127.0.0.1:(\d+)/\?token=(\S+))", line)
    if found:
        url, port, token = found[1], int(found[2]), found[3]
        break


def send(data, wait=0.5):
    """What is answered to these bytes, as far as it comes in time."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.settimeout(wait)
        answer = b""
        try:
            connection.sendall(data)
            while len(answer) < 100_000:
                part = connection.recv(65536)
                if not part:
                    break
                answer += part
        except OSError:
            pass
        return answer


def memory():
    with open(f"/proc/{process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def step():
    done = subprocess.run([pvm, "ctl", url, "status"], capture_output=True, text=True)
    assert done.returncode == 0, done
    return json.loads(done.stdout)["step"]


def request(path="/status", method="GET", more=""):
    return (f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Pvm-Token: {token}\r\n{more}"
            "\r\n").encode()


try:
    assert b"200 OK" in send(request(more="Connection: close\r\n"), 3)
    first, memory_before = step(), memory()

    # Too much of something: nothing of it is answered as if it were right, and none is collected.
    for name, data in {
            "a line without an end": b"GET /" + b"a" * 5_000_000,
            "a header without an end": request()[:-2] + b"X: " + b"a" * 5_000_000,
            "very many headers": request()[:-2] + b"X: y\r\n" * 500_000 + b"\r\n",
            "a large body": request("/command?text=dream", "POST", "Content-Length: 1000000000\r\n")
            + b"x" * 1_000_000,
    }.items():
        assert b"200 OK" not in send(data, 1) or name == "a large body", name
    chunked = send(request("/status", "GET", "Transfer-Encoding: chunked\r\n") + b"ffffffff\r\n" * 1000, 2)
    assert chunked.count(b"HTTP/1.1") <= 1, "a body was read as requests"
    send(request(more="Range: bytes=" + "0-," * 4000 + "\r\n"), 1)
    send(request(more="Range: bytes=0-1,5-\r\n"), 1)
    assert b"200" not in send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port, 1)[:20]
    assert b"403" in send(request().replace(b"Host: 127.0.0.1", b"Host: pvm.example"), 1)[:20]
    for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/command"):
        assert b"404" in send(request(path), 1)[:20], path
    for text in ("save /etc/x", "record ../x.mp4", "label 1 1 1 1 1 1", "label x absent",
                 "label 1 nan nan nan nan", "label 99999999999999999999 absent", "dream" + "9" * 3000):
        answer = send(request("/command?text=" + text.replace(" ", "%20"), "POST",
                              "Content-Length: 0\r\nConnection: close\r\n"), 3)
        assert b"400" in answer[:20] and b'"ok":false' in answer, (text, answer)

    # Requests with bytes changed at random.
    draw = random.Random(64)
    for _ in range(200):
        data = bytearray(request("/command?text=frames", "POST", "Origin: http://127.0.0.1\r\n"))
        for _ in range(draw.randrange(1, 8)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        send(bytes(data), 0.02)

    # Clients that hold connections and say nothing, or a byte now and then.
    slow = []
    for i in range(60):
        connection = socket.socket()
        connection.settimeout(0.2)
        try:
            connection.connect(("127.0.0.1", port))
            connection.sendall(b"GET / HT"[:i % 8])
        except OSError:
            pass
        slow.append(connection)
    time.sleep(2)
    for connection in slow:
        connection.close()
    time.sleep(1)

    assert process.poll() is None, process.returncode
    assert step() > first
    grown = memory() - memory_before
    assert grown < 64_000_000, f"the memory has grown by {grown} bytes"
    assert sorted(os.listdir(work)) == [], os.listdir(work)
    print("the run has not been impressed")
finally:
    process.kill()
    shutil.rmtree(work, ignore_errors=True)
