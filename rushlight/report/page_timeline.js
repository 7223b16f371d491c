// The timeline of a run: calls and compilations over time, on a canvas. Drag moves it, the wheel (once
// it has the focus), + and - bring it closer; a click goes to what an event was.

const KINDS = {  // kind of an event -> [colour, what it is]
  script: ["--rule", "the program itself: Python, imports, files"], capture: ["--compiler", "captured"], compile: ["--compiler", "compiled"],
  build: ["--compiler", "the C++ compiler"], compiled: ["--python", "a compiled function"], graph: ["--framework", "a graph"],
  fused: ["--kernel", "a generated kernel"], kernel: ["--kernel", "a kernel"], library: ["--hardware", "a library routine"], view: ["--dim", "a view"],
  program: ["--bar", "an operator made of others"], none: ["--dim", "other"]};
const LEGEND = {script: "Python itself", capture: "capturing and compiling", compiled: "compiled function", graph: "graph", fused: "kernel", library: "library routine", program: "operator made of others", none: "view, other"};
const ROW = 24, DEEPEST = 9;

function timeline() {
  const t = data.timeline;
  if (!t || !t.events.length) return none("No call was recorded.");
  const end = t.wall || Math.max(...t.events.map(e => e[1])), deep = Math.min(DEEPEST, Math.max(...t.events.map(e => e[2]))), high = 16 + (deep + 1) * ROW;
  let from = 0, to = end, drag = null;
  const canvas = h("canvas", {tabindex: 0, role: "img", style: `height:${high}px`, "aria-label": "The run over time: Python, capturing and compiling, compiled functions, graphs, kernels, library routines"}), note = h("p", {class: "dim"});
  function paint() {
    const scale = window.devicePixelRatio || 1, w = canvas.clientWidth || 900;
    canvas.width = w * scale; canvas.height = high * scale;
    const g = canvas.getContext("2d"), css = getComputedStyle(document.documentElement);
    g.scale(scale, scale);
    g.font = "11px sans-serif";
    for (const [a, b, depth, kind, name, , , many] of t.events) {
      if (b < from || a > to) continue;
      const x = (a - from) / (to - from) * w, x2 = (b - from) / (to - from) * w, y = 8 + Math.min(depth, DEEPEST) * ROW;
      g.fillStyle = css.getPropertyValue((KINDS[kind] || KINDS.none)[0]);
      g.fillRect(x, y, Math.max(1, x2 - x), ROW - 4);
      const shown = Math.min(w, x2) - Math.max(0, x);
      if (shown > 60) { g.fillStyle = css.getPropertyValue(kind === "script" ? "--ink" : "--ground"); g.fillText((many > 1 ? count(many, "call") : t.names[name]).slice(0, Math.floor(shown / 6.5)), Math.max(2, x + 3), y + 14); }
    }
    note.textContent = `${ns(from)} to ${ns(to)} of ${ns(end)}, the whole run. Where nothing stands on the lowest bar, Python itself ran: imports, files, your code between calls${run.vendor === "Rushlight" ? "" : "; or what the profiler does not tell of, as compiling"}.`;
  }
  function zoom(factor, at) {
    const centre = from + (to - from) * at, wide = Math.min(end, Math.max(400, (to - from) * factor));
    from = Math.max(0, Math.min(end - wide, centre - wide * at)); to = from + wide; paint();
  }
  const shift = d => { d = Math.max(-from, Math.min(end - to, d)); from += d; to += d; paint(); };
  const move = by => shift((to - from) * by), whole = () => { from = 0; to = end; paint(); };
  const at = e => {
    const time = from + e.offsetX / canvas.clientWidth * (to - from), depth = Math.floor((e.offsetY - 8) / ROW), near = (to - from) / canvas.clientWidth;
    return t.events.filter(v => v[0] - near <= time && v[1] + near >= time && Math.min(v[2], DEEPEST) === depth).pop();
  };
  canvas.addEventListener("wheel", e => { if (document.activeElement !== canvas && !e.ctrlKey && !e.shiftKey) return; e.preventDefault(); zoom(e.deltaY > 0 ? 1.3 : 0.75, e.offsetX / canvas.clientWidth); }, {passive: false});
  canvas.addEventListener("keydown", e => { const k = {"+": () => zoom(.6, .5), "-": () => zoom(1.7, .5), ArrowLeft: () => move(-.25), ArrowRight: () => move(.25), "0": whole}[e.key]; if (k) { e.preventDefault(); k(); } });
  canvas.addEventListener("pointerdown", e => { drag = {x: e.clientX, moved: false}; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointerup", e => { const click = drag && !drag.moved, hit = click && at(e); drag = null; if (hit) goTo(t, hit); });
  canvas.addEventListener("pointermove", e => {
    if (drag && (drag.moved || Math.abs(e.clientX - drag.x) > 3)) {
      drag.moved = true;
      shift((drag.x - e.clientX) / canvas.clientWidth * (to - from));
      drag.x = e.clientX;
      return tip("");
    }
    const hit = at(e);
    canvas.style.cursor = hit ? "pointer" : "grab";
    tip(hit ? toldOf(t, hit) : "", e);
  });
  canvas.addEventListener("mouseleave", () => tip(""));
  new ResizeObserver(paint).observe(canvas);
  const b = (text, f) => h("button", {type: "button", onclick: f}, text), kinds = new Set(t.events.map(e => (KINDS[e[3]] || KINDS.none)[0]));
  const legend = Object.entries(LEGEND).filter(([k]) => kinds.has(KINDS[k][0])).map(([k, text]) => h("span", {class: "legend"}, h("span", {class: "patch", style: `background:var(${KINDS[k][0]})`}), text));
  return h("div", {id: "timeline"}, h("p", {}, b("closer", () => zoom(.5, .5)), b("wider", () => zoom(2, .5)), b("earlier", () => move(-.5)), b("later", () => move(.5)), b("all", whole),
    h("span", {class: "dim"}, "Drag moves it; after a click the wheel comes closer; a click on an event goes to it.")), h("p", {}, legend),
    canvas, note);
}
// "GPT.forward: a compiled function, captured and compiled in this call, 675 ms, called at gpt2.py:25".
function toldOf(t, [a, b, , kind, name, place, missed, many]) {
  if (many > 1) return `${count(many, "short call")} one after another, ${ns(b - a)}: come closer to the longest ones, or see the tables`;
  const where = t.places && place !== undefined && place >= 0 ? t.places[place] : "", found = placeOf(where);
  return [`${t.names[name]}: ${(KINDS[kind] || KINDS.none)[1]}`, missed ? kind === "compiled" ? "captured and compiled in this call" : "made its plan" : "", ns(b - a), where ? `called at ${found ? found[0].user + found[2] : shortPath(where)}` : ""].filter(Boolean).join(", ");
}
function goTo(t, [, , , kind, name, place, , many]) {
  if (many > 1) return;
  const of = t.names[name], graph = run.captures.flatMap(c => c.graphs).find(g => g.label === of), row = kernelRows().find(r => r.name === of);
  const found = t.places && place >= 0 ? placeOf(t.places[place]) : null;
  const unit = /^(capture|compile)$/.test(kind) && artifacts.find(x => x.unit === of.replace(/ backward$/, "") && x.stage === (of.endsWith(" backward") ? "backward_graph" : "fx_graph"));
  if (unit) toView(unit);
  else if (graph) { const a = artifacts.find(x => x.graph === of && x.language === "graph"); if (a) toView(a); }
  else if (kind === "fused" && row && codeOfRow(row, false)) showKernel(codeOfRow(row, false), row.name, row.keys);
  else if (found) showLines(found[0], found[1], found[1]);
}
function tip(text, e) {
  const t = $("tip");
  t.hidden = !text;
  t.textContent = text;
  if (text) { t.style.left = Math.max(4, Math.min(e.clientX + 14, window.innerWidth - t.offsetWidth - 8)) + "px"; t.style.top = e.clientY + 16 + "px"; }
}
