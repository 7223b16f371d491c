// The timeline of a run: calls and compilations over time, on a canvas.

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
