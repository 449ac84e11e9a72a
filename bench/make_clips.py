#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Hard labelled clips for tracking: one textured object over real, moving backgrounds, with exact boxes.

The object turns, changes its size, shape and brightness, leaves the frame partly or wholly, passes behind an occluder,
and is absent for a while. Distractors share its palette, so that a colour threshold cannot find it. Everything is a
function of --seed (and of the decoded background videos).

    make_clips.py --out DIR --object 1 --split train --clips 12 --frames 500 --level 2 BACKGROUND...

Every clip becomes DIR/SPLIT_NN.zip in the layout of the published PVM sets: 0000.jpg ... and groundtruth_rect.txt
with a line x,y,w,h per frame, or -1,-1,-1,-1 where less than 30 % of the object can be seen. The box is the bounding
box of the object's mask, cut at the frame's edge, but not where an occluder hides a part of it.
A background is FILE[:first[:last]] with first and last as fractions of its length, so that training and test can use
different parts of one video. --npz also writes DIR/SPLIT_NN.npz (frames uint8 RGB->BGR order, boxes int32, visible).
"""
import argparse, io, os, zipfile
import numpy as np, cv2

def palette(rng, n):
    """n colours (BGR, 0..1), far from grey, no two alike."""
    out = []
    while len(out) < n:
        hsv = np.float32([[[rng.uniform(0, 360), rng.uniform(.45, 1), rng.uniform(.3, 1)]]])
        c = cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR)[0, 0]
        if all(np.abs(c - o).sum() > .6 for o in out): out.append(c)
    return np.array(out)

def make_object(seed, colours=None, side=128):
    """RGBA picture of an object: a blob with lobes, textured with stripes, checks and spots."""
    rng = np.random.default_rng([7, seed])
    if colours is None: colours = palette(rng, 4)
    colours = colours[rng.permutation(len(colours))]
    y, x = np.mgrid[0:side, 0:side].astype(np.float32)
    u, v = (x - side / 2) / (side / 2), (y - side / 2) / (side / 2)
    r, a = np.hypot(u, v), np.arctan2(v, u)
    lobes = rng.integers(2, 6)
    radius = .78 + .16 * np.cos(lobes * a + rng.uniform(0, 6.28))
    alpha = np.clip((radius - r) * side / 4 + .5, 0, 1)
    tex = np.empty((side, side, 3), np.float32); tex[:] = colours[0]
    f, ph = rng.uniform(2, 4.5), rng.uniform(0, 6.28)
    d = rng.uniform(0, np.pi)
    tex[np.sin(2 * np.pi * f * (u * np.cos(d) + v * np.sin(d)) / 2 + ph) > .25] = colours[1]
    cx, cy, rr = rng.uniform(-.35, .35), rng.uniform(-.35, .35), rng.uniform(.25, .4)
    tex[np.hypot(u - cx, v - cy) < rr] = colours[2]
    cx, cy = rng.uniform(-.5, .5, 2)
    tex[(np.abs(u - cx) < .22) & (np.abs(v - cy) < .22)] = colours[3]
    tex *= (1 + .18 * cv2.GaussianBlur(rng.standard_normal((side, side)).astype(np.float32), (0, 0), 2)[..., None] * 3)
    tex = cv2.GaussianBlur(np.clip(tex, 0, 1), (0, 0), 1.0)
    return np.dstack([tex, alpha]).astype(np.float32)

class Wave:
    """A smooth random function of time in [lo, hi]: a sum of three sines of random periods."""
    def __init__(self, rng, lo, hi, fast, slow):
        self.lo, self.hi = lo, hi
        self.w = 2 * np.pi / rng.uniform(fast, slow, 3); self.p = rng.uniform(0, 6.28, 3); self.a = np.array([.5, .3, .2])
    def __call__(self, t):
        s = float((self.a * np.sin(self.w * t + self.p)).sum()) * 1.15
        return self.lo + (self.hi - self.lo) * (min(max(s, -1), 1) * .5 + .5)

class Mover:
    """Pose of one object over time."""
    def __init__(self, rng, level, size=(.16, .40)):
        out = .08 if level < 2 else .18                       # how far the centre may leave the frame
        self.x, self.y = Wave(rng, -out, 1 + out, 45, 160), Wave(rng, -out, 1 + out, 45, 160)
        self.size = Wave(rng, *size, 60, 240)
        self.turn = Wave(rng, -1.2 * np.pi, 1.2 * np.pi, 90, 260)
        self.flat = Wave(rng, .65, 1.0, 60, 200)              # foreshortening
        self.gain = Wave(rng, .55, 1.35, 50, 200); self.cast = [Wave(rng, .88, 1.12, 80, 250) for _ in range(3)]
    def draw(self, obj, t, side):
        """The object's picture (with gain) and mask in a side x side frame."""
        n = obj.shape[0]
        s = self.size(t) * side / (n * .9); a = self.turn(t); f = self.flat(t)
        m = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) @ np.diag([s, s * f])
        c = np.array([self.x(t), self.y(t)]) * side - m @ np.array([n / 2, n / 2])
        M = np.float32(np.hstack([m, c[:, None]]))
        src = cv2.GaussianBlur(obj, (0, 0), max(.35 / s, .1)) if s < 1 else obj
        big = cv2.warpAffine(src, M + np.float32([[0, 0, side], [0, 0, side]]), (3 * side, 3 * side), flags=cv2.INTER_LINEAR)
        total = float(big[..., 3].sum())
        pic = big[side:2 * side, side:2 * side]
        g = self.gain(t) * np.float32([w(t) for w in self.cast])
        return np.clip(pic[..., :3] * g, 0, 1), pic[..., 3], total

def read_background(spec, width=320):
    name, *part = spec.split(':')
    lo, hi = (float(part[0]) if part else 0.), (float(part[1]) if len(part) > 1 else 1.)
    cap = cv2.VideoCapture(name); frames = []
    while True:
        ok, im = cap.read()
        if not ok: break
        frames.append(cv2.resize(im, (width, width * im.shape[0] // im.shape[1]), interpolation=cv2.INTER_AREA))
    if not frames: raise SystemExit(f'{name}: no frames')
    return frames[int(lo * len(frames)):int(hi * len(frames))]

def hidden_spans(rng, frames, every, length):
    out = np.zeros(frames, bool); t = int(rng.uniform(.4, 1) * every)
    while t < frames:
        n = int(rng.uniform(*length)); out[t:t + n] = True; t += n + int(rng.uniform(.6, 1.4) * every)
    return out

def clip(seed, index, split, obj, others, background, frames, side, level):
    rng = np.random.default_rng([11, seed, index, {'train': 0, 'test': 1}.get(split, 2)])
    h, w = background[0].shape[:2]
    start, flip, back = int(rng.integers(len(background))), bool(rng.integers(2)), 1
    zoom, px, py = Wave(rng, .62, .98, 90, 260), Wave(rng, 0, 1, 70, 220), Wave(rng, 0, 1, 70, 220)
    light = Wave(rng, .75, 1.15, 90, 300)
    target = Mover(rng, level); foes = [(o, Mover(rng, level, (.14, .34))) for o in others] if level >= 2 else []
    absent = hidden_spans(rng, frames, 190, (25, 70))
    occ = hidden_spans(rng, frames, 120, (40, 90)) if level >= 2 else np.zeros(frames, bool)
    bar, bar_tex = None, None
    pics, boxes, visible = [], [], []
    pos = start
    for t in range(frames):
        bg = background[pos]
        if pos + back < 0 or pos + back >= len(background): back = -back
        pos = min(max(pos + back, 0), len(background) - 1)
        n = int(zoom(t) * h); x0, y0 = px(t) * (w - n), py(t) * (h - n)
        M = np.float32([[side / n, 0, -x0 * side / n], [0, side / n, -y0 * side / n]])
        pic = cv2.warpAffine(bg, M, (side, side), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT).astype(np.float32) / 255
        if flip: pic = pic[:, ::-1]
        pic = np.clip(pic * light(t), 0, 1)
        for o, m in foes:
            p, a, _ = m.draw(o, t, side); pic = pic * (1 - a[..., None]) + p * a[..., None]
        box, vis = (-1, -1, -1, -1), 0.
        if not absent[t]:
            p, a, total = target.draw(obj, t, side)
            pic = pic * (1 - a[..., None]) + p * a[..., None]
            seen = a
            if occ[t] and bar is not None: seen = a * (1 - bar)
            vis = float(seen.sum()) / max(total, 1e-6)
            ys, xs = np.where(a > .5)
            if vis >= .3 and len(xs): box = (int(xs.min()), int(ys.min()), int(xs.max() - xs.min() + 1), int(ys.max() - ys.min() + 1))
        if occ[t]:
            if bar is None:
                bar = np.zeros((side, side), np.float32); k = int(rng.uniform(.14, .26) * side); c = int(rng.uniform(.2, .8) * side)
                if rng.integers(2): bar[:, max(c - k // 2, 0):c + k // 2] = 1
                else: bar[max(c - k // 2, 0):c + k // 2, :] = 1
                o = background[int(rng.integers(len(background)))]; q = int(rng.integers(0, h // 2))
                bar_tex = cv2.resize(o[q:q + h // 3, q:q + h // 3], (side, side)).astype(np.float32) / 255
                if not absent[t] and vis > 0:                # the bar counts from its first frame on
                    vis = float((a * (1 - bar)).sum()) / max(total, 1e-6)
                    if vis < .3: box = (-1, -1, -1, -1)
            pic = pic * (1 - bar[..., None]) + bar_tex * bar[..., None]
        else: bar = None
        pic = pic + rng.normal(0, .012, pic.shape).astype(np.float32)
        pics.append((np.clip(pic, 0, 1) * 255 + .5).astype(np.uint8)); boxes.append(box); visible.append(vis)
    return np.stack(pics), np.int32(boxes), np.float32(visible)

def write_zip(path, pics, boxes, quality=92):
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as z:
        def put(name, data):
            z.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data)
        for i, p in enumerate(pics):
            put('%04d.jpg' % i, cv2.imencode('.jpg', p, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes())
        put('groundtruth_rect.txt', ''.join('%d,%d,%d,%d\n' % tuple(b) for b in boxes))

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('background', nargs='+'); ap.add_argument('--out', required=True)
    ap.add_argument('--split', default='train'); ap.add_argument('--object', type=int, default=1)
    ap.add_argument('--clips', type=int, default=12); ap.add_argument('--frames', type=int, default=500)
    ap.add_argument('--side', type=int, default=160); ap.add_argument('--level', type=int, default=2, choices=[1, 2])
    ap.add_argument('--seed', type=int, default=1); ap.add_argument('--npz', action='store_true')
    a = ap.parse_args(); os.makedirs(a.out, exist_ok=True)
    colours = palette(np.random.default_rng([7, a.object]), 4)
    obj = make_object(a.object, colours)
    others = [make_object(1000 + 10 * a.object + k, colours) for k in range(2)]   # the same palette, another look
    backgrounds = [read_background(b) for b in a.background]
    cv2.imwrite(os.path.join(a.out, f'object_{a.object}.png'), (np.hstack([o[..., :3] * o[..., 3:] for o in [obj] + others]) * 255).astype(np.uint8))
    for i in range(a.clips):
        pics, boxes, vis = clip(a.seed, i, a.split, obj, others, backgrounds[i % len(backgrounds)], a.frames, a.side, a.level)
        base = os.path.join(a.out, '%s_%02d' % (a.split, i)); write_zip(base + '.zip', pics, boxes)
        if a.npz: np.savez(base + '.npz', frames=pics, boxes=boxes, visible=vis)
        print(base, 'present %.2f' % (boxes[:, 2] > 0).mean(), flush=True)

if __name__ == '__main__': main()
