// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The live page: one file of HTML, CSS and JavaScript, which asks nobody but its own server.

#include <string_view>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::view {

// clang-format off
inline constexpr std::string_view page = R"page(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>pvm</title>
<link rel="icon" href="data:,">
<style>
:root {
  color-scheme: light dark;
  --ground: #f6f7f9; --card: #ffffff; --ink: #1b1f24; --dim: #5a6472; --line: #d5dae1;
  --main: #1f6feb; --main-ink: #ffffff; --on: #dbe8ff; --good: #1a7f37; --bad: #b42318; --wait: #8a5a00;
  --ours: #1f6feb; --theirs: #b5531c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #12151a; --card: #1b2027; --ink: #e8ecf1; --dim: #9aa5b3; --line: #323a45;
    --main: #4b8ef5; --main-ink: #0b1220; --on: #1d3355; --good: #4cc26c; --bad: #ff8178; --wait: #e3b341;
    --ours: #6ea8ff; --theirs: #f0a35e;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
header { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; align-items: baseline; padding: .8rem 1rem; border-bottom: 1px solid var(--line); background: var(--card); }
h1 { font-size: 1.15rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: .95rem; margin: 0 0 .6rem; }
#state { font-weight: 600; }
#state.runs { color: var(--good); } #state.waits { color: var(--wait); } #state.lost { color: var(--bad); }
.number { font-variant-numeric: tabular-nums; color: var(--dim); }
main { display: grid; gap: 1rem; padding: 1rem; grid-template-columns: minmax(0, 1fr); max-width: 1500px; margin: auto; }
@media (min-width: 900px) { main { grid-template-columns: minmax(0, 1fr) 21rem; } }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .9rem; }
.side { display: grid; gap: 1rem; align-content: start; }
.pictures { display: grid; gap: .9rem; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); }
figure { margin: 0; }
figcaption { font-size: .82rem; color: var(--dim); margin-bottom: .25rem; min-height: 2.4em; display: flex; flex-direction: column; justify-content: end; }
figcaption b { color: var(--ink); font-weight: 600; }
canvas { width: 100%; display: block; background: #000; border-radius: 4px; }
.pictures canvas { aspect-ratio: 1; image-rendering: pixelated; }
.drawable { position: relative; }
#marks { position: absolute; inset: 0; width: 100%; height: 100%; cursor: crosshair; touch-action: none; }
#curve { background: transparent; height: 220px; }
.row { display: flex; flex-wrap: wrap; gap: .45rem; margin-bottom: .6rem; align-items: center; }
button, select, input[type=text] { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .38rem .65rem; min-height: 2.4rem; }
button { cursor: pointer; }
button:hover { border-color: var(--main); }
button[aria-pressed=true] { background: var(--on); border-color: var(--main); }
button.main { background: var(--main); color: var(--main-ink); border-color: var(--main); font-weight: 600; }
button:disabled { opacity: .5; cursor: default; }
:focus-visible { outline: 3px solid var(--main); outline-offset: 2px; }
kbd { font: .78em ui-monospace, monospace; border: 1px solid var(--line); border-radius: 3px; padding: 0 .3em; color: var(--dim); margin-left: .3em; background: var(--card); }
label { font-size: .88rem; color: var(--dim); }
input[type=range] { width: 100%; min-height: 2rem; accent-color: var(--main); }
dl { display: grid; grid-template-columns: auto 1fr; gap: .25rem .8rem; margin: 0; font-size: .88rem; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
#said { min-height: 1.5em; font-size: .88rem; overflow-wrap: anywhere; margin: 0; }
#said.bad { color: var(--bad); }
.key { display: inline-block; width: 1.6em; border-top: 3px solid; vertical-align: middle; margin-right: .35em; }
.key.dashed { border-top-style: dashed; }
@media (hover: none) { kbd { display: none; } }
</style>
</head>
<body>
<header>
  <h1 id="name">pvm</h1>
  <span id="state" role="status" class="waits">connecting</span>
  <span class="number">step <span id="step">-</span> of <span id="target">-</span></span>
  <span class="number"><span id="rate">-</span> frames/s</span>
</header>
<main>
  <div class="side">
    <section aria-label="Pictures">
      <div class="pictures" id="pictures"></div>
    </section>
    <section aria-label="Learning curve">
      <h2>Learning curve <span class="number">(dB, more is better)</span></h2>
      <canvas id="curve" role="img" aria-label="PSNR of the prediction and of repeating the frame of two steps before"></canvas>
      <p class="number" style="margin:.4rem 0 0">
        <span class="key" style="border-color:var(--ours)"></span>prediction <b id="ours"></b> &nbsp;
        <span class="key dashed" style="border-color:var(--theirs)"></span>repeating the frame <b id="theirs"></b>
      </p>
    </section>
  </div>
  <div class="side">
    <section aria-label="Run">
      <h2>Run</h2>
      <div class="row">
        <button id="pause" class="main" data-key=" ">Pause<kbd>space</kbd></button>
        <button data-do="step" data-key="s">1 step<kbd>s</kbd></button>
        <button data-do="step 100">100 steps</button>
      </div>
      <div class="row">
        <button id="freeze" aria-pressed="false" data-key="f">Freeze<kbd>f</kbd></button>
        <button data-each="skip" data-key="n">Next file<kbd>n</kbd></button>
        <button data-each="restart" data-key="r">Restart pass<kbd>r</kbd></button>
      </div>
      <p id="said" role="status" aria-live="polite"></p>
    </section>
    <section aria-label="What the network sees">
      <h2>What the network sees</h2>
      <div class="row" id="which" hidden><label for="sequence">of sequence</label><select id="sequence"></select></div>
      <div class="row">
        <button data-see="frames" data-key="w">Frames<kbd>w</kbd></button>
        <button data-see="dream" data-key="d">Dream<kbd>d</kbd></button>
        <button data-see="partial-dream" data-key="p">Partial dream<kbd>p</kbd></button>
        <button data-see="blind-spot" data-key="b">Blind spot<kbd>b</kbd></button>
      </div>
    </section>
    <section aria-label="Learning rate">
      <h2>Learning rate</h2>
      <div class="row"><label for="layer">of</label><select id="layer"></select><output id="chosen" class="number"></output></div>
      <input type="range" id="slider" min="-6" max="0" step="0.05" aria-label="Learning rate, a power of ten">
      <div class="row"><button id="by_spec">As the spec says</button></div>
    </section>
    <section aria-label="Keep">
      <h2>Keep</h2>
      <div class="row">
        <button data-do="save">Save a checkpoint</button>
        <button data-do="snapshot">Snapshot</button>
        <button id="record" aria-pressed="false">Record</button>
      </div>
    </section>
    <section aria-label="Teach it an object">
      <h2>Teach it an object</h2>
      <p class="number" style="margin:0 0 .6rem">Draw a box on the input, or write it in pixels of the frame, which has <span id="side"></span>.</p>
      <div class="row">
        <input type="text" id="box" size="12" placeholder="x y width height" aria-label="box: x y width height">
        <button id="there">It is there</button>
        <button id="absent">It is not there</button>
      </div>
      <div class="row"><button data-do="save-labels">Save the labels</button><span class="number" id="labels"></span></div>
    </section>
    <section aria-label="About the run"><h2>About the run</h2><dl id="facts"></dl></section>
  </div>
</main>
<script>
"use strict";
const $ = id => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token") || "";
let status = null, number = 0, lost = false, ended = false, sketch = [], drawn = "";

async function ask(path, options, patience) {
  const stop = new AbortController(), timer = setTimeout(() => stop.abort(), patience || 4000);
  try {
    return await fetch(path, {cache: "no-store", signal: stop.signal, headers: {"X-Pvm-Token": token}, ...options});
  } finally { clearTimeout(timer); }
}
const sleep = ms => new Promise(done => setTimeout(done, ms));

function show_state() {
  const [words, kind] =
    lost ? ["connection lost, trying again", "lost"] :
    ended ? ["the run has ended", "waits"] :
    !status ? ["connecting", "waits"] :
    status.paused ? ["paused", "waits"] : ["running", "runs"];
  if ($("state").textContent !== words) $("state").textContent = words;
  $("state").className = kind;
  for (const button of document.querySelectorAll("button, select, input")) button.disabled = lost || ended;
}

async function give(text) {
  try {
    const answer = await (await ask("/command?text=" + encodeURIComponent(text), {method: "POST"}, 12000)).json();
    $("said").className = answer.ok ? "" : "bad";
    $("said").textContent = !answer.ok ? answer.error : answer.file ? `step ${answer.step}: ${answer.file}` : "with" in answer ? `learned: ${answer.with} with it, ${answer.without} without` : `step ${answer.step}: ${answer.command}`;
  } catch { $("said").className = "bad"; $("said").textContent = "no answer to: " + text; }
}

// Pictures: bytes as they are in the network, drawn here.
const viridis = [[68,1,84],[72,35,116],[64,67,135],[52,94,141],[41,120,142],[32,144,140],[34,167,132],[68,190,112],[121,209,81],[189,222,38],[253,231,36]];
const colours = new Uint8ClampedArray(256 * 3);
for (let i = 0; i < 256; ++i) {
  const x = i / 255 * 10, k = Math.min(9, Math.floor(x));
  for (let c = 0; c < 3; ++c) colours[3 * i + c] = viridis[k][c] + (x - k) * (viridis[k + 1][c] - viridis[k][c]);
}
function figure(id, title, detail) {
  const box = document.createElement("figure"), words = document.createElement("figcaption"), canvas = document.createElement("canvas");
  const bold = document.createElement("b"), more = document.createElement("span");
  bold.textContent = title; more.textContent = detail; more.id = id + "_detail";
  words.append(bold, more); canvas.id = id; canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", title);
  box.append(words, canvas); $("pictures").append(box);
  return canvas;
}
function set_up() {
  const key = JSON.stringify([status.side, status.layers, status.batch]);
  if (key === drawn) return;
  drawn = key;
  $("pictures").replaceChildren();
  figure("input", "input", "what the network sees");
  make_drawable($("input"));
  figure("prediction", "prediction", "made two steps before");
  figure("error", "error of predicting", "x 4");
  figure("repeated", "error of repeating", "x 4");
  status.layers.forEach((side, l) => figure("layer" + l, "activity, layer " + l, `${side} x ${side} units`));
  for (const canvas of document.querySelectorAll(".pictures canvas")) canvas.width = canvas.height = status.side;
  status.layers.forEach((side, l) => { const c = $("layer" + l), gap = side > 1 ? 1 : 0; c.width = c.height = side * (status.hidden_side + gap) + gap; });
  $("layer").replaceChildren(new Option("all layers", ""), ...status.layers.map((_, l) => new Option("layer " + l, " " + l)));
  $("sequence").replaceChildren(new Option("all", ""), ...Array.from({length: Math.min(status.batch, 256)}, (_, b) => new Option(String(b), " " + b)));
  $("which").hidden = status.batch === 1;
}
// Teaching: a box that is drawn on the input is a label of the picture that was shown meanwhile.
let shown_step = 0, drawing = null, found = null;
const svg = name => document.createElementNS("http://www.w3.org/2000/svg", name);
function make_drawable(canvas) {
  const frame = document.createElement("div"), marks = svg("svg");
  frame.className = "drawable"; marks.id = "marks";
  marks.setAttribute("viewBox", `0 0 ${status.side} ${status.side}`);
  canvas.replaceWith(frame); frame.append(canvas, marks);
  const at = event => { const r = marks.getBoundingClientRect(), to = (v, length) => Math.min(Math.max(v / length, 0), 1) * status.side;
    return [to(event.clientX - r.left, r.width), to(event.clientY - r.top, r.height)]; };
  marks.onpointerdown = event => { if (lost || ended) return; event.preventDefault(); marks.setPointerCapture(event.pointerId); drawing = {step: shown_step, from: at(event), to: at(event)}; mark(); };
  marks.onpointermove = event => { if (drawing) { drawing.to = at(event); mark(); } };
  marks.onpointerup = () => { const box = drawing && box_of(drawing), step = drawing && drawing.step; drawing = null; mark();
    if (box && box[2] >= .5 && box[3] >= .5) give(`label ${step} ` + box.map(v => v.toFixed(2)).join(" ")); };
  marks.onpointercancel = () => { drawing = null; mark(); };
}
function box_of({from, to}) { return [Math.min(from[0], to[0]), Math.min(from[1], to[1]), Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1])]; }
function mark() {
  const boxes = [];
  if (found) boxes.push([found, "#000000", 5], [found, "#ffd60a", 2]);
  if (drawing) boxes.push([box_of(drawing), "#000000", 5], [box_of(drawing), "#ffffff", 2]);
  $("marks").replaceChildren(...boxes.map(([[x, y, w, h], colour, thick]) => {
    const r = svg("rect");
    for (const [k, v] of Object.entries({x, y, width: w, height: h, fill: "none", stroke: colour, "stroke-width": thick, "vector-effect": "non-scaling-stroke"})) r.setAttribute(k, v);
    return r;
  }));
}
function paint(id, value) {  // value(i): of the pixel's channel i, in the frame's order
  const canvas = $(id), side = status.side, channels = status.channels, picture = new ImageData(side, side);
  for (let i = 0; i < side * side; ++i) {
    for (let c = 0; c < 3; ++c) picture.data[4 * i + c] = value(channels * i + (channels < 3 ? 0 : 2 - c));
    picture.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(picture, 0, 0);
}
function decibels(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; ++i) sum += (a[i] - b[i]) ** 2;
  return sum === 0 ? "no error" : "x 4, " + (-10 * Math.log10(sum / a.length / 65025)).toFixed(1) + " dB PSNR";
}
function draw(buffer) {
  const view = new DataView(buffer), length = view.getUint32(8, true);
  number = Number(view.getBigUint64(0, true));
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 12, length)));
  if (drawing) return;  // the picture stands while somebody draws on it
  shown_step = head.step; found = head.box || null;
  let at = 12 + length;
  const take = count => { const part = new Uint8Array(buffer, at, count); at += count; return part; };
  const size = status.side * status.side * status.channels;
  const input = take(size), prediction = head.predicted ? take(size) : null, before = head.predicted ? take(size) : null;
  paint("input", i => input[i]);
  const dark = () => 24;
  paint("prediction", prediction ? i => prediction[i] : dark);
  paint("error", prediction ? i => 4 * Math.abs(input[i] - prediction[i]) : dark);
  paint("repeated", before ? i => 4 * Math.abs(input[i] - before[i]) : dark);
  $("error_detail").textContent = prediction ? decibels(input, prediction) : "no prediction yet";
  $("repeated_detail").textContent = before ? decibels(input, before) : "";
  const block = status.hidden_side;
  status.layers.forEach((side, l) => {
    const canvas = $("layer" + l), gap = side > 1 ? 1 : 0, width = canvas.width, picture = new ImageData(width, width);
    for (let i = 3; i < picture.data.length; i += 4) picture.data[i] = 255;
    for (let u = 0; u < side * side; ++u) {
      const values = take(block * block), row = Math.floor(u / side) * (block + gap) + gap, column = u % side * (block + gap) + gap;
      for (let k = 0; k < values.length; ++k) {
        const to = 4 * ((row + Math.floor(k / block)) * width + column + k % block);
        for (let c = 0; c < 3; ++c) picture.data[to + c] = colours[3 * values[k] + c];
      }
    }
    canvas.getContext("2d").putImageData(picture, 0, 0);
  });
  if (head.heat_side) {
    const canvas = $("heat") || figure("heat", "heatmap", ""), side = head.heat_side, values = take(side * side), picture = new ImageData(side, side);
    canvas.width = canvas.height = side;
    for (let i = 0; i < side * side; ++i) {
      for (let c = 0; c < 3; ++c) picture.data[4 * i + c] = colours[3 * values[i] + c];
      picture.data[4 * i + 3] = 255;
    }
    canvas.getContext("2d").putImageData(picture, 0, 0);
    $("heat_detail").textContent = `${found ? "there" : "not there"}, confidence ${head.confidence.toFixed(2)}`;
  }
  mark();
  $("step").textContent = head.step.toLocaleString("en");
}
async function watch_pictures() {
  for (;;) {
    try {
      if (ended || !status || document.hidden) { await sleep(300); continue; }
      const started = performance.now(), answer = await ask("/picture?after=" + number);
      if (answer.status === 200) draw(await answer.arrayBuffer());
      await sleep(Math.max(0, 33 - (performance.now() - started)));
    } catch { await sleep(500); }
  }
}

// Facts and curves.
function mega(bytes) { return (bytes / 1e6).toFixed(0) + " MB"; }
function draw_curve() {
  const canvas = $("curve"), scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * scale; canvas.height = height * scale;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(name).trim();
  pen.scale(scale, scale); pen.font = "12px system-ui"; pen.fillStyle = colour("--dim");
  const {step, psnr, persistence_psnr} = status.curve, all = [...psnr, ...persistence_psnr].filter(v => v !== null);
  if (step.length < 2 || !all.length) { pen.fillText("a point a second: wait a moment", 8, 20); return; }
  const low = Math.floor(Math.min(...all) - .5), high = Math.ceil(Math.max(...all) + .5), left = 34, bottom = height - 20;
  const x = s => left + (s - step[0]) / (step[step.length - 1] - step[0]) * (width - left - 6), y = v => 6 + (high - v) / (high - low) * (bottom - 6);
  pen.strokeStyle = colour("--line"); pen.lineWidth = 1; pen.textAlign = "right";
  const every = Math.max(1, Math.ceil((high - low) / 5));
  for (let v = low; v <= high; v += every) { pen.beginPath(); pen.moveTo(left, y(v)); pen.lineTo(width - 6, y(v)); pen.stroke(); pen.fillText(v, left - 6, y(v) + 4); }
  pen.textAlign = "left"; pen.fillText("step " + step[0].toLocaleString("en"), left, height - 4);
  pen.textAlign = "right"; pen.fillText(step[step.length - 1].toLocaleString("en"), width - 6, height - 4);
  const line = (values, name, dashes) => {
    pen.strokeStyle = colour(name); pen.lineWidth = 2; pen.setLineDash(dashes); pen.beginPath();
    let down = false;
    values.forEach((v, i) => { if (v === null) { down = false; return; } down ? pen.lineTo(x(step[i]), y(v)) : pen.moveTo(x(step[i]), y(v)); down = true; });
    pen.stroke(); pen.setLineDash([]);
  };
  line(persistence_psnr, "--theirs", [5, 4]); line(psnr, "--ours", []);
}
function show_status() {
  set_up();
  document.title = status.name + " - pvm";
  $("name").textContent = status.name;
  $("side").textContent = `${status.side} x ${status.side}`;
  $("labels").textContent = status.labels_with + status.labels_without ? `${status.labels_with} with it, ${status.labels_without} without` : "none yet";
  $("target").textContent = status.target.toLocaleString("en");
  $("rate").textContent = status.frames_per_second >= 100 ? Math.round(status.frames_per_second).toLocaleString("en") : status.frames_per_second.toFixed(1);
  if (!number) $("step").textContent = status.step.toLocaleString("en");
  $("pause").firstChild.textContent = status.paused ? "Resume" : "Pause";
  $("freeze").setAttribute("aria-pressed", status.frozen);
  $("record").setAttribute("aria-pressed", status.recording !== null);
  $("record").textContent = status.recording !== null ? "Stop recording" : "Record";
  const chosen = $("sequence").value.trim(), sees = chosen === "" ? status.sees : [status.sees[Number(chosen)]];
  for (const button of document.querySelectorAll("[data-see]")) button.setAttribute("aria-pressed", sees.every(s => s === button.dataset.see));
  const layer = $("layer").value.trim(), rate = status.rates[layer === "" ? 0 : Number(layer)];
  if (document.activeElement !== $("slider")) {
    $("chosen").textContent = rate === null ? "as the spec says" : String(Number(rate.toPrecision(3)));
    if (rate > 0) $("slider").value = Math.log10(rate);
  }
  const last = list => { const v = list[list.length - 1]; return v == null ? "" : v.toFixed(1) + " dB"; };
  $("ours").textContent = last(status.curve.psnr); $("theirs").textContent = last(status.curve.persistence_psnr);
  const facts = [["modes", status.modes || "none"], ["frames from", status.source === undefined ? "-" : `${status.source}, frame ${status.frame}, pass ${status.pass}`],
    ["bottleneck", status.bottleneck], ["memory", mega(status.memory_bytes) + (status.gpu_memory_bytes > 0 ? `, ${mega(status.gpu_memory_bytes)} of the GPU` : "")], ["weights", status.weights.toLocaleString("en")],
    ["sequences", status.batch], ["engine", status.engine]];
  $("facts").replaceChildren(...facts.flatMap(([name, value]) => {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = name; dd.textContent = value; return [dt, dd];
  }));
  draw_curve();
}
async function watch_status() {
  for (;;) {
    try {
      if (ended) { await sleep(1000); continue; }
      const answer = await ask("/status");
      if (answer.status === 403) { lost = true; show_state(); $("said").className = "bad"; $("said").textContent = (await answer.text()).trim(); await sleep(3000); continue; }
      status = await answer.json();
      lost = false; ended = status.ended;
      show_status(); show_state();
      await sleep(400);
    } catch { lost = true; show_state(); await sleep(700); }
  }
}

for (const button of document.querySelectorAll("[data-do]")) button.onclick = () => give(button.dataset.do);
for (const button of document.querySelectorAll("[data-each]")) button.onclick = () => give(button.dataset.each + $("sequence").value);
for (const button of document.querySelectorAll("[data-see]")) button.onclick = () => give(button.dataset.see + $("sequence").value);
$("absent").onclick = () => give(`label ${shown_step} absent`);
$("there").onclick = () => give(`label ${shown_step} ${$("box").value.replaceAll(",", " ").trim()}`);
$("box").onkeydown = event => { if (event.key === "Enter") $("there").click(); };
$("pause").onclick = () => give(status && status.paused ? "resume" : "pause");
$("freeze").onclick = () => give(status && status.frozen ? "learn" : "freeze");
$("record").onclick = () => give(status && status.recording !== null ? "stop-recording" : "record");
$("slider").oninput = () => { $("chosen").textContent = (10 ** $("slider").value).toPrecision(2); };
$("slider").onchange = () => give("rate " + Number((10 ** $("slider").value).toPrecision(2)) + $("layer").value);
$("by_spec").onclick = () => give("rate spec" + $("layer").value);
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === " " && event.target.tagName === "BUTTON") return;
  const button = [...document.querySelectorAll("[data-key]")].find(b => b.dataset.key === event.key);
  if (button && !button.disabled) { event.preventDefault(); button.click(); }
});
addEventListener("resize", () => { if (status) draw_curve(); });
watch_status(); watch_pictures();
</script>
</body>
</html>
)page";
// clang-format on

}  // namespace pvm::inline v0::view
