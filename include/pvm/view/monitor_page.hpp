// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The page of `pvm monitor`: one file of HTML, CSS and JavaScript, which asks nobody but its own
/// server.

#include <string_view>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::view {

// clang-format off
inline constexpr std::string_view monitor_page = R"page(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>runs - pvm</title>
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; --ground: #f6f7f9; --card: #fff; --ink: #1b1f24; --dim: #5a6472; --line: #d5dae1; --main: #1f6feb; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ground: #12151a; --card: #1b2027; --ink: #e8ecf1; --dim: #9aa5b3; --line: #323a45; --main: #4b8ef5; --bad: #ff8178; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
header { padding: .8rem 1rem; border-bottom: 1px solid var(--line); background: var(--card); display: flex; gap: 1rem; align-items: baseline; flex-wrap: wrap; }
h1 { font-size: 1.15rem; margin: 0; }
main { padding: 1rem; display: grid; gap: 1rem; max-width: 1400px; margin: auto; grid-template-columns: minmax(0, 1fr); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .9rem; overflow-x: auto; }
canvas { width: 100%; height: 380px; display: block; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.key { display: inline-block; width: 1.4em; border-top: 4px solid; vertical-align: middle; margin: 0 .4em; }
select { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .3rem .6rem; }
:focus-visible { outline: 3px solid var(--main); outline-offset: 2px; }
.dim { color: var(--dim); } #lost { color: var(--bad); }
</style>
</head>
<body>
<header><h1>Runs</h1><label class="dim">over <select id="over"><option value="step">steps</option><option value="seconds">seconds of training</option></select></label><span id="lost" role="status"></span></header>
<main>
  <section aria-label="Learning curves"><canvas id="chart" role="img" aria-label="PSNR of the predictions and of repeating, for each run"></canvas>
  <p class="dim" style="margin:.4rem 0 0">PSNR in dB, more is better. Solid: prediction, dashed: repeating the frame of two steps before.</p></section>
  <section aria-label="Runs"><table><thead><tr><th>run</th><th>step</th><th>prediction</th><th>repeating</th><th>seconds</th></tr></thead><tbody id="runs"></tbody></table></section>
</main>
<script>
"use strict";
const $ = id => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token") || "";
const colour_of = i => `hsl(${(212 + i * 137.5) % 360} 70% ${matchMedia("(prefers-color-scheme: dark)").matches ? 65 : 42}%)`;
const hidden = new Set();
let runs = [];
const last = list => { for (let i = list.length - 1; i >= 0; --i) if (list[i] !== null) return list[i]; return null; };
function draw() {
  const canvas = $("chart"), scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight, pen = canvas.getContext("2d");
  canvas.width = width * scale; canvas.height = height * scale; pen.scale(scale, scale); pen.font = "12px system-ui";
  const style = getComputedStyle(document.documentElement), ink = name => style.getPropertyValue(name).trim(), over = $("over").value;
  const shown = runs.map((run, i) => ({...run, i})).filter(run => !hidden.has(run.name));
  const ys = shown.flatMap(r => [...r.psnr, ...r.persistence_psnr]).filter(v => v !== null), xs = shown.flatMap(r => r[over]).filter(v => v !== null);
  pen.fillStyle = ink("--dim");
  if (!ys.length || !xs.length) { pen.fillText("nothing to draw", 8, 20); return; }
  const low = Math.floor(Math.min(...ys) - .5), high = Math.ceil(Math.max(...ys) + .5), end = Math.max(...xs) || 1, left = 36, bottom = height - 22;
  const x = v => left + v / end * (width - left - 8), y = v => 8 + (high - v) / (high - low) * (bottom - 8);
  pen.strokeStyle = ink("--line"); pen.textAlign = "right";
  const every = Math.max(1, Math.ceil((high - low) / 8));
  for (let v = low; v <= high; v += every) { pen.beginPath(); pen.moveTo(left, y(v)); pen.lineTo(width - 8, y(v)); pen.stroke(); pen.fillText(v, left - 6, y(v) + 4); }
  pen.fillText(Math.round(end).toLocaleString("en"), width - 8, height - 5); pen.textAlign = "left"; pen.fillText("0", left, height - 5);
  const line = (run, values, dashes, thick) => {
    pen.strokeStyle = colour_of(run.i); pen.lineWidth = thick; pen.setLineDash(dashes); pen.beginPath();
    let down = false;
    values.forEach((v, k) => { const at = run[over][k]; if (v === null || at === null) { down = false; return; } down ? pen.lineTo(x(at), y(v)) : pen.moveTo(x(at), y(v)); down = true; });
    pen.stroke(); pen.setLineDash([]);
  };
  for (const run of shown) { line(run, run.persistence_psnr, [5, 4], 1); line(run, run.psnr, [], 2); }
}
function show() {
  const rows = runs.map((run, i) => {
    const row = document.createElement("tr"), cell = text => { const td = document.createElement("td"); td.textContent = text; row.append(td); return td; };
    const name = cell(""), label = document.createElement("label"), box = document.createElement("input"), key = document.createElement("span");
    box.type = "checkbox"; box.checked = !hidden.has(run.name);
    box.onchange = () => { box.checked ? hidden.delete(run.name) : hidden.add(run.name); draw(); };
    key.className = "key"; key.style.borderColor = colour_of(i);
    label.append(box, key, run.name); name.append(label);
    const db = v => v === null ? "-" : v.toFixed(2) + " dB", whole = v => v === null ? "-" : Math.round(v).toLocaleString("en");
    cell(whole(last(run.step))); cell(db(last(run.psnr))); cell(db(last(run.persistence_psnr))); cell(whole(last(run.seconds)));
    return row;
  });
  $("runs").replaceChildren(...rows);
}
async function watch() {
  for (let before = "";;) {
    try {
      const answer = await fetch("/runs", {cache: "no-store", headers: {"X-Pvm-Token": token}}), text = await answer.text();
      if (!answer.ok) throw new Error(text);
      $("lost").textContent = "";
      if (text !== before) { before = text; runs = JSON.parse(text).runs; show(); draw(); }
    } catch { $("lost").textContent = "connection lost, trying again"; }
    await new Promise(done => setTimeout(done, 2000));
  }
}
$("over").onchange = draw;
addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { show(); draw(); });
watch();
</script>
</body>
</html>
)page";
// clang-format on

}  // namespace pvm::inline v0::view
