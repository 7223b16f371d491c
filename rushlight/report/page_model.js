// The model as a graph: modules that open and close, laid out by dagre.

// ---- the model as a graph

const PIECES = /^\s+(\w+)(?:: "?([^"=]+?)"?)? = (?:ops\.|_)?([\w.]+)\((.*?)\)\s*(?:;.*)?(?:#.*)?$/;
function parseGraph(a, c) {
  const nodes = new Map(), edges = [];
  const first = a.lines.findIndex(l => /^\s*def /.test(l)), last = a.lines.findIndex((l, i) => i >= first && /\).*:\s*$/.test(l));
  const head = first < 0 ? "" : a.lines.slice(first, last + 1).join(" ");  // over several lines where it is long
  for (const m of head.matchAll(/(\w+): "?([a-z]+\d*\[[^\]]*\])/g)) nodes.set(m[1], {id: m[1], op: "input", layout: m[2], input: true, module: "", keys: []});
  const names = Object.create(null);  // another name of an input -> its name
  a.lines.forEach((line, i) => {
    const m = PIECES.exec(line), same = m ? null : /^\s+(\w+) = (\w+)$/.exec(line);
    if (same) names[same[1]] = same[2];
    if (!m) return;
    const [, id, layout, op, args] = m, mod = (c.modules[id] || c.modules[id.replace(/_\d+$/, "")] || [""])[0];
    nodes.set(id, {id, op, layout: layout || "", module: modulePath(mod), keys: a.keys[i], line: i, className: (c.modules[id] || [])[1]});
    for (const name of new Set((args.match(/[A-Za-z_]\w*/g) || []).map(n => names[n] || n))) if (nodes.has(name) && name !== id) edges.push([name, id]);
  });
  for (const n of nodes.values()) if (n.input) { const p = paramModule(n.id); n.parameter = p !== null; if (n.parameter) { const user = edges.find(e => e[0] === n.id); n.module = user ? nodes.get(user[1]).module : p; } }
  return {nodes, edges};
}
const modulePath = source => [...source.matchAll(/_modules\['([^']+)'\]|_modules\["([^"]+)"\]/g)].map(m => m[1] || m[2]).join(".");
const paramModule = id => { if (/^L_self_\w*_parameters_\w+_$/.test(id)) return ""; const m = /^(.*?)_*parameters__(\w+)$/.exec(id); return m ? [...m[1].matchAll(/modules__(\w+?)(?=____|__$|$)/g)].map(x => x[1]).join(".") : null; };
const size = layout => { const m = /\[([^\]]*)\]/.exec(layout); return m && m[1] ? m[1].split(",").reduce((p, n) => p * (parseInt(n) || 1), 1) : 1; };

function drawModel() {
  const choices = [];
  for (const c of run ? run.captures : []) for (const a of artifacts) if (a.unit === c.unit && a.language === "graph") choices.push([c, a]);
  if (!choices.length) { put("modelbody", none(run ? "No graph was captured: eager mode calls one operator at a time." : "Give a script: its captured graph stands here.")); return; }
  const host = h("div", {class: "graph"}), open = new Set();
  let [capture, artifact] = choices[0], parsed = null;
  const note = h("p", {class: "dim"});
  const select = h("select", {"aria-label": "which graph", onchange: e => { [capture, artifact] = choices[+e.target.value]; start(); }}, choices.map(([c, a], i) => h("option", {value: i}, `${c.unit}: ${a.title}`)));
  function start() {
    parsed = parseGraph(artifact, capture);
    open.clear();
    const shallow = new Set([...parsed.nodes.values()].map(n => n.module).filter(Boolean));
    if (parsed.nodes.size <= 40) shallow.forEach(m => m.split(".").forEach((_, i, all) => open.add(all.slice(0, i + 1).join("."))));
    paint();
  }
  function owner(n) {  // the outermost closed module that holds the node, or the node
    const parts = n.module ? n.module.split(".") : [];
    for (let i = 1; i <= parts.length; i++) { const m = parts.slice(0, i).join("."); if (!open.has(m)) return "module " + m; }
    return n.id;
  }
  function paint() {
    const shown = new Map(), count_ = {}, params = {};
    for (const n of parsed.nodes.values()) {
      if (n.parameter) { params[owner(n)] = (params[owner(n)] || 0) + size(n.layout); continue; }
      const o = owner(n);
      if (o.startsWith("module ")) { count_[o] = (count_[o] || 0) + 1; if (!shown.has(o)) shown.set(o, {id: o, group: o.slice(7), keys: []}); shown.get(o).keys.push(...n.keys); } else shown.set(o, n);
    }
    const g = new dagre.graphlib.Graph({multigraph: false}).setGraph({rankdir: "TB", nodesep: 18, ranksep: 34, edgesep: 8}).setDefaultEdgeLabel(() => ({}));
    for (const [id, n] of shown) {
      const label = n.group || n.op, second = n.group ? [count(count_[id], "operator"), params[id] ? count(params[id], "parameter") : ""].filter(Boolean).join(", ") : n.layout;
      n.label = label; n.second = second;
      g.setNode(id, {width: Math.max(80, 8.2 * Math.max(label.length, second.length * .85) + 16), height: 40});
    }
    const drawn = new Map();
    for (const [a, b] of parsed.edges) {
      const from = parsed.nodes.get(a), x = owner(from), y = owner(parsed.nodes.get(b));
      if (from.parameter || x === y || !shown.has(x) || !shown.has(y)) continue;
      drawn.set(x + "\n" + y, [x, y, from.layout]);
    }
    for (const [x, y] of drawn.values()) g.setEdge(x, y);
    if (shown.size > 700) { host.replaceChildren(none(`${shown.size} nodes are open: close some modules.`)); return; }
    dagre.layout(g);
    const {width, height} = g.graph(), svg = h("svg", {width: (width || 100) + 110, height: (height || 60) + 24, viewBox: `-12 -12 ${(width || 100) + 110} ${(height || 60) + 24}`, role: "img", "aria-label": artifact.title});
    for (const [x, y, layout] of drawn.values()) {
      const pts = g.edge(x, y).points, mid = pts[Math.floor(pts.length / 2)];
      svg.append(h("path", {class: "edge", d: "M" + pts.map(p => p.x + " " + p.y).join(" L"), "marker-end": "url(#tip-end)"}, h("title", {}, layout)));
      if (drawn.size < 120) svg.append(h("text", {class: "small", x: mid.x + 4, y: mid.y}, layout));
    }
    for (const [id, n] of shown) {
      const at = g.node(id), vocabulary = n.group ? "module" : n.input ? "input" : (data.vocabulary || {})[n.op] || "other";
      const press = () => { if (n.group) { open.add(n.group); paint(); } else if (n.line !== undefined) { show("right", artifact, n.line); pin(artifact, n.line); } };
      const e = h("g", {class: "node " + vocabulary, tabindex: 0, role: "button", "aria-label": n.label, transform: `translate(${at.x - at.width / 2} ${at.y - at.height / 2})`, onclick: press,
        onkeydown: k => { if (k.key === "Enter") press(); }, onmouseenter: () => { if (!pinned) point({keys: n.keys || []}); }},
        h("rect", {width: at.width, height: at.height}), h("text", {x: at.width / 2, y: 17, "text-anchor": "middle"}, n.label), h("text", {class: "small", x: at.width / 2, y: 32, "text-anchor": "middle"}, n.second),
        h("title", {}, n.group ? "open " + n.group : `${n.id}: ${n.layout} (${vocabulary === "core" ? "Core ATen" : vocabulary})`));
      e.keys = n.keys;
      svg.append(e);
    }
    host.replaceChildren(svg);
    const total = Object.values(params).reduce((a, b) => a + b, 0);
    note.textContent = `${count([...parsed.nodes.values()].filter(n => !n.input).length, "node")}` + (total ? `, ${count(total, "parameter")}` : "") + ". Green: Core ATen; violet: primitive; grey: other; blue: a module, closed.";
  }
  const all = () => [...parsed.nodes.values()].forEach(n => (n.module ? n.module.split(".") : []).forEach((_, i, p) => open.add(p.slice(0, i + 1).join("."))));
  put("modelbody", h("p", {}, select, " ", h("button", {type: "button", onclick: () => { all(); paint(); }}, "open all modules"), h("button", {type: "button", onclick: () => { open.clear(); paint(); }}, "close all")), note, host);
  start();
}
