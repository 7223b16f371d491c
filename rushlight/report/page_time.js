// Where the time goes: stages of compiling, compiled calls, kernels, the timeline.

// ---- time

function limitShare(r) {  // the nearer of two limits: what the memory moves, what products compute
  const l = data.limits;
  if (!l || !r.ns || !(r.moved || r.operations && l.operations_per_ns)) return "";
  const moved = r.moved / r.ns / l.bytes_per_ns, computed = l.operations_per_ns ? (r.operations || 0) / r.ns / l.operations_per_ns : 0, share = Math.max(moved, computed);
  const what = computed > moved ? `arithmetic: ${three(l.operations_per_ns)} GFLOP/s` : `memory: ${three(l.bytes_per_ns)} GB/s`;
  return h("span", {title: `of ${what}, measured on this machine in this run`}, h("span", {class: "bar", style: `width:${Math.min(1, share) * 70}px`}), Math.round(share * 100) + " %" + (computed > moved ? " of arithmetic" : " of memory"));
}
function drawTime() {
  if (!run) { put("timebody", none("Give a script: compile time by stage, and each kernel's time, stand here.")); return; }
  const parts = [], add = (title, body) => parts.push(h("h3", {}, title), body);
  const stages = {};
  for (const c of run.captures) { if (c.capture_ms) stages.capture = (stages.capture || 0) + c.capture_ms; for (const [k, v] of Object.entries(c.stage_ms)) stages[k] = (stages[k] || 0) + v; }
  const most = Math.max(1e-9, ...Object.values(stages));
  if (Object.keys(stages).length) add("Compiling, once", table([["stage"], ["time", 1], [""]], Object.entries(stages).map(([k, v]) => [k, ns(v * 1e6), h("span", {class: "bar", style: `width:${v / most * 320}px`})])));
  if (run.functions.length) add("A call of compiled code", table([["function"], ["calls", 1], ["that captured", 1], ["a call", 1], ["in graphs", 1], ["guards, wrapper, between graphs", 1], ["called at"]],
    run.functions.map(f => { const n = f.calls - f.misses; return [f.function, String(f.calls), String(f.misses), n ? ns(f.hit_ns / n) : "", n ? ns(f.hit_graph_ns / n) : "", n ? ns((f.hit_ns - f.hit_graph_ns) / n) : "", f.where.map(placeButton)]; })));
  const rows = kernelRows();
  if (rows.length) parts.push(h("h3", {}, "Kernels and library routines, costliest first"), h("p", {class: "dim"}, `${kernelSumText(kernelSums())}. A row is what one graph called of a kernel or routine.`));
  (rows.length ? body => parts.push(body) : body => add("Kernels and library routines", body))(rows.length ? table([["what"], ["how"], ["calls", 1], ["time", 1], ["a call", 1], ["calls that made a plan"], ["moved", 1], ["of the limit"], ["your lines"]],
    rows.slice(0, 60).map(r => [sourceButton(r), r.how + (r.graph ? "" : ", outside graphs"), String(r.calls), ns(r.ns), r.calls ? ns(r.ns / r.calls) : "", r.first_calls ? `${r.first_calls}: ${ns(r.first_ns)}` : "", r.moved ? bytes(r.moved / r.calls) : "", limitShare(r), r.lines.slice(0, 6).map(placeButton)])) : none("No kernel ran."));
  if (rows.length > 60) parts.push(h("p", {class: "dim"}, `and ${rows.length - 60} more, in the JSON`));
  if (run.facts.gpu_work) add("What the GPU did, longest first", gpuWork(run.facts.gpu_work));
  if (run.facts.gpu_times) parts.push(h("p", {class: "dim"}, gpuTimes(run.facts.gpu_times)));
  add("Timeline", timeline());
  put("timebody", parts);
}
function sourceButton(r) {
  const mine = a => r.graph ? a.graph === r.graph.label && (codeOf.get(kernelId(a.graph, r.name)) || new Map()).has(a) : a.kernel === r.name;
  const own = run.device === "gpu" ? [x => x.stage === "triton_kernels", "sass"] : [x => x.language === "cpp", "asm"];
  const a = artifacts.find(x => mine(x) && own[0](x)) || artifacts.find(mine);
  if (!a) return h("span", {class: "mono"}, r.name);
  const asm = artifacts.find(x => mine(x) && x.language === own[1]);
  const go = x => () => showKernel(x, r.name, r.keys);
  return [h("button", {type: "button", class: "mono", onclick: go(a)}, r.name), asm ? h("button", {type: "button", onclick: go(asm)}, "machine code") : null];
}

function timeline() {
  const t = data.timeline;
  if (!t || !t.events.length) return none("No call was recorded.");
  const end = Math.max(...t.events.map(e => e[1])), colour = {compiled: "--compiler", graph: "--framework", fused: "--kernel", kernel: "--kernel", library: "--hardware", view: "--rule", program: "--python", none: "--dim"};
  let from = 0, to = end;
  const canvas = h("canvas", {tabindex: 0, role: "img", "aria-label": "Calls over time: compiled functions, graphs, kernels, library routines"}), note = h("p", {class: "dim"});
  function paint() {
    const scale = window.devicePixelRatio || 1, w = canvas.clientWidth || 900, hh = 210;
    canvas.width = w * scale; canvas.height = hh * scale;
    const g = canvas.getContext("2d"), css = getComputedStyle(document.documentElement);
    g.scale(scale, scale);
    g.font = "11px sans-serif";
    for (const [a, b, depth, kind, name] of t.events) {
      if (b < from || a > to) continue;
      const x = (a - from) / (to - from) * w, x2 = (b - from) / (to - from) * w, y = 8 + Math.min(depth, 7) * 24;
      g.fillStyle = css.getPropertyValue(colour[kind] || "--dim");
      g.fillRect(x, y, Math.max(1, x2 - x), 20);
      if (x2 - x > 60) { g.fillStyle = css.getPropertyValue("--ground"); g.fillText(t.names[name].slice(0, Math.floor((x2 - x) / 6.5)), Math.max(2, x + 3), y + 14); }
    }
    note.textContent = `${ns(from)} to ${ns(to)} of ${ns(end)}` + (t.left_out ? `; ${t.left_out} calls in the middle are left out` : "");
  }
  function zoom(factor, at) {
    const centre = from + (to - from) * at, half = Math.max(200, (to - from) * factor);
    from = Math.max(0, centre - half * at); to = Math.min(end, from + half); paint();
  }
  const move = by => { const d = (to - from) * by; if (from + d < 0 || to + d > end) { if (d < 0) { to -= from; from = 0; } else { from += end - to; to = end; } } else { from += d; to += d; } paint(); };
  canvas.addEventListener("wheel", e => { if (!e.ctrlKey && !e.shiftKey) return; e.preventDefault(); zoom(e.deltaY > 0 ? 1.3 : 0.75, e.offsetX / canvas.clientWidth); }, {passive: false});
  canvas.addEventListener("keydown", e => { const k = {"+": () => zoom(.6, .5), "-": () => zoom(1.7, .5), ArrowLeft: () => move(-.25), ArrowRight: () => move(.25), "0": () => { from = 0; to = end; paint(); }}[e.key]; if (k) { e.preventDefault(); k(); } });
  canvas.addEventListener("mousemove", e => {
    const time = from + e.offsetX / canvas.clientWidth * (to - from), depth = Math.floor((e.offsetY - 8) / 24);
    const hit = t.events.filter(v => v[0] <= time && v[1] >= time && Math.min(v[2], 7) === depth).pop();
    tip(hit ? `${t.names[hit[4]]}: ${ns(hit[1] - hit[0])}` : "", e);
  });
  canvas.addEventListener("mouseleave", () => tip(""));
  new ResizeObserver(paint).observe(canvas);
  const b = (text, f) => h("button", {type: "button", onclick: f}, text);
  return h("div", {}, h("p", {}, b("closer", () => zoom(.5, .5)), b("wider", () => zoom(2, .5)), b("earlier", () => move(-.5)), b("later", () => move(.5)), b("all", () => { from = 0; to = end; paint(); })), canvas, note);
}
function tip(text, e) {
  const t = $("tip");
  t.hidden = !text;
  t.textContent = text;
  if (text) { t.style.left = Math.min(e.clientX + 14, window.innerWidth - 320) + "px"; t.style.top = e.clientY + 16 + "px"; }
}
