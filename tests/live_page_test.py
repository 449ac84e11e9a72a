# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

"""Drives the live page in a headless Chromium: python3 live_page_test.py PVM SPEC [DIRECTORY].

With a directory, it saves screenshots there: light, dark, and on a phone."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile

try:
    from selenium import webdriver
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.chrome.service import Service
except ImportError:
    print("SKIPPED: there is no python3-selenium")
    sys.exit(0)
driver_path = shutil.which("chromedriver")
browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
if not driver_path or not browser_path:
    print("SKIPPED: there is no chromium with chromedriver")
    sys.exit(0)

pvm, spec = sys.argv[1:3]
pictures = sys.argv[3] if len(sys.argv) > 3 else None
work = tempfile.mkdtemp()


def until(what, condition, seconds=20):
    end = time.time() + seconds
    while time.time() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


class Run:
    """A run that serves a live page."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [pvm, "-S", spec, "-n", "1000000000", "-o", work + "/run", "--metrics",
             work + "/run.jsonl", "--interval", "200", "--live", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            found = re.search(r"live page: (http://\S+)", line)
            if found:
                self.url = found[1]
                return
            if "no live page" in line:
                print("SKIPPED: " + line.strip())
                sys.exit(0)
        raise AssertionError("the run has not said its address")

    def tell(self, *command):
        done = subprocess.run([pvm, "ctl", self.url, *command], capture_output=True, text=True)
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr

    def fetch(self, path, **headers):
        """The status of a request with the token, and what came."""
        base, token = self.url.split("?token=")
        request = urllib.request.Request(base.rstrip("/") + path,
                                         headers={"X-Pvm-Token": token, **headers})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


monitor = None
run = Run()
options = webdriver.ChromeOptions()
options.binary_location = browser_path
for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                 "--window-size=1280,1000"):
    options.add_argument(argument)
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
browser = webdriver.Chrome(service=Service(driver_path), options=options)


def text(name):
    return browser.find_element(By.ID, name).text


def state():
    return text("state")


def step():
    return int(text("step").replace(",", "").replace("-", "0"))


def picture(name):
    return browser.execute_script("return document.getElementById(arguments[0]).toDataURL()", name)


def click(selector):
    browser.find_element(By.CSS_SELECTOR, selector).click()


def pressed(selector):
    element = browser.find_element(By.CSS_SELECTOR, selector)
    return element.get_attribute("aria-pressed") == "true"


def press(key):
    browser.find_element(By.TAG_NAME, "body").send_keys(key)


def ball():
    """x, y, width and height of the green ball in the input."""
    return browser.execute_script("""
        const canvas = document.getElementById("input"), n = canvas.width;
        const pixels = canvas.getContext("2d").getImageData(0, 0, n, n).data, xs = [], ys = [];
        for (let i = 0; i < n * n; ++i) {
          if (pixels[4 * i + 1] < 2 * Math.max(pixels[4 * i], pixels[4 * i + 2])) continue;
          xs.push(i % n); ys.push(Math.floor(i / n));
        }
        const x = Math.min(...xs), y = Math.min(...ys);
        return [x, y, Math.max(...xs) + 1 - x, Math.max(...ys) + 1 - y];""")


def found_box():
    rectangle = browser.find_element(By.CSS_SELECTOR, "#marks rect")
    return [float(rectangle.get_attribute(name)) for name in ("x", "y", "width", "height")]


def overlap(a, b):
    wide = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    high = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    both = max(wide, 0) * max(high, 0)
    return both / (a[2] * a[3] + b[2] * b[3] - both)


def shoot(name):
    if pictures:
        os.makedirs(pictures, exist_ok=True)
        browser.save_screenshot(f"{pictures}/{name}.png")


try:
    # It opens, and its pictures change.
    browser.get(run.url)
    until("running", lambda: state() == "running")
    until("pictures", lambda: len(browser.find_elements(By.CSS_SELECTOR, "figure")) >= 5)
    until("steps", lambda: step() > 0)
    first, first_step = picture("input"), step()
    until("another picture", lambda: picture("input") != first and step() > first_step)
    until("a score", lambda: "dB" in text("error_detail"))
    outside = browser.execute_script(
        "return performance.getEntriesByType('resource').map(e => e.name)"
        ".filter(n => !n.startsWith(location.origin))")
    assert outside == [], outside

    # Paused, the step counter stands; single steps move it by one; each shows its prediction.
    click("#pause")
    until("paused", lambda: state() == "paused")
    stands = step()
    time.sleep(1)
    assert step() == stands, (step(), stands)
    press("s")
    until("one step more", lambda: step() == stands + 1)
    assert "dB" in text("error_detail"), text("error_detail")
    shown = browser.execute_script("return document.getElementById('prediction').toDataURL()")
    assert shown != picture("input")

    # In a dream the input is the prediction: there is no error.
    press("d")
    until("dream", lambda: pressed("[data-see=dream]"))
    press("s")
    until("a dreamt step", lambda: step() == stands + 2)
    until("no error", lambda: text("error_detail") == "no error")
    assert picture("input") == picture("prediction")
    press("b")
    until("blind spot", lambda: pressed("[data-see=blind-spot]") and not pressed("[data-see=dream]"))
    press("w")
    until("frames", lambda: pressed("[data-see=frames]"))
    press("f")
    until("frozen", lambda: pressed("#freeze"))
    press("f")
    until("not frozen", lambda: not pressed("#freeze"))
    browser.execute_script("const s = document.getElementById('slider'); s.value = -2;"
                           "s.dispatchEvent(new Event('change'))")
    until("the rate", lambda: "rate 0.01 0" in text("facts"))
    click("#by_spec")
    until("no modes", lambda: "modes\nnone" in text("facts"))

    # A box that is drawn around the ball is learned, and the ball is found in other frames.
    before = step()
    press("s")
    until("a frame", lambda: step() == before + 1)
    x, y, width, height = ball()
    marks = browser.find_element(By.ID, "marks")
    scale = marks.size["width"] / 40
    corner = [int((x - 20) * scale), int((y - 20) * scale)]
    (ActionChains(browser).move_to_element_with_offset(marks, *corner).click_and_hold()
     .move_by_offset(int(width * scale / 2), int(height * scale / 2))
     .move_by_offset(int(width * scale / 2), int(height * scale / 2)).release().perform())
    until("learned", lambda: text("said") == "learned: 1 with it, 0 without")
    until("a heatmap", lambda: text("heat_detail").startswith("there, confidence"))
    for _ in range(3):
        click("[data-do='step 100']")
        before = step()
        until("100 steps", lambda: step() == before + 100)
        assert overlap(found_box(), ball()) > 0.3, (found_box(), ball())
    # The keyboard's way: a box in numbers, and a label that says that it is not there.
    click("#absent")
    until("absent", lambda: text("said") == "learned: 1 with it, 1 without")
    browser.find_element(By.ID, "box").send_keys(" ".join(map(str, ball())) + "\n")
    until("another label of the same frame", lambda: text("said") == "learned: 2 with it, 0 without")
    click("[data-do=save-labels]")
    until("saved labels", lambda: text("said").endswith("_labels.zip"))
    with zipfile.ZipFile(text("said").split(": ")[1]) as labels:
        lines = labels.read("labels.txt").decode().split()
        assert len(lines) == 2 and len(labels.namelist()) == 3, (lines, labels.namelist())

    # Keep: the files are there, under names of the run's own.
    click("[data-do=snapshot]")
    until("a snapshot", lambda: text("said").endswith(".png"))
    assert os.path.exists(text("said").split(": ")[1])
    click("[data-do=save]")
    until("a checkpoint", lambda: text("said").endswith(".safetensors"))
    press(" ")
    until("running again", lambda: state() == "running")
    click("#record")
    until("recording", lambda: pressed("#record"))
    time.sleep(0.5)
    click("#record")
    until("recorded", lambda: not pressed("#record"))
    assert any(name.endswith(".mp4") for name in os.listdir(work)), os.listdir(work)

    # The console gives the same commands.
    code, answer = run.tell("status")
    assert code == 0 and answer["step"] > 0 and answer["modes"] == "", answer
    code, answer = run.tell("dream", "5")
    assert code == 1 and "there is no sequence 5" in answer["error"], answer
    code, answer = run.tell("blind-spot", "0", "0", "3", "3")
    assert code == 0 and answer["modes"] == "blind-spot 0 0 0 3 3", answer
    run.tell("frames")

    # Reloaded, the page goes on.
    browser.refresh()
    until("running after a reload", lambda: state() == "running" and step() > 0)

    if pictures:
        time.sleep(8)  # some points for the curve
        for name, scheme, width in (("light", "light", 1280), ("dark", "dark", 1280), ("phone", "light", 390)):
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": 1000 if width > 500 else 2600,
                                     "deviceScaleFactor": 1, "mobile": width < 500})
            time.sleep(1.5)
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, f"{name}: {wide} pixels wide"
            shoot(name)
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    # The server is silent, and comes back.
    run.process.send_signal(signal.SIGSTOP)
    until("lost", lambda: state().startswith("connection lost"))
    run.process.send_signal(signal.SIGCONT)
    until("found again", lambda: state() == "running")

    # Who has no token, another name or another page is not let in.
    assert run.fetch("/status")[0] == 200
    assert run.fetch("/status", **{"X-Pvm-Token": "0" * 32})[0] == 403
    assert run.fetch("/status", Host="example.org:80")[0] == 403
    assert run.fetch("/status", Origin="http://example.org")[0] == 403
    assert run.fetch("/../../etc/passwd")[0] == 404

    # The end is told.
    run.process.send_signal(signal.SIGINT)
    until("ended", lambda: state() == "the run has ended")
    assert run.process.wait(20) == 0
    assert os.path.exists(work + "/run.run.toml")

    # The curves of the run, and of another one beside it.
    shutil.copy(work + "/run.jsonl", work + "/other <b>run.jsonl")
    monitor = subprocess.Popen([pvm, "monitor", work], stdout=subprocess.PIPE, text=True)
    browser.get(monitor.stdout.readline().split()[-1])
    until("two runs", lambda: "other <b>run.jsonl" in text("runs") and "dB" in text("runs"))
    chart = picture("chart")
    click("#runs input")
    until("one curve less", lambda: picture("chart") != chart)
    shoot("monitor")
    monitor.send_signal(signal.SIGINT)
    assert monitor.wait(20) == 0
    errors = [entry for entry in browser.get_log("browser")
              if entry["level"] == "SEVERE" and "Failed to load resource" not in entry["message"]]
    assert errors == [], errors
    print("the live page works")
finally:
    browser.quit()
    if monitor and monitor.poll() is None:
        monitor.kill()
    if run.process.poll() is None:
        run.process.send_signal(signal.SIGCONT)
        run.process.kill()
    shutil.rmtree(work, ignore_errors=True)
